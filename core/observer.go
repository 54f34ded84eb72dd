package core

import (
	"context"
	"time"
)

// An Observer is told what becomes of locks. Every field may be nil. The callbacks run on the goroutine on which the thing
// happened, without any mutex held; they should return soon, and must not close their client, which waits for them. ctx is the
// one that Acquire was called with; Released has that of Release.
type Observer struct {
	Waiting     func(ctx context.Context, e Event) // the lock is held by somebody else, and the caller begins to wait
	Acquired    func(ctx context.Context, e Event) // re-entries included
	NotAcquired func(ctx context.Context, e Event) // Err says why
	Retrying    func(ctx context.Context, e Event) // a caller that waits for ever was kept from asking by Err, and asks again
	Released    func(ctx context.Context, e Event) // by its holder; Err where Redis could not be told, or had lost it
	Lost        func(ctx context.Context, e Event) // Err is ErrLockLost, or ErrClosed
	RenewFailed func(ctx context.Context, e Event) // a renewal failed with Err; it is tried again until the lease ends
}

// An Event is one thing that happened to one lock.
type Event struct {
	Name   string        // of the lock, in full
	Kind   string        // "lock", "fair", "fenced", "read", "write" or "once"
	Owner  string        // wire owner, the field in Redis; empty while there is none
	Waited time.Duration // since Acquire was called; of Waiting, Acquired, NotAcquired and Retrying
	Held   time.Duration // since it was acquired; of Released, Lost and RenewFailed
	Lease  time.Duration // LeaseTime; 0: the watchdog's
	Err    error
}

// notify makes the event only if somebody wants it.
func notify(f func(context.Context, Event), ctx context.Context, event func() Event) {
	if f != nil {
		f(ctx, event())
	}
}

// notifyOr is notify where the caller is to get something afterwards. A callback that panics keeps it from that: undo takes it back.
func notifyOr(undo func(), f func(context.Context, Event), ctx context.Context, event func() Event) {
	told := false
	defer func() {
		if !told {
			undo()
		}
	}()
	notify(f, ctx, event)
	told = true
}
