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

	"github.com/reqlock/reqlock/core/internal/redisop"
)

// The errors of this package; test for them with errors.Is. What is returned names the operation
// and the lock, by a short hash, since names come from requests and may hold what must not be
// logged. With Options.LogNames it is the name itself.
//
// An error that is none of these, and not the error of the caller's own context, comes from Redis
// or the way there.
var (
	// ErrNotAcquired: somebody else held the lock for as long as the caller was willing to wait. The error is a
	// *NotAcquiredError.
	ErrNotAcquired = errors.New("reqlock: lock not acquired")
	// ErrStillHeld: the caller's context ended while it waited, and by the last that was known somebody else held the lock. It
	// comes together with the context's error, which alone says that Redis had not answered yet who has the lock, if anybody.
	ErrStillHeld = errors.New("reqlock: lock still held by somebody else")
	// ErrNotHeld: the lease is not held any more. ErrLockLost, ErrReleased and, for a lease, ErrClosed all match it.
	ErrNotHeld = errors.New("reqlock: lock not held")
	// ErrLockLost: the lock was held and is so no longer, without a release: its lease ran out, or somebody took it away.
	ErrLockLost error = &notHeldError{"reqlock: lock lost"}
	// ErrReleased: the lease has been released.
	ErrReleased error = &notHeldError{"reqlock: lock released"}
	// ErrClosed: the client is closing or closed.
	ErrClosed error = &notHeldError{"reqlock: client closed"}
	// ErrTooManyWaiters: AcquireOptions.MaxWaiters callers of this process are waiting for the name already.
	ErrTooManyWaiters = errors.New("reqlock: too many waiters")
	// ErrInvalidName: the lock's name can never work.
	ErrInvalidName = errors.New("reqlock: invalid lock name")
	// ErrInvalidOptions: the options can never work.
	ErrInvalidOptions = errors.New("reqlock: invalid options")
	// ErrUpgrade: the owner holds the read side of a read/write lock and asks for the write side, for which it would wait for
	// itself. Take the write side first; the read side can be entered from it.
	ErrUpgrade = errors.New("reqlock: a read lock cannot be upgraded to a write lock")
	// ErrRecorded: a Once had a record instead of the lock. Only an Observer sees it: Once.Acquire returns the record.
	ErrRecorded = errors.New("reqlock: there is a record instead of the lock")
	// ErrNotReplicated: Redis granted it, but too few replicas confirmed that in time; see Options.ReplicaAcks. A lock that was
	// granted has been released again, or is being so.
	ErrNotReplicated = redisop.ErrNotReplicated
	// ErrWrongKind: the key of the lock holds something else in Redis; or a read/write lock where another kind was asked for, or
	// the other way round. Locks without sides look alike there: for one of them, another is just held.
	ErrWrongKind = redisop.ErrWrongKind
)

// Why an attempt at a RedLock failed.
var (
	errNoVote     = errors.New("no answer in time")
	errNoMajority = errors.New("no majority of the members has answered")
)

// A notHeldError is one of the ways in which a lease can have ended.
type notHeldError struct{ text string }

func (e *notHeldError) Error() string        { return e.text }
func (e *notHeldError) Is(target error) bool { return target == ErrNotHeld }

// A NotAcquiredError says that a lock was held by somebody else. It matches ErrNotAcquired.
type NotAcquiredError struct {
	Name   string        // the lock's name, in full; the text holds a hash of it, unless Options.LogNames is set
	TTL    time.Duration // what the holder's key had left when Redis last told; -1ms: no end; 0: not known
	Waited time.Duration // since Acquire was called

	shown bool // the text may hold the name
}

func (e *NotAcquiredError) Error() string {
	return fmt.Sprintf("reqlock: acquire lock %s: held by somebody else, waited %s", label{e.Name, e.shown}, e.Waited.Round(time.Millisecond))
}

// Is reports whether target is [ErrNotAcquired].
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// An opError says what was being done to which lock.
type opError struct {
	op   string
	lock label
	err  error
}

func (e *opError) Error() string {
	return "reqlock: " + e.op + " lock " + e.lock.String() + ": " + bare(e.err)
}

func (e *opError) Unwrap() error { return e.err }

// A memberError is what is wrong with one of the locks that were to be one.
type memberError struct {
	place int // from 1
	whole string
	err   error
}

func (e *memberError) Error() string {
	return fmt.Sprintf("lock %d of %s: %s", e.place, e.whole, bare(e.err))
}

func (e *memberError) Unwrap() error { return e.err }

// bare is the text of an error that stands within another's.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "reqlock: ") }

func opErr(op string, lock label, err error) error { return &opError{op, lock, err} }

// invalid wraps one of the sentinels with what is wrong and what would be right.
func invalid(sentinel error, format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...)
}

// ended is the error of a context that has ended: its Err, and its cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// A stillHeldError is the end of a context whose caller was waiting for somebody else.
type stillHeldError struct{ end error }

func (e *stillHeldError) Error() string        { return "still held by somebody else: " + e.end.Error() }
func (e *stillHeldError) Is(target error) bool { return target == ErrStillHeld }
func (e *stillHeldError) Unwrap() error        { return e.end }

// endedAfter is ended for a context whose caller has made several attempts, the last of which came to err.
func endedAfter(ctx context.Context, err error) error {
	end := ended(ctx)
	if saysHeld(err) && !saysHeld(end) { // or else that is what somebody ended the context for
		return &stillHeldError{end}
	}
	return end
}

func saysHeld(err error) bool { return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrStillHeld) }

// ownErrors do not come from Redis or the way there.
var ownErrors = []error{
	ErrNotAcquired, ErrStillHeld, ErrNotHeld, ErrTooManyWaiters, ErrInvalidName, ErrInvalidOptions, ErrUpgrade, ErrRecorded,
	errNoMajority, context.Canceled, context.DeadlineExceeded,
}

func isOwn(err error) bool {
	return slices.ContainsFunc(ownErrors, func(own error) bool { return errors.Is(err, own) })
}

// faultOf returns the fault of Redis that an error is due to; nil: none.
func faultOf(err error) *redisop.Fault {
	if isOwn(err) {
		return nil
	}
	return redisop.FaultOf(err)
}

// heals reports whether an error is due to Redis or the way there, and may pass without a change to this program.
func heals(err error) bool { return !isOwn(err) && redisop.Heals(err) }

// A label is a lock's name for errors and logs: itself if it may be shown, or else a short hash.
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

// hashed is a short hash of a name.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "#" + hex.EncodeToString(sum[:4])
}

// recorded carries a record through the engine, as the reason why the lock was not acquired.
type recorded struct{ record string }

func (*recorded) Error() string        { return ErrRecorded.Error() }
func (*recorded) Is(target error) bool { return target == ErrRecorded }
