package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// A lock that somebody of this process waits for is handed on with its release, by one command instead of two and a
// message: Redis shows the true holder at any time. Other processes must not go without it for ever, so that after a
// while it is freed, and whoever waits here then is no better off than they are.

// A streak of hand-overs ends after so many, or so long.
const (
	streakMoves = 64
	streakTime  = 20 * time.Millisecond
	// standBack is how long those who wait here leave the lock to others then, unless they hear the message sooner.
	standBack = 2 * time.Millisecond
)

// tired says that the lock has been handed on in this process for long enough. Locked.
func (e *entry) tired() bool {
	return e.moves >= streakMoves || e.moves > 0 && now().since(e.movesSince) >= streakTime
}

// heir is the waiter to whom a hold can be handed; nil: it is to be freed. An heir neither asks nor polls until pass is done
// with it. Of a queued kind it is the one that came first in this process, and Redis says whether it came first of all, so
// that nobody goes without: such a lock is never tired. Locked.
func (e *entry) heir(h *hold) *waiter {
	if h.kind.pass == nil || h.deepest > 0 || len(e.queue) == 0 || e.client().state.Load() != open {
		return nil
	}
	w := e.queue[0]
	switch {
	case w.kind != h.kind, w.asking:
		return nil
	case w.kind.queued && !w.place.taken, !w.kind.queued && e.tired():
		return nil
	}
	w.heir = true
	return w
}

// successor is the hold of an heir, as far as it is known before Redis has said yes.
func (h *hold) successor(w *waiter) (*hold, *Lease) {
	c := h.client()
	next := w.newHold(w.field(), false)
	lease := next.newLease(&w.request)
	if lease.watched {
		c.dog.Arm(&next.item)
	}
	return next, lease
}

// pass hands the hold on to its heir, with its successor. It has ended when this returns, whatever Redis said, as with free.
func (h *hold) pass(l *Lease, g grip, w *waiter, next *hold, lease *Lease, arrivals uint64) error {
	e, c := h.entry, h.client()
	x := c.exchange(h.kind.pass(c, g, next.field, lease.duration()), c.opts.CommandTimeout).replicated()
	answer, err := x.run(nil, nil)
	var told lua.Answer
	if err == nil {
		if told, err = x.call.ReadPass(answer); err != nil {
			x.doubt = true
		}
	}
	var unproven error
	if told.Granted {
		unproven = x.proven()
	}

	e.shard.mu.Lock()
	w.heir = false
	// What is there of the successor is the waiter's to clean up where it has its wire owner of before, and is still here.
	kept := w.kind.queued && !w.out
	next.doubt, next.token = x.doubt || kept && w.place.doubt, told.Token
	accepted := told.Granted && unproven == nil && !w.out && !w.late(x.sent)
	switch {
	case accepted:
		next.add(lease, x.sent)
		if e.moves++; e.moves == 1 {
			e.movesSince = now()
		}
		e.grant(w, next)
		w.lease = lease
	case err != nil:
		e.dismiss(arrivals, err)
	case unproven != nil:
		e.dismiss(arrivals, unproven)
	case told.Granted && !w.out:
		w.err = errLate
	}
	if kept {
		w.place.doubt = w.place.doubt || x.doubt
	}
	cause := h.cause
	if !h.ended {
		cause = err
		if err == nil && !told.Granted && !told.Freed && !(x.doubt && l.left() > 0) {
			cause = ErrLockLost
		}
		h.ended, h.cause, h.freed = true, ErrReleased, cause
		e.drop(h)
	}
	if !accepted && !told.Freed {
		e.bump() // who is first now asks, or was the heir and has slept through all that happened meanwhile
	}
	w.poke()
	e.unlock()

	if !accepted {
		c.dog.Cancel(&next.item)
		lease.cancel(ErrNotAcquired)
	}
	if !kept && (told.Granted && !accepted || !told.Granted && x.doubt) {
		c.cleaner.add(next.kind.release(c, next.grip()), next.grip(), lease.duration(), true, x.doubt)
	}
	if h.doubt || err != nil {
		c.cleaner.add(h.kind.release(c, g), g, h.longest, err != nil, h.doubt || x.doubt)
	}
	return cause
}

// disown gives back a lease that its caller has not heard of, because it had left.
func (l *Lease) disown() {
	l.keeper.background(func() {
		l.lock()
		if l.err != nil {
			l.unlock()
			return
		}
		l.err = ErrReleased
		l.keeper.drop(l)
		l.unlock()
		l.endContexts(ErrReleased)
		_ = l.hold.release(l) // what fails is cleaned up
	})
}
