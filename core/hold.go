package core

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A hold is one passage of an owner from not holding a lock to holding it and back. It has one field in Redis, whose name
// is never used again, so that a late command of an earlier hold finds nothing to spoil. Its life:
//
//	live    -> ended    the last lease was released and Redis has answered; or it was lost: a reply said so, its last lease
//	                    ran out, the lock was taken away by force, the client was closed
//
// A live hold may have no lease for a moment: while the release of the last one is on its way. A re-entry that gets the
// turn before that release makes it an ordinary partial one.
//
// There may be a hundred thousand of them, each with its lease: both are kept small.
type hold struct {
	entry *entry
	kind  *kind // of the first lease; the sides of a read/write lock share a hold
	owner owner
	field string // the wire owner
	token uint64 // fencing token; 0: none
	item  watchdog.Item[*hold]

	// Guarded by the shard's mutex.
	next      *hold // of the entry; see holdSet
	prev      *hold
	leases    *Lease // neither released nor run out: their number is the hold count
	sure      levels // what Redis has at the least
	deepest   int32  // the most shared levels that Redis was told
	doubt     bool   // a try to acquire may still arrive at Redis
	armed     bool
	ended     bool
	turnTaken bool          // the turn is: a command that changes the hold is under way; renewals do not take it
	turnQueue *candidate    // for the turn
	cause     error         // why it ended
	freed     error         // what Redis said to the release that ended it
	renewed   clock.Instant // the local deadline of leases that the watchdog keeps
	longest   time.Duration // of the leases so far: nothing of the hold can be in Redis later than that after its last command
	record    *lua.Record   // a Once's: what the next command that changes the number of leases is to leave

	first Lease // as a rule there is no other one
}

// newHold is the hold that a waiter is to have, with its first lease.
func (w *waiter) newHold(field string, doubt bool, acquired clock.Moment) (*hold, *Lease) {
	h := &hold{
		entry: w.entry,
		kind:  w.kind,
		owner: w.owner,
		field: field,
		doubt: doubt,
		sure:  levels{}.plus(w.kind),
	}
	h.deepest = h.sure.shared
	h.item.Hold, h.item.Slot = h, uint16(h.client().slot(w.entry.key))
	h.first = h.lease(&w.request, acquired)
	return h, &h.first
}

func (h *hold) client() *Client { return h.entry.client() }

func (c *Client) newField() string { return wire.Owner(c.id, holds.Add(1)) }

// addLocked puts a lease on the hold that Redis has granted by a command sent at some time.
func (h *hold) addLocked(l *Lease, sent, at clock.Instant) {
	l.next, h.leases = h.leases, l
	h.prolongLocked(l, sent, at, l.duration())
}

// prolongLocked moves a lease's deadline, never back.
func (h *hold) prolongLocked(l *Lease, sent, at clock.Instant, d time.Duration) {
	h.longest = max(h.longest, d)
	if l.watched {
		h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, d))
	} else {
		l.deadline = clock.Later(l.deadline, clock.LeaseEnd(sent, d))
	}
	l.setAlarmLocked(at)
	if !h.armed && l.beatsLocked(at) {
		h.armed = true
		h.client().dog.Arm(&h.item, l.leftAtLocked(at))
	}
}

// beatsLocked reports whether the lease needs the watchdog. One without a LeaseTime does; and so does a reader's that lasts for longer
// than a beat: Redisson sets the time to live that all readers share to its own whenever it renews a reader of its own.
func (l *Lease) beatsLocked(at clock.Instant) bool {
	return l.watched || l.kind.shared && l.leftAtLocked(at) > l.hold.client().beat()
}

// needLocked is what Redis is to have left of the hold, for the longest of its leases.
func (h *hold) needLocked() (longest time.Duration) {
	at := h.client().clock()
	for l := h.leases; l != nil; l = l.next {
		need := l.duration()
		if !l.watched {
			need = l.leftAtLocked(at)
			need += clock.Margin(need)
		}
		longest = max(longest, need)
	}
	return max(longest, minLease)
}

// dropLocked takes a lease off the hold.
func (h *hold) dropLocked(l *Lease) {
	for at := &h.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			break
		}
	}
	l.stopAlarmLocked()
	h.mayCancelLocked()
}

