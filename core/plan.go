package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// A step is what a waiter does next.
type step uint8

const (
	stepAsk       step = iota
	stepSleep          // for plan.pause, unless poked
	stepStartOver      // another call of its owner was granted the lock
	stepFail           // return plan.err
	stepTake           // return the lease of waiter.handover

	// Only on arrival, for a waiter that has not joined the queue:
	stepReenter      // re-enter plan.hold
	stepTryPastQueue // send one attempt without queueing
	stepTurnAway     // return plan.err, unless there is a record
	stepRefuse       // return plan.err
)

// A plan is the next step of a waiter, with its arguments.
type plan struct {
	step     step
	pause    time.Duration
	hold     *hold
	err      error
	wire     string // wire owner of the attempt
	arrivals uint32 // when the attempt begins; see claim.Queue.Dismiss
	last     bool   // the attempt is the one at the end of WaitTime
	polls    bool   // nothing caused the attempt but time
	looks    bool   // the attempt asks for a record only
	holder   holder // who has a lock that the waiter waits for without end
}

// arriveLocked plans the first step of a waiter at e. h is the hold that its lineage has a lease
// of; nil: none. It adds the waiter to the queue, unless the step is one of those only on arrival.
func (w *waiter) arriveLocked(e *entry, h *hold, at clock.Moment) plan {
	w.entry = e
	if h == nil && !e.counted {
		h = e.holds.of(ownerOf(w.link))
	}
	if h != nil {
		if !w.kind.Reenters(h.kind) {
			return plan{step: stepRefuse, err: ErrWrongKind}
		}
		return plan{step: stepReenter, hold: h}
	}
	if e.engine().state.Load() != open {
		return plan{step: stepRefuse, err: ErrClosed}
	}
	if w.link != nil && w.link.PastQueue || w.kind.Invited() {
		e.queue.Leave(&w.Waiter)
		e.shard.acquiring.Add(1)
		e.shard.pastQueue = append(e.shard.pastQueue, w)
		return plan{step: stepTryPastQueue, wire: w.sendsLocked()}
	}
	switch e.queue.Join(&w.Waiter) {
	case claim.Full:
		return plan{step: stepTurnAway, err: errNameFull(w.Limit)}
	case claim.Behind:
		if err := e.queue.Waiters()[0].Item.failureLocked(); err != nil {
			return plan{step: stepTurnAway, err: err}
		}
		return plan{step: stepTurnAway, err: w.notAcquiredLocked(e.ttlLocked())}
	}
	e.shard.acquiring.Add(1)
	w.waited = e.queue.Waiters()[0].Item.waited
	return w.nextLocked(at, at)
}

// next is nextLocked without the mutex held, after a sleep or an attempt.
func (w *waiter) next(since clock.Moment) plan {
	w.entry.open()
	defer w.entry.close()
	return w.nextLocked(clock.Now(), since)
}

// nextLocked plans the next step, and records in the queue that the waiter tries Redis, or leaves.
// The waiter has slept since its latest attempt had ended at since.
func (w *waiter) nextLocked(at, since clock.Moment) plan {
	if w.deafLocked(at, since) {
		w.PollAt = at
	}
	p := w.planLocked(at)
	switch p.step {
	case stepAsk:
		e := w.entry
		if p.polls = e.queue.Asks(&w.Waiter, at); p.polls {
			e.engine().counters.polls.Add(1)
		}
		p.wire, p.arrivals, p.last = w.sendsLocked(), e.queue.Arrivals(), w.TriesLast()
		p.looks = w.waited && w.kind.Looks
	case stepSleep:
		if w.signal == nil {
			w.signal = make(chan struct{}, 1)
			w.holder = w.entry.holds.first
		}
		if w.Deadline == 0 {
			p.holder = w.holderLocked()
		}
		if w.State() == claim.Asleep { // and then see whether it still hears its channel
			p.pause = min(p.pause, w.inTime(w.entry.engine().pollPause()))
		}
	default:
		wake(w.entry.queue.Leave(&w.Waiter))
	}
	return p
}

func (w *waiter) planLocked(at clock.Moment) plan {
	e := w.entry
	switch {
	case w.handedBy != nil:
		return plan{step: stepTake}
	case w.removedLocked() != nil:
		return plan{step: stepFail, err: w.removedLocked()}
	case e.holds.of(ownerOf(w.link)) != nil:
		return plan{step: stepStartOver}
	}
	if w.State() == claim.Asleep && w.pollsForOthersLocked() {
		w.PollAt = min(w.PollAt, w.Asked().Add(e.engine().fairPoll()))
	}
	next, pause := e.queue.Next(&w.Waiter, at)
	if next == claim.Prompt {
		wake(e.queue.Prompt(at))
		next, pause = e.queue.Next(&w.Waiter, at)
	}
	switch next {
	case claim.Ask:
		left := w.timeLeft(at)
		if left > 0 && w.kind.Record != nil && e.recordingLocked() { // deliverLocked will wake it
			return plan{step: stepSleep, pause: left}
		}
		return plan{step: stepAsk}
	case claim.Sleep:
		return plan{step: stepSleep, pause: pause}
	}
	return plan{step: stepFail, err: w.gaveUpLocked(e.ttlLocked())}
}

// deafLocked reports whether a waiter that has slept for about PollInterval must poll now, because a
// message might not have reached it: it may have fallen asleep before the subscription was lost.
func (w *waiter) deafLocked(at, since clock.Moment) bool {
	if w.State() != claim.Asleep || at.Since(max(since, w.Asked())) < w.inTime(w.entry.engine().leastPoll()) {
		return false
	}
	channel := w.entry.channel
	if p := w.fairPlace(); p != nil {
		channel = p.channel
	}
	return channel == nil || !w.entry.engine().hub.Hears(channel)
}

func (w *waiter) timeLeft(at clock.Moment) time.Duration {
	if w.Deadline == 0 {
		return claim.Forever
	}
	return w.Deadline.Since(at)
}
