package request

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
)

// ErrBodyTooLarge means that a body has more bytes than the limit.
var ErrBodyTooLarge = errors.New("reqlock: the body is too large")

// A BodyOwner is a body with its own account. Any other body gets a new account, which is closed
// when the request's context ends or the body is garbage collected.
type BodyOwner interface{ BodyAccount() *Account }

// ReadBody returns the whole body of a request, or nil if there is none, and leaves an equal body
// in the request. Do not change the result: later calls return the same bytes.
//
// It returns ErrBodyTooLarge if there are more than limit bytes, *http.MaxBytesError if there are
// more than the whole budget, ErrBusy, or an error of reading the body. The request's body still
// reads the same after an error.
func ReadBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	b, ok := r.Body.(*body)
	if !ok || b.passed {
		if err := admit(r.ContentLength, limit); err != nil {
			return nil, err
		}
		b = newBody(r)
		r.Body = b
	}
	if err := b.fill(limit); err != nil {
		return nil, err
	}
	return b.data, nil
}

// IsBodyRead reports whether ReadBody has read the whole body of a request.
func IsBodyRead(r *http.Request) bool {
	b, ok := r.Body.(*body)
	return ok && b.end == io.EOF
}

// admit checks the length of a body before any of it is read. -1 means that the length is unknown.
func admit(length, limit int64) error {
	switch {
	case length > limit:
		return ErrBodyTooLarge
	case length > largest():
		return &http.MaxBytesError{Limit: largest()}
	case !hasRoom(length):
		return ErrBusy
	}
	return nil
}

// A body replays the bytes read from another body, and then reads the rest of it. As with bodies of
// net/http, Close may be called at any time, and Read fails after it.
type body struct {
	original io.ReadCloser
	// length is the original's. -1: it is unknown.
	length  int64
	account *Account
	closed  atomic.Bool

	data   []byte // append only, because callers of ReadBody share it
	end    error  // the error after data; nil: the original has more
	off    int    // read position in data
	passed bool   // Read has returned bytes beyond data
}

func newBody(r *http.Request) *body {
	b := &body{original: r.Body, length: r.ContentLength}
	if owner, ok := r.Body.(BodyOwner); ok {
		b.account = owner.BodyAccount()
		return b
	}
	b.account = &Account{}
	context.AfterFunc(r.Context(), b.account.Close)
	runtime.AddCleanup(b, (*Account).Close, b.account) // some contexts never end
	return b
}

// BodyAccount implements BodyOwner.
func (b *body) BodyAccount() *Account { return b.account }

// fill reads the original to its end, or until data exceeds limit bytes.
func (b *body) fill(limit int64) error {
	for b.end == nil && int64(len(b.data)) <= limit {
		if len(b.data) == cap(b.data) {
			if err := b.grow(limit); err != nil {
				return err
			}
		}
		n, err := b.original.Read(b.data[len(b.data):cap(b.data)])
		b.data, b.end = b.data[:len(b.data)+n], err
	}
	switch {
	case int64(len(b.data)) > limit:
		return ErrBodyTooLarge
	case b.end != io.EOF:
		return b.end
	}
	return nil
}

// grow doubles the buffer, up to the expected length plus one byte to detect the end. So a client
// that stops sending occupies at most twice what it has sent.
func (b *body) grow(limit int64) error {
	if b.length >= 0 {
		limit = min(limit, b.length)
	}
	have := int64(cap(b.data))
	size := max(2*have, Exempt)
	if have <= limit && limit < size {
		size = limit + 1
	}
	if size = min(size, largest()+1); size <= have {
		return &http.MaxBytesError{Limit: largest()}
	}
	if err := b.account.Grow(cap(b.data), int(size)); err != nil {
		return err
	}
	data := make([]byte, len(b.data), size)
	copy(data, b.data)
	b.data = data
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case b.off < len(b.data):
		n := copy(p, b.data[b.off:])
		b.off += n
		return n, nil
	case b.end != nil:
		return 0, b.end
	}
	b.passed = true
	return b.original.Read(p)
}

// Close closes the original.
func (b *body) Close() error {
	b.closed.Store(true)
	return b.original.Close()
}
