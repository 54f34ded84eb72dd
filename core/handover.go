package core

import (
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// A handover gives a hold whose last lease was released to the first waiter of this process, by one command. ask sends it, settle
// decides what becomes of the hold and of the waiter, and cleanUp frees what may be left in Redis. docs/engine.md has the table of all
// outcomes.
type handover struct {
	hold     *hold
	last     *Lease     // of hold
	counts   holdCounts // what Redis has of hold
	heir     *waiter
	next     *hold       // the heir's; it takes effect only if Redis accepts the hand-over
	lease    *Lease      // of next
	others   *lua.Others // listeners of other processes, to whom the lock goes instead; nil: it goes to the heir in any case
	arrivals uint64      // the waiters there were when the command was sent

	// From ask on.
	op       *redisop.Op
	reply    handoverReply
	token    uint64
	err      error // of notExecuted and outcomeUnknown
	unproven error // of handedOver: why it does not count
	kept     bool  // the heir is still here, and has its place in Redis's queue
}

// A handoverReply is what Redis says to a hand-over.
type handoverReply int

const (
	handedOver     handoverReply = iota
	freedInstead                 // another process is first in Redis's queue
	othersListen                 // nothing was done, because of unless
	notHeld                      // the hold was lost
	notExecuted                  // and will not be
	outcomeUnknown               // a try may have been executed, or may yet be
)

// handOverLocked prepares a hand-over of a hold to the first waiter; nil: the hold is to be freed. The waiter neither asks nor polls
// until the hand-over is settled, and is offered one at a time.
//
// Where Redis keeps the queue, the waiter is the first of this process, and Redis says whether it is the first of all. Elsewhere a lock
// that has been handed on for long enough goes to the waiter unless others listen.
func (h *hold) handOverLocked(l *Lease, g holdCounts) *handover {
	e := h.entry
	if h.kind.handOver == nil || h.deepest > 0 || len(e.queue) == 0 || h.client().state.Load() != open {
		return nil
	}
	w := e.queue[0]
	var unless *lua.Others
	switch {
	case w.kind != h.kind, w.asking, w.heir:
		return nil
	case w.kind.queued:
		if !w.place.taken {
			return nil
		}
	case e.tiredLocked():
		if unless = e.otherListenersLocked(h.kind); unless == nil {
			return nil
		}
	}
	w.heir, w.coming = true, w.field()
	next, lease := w.newHold(w.coming, false, clock.Now())
	return &handover{hold: h, last: l, counts: g, heir: w, next: next, lease: lease, others: unless, arrivals: e.shard.arrivals}
}

// run hands the hold on. If freed is false the hold is still live, and is to be freed by a plain release; stray: the hand-over may be
// executed meanwhile. Otherwise the hold has ended, and err is what its release returns.
func (o *handover) run() (freed, stray bool, err error) {
	o.ask()
	defer o.op.Recycle()
	freed, err = o.settle(o.hold.client().clock())
	return freed, o.op.Stray(), err
}

// ask sends the command and reads its reply. It is hasty: what Redis does not execute at once is a plain release.
func (o *handover) ask() {
	c, h := o.hold.client(), o.hold
	o.op = c.ops.Op(h.kind.handOver(c, o.counts, o.next.field, o.lease.duration(), o.others), c.opts.CommandTimeout).Replicated().Hasty()
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
	case told.Others:
		o.reply = othersListen
	default:
		o.reply = notHeld
	}
}

// settle takes the reply, which was read at some time.
func (o *handover) settle(at clock.Instant) (freed bool, err error) {
	e := o.hold.entry
	e.shard.mu.Lock()
	accepted, displaced := o.settleHeirLocked(at)
	freed, err = o.settleHoldLocked()
	o.cleanUpLocked(accepted, freed)
	if freed && !accepted && o.reply != freedInstead {
		e.bumpLocked() // the first waiter asks; an heir has slept through all that happened meanwhile
	}
	o.heir.poke()
	e.unlock()
	finishLosses(displaced)
	return freed, err
}

// settleHeirLocked gives the heir its lease, or tells it why not, or lets it wait on.
func (o *handover) settleHeirLocked(at clock.Instant) (accepted bool, displaced []loss) {
	e, w := o.hold.entry, o.heir
	w.heir = false
	o.kept = w.kind.queued && !w.out
	o.next.doubt, o.next.token = o.op.Stray() || o.kept && w.place.doubt, o.token
	granted := o.reply == handedOver
	switch {
	case o.reply == outcomeUnknown:
		e.dismissLocked(o.arrivals, o.err)
	case o.unproven != nil:
		e.dismissLocked(o.arrivals, o.unproven)
	case !granted || w.out:
	case w.forced:
		w.err = errForced
	case w.late(o.op.Sent(), at):
		w.err = errLate
	default:
		accepted = true
		displaced = o.acceptLocked(at)
	}
	w.coming, w.forced = "", false
	if o.kept {
		w.place.doubt = w.place.doubt || o.op.Stray()
	}
	return accepted, displaced
}

// acceptLocked makes the heir the holder.
func (o *handover) acceptLocked(at clock.Instant) (displaced []loss) {
	e := o.hold.entry
	o.next.addLocked(o.lease, o.op.Sent(), at)
	if o.others != nil { // a streak has ended, and the next one begins
		e.streaks++
		e.moves = 0
	}
	e.movedLocked()
	o.lease.acquired = clock.Now()
	e.grantLocked(o.heir, o.next)
	displaced = e.displace(o.next)
	o.heir.lease = o.lease
	return displaced
}

// settleHoldLocked ends the hold, unless it is to be freed by a plain release. The error is what Release returns.
func (o *handover) settleHoldLocked() (freed bool, err error) {
	h := o.hold
	switch {
	case h.ended: // lost while the command was under way
		return true, h.cause
	case o.reply == othersListen:
		h.entry.rivals = max(h.entry.rivals, 1)
		h.entry.freeingLocked()
		return false, nil
	case o.reply == notExecuted:
		h.entry.freeingLocked()
		return false, nil
	}
	err = o.err
	// After a retry, nothing to hand on may mean that the try before has done it.
	if o.reply == notHeld && !(o.op.Stray() && o.last.leftLocked() > 0) {
		err = ErrLockLost
	}
	h.ended, h.cause, h.freed = true, ErrReleased, err
	h.entry.dropLocked(h)
	return true, err
}

// cleanUpLocked has freed what may be left in Redis. What a heir has there that is still here is its own to clean up, where it has its
// wire owner of before.
func (o *handover) cleanUpLocked(accepted, freed bool) {
	c, h := o.hold.client(), o.hold
	left := o.reply == handedOver && !accepted || o.reply != handedOver && o.op.Stray()
	if left && !o.kept {
		c.cleaner.add(o.next.kind.release(c, o.next.countsLocked()), o.next.countsLocked(), o.lease.duration(), true, o.op.Stray())
	}
	if freed && (h.doubt || o.err != nil) {
		c.cleaner.add(h.kind.release(c, o.counts), o.counts, h.longest, o.err != nil, h.doubt || o.op.Stray())
	}
}
