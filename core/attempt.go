package core

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// lastPatience is how long the attempt at the end of WaitTime waits for its answer. Without one, the
// answer before it counts.
const lastPatience = 500 * time.Millisecond

// attempt sends the acquire script. It returns neither a lease nor an error if the waiter should
// keep waiting.
func (w *waiter) attempt(p plan) (*level, error) {
	e, eng, wire := w.entry, w.entry.engine(), p.wire
	t := kinds.Try{Terms: &w.kind.Terms, Key: e.key, Wire: wire, Lease: eng.leaseTime(w.fixed)}
	if place := w.fairPlace(); place != nil && place.clock != 0 {
		t.NotAfter, place.leftovers = w.notAfter(), place.leftovers.Queueing()
	}
	x := eng.ops.Op(w.call(p, t), eng.opts.CommandTimeout)
	if !p.looks {
		x.Replicated()
	}
	until := redisop.Until{Context: w.ctx, Closing: eng.closing}
	if p.last {
		ctx, cancel := context.WithTimeout(w.ctx, lastPatience)
		defer cancel()
		until.Context = ctx
	}
	reply, err := x.Run(until)
	if err == redisop.ErrLeft {
		return nil, w.leaveInFlight(x, wire)
	}
	defer x.Recycle()
	answer, err := readGrant(x, reply, err)
	if r, ok := err.(*recorded); ok {
		r.binding = w.kind.Marks.Binding
	}
	left := w.leavesBehind(x, answer.Granted)
	var lease *level
	stays := false
	switch {
	case err != nil:
		stays = w.fail(p.arrivals, err)
	case answer.Granted:
		if lease, err = w.granted(x, wire, answer, left.Leftovers()); lease != nil {
			return lease, nil
		}
	default:
		err = w.refused(answer, p.polls)
	}
	w.cleanUp(wire, left.Clean)
	if stays {
		notifyOr(w.ctx, w.remove, eng.opts.Observer.Retrying, func() Event { return w.event("", err) })
		return nil, nil
	}
	return nil, err
}

// sendsLocked returns the wire owner for the next attempt or hand-over, which is pending from now on:
// that of the waiter's place in Redis's queue, or else a new one.
func (w *waiter) sendsLocked() (wire string) {
	w.forced = false
	if p := w.fairPlace(); p != nil {
		w.pending = p.owner
		return p.wire
	}
	w.pending = newOwner()
	return w.entry.engine().wireOwner(w.pending)
}

// answeredLocked ends the attempt or hand-over in flight.
func (w *waiter) answeredLocked() { w.pending = 0 }

// call returns what an attempt sends.
func (w *waiter) call(p plan, t kinds.Try) lua.Call {
	if p.looks {
		return w.kind.Look(&w.kind.Terms, t.Key)
	}
	return w.kind.Acquire(w.entry.engine().settings(), t)
}

// readGrant reads the reply to an acquire script. It returns a record as an error, *recorded, and a
// grant that too few replicas confirmed together with an error. A reply that it cannot read may
// mean anything, so the attempt may have been granted.
func readGrant(x *redisop.Op, reply any, err error) (lua.Answer, error) {
	if err != nil {
		return lua.Answer{}, err
	}
	if record, ok := x.Call().ReadRecord(reply); ok {
		return lua.Answer{}, &recorded{record: []byte(record)}
	}
	answer, err := x.Call().ReadAcquire(reply)
	if err != nil {
		x.Unreadable()
	}
	switch {
	case answer.Granted:
		err = x.Proven()
	case answer.Bound:
		err = ErrBound
	case answer.TooFew:
		err = errTooFew
	case err == nil && x.Call().Looks() && answer.TTL == noKey:
		err = ErrUnrecorded
	}
	return answer, err
}

// attemptOf returns what is known of an attempt after which the wire owner is not used again. place is
// what earlier attempts have left.
func attemptOf(x *redisop.Op, granted bool, place claim.Leftovers) claim.Attempt {
	return claim.Attempt{Granted: granted, Unanswered: x.TryUnanswered(), Looks: x.Call().Looks(), Earlier: place}
}

// leavesBehind returns what an attempt leaves. The waiter's place takes its part before a hand-over
// can use the place; leaveFairPlace cleans that up.
func (w *waiter) leavesBehind(x *redisop.Op, granted bool) claim.AttemptVerdict {
	p := w.fairPlace()
	if p == nil {
		return attemptOf(x, granted, claim.Leftovers{}).Verdict()
	}
	a := attemptOf(x, granted, p.leftovers)
	a.Keeps = true
	v := a.Verdict()
	p.leftovers = v.Kept
	return v
}

