package core

import (
	"context"
	"time"
)

// An Observer receives events of locks. Every field may be nil. A callback runs on the goroutine of
// its event, with no mutex held. It should return soon and must not close the client, because Close
// waits for it. ctx is the context that Acquire was called with.
type Observer struct {
	// Waiting: another owner holds the lock, and the caller starts waiting. It is called once per
	// call of Acquire.
	Waiting func(ctx context.Context, e Event)
	// Acquired: the caller got the lock, or re-entered it.
	Acquired func(ctx context.Context, e Event)
	// NotAcquired: the caller did not get the lock. Err has the reason.
	NotAcquired func(ctx context.Context, e Event)
	// Retrying: an attempt with WaitForever failed with Err and will be retried.
	Retrying func(ctx context.Context, e Event)
	// Released: the holder released the lock. Err: the release failed or the lock was lost.
	Released func(ctx context.Context, e Event)
	// Lost: the lock was lost. Err matches ErrLockLost, and its text says how, or ErrClosed.
	Lost func(ctx context.Context, e Event)
	// RenewFailed: a renewal failed with Err. It is retried until the lease ends.
	RenewFailed func(ctx context.Context, e Event)
}

// An Event describes what happened to a lock.
type Event struct {
	Name   string        // the lock's name, in full
	Kind   string        // one of Kinds
	Owner  string        // wire owner, the field in Redis; empty if there is none yet
	Waited time.Duration // since Acquire was called; in Waiting, Acquired, NotAcquired and Retrying
	Held   time.Duration // since the lock was acquired; in Released, Lost and RenewFailed
	Lease  time.Duration // LeaseTime; 0: the watchdog renews the lease
	Err    error         // why; see the functions of Observer

	// In Waiting, Acquired, NotAcquired and Retrying:
	WaitTime time.Duration // the WaitTime of AcquireOptions
	Blocked  bool          // the caller had to wait: Waiting was called

	// The hold that the caller had to wait for, if it was this client's, in Waiting and then in
	// Acquired, NotAcquired and Retrying. In Acquired after a hand-over, it is the one whose release
	// handed the lock over. Empty otherwise.
	Holder        string          // wire owner
	HolderContext context.Context // the context of the holder's Acquire, such as for a link between spans
	HandOver      time.Duration   // how long the hand-over took, in Acquired
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
