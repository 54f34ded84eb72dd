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
	return e.moves >= streakMoves || e.moves > 0 && time.Since(e.movesSince) >= streakTime
}

// heir is the waiter to whom a hold can be handed; nil: it is to be freed. An heir neither asks nor is it taken for refused
// until pass is done with it. Locked.
func (e *entry) heir(h *hold) *waiter {
	if h.kind.pass == nil || h.deepest > 0 || len(e.queue) == 0 || e.tired() || e.c.state.Load() != open {
		return nil
	}
	w := e.queue[0]
	if w.kind != h.kind || w.asking || w.by == nil {
		return nil
	}
	w.heir = true
	return w
}

// pass hands the hold on to a waiter. It has ended when this returns, whatever Redis said, as with free.
func (h *hold) pass(l *Lease, w *waiter, arrivals uint64) error {
	e, c := h.entry, h.entry.c
	next := c.newHold(e, w, c.newField(), false)
	lease := c.newLease(w.by.ctx, next, w.by.lock, w.opts.LeaseTime)
	if lease.watched {
		c.dog.Arm(&next.item)
	}
	x := c.exchange(h.kind.pass(h.entry.key, h.field, next.field, lease.duration()), c.opts.CommandTimeout)
	answer, err := x.run(nil, nil)
	var told lua.Answer
	if err == nil {
		if told, err = x.call.ReadPass(answer); err != nil {
			x.doubt = true
		}
	}
	next.doubt, next.token = x.doubt, told.Token

	e.shard.mu.Lock()
	w.heir = false
	accepted := told.Granted && !w.out && !w.by.late(x.sent)
	switch {
	case accepted:
		next.add(lease, x.sent)
		e.moves++
		if e.moves == 1 {
			e.movesSince = time.Now()
		}
		e.grant(w, next)
		w.lease = lease
		w.poke()
	case told.Granted && !w.out:
		w.err = errLate
		w.poke()
	case err != nil:
		e.dismiss(arrivals, err)
	}
	cause := h.cause
	if !h.ended {
		cause = err
		if err == nil && !told.Granted && !(x.doubt && l.left() > 0) {
			cause = ErrLockLost
		}
		h.ended, h.cause, h.freed = true, ErrReleased, cause
		e.drop(h)
	}
	if !accepted {
		e.bump() // who is first now asks, or was the heir and has slept through all that happened meanwhile
	}
	g := h.grip()
	e.unlock()

	if !accepted {
		c.dog.Cancel(&next.item)
		lease.cancel(ErrNotAcquired)
	}
	if told.Granted && !accepted || !told.Granted && x.doubt {
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
