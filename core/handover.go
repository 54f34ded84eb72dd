package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/waitqueue"
)

// A handover moves a hold whose last lease was released to the first waiter of this process, in one
// command. send sends it, settle decides about the hold and the waiter, and cleanUpLocked frees
// what may be left in Redis. docs/engine-states.md has a table of all outcomes.
type handover struct {
	hold     *hold
	last     *level     // the last lease of hold
	counts   holdCounts // of hold, with no level left
	heir     *waiter
	next     *hold  // the heir's hold; it takes effect only if Redis accepts the hand-over
	lease    *level // of next
	arrivals uint32 // waitqueue.Queue.Arrivals when the command was sent

	// Set by send and settle.
	op       *redisop.Op
	reply    handoverReply
	token    uint64
	err      error // if notExecuted or outcomeUnknown
	took     time.Duration
	unproven error // if handedOver: why the replicas may not have it, so it does not count
}

// A handoverReply is the outcome of a hand-over in Redis.
type handoverReply uint8

const (
	handedOver     handoverReply = iota
	freedInstead                 // another process is first in Redis's queue
	notHeld                      // the hold was lost
	notExecuted                  // and never will be
	outcomeUnknown               // a try may have been executed, or may yet be
)

// handOverLocked prepares a hand-over to the first waiter. It returns nil if the hold must be freed
// instead. If Redis keeps the queue, the waiter is the first of this process, and Redis decides
// whether it is the first of all.
func (h *hold) handOverLocked(l *level, g holdCounts) *handover {
	e := h.entry
	if h.kind.handOver == nil || h.deepest > 0 || h.engine().state.Load() != open {
		return nil
	}
	first := e.queue.Successor(clock.Now())
	if first == nil || first.Item.kind != h.kind {
		return nil
	}
	w := first.Item
	if p := w.place(); p != nil && !p.left.there { // it has no place in Redis's queue yet
		return nil
	}
	e.queue.Offer(first)
	next, lease := w.newHold(w.sendsLocked(), false, clock.Now())
	return &handover{hold: h, last: l, counts: g, heir: w, next: next, lease: lease, arrivals: e.queue.Arrivals()}
}

// run hands the hold over. If over is false, Redis has not done so, and the caller must free the
// hold with a plain release. Otherwise the hold has ended, and err is the result of its release.
func (o *handover) run() (over bool, err error) {
	o.send()
	return o.settle(o.hold.engine().clock())
}

// send sends the command and reads the reply. It does not retry a busy reply, because a plain
// release can take the command's place.
func (o *handover) send() {
	c, h := o.hold.engine(), o.hold
	call := h.kind.handOver(c, o.counts, o.next.field, o.lease.duration())
	o.op = c.ops.Op(call, c.opts.CommandTimeout).Replicated().Hasty()
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
		o.reply = outcomeUnknown
	case err != nil:
		o.reply = notExecuted
	case result.Granted:
		o.reply, o.unproven = handedOver, o.op.Proven()
	case result.Freed:
		o.reply = freedInstead
	default:
		o.reply = notHeld
	}
}

// settle handles the reply, which was read at the given time.
func (o *handover) settle(at clock.Instant) (over bool, err error) {
	e := o.hold.entry
	e.lock()
	end, displaced := o.settleHeirLocked(at)
	over, err = o.settleHoldLocked()
	o.cleanUpLocked(end, over)
	if over && end != accepted && o.reply != freedInstead {
		wake(e.queue.Wake()) // the first waiter tries; an heir could not try meanwhile
	}
	o.heir.poke()
	e.unlock()
	finishLosses(displaced)
	return over, err
}

// A heirEnd is what has become of the heir's wire owner.
type heirEnd uint8

const (
	unused     heirEnd = iota // the hand-over was its only use
	keepsPlace                // the heir still waits with it in Redis's queue
	accepted                  // the heir holds the lock with it
)

// settleHeirLocked gives the heir its lease or an error, or lets it wait on.
func (o *handover) settleHeirLocked(at clock.Instant) (end heirEnd, displaced []loss) {
	e, w := o.hold.entry, o.heir
	here := w.State() == waitqueue.Heir
	e.queue.OfferEnded(&w.Waiter)
	o.next.stray, o.next.token = o.op.Stray(), o.token
	if p := w.place(); here && p != nil {
		end = keepsPlace
		p.left.stray = p.left.stray || o.op.Stray()
		o.next.stray = p.left.stray
	}
	switch {
	case o.reply == outcomeUnknown:
		e.dismissLocked(o.arrivals, o.err)
	case o.reply != handedOver:
	case o.unproven != nil:
		e.dismissLocked(o.arrivals, o.unproven)
	case !here:
	case w.pending == 0:
		w.troubledLocked().err = errForced
	case w.late(o.op.Sent(), at):
		w.troubledLocked().err = errLate
	default:
		end = accepted
		displaced = o.acceptLocked(at)
	}
	w.answeredLocked()
	return end, displaced
}

// acceptLocked makes the heir the holder.
func (o *handover) acceptLocked(at clock.Instant) (displaced []loss) {
	e := o.hold.entry
	o.next.addLocked(o.lease, o.op.Sent(), at)
	o.lease.acquired = clock.Now()
	o.took = o.lease.acquired.Since(clock.MomentOf(o.op.Begun()))
	e.queue.HandedOn(o.lease.acquired)
	e.grantLocked(o.heir, o.next)
	o.heir.handover = o
	e.engine().counters.handOvers.Add(1)
	return e.displaceLocked(o.next)
}

// settleHoldLocked ends the hold, unless it must be freed with a plain release. err is the result
// of Release.
func (o *handover) settleHoldLocked() (over bool, err error) {
	h := o.hold
	switch {
	case h.over(): // lost while the command was under way
		return true, h.causeLocked()
	case o.reply == notExecuted:
		h.entry.freeingLocked()
		return false, nil
	}
	err = o.err
	// After a retry, a missing hold may mean that an earlier try handed it over.
	if o.reply == notHeld && !(o.op.Stray() && o.last.leftLocked() > 0) {
		err = ErrLockLost
	}
	h.endReleasedLocked(err)
	h.entry.removeLocked(h)
	return true, err
}

// cleanUpLocked frees what may be left in Redis. An heir that still waits in Redis's queue keeps
// its wire owner and cleans up by itself.
func (o *handover) cleanUpLocked(end heirEnd, over bool) {
	c, h := o.hold.engine(), o.hold
	if left := afterGrant(o.op, o.reply == handedOver); end == unused && !left.none() {
		g := o.next.countsLocked()
		c.cleaner.add(o.next.kind.release(c, g), g, o.lease.duration(), left)
	}
	if left := afterRelease(o.err == nil, false, h.stray || o.op.Stray() && o.err != nil); over && !left.none() {
		c.cleaner.add(h.kind.release(c, o.counts), o.counts, h.longest, left)
	}
}
