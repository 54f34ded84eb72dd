package wasm

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reqlock/reqlock/guard"
)

// A call is one request on its way through a guest. The guest sees the request, changes a scratch
// copy of it, and leaves a decision. Only what finish makes of the decision outlives the call.
type call struct {
	cfg     *Config
	request *http.Request
	// buffered is true if the body has been read, or reading it has failed.
	buffered bool
	scratch  scratch
	// spent is how many bytes were written. It counts against maxScratch.
	spent  int
	queued time.Duration
	ran    time.Duration

	policy guard.Policy
	denial *guard.Error
	// next is what handle_request returned.
	next bool
	// fields were set by the guest, for logs.
	fields []slog.Attr
}

// scratch is the guest's copy of the request, to read and to change.
type scratch struct {
	// method and uri are empty if the request's are unchanged.
	method, uri string
	// headers are nil if the request's are unchanged.
	headers [kinds]http.Header
	// bodies are nil until they are read.
	bodies [kindResponse + 1]*body
	status uint32
}

// A body is read from the front. The first write replaces it.
type body struct {
	unread []byte
	// err is why the request's body could not be read.
	err     error
	written bool
}

func (b *body) write(text []byte) {
	if !b.written {
		*b = body{written: true} // the old bytes belong to the handler: never append to them
	}
	b.unread = append(b.unread, text...)
}

// calls are reused, because a call is larger than all that a cheap guest makes of it.
var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(cfg *Config, r *http.Request, policy guard.Policy) *call {
	policy.Keys = nil
	c := calls.Get().(*call)
	c.cfg, c.request, c.policy = cfg, r, policy
	c.scratch.status = http.StatusOK
	return c
}

// free ends the use of c. What it decided stays valid.
func (c *call) free() {
	*c = call{}
	calls.Put(c)
}

// bufferBody reads the body before the guest runs, because a guest that waits for a slow client
// could not be stopped. The handler reads the same bytes whatever the guest does. Errors are kept
// for a guest that reads the body.
func (c *call) bufferBody(read func(*http.Request) ([]byte, error)) {
	text, err := read(c.request)
	c.buffered = true
	c.scratch.bodies[kindRequest] = &body{unread: text, err: err}
}

func (c *call) body(kind uint32) *body {
	if c.scratch.bodies[kind] == nil {
		c.scratch.bodies[kind] = &body{}
	}
	return c.scratch.bodies[kind]
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fmt.Errorf("%w: more than %d bytes", ErrBodyTooLarge, tooLarge.Limit)
	}
	return &unreadable{err}
}

// unreadable is the error of a body the client failed to send. Guards answer it as such.
type unreadable struct{ err error }

func (u *unreadable) Error() string {
	return "reqlock: wasm: the body cannot be read: " + u.err.Error()
}
func (u *unreadable) Unwrap() error { return u.err }

func (c *call) method() string {
	if c.scratch.method != "" {
		return c.scratch.method
	}
	return c.request.Method
}

// uri returns the encoded path and the query.
func (c *call) uri() string {
	if c.scratch.uri == "" {
		c.scratch.uri = c.request.URL.RequestURI()
	}
	return c.scratch.uri
}

// keyHeader is where guests that use only http-wasm put their key. The client's own values are
// hidden from guests, so that they cannot be mistaken for the guest's.
const keyHeader = "X-Lock-Key"

func (c *call) headerNames(kind uint32) []string {
	h := c.scratch.headers[kind]
	if h == nil {
		h = c.original(kind)
	}
	names := make([]string, 0, len(h)+1)
	for name := range h {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return names
}

// headerValues returns the values of a canonical header name.
func (c *call) headerValues(kind uint32, name string) []string {
	if h := c.scratch.headers[kind]; h != nil {
		return h[name]
	}
	switch {
	case kind == kindRequest && name == "Host":
		return []string{c.request.Host}
	case kind == kindRequest && name != keyHeader:
		return c.request.Header[name]
	case kind == kindRequestTrailers:
		return c.request.Trailer[name]
	}
	return nil
}

// editHeaders returns the guest's copy of the headers.
func (c *call) editHeaders(kind uint32) http.Header {
	if c.scratch.headers[kind] == nil {
		c.scratch.headers[kind] = c.original(kind)
	}
	return c.scratch.headers[kind]
}

// original returns a copy of the request's headers.
func (c *call) original(kind uint32) http.Header {
	var h http.Header
	switch kind {
	case kindRequest:
		h = maps.Clone(c.request.Header)
		if h == nil {
			h = make(http.Header)
		}
		delete(h, keyHeader)
		h["Host"] = []string{c.request.Host}
	case kindRequestTrailers:
		h = maps.Clone(c.request.Trailer)
	}
	if h == nil {
		h = make(http.Header)
	}
	for name, values := range h {
		h[name] = slices.Clip(values) // so that an append copies
	}
	return h
}

const (
	maxKeys   = 16
	maxKeyLen = 4096 // bytes
)

// addKey validates a key from the guest and adds it.
func (c *call) addKey(key string) error {
	switch {
	case key == "":
		return breach("a key is empty")
	case len(key) > maxKeyLen:
		return breach("a key has more than %d bytes", maxKeyLen)
	case !utf8.ValidString(key):
		return breach("a key is not valid UTF-8")
	case len(c.policy.Keys) == maxKeys:
		return errTooManyKeys()
	}
	c.policy.Keys = append(c.policy.Keys, key)
	return nil
}

func errTooManyKeys() error { return breach("it set more than %d keys", maxKeys) }

// finish converts the output of a guest of ABI version 1 to a policy. Deny beats skip, and skip
// beats keys.
func (c *call) finish() error {
	switch {
	case c.denial != nil:
		return c.denial
	case !c.next: // http-wasm: the guest answered the request itself
		return denied(refusingStatus(c.scratch.status), "")
	case c.policy.Skip:
		return nil
	}
	for _, key := range c.scratch.headers[kindRequest][keyHeader] {
		if err := c.addKey(key); err != nil {
			return err
		}
	}
	return c.checkKeys()
}

func (c *call) checkKeys() error {
	switch {
	case len(c.policy.Keys) == 0:
		return ErrNoKey
	case len(c.policy.Keys) > 1 && (c.policy.Mode == guard.ModeFenced || c.policy.Fenced):
		return breach("it set %d keys; ModeFenced allows one, and so does Fenced", len(c.policy.Keys))
	}
	return nil
}

// refusingStatus returns the guest's status if that is an error status.
func refusingStatus(status uint32) int {
	if !refuses(status) {
		return http.StatusForbidden
	}
	return int(status)
}

func refuses(status uint32) bool { return status >= 400 && status <= 599 }

// logged returns what the log says about a refusal.
func (c *call) logged() []any {
	attrs := []any{"status", c.denial.Status}
	if c.denial.Reason != "" {
		attrs = append(attrs, "reason", c.denial.Reason)
	}
	for _, field := range c.fields {
		attrs = append(attrs, field)
	}
	return attrs
}
