package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// The errors of this package. Test for them with errors.Is. The text of a returned error names the
// operation and the lock. It has a short hash of the lock's name, because names come from requests
// and may contain what must not be logged. With Options.LogNames it has the name itself.
//
// An error that matches none of these, and not the error of the caller's context, comes from Redis
// or from the connection to it.
var (
	// ErrNotAcquired: another owner held the lock for all of WaitTime. The error is a
	// *NotAcquiredError.
	ErrNotAcquired = errors.New("reqlock: lock not acquired")
	// ErrStillHeld: the caller's context ended while another owner held the lock, as far as this
	// process knew. The error also matches the context's error. An error that matches only the
	// context's means that no reply had said yet whether the lock is held.
	ErrStillHeld = errors.New("reqlock: lock still held by another owner")
	// ErrNotHeld: the lease is not held any more. ErrLockLost, ErrReleased and ErrClosed all match
	// it.
	ErrNotHeld = claim.ErrNotHeld
	// ErrLockLost: the lock was lost without a release: its lease expired, or it was taken away in
	// Redis. The text of the error says which, and who freed a lock by force if that is known. So
	// compare with errors.Is.
	ErrLockLost = claim.ErrLockLost
	// ErrReleased: the lease has been released.
	ErrReleased = claim.ErrReleased
	// ErrClosed: the client is closing or closed.
	ErrClosed error = claim.NotHeldError("reqlock: client closed")
	// ErrTooManyWaiters: AcquireOptions.MaxWaiters callers of this process already wait for the
	// name, or Options.MaxWaiting callers of this client wait. The text says which.
	ErrTooManyWaiters = errors.New("reqlock: too many waiters")
	// ErrInvalidName: the lock's name can never work.
	ErrInvalidName = errors.New("reqlock: invalid lock name")
	// ErrInvalidOptions: the options can never work.
	ErrInvalidOptions = errors.New("reqlock: invalid options")
	// ErrUpgrade: the owner holds the read side of a read/write lock and tried to acquire the write
	// side, which would wait for its own read lock. Acquire the write side first: its holder may
	// also acquire the read side.
	ErrUpgrade = errors.New("reqlock: a read lock cannot be upgraded to a write lock")
	// ErrParentLost: the hold that the caller was to enter as a guest is over; see WithDelegation.
	ErrParentLost = errors.New("reqlock: the hold to enter as a guest is over")
	// ErrRecorded: a Once has a record, so the lock was not acquired. Only an Observer sees this
	// error, because Once.Acquire returns the record.
	ErrRecorded = errors.New("reqlock: there is a record instead of the lock")
	// ErrBound: the name of a Once is bound to something else; see Once.WithBinding.
	ErrBound = errors.New("reqlock: the name is bound to something else")
	// ErrUnrecorded: the holder that the caller of a Once waited for left no record; see
	// Once.WithoutSuccession.
	ErrUnrecorded = errors.New("reqlock: the holder left no record")
	// ErrQuota: too many names of a Once count towards its quota; see Once.WithQuota.
	ErrQuota = errors.New("reqlock: the quota of names is used up")
	// ErrNotReplicated: Redis executed the operation, but too few replicas confirmed it in time;
	// see Options.ReplicaAcks. A lock that was granted is released again, in the background if
	// necessary.
	ErrNotReplicated = redisop.ErrNotReplicated
	// ErrWrongKind: the key in Redis is not a lock of this kind, or not a latch. It has another type,
	// or it is a read/write lock and another kind was requested, or vice versa. Redis cannot tell
	// the other kinds apart: to one of them, a lock of another is a held lock. Its own owner enters
	// it again, except as a fenced lock if its hold has no token.
	ErrWrongKind = redisop.ErrWrongKind
	// ErrMisconfigured: no retry helps until you change Redis, its permissions or the Redis
	// client. The password is wrong, a permission is missing, TLS does not fit, or the client is
	// not made for this server. The text of the error names the change.
	ErrMisconfigured = redisop.ErrMisconfigured
	// ErrReadOnly: the server that the Redis client has reached is a replica, which executes no
	// writes. There may be a primary that grants the lock to others meanwhile.
	ErrReadOnly = redisop.ErrReadOnly
)

// errTooFew: SetPermits, or a later declaration, has left fewer permits than AcquireN takes. The
// callers behind this one would wait for nothing.
var errTooFew = fmt.Errorf("%w: the semaphore has fewer permits than the call takes", ErrInvalidOptions)

// isLoss reports whether a lock that was held is lost.
func isLoss(err error) bool { return errors.Is(err, ErrLockLost) }

// Reasons why an attempt at a RedLock failed.
var (
	errNoVote     = errors.New("no answer in time")
	errNoMajority = errors.New("no majority of the members has answered")
)

// A NotAcquiredError reports that another owner held the lock. It matches ErrNotAcquired. If that
// owner is a lease of the caller's own request, the text says so, and what to change.
type NotAcquiredError struct {
	Name   string        // the full name; the text has a hash of it, unless Options.LogNames is set
	TTL    time.Duration // what the holder's key has left, by the last reply; -1ms: no expiry; 0: unknown
	Waited time.Duration // since Acquire was called

	shown  bool // the text may contain the name
	holder holder
}

func (e *NotAcquiredError) Error() string {
	return fmt.Sprintf("reqlock: acquire lock %s: held by %s, waited %s",
		label{e.Name, e.shown}, e.holder, e.Waited.Round(time.Millisecond))
}

