package keyfuncs

import (
	"errors"
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// A Func derives a key from a request. The key is not empty if the error is nil.
// A Func must be safe for concurrent use by different requests, and must not change the
// request: if it reads the body, it replaces it by an equal one.
//
// An error wraps [ErrSkip], [ErrMissing], [ErrInvalid], [ErrNoRoute] or [ErrBusy] to say
// how to answer the request, or *[http.MaxBytesError], for a body that is too large; any
// other error is answered like [ErrInvalid], and logged.
type Func func(*http.Request) (string, error)

var (
	// ErrSkip means that the request needs no lock. Your own Funcs may return it; no source of this
	// package does.
	ErrSkip = errors.New("reqlock: keyfuncs: the request needs no lock")

	// ErrMissing means that a part of the request that the key needs is missing or empty.
	ErrMissing = errors.New("reqlock: keyfuncs: a part of the request that the key needs is missing")

	// ErrInvalid means that the part cannot be used: it is ambiguous, malformed, not valid UTF-8,
	// or has control characters.
	ErrInvalid = errors.New("reqlock: keyfuncs: a part of the request that the key needs is invalid")

	// ErrNoRoute means that the key needs a matched route, but no route has matched where the Func
	// was called, or the route has no such wildcard.
	ErrNoRoute = errors.New("reqlock: keyfuncs: the key needs a matched route")

	// ErrBusy means that the body does not fit into memory together with the bodies of other
	// requests; see guard.SetBodyBudget. Guards answer it with 503.
	ErrBusy = request.ErrBusy
)

// misuse panics for a wrong constructor call. call is the call as the program wrote it. why names
// the mistake and its correction.
func misuse(call, why string) {
	panic("reqlock: keyfuncs: " + call + ": " + why)
}
