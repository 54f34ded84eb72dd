package guard

import (
	"context"
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/request"
)

// SetStatus tells the innermost guard the status of the handler's answer, for Outcome. It is for
// adapters: call it in the next of Guard.Serve, after the handler. 0: unknown. Outside a guard it
// does nothing.
func SetStatus(ctx context.Context, status int) {
	if s := sectionOf(ctx); s != nil {
		s.setStatus(status)
	}
}

// Interruption returns why ctx has ended, or why a guard further in has ended the context of its
// handler, such as ErrMaxHold; nil: neither has ended early. It is for adapters and middleware: a
// handler that has answered nothing by then has not chosen an empty answer.
func Interruption(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s := sectionOf(ctx); s != nil {
		return s.interrupted()
	}
	return nil
}

// ReleaseBy releases the lock of the innermost guard with a function of the caller, such as one
// that calls core.OnceLease.ReleaseWith. It is for middleware that builds on the guard. release
// must give the lease up. Its error is returned, and becomes Outcome.Err. If release panics, the
// guard releases the lock. core.ErrNotHeld: there is no lock to release.
func ReleaseBy(ctx context.Context, release func(*core.Lease) error) error {
	s := sectionOf(ctx)
	if s == nil {
		return core.ErrNotHeld
	}
	return s.releaseBy(release)
}

// RouteLease is LeaseFrom for the request r, if the innermost guard is around the route that r has
// matched. The lock of a guard further out, such as around a router, is not meant for that route
// alone. It is for middleware that builds on the guard.
func RouteLease(r *http.Request) (*core.Lease, bool) {
	s := sectionOf(r.Context())
	if s == nil || s.server != request.Server(r.Context()) || s.pattern != r.Pattern {
		return nil, false
	}
	lease := s.held()
	return lease, lease != nil
}
