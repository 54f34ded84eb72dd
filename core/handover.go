package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// A handover moves a hold whose last lease was released to the first waiter of this process, in one
// command. send sends it, claim.HandOver decides, and applyLocked carries that out.
type handover struct {
	hold     *hold
	last     *level     // the last lease of hold
	counts   kinds.Hold // the hold without that lease: it has no level
	heir     *waiter
	to       *hold  // the heir's hold; it takes effect only if Redis accepts the hand-over
	lease    *level // the first lease of to
	arrivals uint32 // claim.Queue.Arrivals when the hand-over was planned

	// Set by send.
	op       *redisop.Op
	reply    claim.HandOverReply
	token    uint64
	err      error // the command failed with it; only if NotExecuted or Unknown
	unproven error // why the replicas may not have it, so that HandedOver does not count

	took time.Duration // how long the hand-over took, once the heir has the lock
}

// handsOver reports whether the hold may be handed over now. One that may have guests is not: the heir
// would hold the lock beside them.
func (h *hold) handsOver() bool {
	return h.kind.HandOver != nil && !h.invites && h.engine().state.Load() == open
}

// heirLocked returns the waiter that may be the heir of h; nil: there is none. If Redis keeps the
// queue, it is the first of this process, and Redis decides whether it is the first of all. known
// gets what the verdict depends on.
func (h *hold) heirLocked(known *claim.Exit) *waiter {
	queue := &h.entry.queue
	if queue.Len() == 0 {
		return nil
	}
	first := queue.Heir(clock.Now())
	if first == nil {
		return nil
	}
	w := first.Item
	known.Heir, known.SameKind = true, w.kind.Succeeds(h.kind)
	if p := w.fairPlace(); p != nil {
		known.Queued, known.HeirEarlier = true, p.leftovers
	}
	return w
}

// handOverLocked prepares a hand-over to w.
func (h *hold) handOverLocked(l *level, g kinds.Hold, w *waiter) *handover {
	e := h.entry
	now := clock.Now()
	if next := e.queue.HandTo(&w.Waiter, now, now.Add(e.engine().reliedPause(false))); next != nil {
		e.subscribeLocked(next.Item)
		next.Item.poke() // it plans its next attempt
	}
	to, lease := w.newHold(w.sendsLocked(), claim.Leftovers{}, now)
	return &handover{hold: h, last: l, counts: g, heir: w, to: to, lease: lease, arrivals: e.queue.Arrivals()}
}

// run hands the hold over. If ended is false, Redis has not done so, and the caller must free the
// hold with a plain release. Otherwise the hold has ended, and err is the result of its release.
func (o *handover) run() (ended bool, err error) {
	o.send()
	return o.settle(o.hold.engine().clock())
}

// send sends the command and reads the reply. It does not retry a busy reply, because a plain
// release can take the command's place.
func (o *handover) send() {
	eng, h := o.hold.engine(), o.hold
	call := h.kind.HandOver(eng.settings(), o.counts, o.to.wire, o.lease.duration())
	o.op = eng.ops.Op(call, eng.opts.CommandTimeout).Replicated().Hasty()
	answer, err := o.op.Run(redisop.Until{})
	var result lua.Answer
	if err == nil {
		if result, err = o.op.Call().ReadPass(answer); err != nil {
			o.op.Unreadable()
		}
	}
	o.token, o.err = result.Token, err
	switch {
	case o.op.Outcome() == redisop.Unknown:
		o.reply = claim.Unknown
	case err != nil:
		o.reply = claim.NotExecuted
	case result.Granted:
		o.reply, o.unproven = claim.HandedOver, o.op.Proven()
	case result.Freed:
		o.reply = claim.FreedInstead
	default:
		o.reply = claim.NotHeld
	}
}

// settle handles the reply, which was read at the given time.
func (o *handover) settle(at clock.Instant) (ended bool, err error) {
	e := o.hold.entry
	e.open()
	v := o.knownLocked(at).Verdict()
	displaced := o.applyLocked(v, at)
	e.close()
	finishLosses(displaced)
	return v.Over, v.Err
}

// knownLocked returns what the verdict depends on.
func (o *handover) knownLocked(at clock.Instant) claim.HandOver {
	h, w := o.hold, o.heir
	known := claim.HandOver{
		Reply:      o.reply,
		Err:        o.err,
		Unproven:   o.unproven,
		Unanswered: o.op.TryUnanswered(),
		EndedBy:    h.endedLocked(),
		HoldStray:  h.claim.Strays(true),
		LeaseLeft:  o.last.leftLocked() > 0,
		Here:       w.State() == claim.Heir,
		Forced:     w.forced,
		Late:       w.late(o.op.Sent(), at),
		Fewer:      o.fewerLocked(),
	}
	if p := w.fairPlace(); p != nil {
		known.Queued, known.Earlier = true, p.leftovers
	}
	return known
}

// fewerLocked reports whether the next waiter wants fewer permits than the heir.
func (o *handover) fewerLocked() bool {
	for _, next := range o.hold.entry.queue.Waiters() {
		if next.State() != claim.Heir {
			return next.Item.kind.Takes < o.heir.kind.Takes
		}
	}
	return false
}

// applyLocked carries out the verdict. The hand-over ends first: what follows treats the heir as a
// waiter that sleeps. The new hold is added before the old one is removed, because a shard without
// holds tells Close so. The heir plans again last, when all of that is true.
func (o *handover) applyLocked(v claim.HandOverVerdict, at clock.Instant) (displaced []loss) {
	eng, h, w := o.hold.engine(), o.hold, o.heir
	e := h.entry
	if p := w.fairPlace(); p != nil && v.KeepsOn {
		p.leftovers = p.leftovers.Or(v.HeirLeftovers)
	}
	e.queue.EndHandOver(&w.Waiter)
	switch {
	case v.Dismiss != nil:
		e.dismissLocked(o.arrivals, v.Dismiss)
	case v.HeirErr != nil:
		w.troubledLocked().err = v.HeirErr
	case v.Accepted:
		displaced = o.acceptLocked(v.HeirLeftovers, at)
	}
	w.answeredLocked()
	switch {
	case !v.Over:
		e.freeingLocked()
	case !h.claim.Ended():
		h.endReleasedLocked(v.Err)
		e.removeLocked(h)
	}
	if !v.CleanHeir.None() {
		g := o.to.countsLocked()
		eng.cleaner.add(o.to.kind.Release(eng.settings(), g), g, o.lease.duration(), v.CleanHeir)
	}
	if !v.CleanHold.None() {
		eng.cleaner.add(h.kind.Release(eng.settings(), o.counts), o.counts, h.remainsLocked(), v.CleanHold)
	}
	if v.Wake {
		wake(e.queue.Wake())
	}
	w.poke()
	return displaced
}

// acceptLocked makes the heir the holder.
func (o *handover) acceptLocked(left claim.Leftovers, at clock.Instant) (displaced []loss) {
	e := o.hold.entry
	o.to.token = o.token
	o.to.claim.MayStray(left)
	o.to.addLocked(o.lease, o.op.Sent(), at)
	o.lease.acquired = clock.Now()
	o.took = o.lease.acquired.Since(clock.MomentOf(o.op.TryBegun()))
	e.queue.HandedOver(o.lease.acquired)
	e.grantLocked(o.heir, o.to, 0)
	o.heir.handedBy = o
	e.engine().counters.handOvers.Add(1)
	return e.displaceLocked(o.to)
}
