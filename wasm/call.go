package wasm

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reqlock/reqlock/guard"
)

// A call is one request on its way through a guest. The guest sees the request, changes a scratch copy of it, and leaves a
// decision. None of it outlives the call but what finish makes of the decision.
type call struct {
	cfg      *Config
	request  *http.Request
	buffered bool // the body has been read, or could not be
	scratch  scratch
	spent    int // bytes written

	policy guard.Policy
	denial *guard.Error
	next   bool // what handle_request has returned
}

// scratch is what the guest has of the request, to read and to change.
type scratch struct {
	method, uri string                  // empty: the request's
	headers     [kinds]http.Header      // nil: the request's
	bodies      [kindResponse + 1]*body // nil: not read yet
	status      uint32
}

// A body is read from the front; the first write replaces it.
type body struct {
	unread  []byte
	err     error // why what came with the request cannot be read
	written bool
}

func (b *body) write(text []byte) {
	if !b.written {
		*b = body{written: true} // what was there is the handler's: it must not be appended to
	}
	b.unread = append(b.unread, text...)
}

func newCall(cfg *Config, r *http.Request, policy guard.Policy) *call {
	policy.Keys = nil
	return &call{cfg: cfg, request: r, policy: policy, scratch: scratch{status: http.StatusOK}}
}

// bufferBody reads the body before the guest runs: nothing could end a guest that waits for a slow client. The handler reads
// the same bytes, whatever becomes of the guest. Errors wait for a guest that reads the body.
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

// An unreadable body is the client's doing, not the guest's; guards know what to answer.
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

// uri is the path, encoded, and the query.
func (c *call) uri() string {
	if c.scratch.uri == "" {
		c.scratch.uri = c.request.URL.RequestURI()
	}
	return c.scratch.uri
}

// keyHeader is where guests that know only http-wasm leave their key. What a client sends in it is hidden from them: it would
// come back as theirs.
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

// headerValues are those of a canonical name.
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

// editHeaders are the guest's own.
func (c *call) editHeaders(kind uint32) http.Header {
	if c.scratch.headers[kind] == nil {
		c.scratch.headers[kind] = c.original(kind)
	}
	return c.scratch.headers[kind]
}

// original is a copy of what came with the request.
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
		h[name] = slices.Clip(values) // to be appended to, but not in place
	}
	return h
}

const (
	maxKeys   = 16
	maxKeyLen = 4096 // bytes
)

// addKey is given a key that the guest has made of a request.
func (c *call) addKey(key string) error {
	switch {
	case key == "":
		return breach("a key is empty")
	case len(key) > maxKeyLen:
		return breach("a key has more than %d bytes", maxKeyLen)
	case !utf8.ValidString(key):
		return breach("a key is not valid UTF-8")
	case len(c.policy.Keys) == maxKeys:
		return breach("it sets more than %d keys", maxKeys)
	}
	c.policy.Keys = append(c.policy.Keys, key)
	return nil
}

// finish makes of what the guest has left what it wants. Denying comes before skipping, and skipping before locking.
func (c *call) finish() error {
	switch {
	case c.denial != nil:
		return c.denial
	case !c.next: // http-wasm's word for an answer of the guest's own
		return denied(refusingStatus(c.scratch.status), "")
	case c.policy.Skip:
		return nil
	}
	for _, key := range c.scratch.headers[kindRequest][keyHeader] {
		if err := c.addKey(key); err != nil {
			return err
		}
	}
	switch {
	case len(c.policy.Keys) == 0:
		return ErrNoKey
	case len(c.policy.Keys) > 1 && c.policy.Mode == guard.ModeFenced:
		return breach("it sets %d keys; Fenced is for one", len(c.policy.Keys))
	}
	return nil
}

// refusingStatus is a guest's own status if it refuses.
func refusingStatus(status uint32) int {
	if !refuses(status) {
		return http.StatusForbidden
	}
	return int(status)
}

func refuses(status uint32) bool { return status >= 400 && status <= 599 }
