package adapter

import (
	"context"
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/internal/section"
)

// SetStatus tells the innermost guard the status of the handler's answer, for guard.Outcome. Call
// it in the next of guard.Guard.Serve, after the handler. 0: unknown. Outside a guard it does
// nothing.
func SetStatus(ctx context.Context, status int) {
	if s := section.From(ctx); s != nil {
		s.SetStatus(status)
	}
}

// Interruption returns why ctx has ended, or why a guard further in has ended the context of its
// handler, such as guard.ErrMaxHold; nil: neither has ended early. A handler that has answered nothing
// by then has not chosen an empty answer.
func Interruption(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s := section.From(ctx); s != nil {
		return s.Interruption()
	}
	return nil
}

// ReleaseBy releases the lock of the innermost guard with a function of the caller, such as one
// that calls core.OnceLease.ReleaseWith. release must give the lease up. Its error is returned, and
// becomes the guard's Outcome.Err. If release panics, the guard releases the lock. core.ErrNotHeld:
// there is no lock to release.
func ReleaseBy(ctx context.Context, release func(*core.Lease) error) error {
	s := section.From(ctx)
	if s == nil {
		return core.ErrNotHeld
	}
	return s.ReleaseBy(release)
}

// RegisterContext lets handlers pass the framework's context to core and guard. find returns the
// request's context that a context of the framework holds, and nil for any other context. Only a
// framework whose context does not hand on the values of the request's context needs it, such as
// Gin. Call it from an init function.
func RegisterContext(find func(ctx context.Context) context.Context) { ctxvalue.Register(find) }

// Buffered reports whether the whole body of r is in memory, because a guard or a key function has
// read it. Reading it then does not wait for the client.
func Buffered(r *http.Request) bool { return request.IsBodyRead(r) }