// granted turns a grant into a lease. It returns an error if the grant does not count any more. It
// returns neither a lease nor an error if another call of the same owner was granted the lock
// first. The waiter then re-enters that hold, and its own grant, which is valid if the kind is
// shared, is cleaned up.
// left is what the owner's commands may leave in Redis beside the grant.
func (w *waiter) granted(x *redisop.Op, wire string, answer lua.Answer, left claim.Leftovers) (*level, error) {
	e := w.entry
	now := time.Now()
	h, lease := w.newHold(wire, left, clock.MomentOf(now))
	h.token, h.renews = cmp.Or(answer.Token, w.kind.GuestTerms.Token), answer.Renews
	why := w.ended()
	e.open()
	at := e.engine().at(now)
	v := claim.Grant{
		Asks:      w.State() == claim.Asking,
		OwnerHas:  e.holds.of(ownerOf(w.link)) != nil,
		Removed:   w.removedLocked(),
		CallerErr: why,
		Forced:    w.forced,
		Late:      w.late(x.Sent(), at),
		Outrun:    e.outrunLocked(h, clock.MomentOf(x.TryBegun())),
	}.Verdict()
	var displaced []loss
	if v.Displaces {
		displaced = e.displaceLocked(h)
	}
	switch {
	case v.Sleeps:
		w.answeredLocked()
		e.queue.Sleeps(&w.Waiter, w.PollAt)
		lease = nil
	case v.Err != nil:
		wake(e.queue.Leave(&w.Waiter))
		lease = nil
	default:
		h.addLocked(lease, x.Sent(), at)
		e.grantLocked(w, h, answer.Free)
	}
	e.close()
	finishLosses(displaced)
	return lease, v.Err
}

// late reports whether a lease has expired by at, if its command was queued at sent.
func (w *waiter) late(sent, at clock.Instant) bool {
	return at.Until(clock.LeaseEnd(sent, w.entry.engine().leaseTime(w.fixed))) <= 0
}

// ended returns why the caller's context has ended, or nil. A context may be the caller's code, and
// ask for a lease itself, so the mutex must not be held.
func (w *waiter) ended() error {
	if w.ctx.Err() == nil {
		return nil
	}
	return ended(w.ctx)
}

// subscribePatience is how long a waiter for a fair lock waits for its subscription before it
// queues up without.
const subscribePatience = time.Second

// refused handles the reply that another owner holds the lock: the waiter sleeps, or gives up if it
// makes only one attempt.
func (w *waiter) refused(answer lua.Answer, polled bool) error {
	e := w.entry
	e.open()
	defer e.close()
	e.noteLocked(answer.TTL)
	if w.kind.Record != nil {
		e.waitedLocked()
	}
	if w.aside != nil {
		w.aside.failures, w.aside.failure = 0, nil
	}
	v := w.refusalLocked(answer)
	switch {
	case v.GivesUp:
		wake(e.queue.Leave(&w.Waiter))
		return w.notAcquiredLocked(answer.TTL)
	case v.Sleeps:
		w.sleepsLocked(answer, v, polled)
	}
	return nil
}

// refusalLocked returns the verdict on a refusal.
func (w *waiter) refusalLocked(answer lua.Answer) claim.RefusalVerdict {
	known := claim.Refusal{Out: w.State() == claim.Out, NoWait: w.NoWait, Position: answer.Place}
	if p := w.fairPlace(); p != nil && !known.Out {
		known.Queued, known.First = true, w.pollsForOthersLocked()
		known.Hears = p.channel != nil && w.entry.engine().hub.Confirmed(p.channel)
	}
	return known.Verdict()
}

// sleepsLocked puts a refused waiter to sleep and subscribes it to releases. polled means that
// nothing had caused its attempt but time.
func (w *waiter) sleepsLocked(answer lua.Answer, v claim.RefusalVerdict, polled bool) {
	e, eng := w.entry, w.entry.engine()
	w.answeredLocked()
	p, most := w.fairPlace(), eng.reliedPause(polled)
	if p != nil {
		most = w.inTime(eng.pollPause())
		p.answered(answer, eng.clock(), eng.opts.FairWaitTimeout)
	}
	pause := untilExpiry(answer.TTL, most)
	if v.ByPlace {
		pause = fairPause(eng.fairPoll(), answer.Place)
	}
	e.refusedLocked(w, pause)
	e.subscribeLocked(w)
	switch v.Join {
	case claim.JoinNow:
		w.PollAt = 0
	case claim.JoinHeard:
		w.PollAt = clock.In(min(eng.opts.PollInterval, subscribePatience))
	}
}

// fail handles the error of an attempt. It fails every waiter that had joined before the command
// was sent, this one included. The others would only run into the same error one after another,
// each for a CommandTimeout. A record and ErrUnrecorded go to all of them, too, if they want a
// record. Waiters that outlast the error stay, and fail reports whether this one does. ErrWrongKind,
// ErrBound and errTooFew concern this waiter only.
func (w *waiter) fail(arrivals uint32, err error) (stays bool) {
	e := w.entry
	e.open()
	defer e.close()
	own := err == ErrWrongKind || err == ErrBound || err == errTooFew
	known := claim.Failure{Own: own, Outlasts: w.outlasts(err), Out: w.State() == claim.Out}
	v := known.Verdict()
	switch {
	case v.Leaves:
		wake(e.queue.Leave(&w.Waiter))
	case v.Dismisses:
		e.dismissLocked(arrivals, err)
	}
	if v.Stays {
		w.answeredLocked()
		t := w.troubledLocked()
		t.failures, t.failure = min(t.failures+1, 100), err
		if v.Sleeps {
			e.refusedLocked(w, e.engine().outagePause(t.failures))
			e.subscribeLocked(w)
		}
	}
	return v.Stays
}

// outlasts reports whether the waiter goes on waiting after an error: for ever if that is its
// WaitTime, and until its WaitTime is over if a primary is only to be found.
func (w *waiter) outlasts(err error) bool {
	if w.Deadline == 0 {
		return heals(err)
	}
	return !w.NoWait && errors.Is(err, ErrReadOnly)
}