// mayCancelLocked ends the renewal when no lease wants it any more.
func (h *hold) mayCancelLocked() {
	if h.armed && (h.ended || !h.beatsLocked()) {
		h.armed = false
		h.client().dog.Cancel(&h.item)
	}
}

// beatsLocked reports whether a lease needs the watchdog.
func (h *hold) beatsLocked() bool {
	for l := h.leases; l != nil; l = l.next {
		if l.beatsLocked(h.client().clock()) {
			return true
		}
	}
	return false
}

// update sends the number of leases, with one more of a kind or not, and the lease wanted; it has applied called, locked, when
// Redis has done it. A caller that leaves does not give the turn back before the reply is there.
func (h *hold) update(ctx context.Context, more *kind, lease time.Duration, applied func(sent clock.Instant) error) error {
	c := h.client()
	if err := h.lockTurn(ctx); err != nil {
		return err
	}
	g, err := h.planCounts(more)
	if err == nil && g.total() == 0 { // what was to be extended has been released, and whoever did so has the next turn
		err = ErrReleased
	}
	if err != nil {
		h.unlockTurn()
		return err
	}
	x := c.ops.Op(h.kind.update(c, g, lease), c.opts.CommandTimeout).Replicated()
	if more == nil { // an extension
		x.UntilSent()
	}
	answer, err := x.Run(ctx.Done(), nil)
	if err == redisop.ErrLeft {
		if !c.background.Go(func() { h.finish(x, g) }) {
			h.unlockTurn()
		}
		return ended(ctx)
	}
	defer h.unlockTurn()
	err = h.apply(x, g, answer, err, func(sent clock.Instant) error {
		if x.Unacked() != nil { // it always writes
			return x.Unacked()
		}
		return applied(sent)
	})
	if err == errLate || errors.Is(err, ErrNotReplicated) {
		h.sendCount() // without it
	}
	return err
}

// finish ends an update whose caller has left: if Redis did it, the count is set right again.
func (h *hold) finish(x *redisop.Op, g holdCounts) {
	defer h.unlockTurn()
	answer, err := x.Await()
	if h.apply(x, g, answer, err, nothing) == nil {
		h.sendCount()
	}
}

// apply reads the reply of an update.
func (h *hold) apply(x *redisop.Op, g holdCounts, answer any, err error, applied func(sent clock.Instant) error) error {
	if err != nil {
		return err
	}
	there, err := x.Call().ReadFlag(answer)
	if err != nil {
		return err
	}
	if !there {
		h.lose(ErrLockLost)
		_, err := h.planCounts(nil) // ErrLockLost, or else why it was freed already
		return err
	}
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	if h.ended {
		return h.cause
	}
	h.sure = g.levels
	if h.downgraded(g) {
		h.entry.bumpLocked() // readers may come in
	}
	return applied(x.Sent())
}

func nothing(clock.Instant) error { return nil }

// downgraded reports whether a hold that was a writer's is to have levels of the read side only.
func (h *hold) downgraded(g holdCounts) bool {
	return !h.kind.shared && g.exclusive == 0 && g.shared > 0
}

// planCounts returns what Redis is to have of the hold: a level for each lease, and one more if more is not nil. The caller has the
// turn. The error says why the hold has ended, or that more cannot be entered.
func (h *hold) planCounts(more *kind) (holdCounts, error) {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	return h.planCountsLocked(more)
}

func (h *hold) planCountsLocked(more *kind) (holdCounts, error) {
	if h.ended {
		return holdCounts{}, h.cause
	}
	if more != nil && !more.shared && h.sure.exclusive == 0 {
		return holdCounts{}, ErrUpgrade
	}
	g := h.countsLocked()
	g.levels = g.plus(more)
	if g.total() > 0 { // a level that is given up may be gone from now on, whatever is heard of the command
		h.sure = levels{min(h.sure.exclusive, g.exclusive), min(h.sure.shared, g.shared)}
	}
	h.deepest = max(h.deepest, g.shared)
	g.deepest = h.deepest
	return g, nil
}

