package coalesce

import (
	"context"
	"errors"
	"fmt"

	"github.com/reqlock/reqlock/core"
)

// Do runs fn, or waits for another caller with the same key that runs, in this process or another, and
// returns its result. shared is true if another caller has run. Each caller gets a value that no other
// caller can change, decoded from one record.
//
// The key is the name of a core.Once. Of the callers in this process, one asks Redis, and the others
// wait for it in memory. The errors of Acquire are returned as they are, such as core.ErrNotAcquired
// when WaitTime is over, and the error of ctx. If Redis fails, all who wait get that error. The error of
// fn is returned to the caller that ran, and an *Error with its text to the others.
//
// The context of fn has the values of ctx. It ends when the lock is lost or LeaseTime is over, but not
// when ctx ends, because others may wait for the result. So Do of the caller that runs returns when fn
// returns. If the lock was lost, others may have run as well. If fn panics, so does Do; the others get
// an *Error.
func Do[T any](ctx context.Context, locks *core.Client, key string, opts Options, fn func(context.Context) (T, error)) (result T, shared bool, err error) {
	if err := opts.validate(); err != nil {
		return result, false, err
	}
	if locks == nil {
		return result, false, fmt.Errorf("%w: there is no *core.Client", ErrInvalidOptions)
	}
	opts = opts.withDefaults()
	r, o, err := enter(ctx, locks, key, opts)
	switch {
	case err != nil && opts.FailOpen && watched(ctx).Err() == nil && unavailable(err):
		result, err = fn(ctx)
		return result, false, err
	case err != nil:
		return result, false, err
	case o != nil:
		result, err = read[T](opts.Codec, o)
		return result, true, err
	}
	defer r.end(ctx)
	own, unbind := r.lease.Bind(context.WithoutCancel(ctx))
	defer unbind()
	// When the lease is lost, another caller runs, even while fn still does.
	defer context.AfterFunc(own, r.lead.cede)()
	result, err = fn(own)
	if err != nil && errors.Is(err, own.Err()) {
		err = fmt.Errorf("%w: %w", err, context.Cause(own))
	}
	if failure := r.settle(result, err); err == nil {
		err = failure
	}
	return result, false, err
}

// unavailable reports whether Redis could not be asked, which may pass.
func unavailable(err error) bool {
	for _, other := range []error{
		core.ErrNotAcquired, core.ErrStillHeld, core.ErrTooManyWaiters, core.ErrClosed, core.ErrLockLost, core.ErrWrongKind,
		core.ErrInvalidName, core.ErrInvalidOptions, core.ErrMisconfigured, core.ErrReadOnly,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}
