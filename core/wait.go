package core

import (
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// errStartOver: another call of the owner was granted the lock, or the hold to re-enter was just
// released.
var errStartOver = errors.New("start over")

// follow carries out the first plan, and the plans after it.
func (w *waiter) follow(p plan) (*level, error) {
	switch p.step {
	case stepReenter:
		lease, err := w.reenter(p.hold)
		if err == ErrReleased {
			err = errStartOver
		}
		return lease, err
	case stepTryPastQueue:
		return w.tryPastQueue(p.wire)
	case stepTurnAway:
		return nil, w.recordOr(p.err)
	case stepRefuse:
		return nil, p.err
	}
	defer w.leaveRoom()
	lease, err := w.wait(p)
	w.leaveFairPlace(lease)
	return lease, err
}

// wait runs a waiter in the queue until it has a result.
func (w *waiter) wait(p plan) (*level, error) {
	since := w.began // the latest attempt has ended
	for ; ; p = w.next(since) {
		switch p.step {
		case stepAsk:
			if lease, err := w.attempt(p); lease != nil || err != nil {
				return lease, err
			}
			since = clock.Now()
		case stepSleep:
			if err := w.enterRoom(); err != nil {
				_ = w.leaveQueue()
				return nil, w.recordOr(err)
			}
			w.notifyWaiting()
			if !w.sleep(w.warnOfSelf(p)) {
				return nil, w.leaveQueue()
			}
		case stepStartOver:
			return nil, errStartOver
		case stepTake:
			lease := w.handedBy.lease
			if w.ctx.Err() != nil {
				lease.abandon()
				return nil, &stillHeldError{end: ended(w.ctx)}
			}
			return lease, nil
		default:
			return nil, p.err
		}
	}
}

// sleep waits until the waiter is poked, for d at most. It returns false if the caller's context
// has ended.
func (w *waiter) sleep(d time.Duration) bool {
	if d < claim.Forever { // most waiters need no alarm: a message or a release pokes them
		alarms := w.entry.engine().alarms
		alarms.Set(&w.alarm, w, d)
		defer alarms.Cancel(&w.alarm)
	}
	select {
	case <-w.signal:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// enterRoom admits a caller before its first sleep, unless too many of its client wait.
func (w *waiter) enterRoom() error {
	if w.inRoom {
		return nil
	}
	err := w.entry.engine().room.enter()
	w.inRoom = err == nil
	return err
}

// leaveRoom ends an Acquire that was in the queue.
func (w *waiter) leaveRoom() {
	if w.inRoom {
		w.inRoom = false
		w.entry.engine().room.leave()
	}
	w.entry.shard.acquiring.Done()
}

// notifyWaiting calls Observer.Waiting before the first sleep of a call of Acquire. If the callback
// panics, the waiter leaves the queue, because its goroutine will not come back to it.
func (w *waiter) notifyWaiting() {
	if w.blocked {
		return
	}
	w.blocked = true
	notifyOr(w.ctx, w.remove, w.entry.engine().opts.Observer.Waiting, func() Event { return w.event("", nil) })
}

// reenter adds a lease to a hold of the owner.
func (w *waiter) reenter(h *hold) (*level, error) {
	eng := h.engine()
	if eng.state.Load() == closed {
		return nil, ErrClosed
	}
	lease := h.newLevel(&w.request, clock.Now())
	if err := h.update(w.ctx, w.kind, lease, lease.duration()); err != nil {
		return nil, err
	}
	return lease, nil
}

// tryPastQueue sends one attempt without queueing. A member of a RedLock must neither wait behind
// other waiters of this process nor keep them waiting. A guest must not wait behind those that wait for
// the hold that it enters.
func (w *waiter) tryPastQueue(wire string) (*level, error) {
	e := w.entry
	defer e.shard.acquiring.Done()
	defer e.removePastQueue(w)
	lease, err := w.attempt(plan{wire: wire})
	w.leaveFairPlace(lease)
	switch {
	case lease != nil || err != nil:
	case w.kind.Invited():
		err = ErrParentLost
	default:
		e.open()
		err = w.notAcquiredLocked(e.ttlLocked())
		e.close()
	}
	return lease, err
}

// recordOr returns the record of a Once, if there is one, or else refusal. refusal came from the
// queue of this process, not from Redis: the waiters ahead may be about to get the same record.
func (w *waiter) recordOr(refusal error) error {
	if w.kind.Look == nil {
		return refusal
	}
	call := w.kind.Look(&w.kind.Terms, w.entry.key)
	reply, err := w.entry.engine().run(w.ctx, call)
	if err != nil {
		return err
	}
	if record, ok := call.ReadRecord(reply); ok {
		return &recorded{record: []byte(record)}
	}
	switch answer, err := call.ReadAcquire(reply); {
	case err != nil:
		return err
	case answer.Bound:
		return ErrBound
	}
	return refusal
}

// gaveUpLocked returns the error of a waiter whose WaitTime is over.
func (w *waiter) gaveUpLocked(ttl time.Duration) error {
	if err := w.failureLocked(); err != nil {
		return err
	}
	return w.notAcquiredLocked(ttl)
}

func (w *waiter) notAcquiredLocked(ttl time.Duration) error {
	return &NotAcquiredError{
		Name:   w.name,
		TTL:    ttl,
		Waited: clock.Now().Since(w.began),
		shown:  w.entry.engine().opts.LogNames,
		holder: w.holderLocked(),
	}
}

// holderLocked returns who keeps the waiter out, as far as this process knows. A hold that was handed
// to the waiter while it left does not.
func (w *waiter) holderLocked() holder {
	switch self := w.handedBy == nil && w.link != nil && w.entry.heldFromLocked(w.link.Origin(), w.kind); {
	case w.kind.Counted && self:
		return selfHasPermit
	case w.kind.Counted:
		return permitsTaken
	case !self:
		return anotherOwner
	case w.link.PastQueue:
		return sameRequestRed
	}
	return sameRequest
}

// selfPatience is how long a caller that waits for ever waits for a lock of its own request until
// it is logged. Goroutines of one request that exclude each other for a moment are no news.
const selfPatience = time.Second

// warnOfSelf logs that the caller waits without end for a lock that its own request holds. No error
// would ever tell. It returns how long to sleep now.
func (w *waiter) warnOfSelf(p plan) time.Duration {
	if !p.holder.self() || w.warned {
		return p.pause
	}
	if left := selfPatience - clock.Now().Since(w.began); left > 0 {
		return min(p.pause, left)
	}
	w.warned = w.entry.engine().warnOfSelf(w.name, p.holder, true)
	return p.pause
}
