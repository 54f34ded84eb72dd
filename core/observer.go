package core

import (
	"context"
	"time"
)

// An Observer receives events of locks. Every field may be nil. A callback runs on the goroutine of
// its event, with no mutex held. It should return soon and must not close the client, because Close
// waits for it. ctx is the context of Acquire, except in Released, where it is the one of Release.
type Observer struct {
	Waiting     func(ctx context.Context, e Event) // another owner holds the lock; the caller starts waiting
	Acquired    func(ctx context.Context, e Event) // re-entries included
	NotAcquired func(ctx context.Context, e Event) // Err has the reason
	Retrying    func(ctx context.Context, e Event) // an attempt with WaitForever failed with Err and will be retried
	Released    func(ctx context.Context, e Event) // by its holder; Err: the release failed or the lock was lost
	Lost        func(ctx context.Context, e Event) // Err is ErrLockLost or ErrClosed
	RenewFailed func(ctx context.Context, e Event) // a renewal failed with Err; it is retried until the lease ends
}

// An Event describes what happened to a lock.
type Event struct {
	Name   string        // of the lock, in full
	Kind   string        // "lock", "fair", "fenced", "read", "write" or "once"
	Owner  string        // wire owner, the field in Redis; empty if there is none yet
	Waited time.Duration // since Acquire was called; in Waiting, Acquired, NotAcquired and Retrying
	Held   time.Duration // since the lock was acquired; in Released, Lost and RenewFailed
	Lease  time.Duration // LeaseTime; 0: the watchdog renews the lease
	Err    error
}

// notify calls f, if set, with the event.
func notify(ctx context.Context, f func(context.Context, Event), event func() Event) {
	if f != nil {
		f(ctx, event())
	}
}

// notifyOr calls f like notify. If f panics it calls undo, because Acquire will not return.
func notifyOr(ctx context.Context, undo func(), f func(context.Context, Event), event func() Event) {
	returned := false
	defer func() {
		if !returned {
			undo()
		}
	}()
	notify(ctx, f, event)
	returned = true
}