// gripLocked is what Redis is to have of the leases there are.
func (h *hold) countsLocked() holdCounts {
	g := holdCounts{key: h.entry.key, field: h.field, deepest: h.deepest}
	for l := h.leases; l != nil; l = l.next {
		g.levels = g.plus(l.kind)
	}
	return g
}

// sendCount tells Redis the hold count. The turn is taken. A failure is of no consequence, as the next change sets it; except for that
// of a downgrade.
func (h *hold) sendCount() {
	if g, err := h.tellCount(); err != nil {
		h.retryDowngrade(g)
	}
}

// tellCount is one try of that, and returns what was to be told.
func (h *hold) tellCount() (holdCounts, error) {
	c := h.client()
	g, err := h.planCounts(nil)
	if err != nil || g.total() == 0 {
		return g, nil
	}
	x := c.ops.Op(h.kind.update(c, g, 0), c.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(nil, nil)
	return g, h.apply(x, g, answer, err, nothing)
}

// retryDowngrade resends the count in the background until Redis accepts it, if it is that of a downgrade. Until then no reader gets
// in, and there may be no other change for hours.
func (h *hold) retryDowngrade(g holdCounts) {
	if !h.downgraded(g) {
		return
	}
	c := h.client()
	c.background.Go(func() {
		for failures := 0; ; failures++ {
			select {
			case <-time.After(min(20*time.Millisecond<<min(failures, 6), time.Second)):
			case <-c.closing:
				return
			}
			_ = h.lockTurn(context.Background())
			_, err := h.tellCount()
			h.unlockTurn()
			if err == nil { // told, or there is nothing to tell any more
				return
			}
		}
	})
}

// release tells Redis that a lease has been released: by the new count, or by freeing the hold with its last lease. A caller
// for whom the turn does not come in time waits no longer.
func (h *hold) release(l *Lease) error {
	h.entry.shard.mu.Lock()
	p := h.tryTurnLocked()
	if p == nil { // as a rule nobody has it
		return h.tellRelease(l)
	}
	h.entry.shard.mu.Unlock()
	c := h.client()
	timeout := time.NewTimer(c.opts.CommandTimeout)
	defer timeout.Stop()
	inTurn := func() error {
		h.entry.shard.mu.Lock()
		return h.tellRelease(l)
	}
	select {
	case <-p.called:
		return inTurn()
	case <-timeout.C:
	}
	later := func() {
		<-p.called
		_ = inTurn() // the caller has been told of a failure; a hold is cleaned up, a count set right by the next change
	}
	if !c.background.Go(later) {
		later() // the client is closed, and no command takes long any more
	}
	return redisop.ErrTimeout
}

// tellRelease is release once the turn is taken, which it gives back. Locked; it unlocks.
func (h *hold) tellRelease(l *Lease) error {
	e := h.entry
	g, err := h.planCountsLocked(nil)
	if err != nil {
		if err == ErrReleased { // another lease that was released at the same time freed it for both
			err = h.freed
		}
		h.unlockTurnLocked()
		e.shard.mu.Unlock()
		return err
	}
	r := h.record
	if g.total() > 0 {
		e.shard.mu.Unlock()
		defer h.unlockTurn()
		return h.lower(g, r)
	}
	if o := h.handOverLocked(l, g); o != nil {
		e.shard.mu.Unlock()
		freed, stray, err := o.run()
		if !freed {
			return h.free(l, g, r, stray)
		}
		h.unlockTurn()
		return err
	}
	e.freeingLocked()
	e.shard.mu.Unlock()
	return h.free(l, g, r, false)
}

// lower tells Redis the count of the leases that are left, with the record to be left, if there is one.
func (h *hold) lower(g holdCounts, r *lua.Record) error {
	c := h.client()
	call := h.kind.update(c, g, 0)
	if r != nil {
		call = h.kind.record(c, g, *r)
	}
	x := c.ops.Op(call, c.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(nil, nil)
	err = h.apply(x, g, answer, err, func(clock.Instant) error {
		if h.record == r {
			h.record = nil
		}
		return nil
	})
	if err != nil {
		h.retryDowngrade(g)
	}
	return err
}

// sendRelease sends a release and reads its reply. In a slot on its way to another node, a release whose keys are not all there on one
// side is refused for as long as that takes, and some are never there. Then the hash goes alone, so that others can have the lock, and
// there is a rest, for which the call has to be sent once more.
func (c *Client) sendRelease(x *redisop.Op) (freed, rest bool, err error) {
	alone, divisible := x.Call().WithoutRest()
	divisible = divisible && c.cluster != nil
	if divisible {
		x.Hasty()
	}
	answer, err := x.Run(nil, nil)
	if divisible && x.Busy() {
		x.Replace(alone)
		rest = true
		answer, err = x.Run(nil, nil)
	}
	if err == nil {
		freed, err = x.Call().ReadFlag(answer)
	}
	return freed, rest, err
}

// free frees the hold in Redis, l being its last lease, and gives the turn back. The hold has ended when this returns, whatever
// Redis said; what may have been left there is cleaned up. stray: a hand-over of it may be executed meanwhile.
func (h *hold) free(l *Lease, g holdCounts, r *lua.Record, stray bool) error {
	c := h.client()
	call := h.kind.undoing(c, g)
	if r != nil {
		call = h.kind.record(c, g, *r)
	}
	x := c.ops.Op(call, c.opts.CommandTimeout).UntilSent()
	defer x.Recycle()
	began := c.at(x.Begun())
	there, rest, err := c.sendRelease(x)

	h.entry.shard.mu.Lock()
	defer h.entry.unlock()
	h.unlockTurnLocked()
	if h.ended { // lost while the release was under way
		return h.cause
	}
	mine := (x.Stray() || stray) && l.leftLocked() > 0 // an earlier try of this very release whose reply was lost
	if r != nil {
		mine = x.Stray() && c.clock().Since(began) >= r.TTL // what it had left would be there otherwise
	}
	if err == nil && !there && !mine {
		err = ErrLockLost
	}
	if err == nil && r != nil {
		h.entry.deliverLocked(r, began)
	}
	if told := err == nil || err == ErrLockLost; !told || rest || h.doubt {
		switch {
		case r != nil && (err == ErrLockLost || x.Failed() || err == ErrWrongKind):
			call = h.kind.release(c, g) // Redis will not have the record: a marker stays
		case told:
			call = h.kind.undoing(c, g)
		}
		c.cleaner.add(call, g, h.longest, !told || rest, h.doubt)
	}
	h.ended, h.cause, h.freed = true, ErrReleased, err
	h.entry.removeLocked(h)
	return err
}

// lose ends the hold and all its leases. The contexts end first; then others may have the lock, and what may be
// left of the hold in Redis is freed.
func (h *hold) lose(cause error) {
	h.entry.shard.mu.Lock()
	lost, ok := h.endLocked(cause)
	h.entry.shard.mu.Unlock()
	if ok {
		h.finishLoss(lost)
	}
}

// endLocked marks the hold and its leases as ended, and returns the first of the leases.
func (h *hold) endLocked(cause error) (lost *Lease, ok bool) {
	if h.ended {
		return nil, false
	}
	h.ended, h.cause = true, cause
	lost, h.leases = h.leases, nil
	for l := lost; l != nil; l = l.next {
		l.err = cause
		l.stopAlarmLocked()
	}
	h.mayCancelLocked()
	return lost, true
}

// finishLoss follows endLocked. It ends the contexts first, then frees what may be left in Redis, and reports the loss.
func (h *hold) finishLoss(lost *Lease) {
	for l := lost; l != nil; l = l.next {
		l.endContexts(h.cause)
	}
	h.entry.shard.mu.Lock()
	g := h.countsLocked()
	h.client().cleaner.add(h.kind.release(h.client(), g), g, h.longest, true, h.doubt)
	h.entry.removeLocked(h)
	h.entry.unlock()
	for l := lost; l != nil; l = l.next {
		l.reportLoss(h.cause)
	}
}

// A loss is a hold that was ended under the mutex, with its leases, whose contexts are still to be ended.
type loss struct {
	hold   *hold
	leases *Lease
}

// finishLosses finishes all of them. The caller does not have the mutex.
func finishLosses(all []loss) {
	for _, x := range all {
		x.hold.finishLoss(x.leases)
	}
}
