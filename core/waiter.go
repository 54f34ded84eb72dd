package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A request holds the arguments of a call of Acquire.
type request struct {
	ctx   context.Context
	name  string // the lock's name
	kind  *kinds.Kind
	link  *lineage.Link // the lineage of ctx; nil: none
	fixed time.Duration // LeaseTime; 0: the watchdog renews the lease
	began clock.Moment

	holder *hold // who kept it out; nil: a holder outside this client
}

// A waiter is a call of Acquire whose owner does not hold the lock. It runs in a loop on the
// caller's goroutine: it plans a step with the mutex held, then carries it out without the mutex.
// Other goroutines only poke it to plan again, or remove it from the queue with an error or a
// lease. Package claim defines its states.
//
// A process may have thousands of waiters, so one is kept small: what few of them need is aside.
type waiter struct {
	request
	claim.Waiter[*waiter] // guarded by the shard's mutex, like all fields below
	entry                 *entry
	signal                chan struct{} // holds one poke; made before the first sleep

	// pending is the number of the wire owner of the attempt or hand-over in flight. 0: there is none.
	pending  uint64
	handedBy *handover // what gave it a lease; nil: no hand-over has
	aside    *aside    // nil: it has had no trouble, and has no place

	alarm   schedule.Entry // pokes the waiter at the end of a sleep
	inRoom  bool           // it counts towards MaxWaiting; used by the caller's goroutine only
	blocked bool           // Observer.Waiting was called; used by the caller's goroutine only
	warned  bool           // warnOfSelf has logged it; used by the caller's goroutine only
	waited  bool           // the lock was held while it was in the queue
	forced  bool           // ForceUnlock has taken the lock from the latest pending wire owner
}

// An aside is what few waiters have: a place if Redis keeps the queue, and trouble.
type aside struct {
	fairPlace
	trouble
}

// A trouble is what a waiter has met that few meet.
type trouble struct {
	err    error // why another goroutine removed it from the queue; nil: none has
	hinted bool  // ForceUnlock of another client may have taken the pending wire owner

	// An outage: the attempts that have failed in a row, if the waiter outlasts that.
	failures uint8
	failure  error // why the last attempt failed; nil: it did not
}

// troubledLocked returns the trouble of w to write to.
func (w *waiter) troubledLocked() *trouble {
	if w.aside == nil {
		w.aside = new(aside)
	}
	return &w.aside.trouble
}

// removedLocked returns why another goroutine has removed w from the queue; nil: none has.
func (w *waiter) removedLocked() error {
	if w.aside == nil {
		return nil
	}
	return w.aside.err
}

// failureLocked returns the error of the latest attempt of a waiter that outlasts it; nil: that
// attempt did not fail.
func (w *waiter) failureLocked() error {
	if w.aside == nil {
		return nil
	}
	return w.aside.failure
}

// handedLocked returns the lease from a hand-over; nil: there is none.
func (w *waiter) handedLocked() *level {
	if w.handedBy == nil {
		return nil
	}
	return w.handedBy.lease
}

// waiters pools waiters that have left the queue and that nothing refers to.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(ctx context.Context, eng *engine, name string, k *kinds.Kind, link *lineage.Link, opts AcquireOptions) *waiter {
	w := waiters.Get().(*waiter)
	w.request = request{ctx: ctx, name: name, kind: k, link: link, fixed: opts.LeaseTime, began: clock.Now()}
	w.NoWait, w.Limit, w.Class, w.Together = opts.WaitTime == 0, opts.waiters(), k.Class(), k.Together()
	if opts.WaitTime >= 0 {
		w.Deadline = w.began.Add(opts.WaitTime)
	}
	w.Every = pollEvery(opts.WaitTime)
	return w.prepare(eng)
}

// again returns a new waiter for the same request. w itself cannot join again, because other
// goroutines may still refer to it.
func (w *waiter) again() *waiter {
	next := waiters.Get().(*waiter)
	next.request, next.NoWait, next.Limit, next.Class, next.Together = w.request, w.NoWait, w.Limit, w.Class, w.Together
	next.Deadline, next.Every = w.Deadline, w.Every
	next.blocked, next.warned = w.blocked, w.warned
	return next.prepare(w.entry.engine())
}

func (w *waiter) prepare(eng *engine) *waiter {
	w.Item = w
	if w.kind.RedisQueue {
		owner := newOwner()
		w.aside = &aside{fairPlace: fairPlace{owner: owner, wire: eng.wireOwner(owner)}}
	}
	return w
}

// recycle returns w to the pool if its first attempt succeeded. Such a waiter has never slept, so
// no hand-over, alarm or channel refers to it.
func (w *waiter) recycle() {
	if w.signal == nil && w.fairPlace() == nil {
		*w = waiter{}
		waiters.Put(w)
	}
}

func (w *waiter) ring() { w.poke() }

// poke makes the waiter plan again.
func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default: // a poke is pending, or the waiter has never slept and plans before it does
	}
}

// wake pokes the waiters that a queue event returned.
func wake(woken []*claim.Waiter[*waiter]) {
	for _, w := range woken {
		w.Item.poke()
	}
}

// failAll fails waiters that the queue has removed.
func failAll(out []*claim.Waiter[*waiter], err error) {
	for _, w := range out {
		w.Item.troubledLocked().err = w.Item.given(err)
		w.Item.poke()
	}
}

// given returns what err means to w: the record of a name that is bound to something else is not for
// w.
func (w *waiter) given(err error) error {
	if r, ok := err.(*recorded); ok && r.binding != "" && w.kind.Marks.Binding != "" && r.binding != w.kind.Marks.Binding {
		return ErrBound
	}
	return err
}

// Notify handles a message on the waiter's own channel.
func (w *waiter) Notify() {
	w.entry.open()
	w.entry.queue.Call(&w.Waiter)
	w.poke()
	w.entry.close()
}
