package core

import (
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/waitqueue"
)

// A handover gives a hold whose last lease was released to the first waiter of this process, by one command. ask sends it, settle
// decides what becomes of the hold and of the waiter, and cleanUp frees what may be left in Redis. docs/engine.md has the table of all
// outcomes.
type handover struct {
	hold     *hold
	last     *level     // of hold
	counts   holdCounts // what Redis has of hold
	heir     *waiter
	next     *hold  // the heir's; it takes effect only if Redis accepts the hand-over
	lease    *level // of next
	arrivals uint32 // the waiters there were when the command was sent

	// From ask on.
	op       *redisop.Op
	reply    handoverReply
	token    uint64
	err      error // of notExecuted and outcomeUnknown
	unproven error // of handedOver: why it does not count
	kept     bool  // the heir is still here, and has its place in Redis's queue
}

// A handoverReply is what Redis says to a hand-over.
type handoverReply uint8

const (
	handedOver     handoverReply = iota
	freedInstead                 // another process is first in Redis's queue
	notHeld                      // the hold was lost
	notExecuted                  // and will not be
	outcomeUnknown               // a try may have been executed, or may yet be
)

// handOverLocked prepares a hand-over of a hold to the first waiter; nil: the hold is to be freed. Where Redis keeps the queue, the
// waiter is the first of this process, and Redis says whether it is the first of all.
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
	if w.place != nil && !w.place.left.there { // it has no place in Redis's queue yet
		return nil
	}
	e.queue.Offer(first)
	w.pending = w.field()
	next, lease := w.newHold(w.pending, false, clock.Now())
	return &handover{hold: h, last: l, counts: g, heir: w, next: next, lease: lease, arrivals: e.queue.Arrivals()}
}

// run hands the hold on. If over is false Redis has not executed that, and the hold is to be freed by a plain release. Otherwise the
// hold has ended, and err is what its release returns.
func (o *handover) run() (over bool, err error) {
	o.ask()
	return o.settle(o.hold.engine().clock())
}

// ask sends the command and reads its reply. It is hasty: what Redis does not execute at once is a plain release.
func (o *handover) ask() {
	c, h := o.hold.engine(), o.hold
	o.op = c.ops.Op(h.kind.handOver(c, o.counts, o.next.field, o.lease.duration()), c.opts.CommandTimeout).Replicated().Hasty()
	answer, err := o.op.RunHere()
	var told lua.Answer
	if err == nil {
		if told, err = o.op.Call().ReadPass(answer); err != nil {
			o.op.Unreadable()
		}
	}
	o.token, o.err = told.Token, err
	switch {
	case err != nil && o.op.Stray():
		o.reply = outcomeUnknown
	case err != nil:
		o.reply = notExecuted
	case told.Granted:
		o.reply, o.unproven = handedOver, o.op.Proven()
	case told.Freed:
		o.reply = freedInstead
	default:
		o.reply = notHeld
	}
}

// settle takes the reply, which was read at some time.
func (o *handover) settle(at clock.Instant) (over bool, err error) {
	e := o.hold.entry
	e.lock()
	accepted, displaced := o.settleHeirLocked(at)
	over, err = o.settleHoldLocked()
	o.cleanUpLocked(accepted, over)
	if over && !accepted && o.reply != freedInstead {
		wake(e.queue.Wake()) // the first waiter asks; an heir has slept through all that happened meanwhile
	}
	o.heir.poke()
	e.unlock()
	finishLosses(displaced)
	return over, err
}

// settleHeirLocked gives the heir its lease, or tells it why not, or lets it wait on.
func (o *handover) settleHeirLocked(at clock.Instant) (accepted bool, displaced []loss) {
	e, w := o.hold.entry, o.heir
	here := w.State() == waitqueue.Heir
	e.queue.OfferEnded(&w.Waiter)
	o.kept = here && w.place != nil
	o.next.stray, o.next.token = o.op.Stray() || o.kept && w.place.left.stray, o.token
	switch {
	case o.reply == outcomeUnknown:
		e.dismissLocked(o.arrivals, o.err)
	case o.reply != handedOver:
	case o.unproven != nil:
		e.dismissLocked(o.arrivals, o.unproven)
	case !here:
	case w.forced:
		w.err = errForced
	case w.late(o.op.Sent(), at):
		w.err = errLate
	default:
		accepted = true
		displaced = o.acceptLocked(at)
	}
	w.answeredLocked()
	if o.kept {
		w.place.left.stray = w.place.left.stray || o.op.Stray()
	}
	return accepted, displaced
}

// acceptLocked makes the heir the holder.
func (o *handover) acceptLocked(at clock.Instant) (displaced []loss) {
	e := o.hold.entry
	o.next.addLocked(o.lease, o.op.Sent(), at)
	o.lease.acquired = clock.Now()
	e.queue.HandedOn(o.lease.acquired)
	e.grantLocked(o.heir, o.next)
	o.heir.lease = o.lease
	return e.displaceLocked(o.next)
}

// settleHoldLocked ends the hold, unless it is to be freed by a plain release. The error is what Release returns.
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
	// After a retry, nothing to hand on may mean that the try before has done it.
	if o.reply == notHeld && !(o.op.Stray() && o.last.leftLocked() > 0) {
		err = ErrLockLost
	}
	h.endReleasedLocked(err)
	h.entry.removeLocked(h)
	return true, err
}

// cleanUpLocked has freed what may be left in Redis. What an heir that is still here has there is its own to clean up, where it has
// its wire owner of before.
func (o *handover) cleanUpLocked(accepted, over bool) {
	c, h := o.hold.engine(), o.hold
	if left := afterGrant(o.op, o.reply == handedOver); !accepted && !o.kept && !left.none() {
		g := o.next.countsLocked()
		c.cleaner.add(o.next.kind.release(c, g), g, o.lease.duration(), left)
	}
	if left := afterRelease(o.err == nil, false, h.stray || o.op.Stray() && o.err != nil); over && !left.none() {
		c.cleaner.add(h.kind.release(c, o.counts), o.counts, h.longest, left)
	}
}
