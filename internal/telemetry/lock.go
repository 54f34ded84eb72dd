package telemetry

import (
	"context"
	"errors"

	"github.com/reqlock/reqlock/core"
)

// The values of Outcome in AcquireDuration, and of spans.
const (
	Acquired  = "acquired"
	Refused   = "refused"   // another owner held the lock and WaitTime is 0, or too many wait already
	Timeout   = "timeout"   // another owner held the lock until WaitTime or a deadline was over
	Abandoned = "abandoned" // the caller's context ended
	Recorded  = "recorded"  // a core.Once has a record
	Failed    = "error"     // see ErrorType
)

// The values of Outcome in HoldDuration, besides Failed: the release could not be confirmed.
const (
	Released = "released"
	Lost     = "lost"
)

// An End is how a call of Acquire or a hold ended. It is the attributes of its metric.
type End struct {
	Kind, Outcome string
	ErrorType     string // "": there was no error
}

// AcquireEnd returns how a call of Acquire ended, by its Acquired or NotAcquired event.
func AcquireEnd(ctx context.Context, e core.Event) End {
	end := End{Kind: e.Kind, Outcome: Acquired}
	if e.Err == nil {
		return end
	}
	held := errors.Is(e.Err, core.ErrNotAcquired)
	over := ctx.Err()
	switch {
	case errors.Is(e.Err, core.ErrRecorded):
		end.Outcome = Recorded
	case errors.Is(e.Err, core.ErrBound):
		end.Outcome, end.ErrorType = Refused, "bound"
	case errors.Is(e.Err, core.ErrUnrecorded):
		end.Outcome, end.ErrorType = Refused, "unrecorded"
	case over != nil && errors.Is(e.Err, over):
		end.Outcome = Abandoned
		if errors.Is(e.Err, core.ErrStillHeld) && errors.Is(over, context.DeadlineExceeded) {
			end.Outcome = Timeout
		}
	case held && e.WaitTime == 0:
		end.Outcome = Refused
	case held:
		end.Outcome = Timeout
	case errors.Is(e.Err, core.ErrTooManyWaiters):
		end.Outcome, end.ErrorType = Refused, "too_many_waiters"
	default:
		end.Outcome, end.ErrorType = Failed, ErrorTypeOf(e.Err)
	}
	return end
}

// HoldEnd returns how a hold ended, by its Released or Lost event.
func HoldEnd(e core.Event) End {
	end := End{Kind: e.Kind, Outcome: Released}
	switch {
	case e.Err == nil:
	case errors.Is(e.Err, core.ErrLockLost), errors.Is(e.Err, core.ErrClosed):
		end.Outcome, end.ErrorType = Lost, ErrorTypeOf(e.Err)
	default:
		end.Outcome, end.ErrorType = Failed, ErrorTypeOf(e.Err)
	}
	return end
}

var errorTypes = []struct {
	err  error
	name string
}{
	{core.ErrLockLost, "lock_lost"},
	{core.ErrClosed, "client_closed"},
	{core.ErrNotReplicated, "not_replicated"},
	{core.ErrMisconfigured, "misconfigured"},
	{core.ErrWrongKind, "wrong_kind"},
	{core.ErrUpgrade, "upgrade"},
	{core.ErrInvalidName, "invalid_name"},
	{core.ErrInvalidOptions, "invalid_options"},
	{core.ErrReadOnly, "read_only"},
}

// ErrorTypeOf returns the class of an error of core. An error that is none of core's comes from
// Redis.
func ErrorTypeOf(err error) string {
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "redis"
}

// Then returns an Observer that calls the callbacks of first, and then those of second.
func Then(first, second core.Observer) core.Observer {
	return core.Observer{
		Waiting:     both(first.Waiting, second.Waiting),
		Acquired:    both(first.Acquired, second.Acquired),
		NotAcquired: both(first.NotAcquired, second.NotAcquired),
		Retrying:    both(first.Retrying, second.Retrying),
		Released:    both(first.Released, second.Released),
		Lost:        both(first.Lost, second.Lost),
		RenewFailed: both(first.RenewFailed, second.RenewFailed),
	}
}

type callback = func(context.Context, core.Event)

func both(first, second callback) callback {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, e core.Event) {
		first(ctx, e)
		second(ctx, e)
	}
}