// Is reports whether target is [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

func (e *NotAcquiredError) heldBy() holder { return e.holder }

// A holder says who has a lock that a caller did not get, as far as this process knows.
type holder uint8

const (
	anotherOwner   holder = iota
	sameRequest           // a lease whose context has the same origin as the caller's
	sameRequestRed        // the same, and the caller asks for a RedLock
	permitsTaken          // the owners of all permits
	selfHasPermit         // the same, and the caller's own request is one of them
)

// self reports whether the caller's own request keeps it out.
func (h holder) self() bool { return h != anotherOwner && h != permitsTaken }

func (h holder) String() string {
	switch h {
	case sameRequest:
		return "this same request; pass lease.Context() of that lease to enter it again"
	case sameRequestRed:
		return "this same request, and a RedLock cannot be entered again"
	case permitsTaken:
		return "the owners of all its permits"
	case selfHasPermit:
		return "the owners of all its permits; this same request has one, and each Acquire takes another"
	}
	return "another owner"
}

// A heldError says that a lock was held, and by whom.
type heldError interface {
	error
	heldBy() holder
}

// holderOf returns the holder of a heldError, which may be wrapped.
func holderOf(err error) holder {
	var held heldError
	if errors.As(err, &held) {
		return held.heldBy()
	}
	return anotherOwner
}

// An opError adds the operation and the lock to an error.
type opError struct {
	op   string
	lock label
	err  error
}

func (e *opError) Error() string {
	return "reqlock: " + e.op + " lock " + e.lock.String() + ": " + bare(e.err)
}

func (e *opError) Unwrap() error { return e.err }

// A latchError adds the operation and the latch to an error.
type latchError struct {
	op    string
	latch label
	err   error
}

func (e *latchError) Error() string {
	return "reqlock: " + e.op + " latch " + e.latch.String() + ": " + bare(e.err)
}

func (e *latchError) Unwrap() error { return e.err }

// A memberError reports a member of a MultiLock or RedLock that can never work.
type memberError struct {
	place int    // from 1
	whole string // the function that was called
	err   error
}

func (e *memberError) Error() string {
	return fmt.Sprintf("lock %d of %s: %s", e.place, e.whole, bare(e.err))
}

func (e *memberError) Unwrap() error { return e.err }

// bare returns the text of an error for use within another error's text.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "reqlock: ") }

func opErr(op string, lock label, err error) error { return &opError{op, lock, err} }

// invalid wraps one of the errors above with a text that names the fault and the correction.
func invalid(sentinel error, format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...)
}

// joinErrors is errors.Join with a text on one line, as logs need it.
func joinErrors(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return oneLineError{err}
	}
	return nil
}

type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLineError) Unwrap() error { return e.error }

// ended returns the error of a context that has ended: its Err, and its cause if that is another
// error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// A stillHeldError is the error of a context that ended while another owner held the lock. It
// matches ErrStillHeld.
type stillHeldError struct {
	end    error
	holder holder
}

func (e *stillHeldError) Error() string {
	return "still held by " + e.holder.String() + ": " + e.end.Error()
}

func (e *stillHeldError) heldBy() holder       { return e.holder }
func (e *stillHeldError) Is(target error) bool { return target == ErrStillHeld }
func (e *stillHeldError) Unwrap() error        { return e.end }

// endedAfter is ended for a caller that made several attempts. err is the error of the last one.
func endedAfter(ctx context.Context, err error) error {
	end := ended(ctx)
	if saysHeld(err) && !saysHeld(end) { // an end that says so has it from the context's cause
		return &stillHeldError{end, holderOf(err)}
	}
	return end
}

func saysHeld(err error) bool { return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrStillHeld) }

// ownErrors are the errors that do not come from Redis or from the connection to it. ErrLockLost
// matches ErrNotHeld.
var ownErrors = []error{
	ErrNotAcquired, ErrStillHeld, ErrNotHeld, ErrTooManyWaiters, ErrInvalidName, ErrInvalidOptions,
	ErrUpgrade, ErrRecorded, ErrBound, ErrUnrecorded, ErrQuota, errNoVote, errNoMajority,
	context.Canceled, context.DeadlineExceeded,
}

func isOwn(err error) bool {
	return slices.ContainsFunc(ownErrors, func(own error) bool { return errors.Is(err, own) })
}

// faultOf returns the fault of Redis that caused an error, or nil if none did.
func faultOf(err error) *redisop.Fault {
	if isOwn(err) {
		return nil
	}
	return redisop.FaultOf(err)
}

// heals reports whether an error comes from Redis or from the connection to it, and may pass
// without a change to this program.
func heals(err error) bool { return !isOwn(err) && redisop.Heals(err) }

// A label is a lock's name in errors and logs: the name itself if it may be shown, otherwise a
// short hash.
type label struct {
	name  string
	shown bool
}

func (l label) String() string {
	if l.shown {
		return l.name
	}
	return hashed(l.name)
}

// hashed returns a short hash of a name.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "#" + hex.EncodeToString(sum[:4])
}

// recorded carries a record from the engine to Once.Acquire, as the error of an attempt.
type recorded struct {
	// record is shared by all that get it.
	record []byte
	// binding is what the name is bound to. It is empty if the reader has no binding.
	binding string
}

func (*recorded) Error() string        { return ErrRecorded.Error() }
func (*recorded) Is(target error) bool { return target == ErrRecorded }
