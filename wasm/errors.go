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

// The errors of this package; test for them with errors.Is. Errors of Plugin.Policy are also a
// *guard.Error: guards answer 503 with guard.ProblemPluginFailed, or guard.ProblemPluginBusy for
// ErrBusy, or 413 for ErrBodyTooLarge. The exception is ErrBusy after the client has disconnected.
// guard.Config.FailOpen never applies to them, because a request can cause them; see
// Config.FailOpen. Clients do not see their text.
var (
	// ErrTimeout: a call took longer than Config.Timeout, or a start longer than
	// Config.InitTimeout.
	ErrTimeout = errors.New("reqlock: wasm: the guest took too long")
	// ErrTrap: the guest crashed, exited, or passed a pointer outside its memory.
	ErrTrap = errors.New("reqlock: wasm: the guest trapped")
	// ErrNoKey: the guest returned without a key, skip or deny.
	ErrNoKey = errors.New("reqlock: wasm: the guest set no key")
	// ErrBadGuest: the binary is not a valid guest, or the guest passed an invalid value.
	ErrBadGuest = errors.New("reqlock: wasm: the guest violates the ABI")
	// ErrBodyTooLarge: the guest reads the body, which is larger than Config.MaxBody.
	ErrBodyTooLarge = errors.New("reqlock: wasm: the body is too large for the guest")
	// ErrBusy: Config.MaxQueue requests are waiting for an instance, or the request ended before one
	// was free.
	ErrBusy = errors.New("reqlock: wasm: no instance is free")
	// ErrSuspended: the plugin keeps failing; see Config.BreakAfter.
	ErrSuspended = errors.New("reqlock: wasm: the plugin is suspended")
	// ErrClosed: the plugin is closing or closed.
	ErrClosed = errors.New("reqlock: wasm: the plugin is closed")

	errDenied = errors.New("reqlock: wasm: the guest denied the request")
)

// A suspension is the ErrSuspended of one request.
type suspension struct{ retry time.Duration }

func (s *suspension) Error() string {
	return fmt.Sprintf("%v, to be tried again in %s", ErrSuspended, s.retry)
}
func (s *suspension) Unwrap() error { return ErrSuspended }

// failed returns the problem that answers a request for which the plugin failed.
func failed(err error) *guard.Error {
	retry := time.Second
	var suspended *suspension
	if errors.As(err, &suspended) {
		retry = max(retry, suspended.retry)
	}
	switch {
	case errors.Is(err, ErrBusy):
		return &guard.Error{
			Status:     http.StatusServiceUnavailable,
			Type:       guard.ProblemPluginBusy,
			Title:      "Too many requests for the lock policy",
			Detail:     "Too many requests are waiting for the server to decide what to lock. The request was not processed. Try again later.",
			RetryAfter: retry,
			Err:        err,
		}
	case errors.Is(err, ErrBodyTooLarge):
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
		Type:       guard.ProblemPluginFailed,
		Title:      "Lock policy failed",
		Detail:     "The server cannot decide at the moment what to lock for this request. The request was not processed. Try again later.",
		RetryAfter: retry,
		Err:        err,
	}
}

// denied returns the problem for a request that the guest denied. It shows the client the guest's
// text.
func denied(status int, text string) *guard.Error {
	return &guard.Error{
		Status: status,
		Type:   guard.ProblemPluginDenied,
		Title:  "Request refused",
		Detail: printable(text, maxDetail),
		Err:    errDenied,
	}
}

// breach returns an ErrBadGuest with a reason.
func breach(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadGuest, fmt.Sprintf(format, args...))
}

// trapped returns an ErrTrap with a reason.
func trapped(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTrap, fmt.Sprintf(format, args...))
}

// abort is the panic value with which a host function ends a call. instance.run recovers the error.
type abort struct{ error }

func (a abort) Unwrap() error { return a.error }

const (
	maxDetail = 256  // bytes of deny's text
	maxText   = 1024 // bytes of a trap's text, or of a line in the log
)

// printable replaces characters that could garble a terminal or a page, and truncates.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
	return cut(text, limit)
}

// loggable is printable for logs, which may have several lines.
func loggable(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", " "), maxText)
	}
	return cut(strings.Join(lines, "\n"), maxText)
}

// cut truncates text to limit bytes without splitting a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
