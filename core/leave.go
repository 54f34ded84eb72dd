package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// leaveQueue removes the waiter from the queue, after its context has ended, the client was closed
// or its last attempt had no answer in time. It returns the error for the caller. A lease that was
// handed over meanwhile is released.
func (w *waiter) leaveQueue() error {
	e := w.entry
	e.open()
	wake(e.queue.Leave(&w.Waiter))
	lease, held, by := w.handedLocked(), e.heldLocked(w.kind), w.holderLocked()
	refusal := w.gaveUpLocked(e.ttlLocked())
	e.close()
	if lease != nil {
		lease.abandon()
	}
	switch {
	case w.ctx.Err() == nil && e.engine().state.Load() == open:
		return refusal
	case w.ctx.Err() == nil:
		return ErrClosed
	case held || lease != nil:
		return &stillHeldError{ended(w.ctx), by}
	}
	return ended(w.ctx)
}

// remove removes a waiter whose observer callback panicked.
func (w *waiter) remove() {
	_ = w.leaveQueue()
	w.leaveFairPlace(nil)
}

// leaveInFlight leaves the queue while an attempt is in flight. The reply is read in the
// background, and a lock that it grants is freed.
func (w *waiter) leaveInFlight(x *redisop.Op, wire string) error {
	why := w.leaveQueue()
	var left claim.Leftovers
	if p := w.fairPlace(); p != nil {
		// Otherwise leaveFairPlace would clean up before the reply.
		left, p.leftovers = p.leftovers, claim.Leftovers{}
	}
	if x.InFlight() || x.TryUnanswered() || !left.None() { // otherwise Redis has received nothing
		w.entry.engine().background.Go(func() {
			reply, err := x.Await()
			answer, _ := readGrant(x, reply, err)
			w.cleanUp(wire, attemptOf(x, answer.Granted, left).Verdict().Clean)
		})
	}
	return why
}

// cleanUp makes the cleaner free what Redis may have of a wire owner.
func (w *waiter) cleanUp(wire string, left claim.Leftovers) {
	if left.None() {
		return
	}
	eng := w.entry.engine()
	g := kinds.Hold{Terms: &w.kind.Terms, Key: w.entry.key, Wire: wire, Deepest: claim.Counts{}.Plus(w.kind.Shared).Shared}
	eng.cleaner.add(w.kind.Free(eng.settings(), g, lua.Removal{Gone: true, Binding: true}), g, w.remains(), left)
}

// remains returns how long Redis can keep anything of a waiter that has left: a hold until its
// lease expires, a place in the queue until its deadline.
func (w *waiter) remains() time.Duration {
	eng := w.entry.engine()
	d := eng.leaseTime(w.fixed)
	if w.kind.Invited() {
		d = max(d, familyLasts)
	}
	if p := w.fairPlace(); p != nil {
		d = max(d, eng.opts.FairWaitTimeout, eng.clock().Until(p.expires))
	}
	return d
}
