package redisop

import (
	"context"
	"errors"
	"fmt"

	"github.com/reqlock/reqlock/core/internal/batch"
)

// The errors of operations, besides Config.Closed and the errors of Redis and of the connection to
// it.
var (
	// ErrLeft: the caller left before the reply.
	ErrLeft = errors.New("the caller has left")
	// ErrTimeout: the operation's time was over before the reply.
	ErrTimeout = errors.New("no reply from Redis within CommandTimeout")
	// ErrAborted: the Redis client stopped waiting for the reply by its own decision.
	ErrAborted = errors.New("the Redis client gave up")
	// ErrWrongKind is core.ErrWrongKind.
	ErrWrongKind = errors.New("reqlock: the key is not a lock of this kind")
	// ErrNotReplicated is core.ErrNotReplicated.
	ErrNotReplicated = errors.New("reqlock: not confirmed by enough replicas")
	// ErrMisconfigured is core.ErrMisconfigured.
	ErrMisconfigured = errors.New("reqlock: Redis or its client is misconfigured")
	// ErrReadOnly is core.ErrReadOnly.
	ErrReadOnly = errors.New("reqlock: the server is a read-only replica")
)

// Opaque translates the errors of the layers below. A timeout of an operation must not look like
// the end of the caller's context, so context errors become ErrTimeout or ErrAborted. The error of
// a fault that lasts until an operator makes a change says which.
func (r *Runner) Opaque(err error) error {
	class := r.classify(err)
	switch {
	case err == nil:
		return nil
	case err == batch.ErrClosed:
		return r.cfg.Closed
	case err == batch.ErrUnanswered:
		return ErrTimeout
	case IsWrongType(err):
		return ErrWrongKind
	case class.fault != nil && (class.fault.Permanent || class.fault == faultReadOnly):
		return &FaultError{class.fault, err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %v", ErrAborted, err)
	}
	return err
}

// classify returns the class of an error of this server or cluster. A client of one server cannot
// follow a redirection.
func (r *Runner) classify(err error) class {
	if r.slots.redis.Cluster == nil && HasCode(err, "MOVED", "ASK") {
		return class{away, faultOneNode}
	}
	return classify(err)
}

// Explain adds the fault and the change to make to an error of Redis or of the connection to it.
func Explain(err error) error {
	f := FaultOf(err)
	if known := (*FaultError)(nil); f == nil || errors.As(err, &known) {
		return err
	}
	return &FaultError{f, err}
}

// A FaultError is an error with its cause in plain words, and what to change.
type FaultError struct {
	*Fault
	Err error
}

func (e *FaultError) Error() string { return e.Cause + ": " + e.Err.Error() + " (" + e.Remedy() + ")" }
func (e *FaultError) Unwrap() error { return e.Err }

// Remedy returns what to change.
func (e *FaultError) Remedy() string { return e.ChangeAfter(e.Err) }

// Is reports whether target is ErrMisconfigured or ErrReadOnly, and fits the fault.
func (e *FaultError) Is(target error) bool {
	return target == ErrMisconfigured && e.Permanent || target == ErrReadOnly && e.Fault == faultReadOnly
}
