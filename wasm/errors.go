package wasm

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reqlock/reqlock/guard"
)

// The errors of this package; test for them with errors.Is. Those of Plugin.Policy are *guard.Error as well: the answer is
// 503, with the problem type urn:reqlock:problem:plugin-failed, or 413 for ErrBodyTooLarge. Only ErrBusy after a client that
// has left is none: nobody is there to be answered. A guard never fails open on them, since a request can cause them. Their
// text is for logs; the client sees none of it.
var (
	// ErrTimeout: a call was not over after Config.Timeout, or a start after Config.InitTimeout.
	ErrTimeout = errors.New("reqlock: wasm: the guest took too long")
	// ErrTrap: the guest crashed, left, or pointed outside of its memory.
	ErrTrap = errors.New("reqlock: wasm: the guest trapped")
	// ErrNoKey: the guest returned without a key, skip or deny.
	ErrNoKey = errors.New("reqlock: wasm: the guest set no key")
	// ErrBadGuest: the binary is no guest of this host, or the guest set something that it must not.
	ErrBadGuest = errors.New("reqlock: wasm: the guest breaks the rules")
	// ErrBodyTooLarge: the guest reads the body, and the body is larger than Config.MaxBody.
	ErrBodyTooLarge = errors.New("reqlock: wasm: the body is too large for the guest")
	// ErrBusy: the request ended before an instance was free.
	ErrBusy = errors.New("reqlock: wasm: no instance was free in time")
	// ErrClosed: the plugin is closing or closed.
	ErrClosed = errors.New("reqlock: wasm: the plugin is closed")

	errDenied = errors.New("reqlock: wasm: the guest denies the request")
)

// failed is the answer to a request that the plugin could not decide on.
func failed(err error) *guard.Error {
	if errors.Is(err, ErrBodyTooLarge) {
		return &guard.Error{
			Status: http.StatusRequestEntityTooLarge,
			Type:   guard.ProblemBodyTooLarge,
			Title:  "Request body too large",
			Detail: "The request body is larger than the server accepts here.",
			Err:    err,
		}
	}
	return &guard.Error{
		Status:     http.StatusServiceUnavailable,
		Type:       "urn:reqlock:problem:plugin-failed",
		Title:      "Lock policy failed",
		Detail:     "The server cannot decide at the moment what to lock for this request. The request was not processed. Try again later.",
		RetryAfter: time.Second,
		Err:        err,
	}
}

// denied is the answer that a guest gives in the handler's place. The guest's text is all that a client ever sees of one.
func denied(status int, text string) *guard.Error {
	return &guard.Error{
		Status: status,
		Type:   "urn:reqlock:problem:plugin-denied",
		Title:  "Request refused",
		Detail: printable(text, maxDetail),
		Err:    errDenied,
	}
}

// breach says what the guest must not do.
func breach(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadGuest, fmt.Sprintf(format, args...))
}

// trapped says what crashed the guest.
func trapped(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTrap, fmt.Sprintf(format, args...))
}

// An abort is what a host function panics with to end the call. The instance that it ends finds the error again.
type abort struct{ error }

func (a abort) Unwrap() error { return a.error }

const (
	maxDetail = 256  // bytes of deny's text
	maxText   = 1024 // bytes of a trap's text, or of a line in the log
)

// printable replaces what could garble a terminal or a page, and cuts.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
	return cut(text, limit)
}

// loggable is printable for logs, which can show lines.
func loggable(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", " "), maxText)
	}
	return cut(strings.Join(lines, "\n"), maxText)
}

// cut shortens a text to so many bytes, between two characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
