package core

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/watchdog"
)

// A hold is one passage of an owner from not holding a lock to holding it and back. It has one field in Redis, whose name is never
// used again, so that a late command of an earlier hold finds nothing to spoil.
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
	next    *hold // of the entry; see holdSet
	prev    *hold
	leases  *level // neither released nor expired: their number is the hold count
	sure    levels // what Redis has at the least
	deepest int32  // the most shared levels that Redis was told
	state   holdState
	armed   bool // the watchdog has it
	stray   bool // a try to acquire may still arrive at Redis
	turn    turn
	err     error         // lost: why; released: what Redis said to that
	renewed clock.Instant // the local deadline of leases that the watchdog keeps
	longest time.Duration // of the leases so far: nothing of the hold can be in Redis later than that after its last command
	record  *lua.Record   // a Once's: what the next command that changes the number of leases is to leave

	first level // most holds have no other lease
}

// A holdState is where a hold stands. holdMoves lists how it changes.
type holdState uint8

const (
	held     holdState = iota // it has leases, or is about to have its first
	freeing                   // its last lease was released, and Redis is to be told
	released                  // Redis has answered that, or will not
	lost                      // a reply said so, its last lease expired, it was taken by force, or the client was closed
)

// holdMoves has, for each state, those that may follow. A re-entry that gets the turn before the release of the last lease makes
// that an ordinary partial one.
var holdMoves = [...][]holdState{
	held:     {freeing, lost},
	freeing:  {held, released, lost},
	released: {},
	lost:     {},
}

func (s holdState) String() string { return [...]string{"held", "freeing", "released", "lost"}[s] }

// moveLocked is the only place where the state changes. It refuses what holdMoves does not have.
func (h *hold) moveLocked(to holdState) bool {
	for _, next := range holdMoves[h.state] {
		if next == to {
			h.state = to
			return true
		}
	}
	if strict {
		panic("reqlock: a hold cannot go from " + h.state.String() + " to " + to.String())
	}
	return false
}

// strict makes a move that the machine does not have a panic. Tests set it.
var strict bool

// over reports whether the hold has ended.
func (h *hold) over() bool { return h.state >= released }

// causeLocked is why it has.
func (h *hold) causeLocked() error {
	if h.state == released {
		return ErrReleased
	}
	return h.err
}

// newHold is the hold that a waiter is to have, with its first lease.
func (w *waiter) newHold(field string, stray bool, acquired clock.Moment) (*hold, *level) {
	h := &hold{
		entry: w.entry,
		kind:  w.kind,
		owner: w.owner,
		field: field,
		stray: stray,
		sure:  levels{}.plus(w.kind.shared),
	}
	h.deepest = h.sure.shared
	h.item.Hold, h.item.Slot = h, uint16(h.engine().slot(w.entry.key))
	h.first.init(h, &w.request, acquired)
	return h, &h.first
}

func (h *hold) engine() *engine { return h.entry.shard.engine }

func (h *hold) lock()   { h.entry.lock() }
func (h *hold) unlock() { h.entry.unlock() }

// addLocked puts a lease on the hold that Redis has granted by a command sent at some time.
func (h *hold) addLocked(l *level, sent, at clock.Instant) {
	l.next, h.leases = h.leases, l
	if h.state == freeing {
		h.moveLocked(held)
	}
	h.prolongLocked(l, sent, at, l.duration())
}

// prolongLocked moves a lease's deadline, never back.
func (h *hold) prolongLocked(l *level, sent, at clock.Instant, d time.Duration) {
	h.longest = max(h.longest, d)
	if l.watched {
		h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, d))
	} else {
		l.deadline = clock.Later(l.deadline, clock.LeaseEnd(sent, d))
	}
	l.setAlarmLocked(at)
	if !h.armed && l.beatsLocked(at) {
		h.armed = true
		h.entry.shard.dog.Arm(&h.item, l.leftAtLocked(at))
	}
}

// dropLocked takes a lease off the hold.
func (h *hold) dropLocked(l *level) {
	for at := &h.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			break
		}
	}
	l.stopAlarmLocked()
	if h.leases == nil {
		h.moveLocked(freeing)
	}
	h.cancelRenewalLocked()
}

// cancelRenewalLocked ends the renewal when no lease wants it any more.
func (h *hold) cancelRenewalLocked() {
	if h.armed && !h.beatsLocked() {
		h.armed = false
		h.entry.shard.dog.Cancel(&h.item)
	}
}

// beatsLocked reports whether a lease needs the watchdog.
func (h *hold) beatsLocked() bool {
	at := h.engine().clock()
	for l := h.leases; l != nil; l = l.next {
		if l.beatsLocked(at) {
			return true
		}
	}
	return false
}

// needLocked is what Redis is to have left of the hold, for the longest of its leases.
func (h *hold) needLocked() (longest time.Duration) {
	at := h.engine().clock()
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

// countsLocked is what Redis is to have of the leases there are.
func (h *hold) countsLocked() holdCounts {
	g := holdCounts{key: h.entry.key, field: h.field, deepest: h.deepest}
	for l := h.leases; l != nil; l = l.next {
		g.levels = g.plus(l.kind.shared)
	}
	return g
}

// planCountsLocked returns what Redis is to have of the hold: a level for each lease, and one more if more is not nil. The caller has
// the turn. The error says why the hold has ended, or that more cannot be entered.
func (h *hold) planCountsLocked(more *kind) (holdCounts, error) {
	if h.over() {
		return holdCounts{}, h.causeLocked()
	}
	if more != nil && !more.shared && h.sure.exclusive == 0 {
		return holdCounts{}, ErrUpgrade
	}
	g := h.countsLocked()
	if more != nil {
		g.levels = g.plus(more.shared)
	}
	if g.total() > 0 { // a level that is given up may be gone from now on, whatever the outcome of the command
		h.sure = levels{min(h.sure.exclusive, g.exclusive), min(h.sure.shared, g.shared)}
	}
	h.deepest = max(h.deepest, g.shared)
	g.deepest = h.deepest
	return g, nil
}

func (h *hold) planCounts(more *kind) (holdCounts, error) {
	h.lock()
	defer h.unlock()
	return h.planCountsLocked(more)
}

// downgraded reports whether a hold that was a writer's is to have levels of the read side only.
func (h *hold) downgraded(g holdCounts) bool {
	return !h.kind.shared && g.exclusive == 0 && g.shared > 0
}

// lockTurn waits for the turn, unless ctx ends.
func (h *hold) lockTurn(ctx context.Context) error {
	h.lock()
	c := h.turn.tryLocked()
	h.unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c.called:
		return nil
	case <-ctx.Done():
		h.lock()
		h.turn.leaveLocked(c)
		h.unlock()
		return ended(ctx)
	}
}

// unlockTurn gives the turn to the next in its queue.
func (h *hold) unlockTurn() {
	h.lock()
	h.turn.passLocked()
	h.unlock()
}

// update sends the number of leases, with one more of a kind or not, and the lease wanted. It calls applied, locked, when Redis has
// done it. A caller that leaves does not give the turn back before the reply is there.
func (h *hold) update(ctx context.Context, more *kind, lease time.Duration, applied func(sent clock.Instant) error) error {
	c := h.engine()
	if err := h.lockTurn(ctx); err != nil {
		return err
	}
	g, err := h.planCounts(more)
	if err == nil && g.total() == 0 { // what was to be extended has been released, and that release has the next turn
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
		if !c.background.Go(func() { h.finishUpdate(x, g) }) {
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

// finishUpdate ends an update whose caller has left: if Redis did it, the count is set right again.
func (h *hold) finishUpdate(x *redisop.Op, g holdCounts) {
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
	h.lock()
	defer h.unlock()
	if h.over() {
		return h.causeLocked()
	}
	h.sure = g.levels
	if h.downgraded(g) {
		wake(h.entry.queue.Wake()) // readers may come in
	}
	return applied(x.Sent())
}

func nothing(clock.Instant) error { return nil }

// sendCount tells Redis the hold count. The caller has the turn. A failure is of no consequence, as the next change sets the count;
// except for that of a downgrade.
func (h *hold) sendCount() {
	if g, err := h.tryCount(); err != nil {
		h.retryDowngrade(g)
	}
}

// tryCount is one try of that. It returns what it sent.
func (h *hold) tryCount() (holdCounts, error) {
	c := h.engine()
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
	c := h.engine()
	c.background.Go(func() {
		for failures := 0; ; failures++ {
			select {
			case <-time.After(min(20*time.Millisecond<<min(failures, 6), time.Second)):
			case <-c.closing:
				return
			}
			_ = h.lockTurn(context.Background())
			_, err := h.tryCount()
			h.unlockTurn()
			if err == nil { // done, or not needed any more
				return
			}
		}
	})
}

// A releasePlan is how the release of a lease is told to Redis.
type releasePlan struct {
	way      releaseWay
	counts   holdCounts
	record   *lua.Record
	handover *handover
	err      error
}

type releaseWay uint8

const (
	isOver    releaseWay = iota // there is nothing to tell; plan.err
	lowers                      // other leases are left: the hold count goes down
	handsOver                   // the last lease goes, and a waiter gets the hold
	frees                       // the last lease goes
)

// planReleaseLocked decides that for a lease that was dropped. The caller has the turn, which execute gives back.
func (h *hold) planReleaseLocked(l *level) releasePlan {
	g, err := h.planCountsLocked(nil)
	if err != nil {
		if err == ErrReleased { // another lease that was released at the same time freed it for both
			err = h.err
		}
		h.turn.passLocked()
		return releasePlan{way: isOver, err: err}
	}
	p := releasePlan{way: lowers, counts: g, record: h.record}
	if g.total() > 0 {
		return p
	}
	if p.handover = h.handOverLocked(l, g); p.handover != nil {
		p.way = handsOver
		return p
	}
	h.entry.freeingLocked()
	p.way = frees
	return p
}

func (h *hold) execute(p releasePlan, l *level) error {
	switch p.way {
	case lowers:
		return h.lower(p.counts, p.record)
	case handsOver:
		over, err := p.handover.run()
		p.handover.op.Recycle()
		if !over {
			return h.free(l, p.counts, p.record)
		}
		h.unlockTurn()
		return err
	case frees:
		return h.free(l, p.counts, p.record)
	}
	return p.err
}

// release tells Redis that a lease has been released: by the new count, or by freeing the hold with its last lease. It waits for the
// turn no longer than CommandTimeout.
func (h *hold) release(l *level) error {
	h.lock()
	turn := h.turn.tryLocked()
	if turn == nil { // most often it is free
		p := h.planReleaseLocked(l)
		h.unlock()
		return h.execute(p, l)
	}
	h.unlock()
	c := h.engine()
	timeout := time.NewTimer(c.opts.CommandTimeout)
	defer timeout.Stop()
	inTurn := func() error {
		h.lock()
		p := h.planReleaseLocked(l)
		h.unlock()
		return h.execute(p, l)
	}
	select {
	case <-turn.called:
		return inTurn()
	case <-timeout.C:
	}
	later := func() {
		<-turn.called
		_ = inTurn() // the caller has an error already; a hold is cleaned up, a count set right by the next change
	}
	if !c.background.Go(later) {
		later() // the client is closed, and no command takes long any more
	}
	return redisop.ErrTimeout
}

// lower tells Redis the count of the leases that are left, with the record to be left, if there is one.
func (h *hold) lower(g holdCounts, r *lua.Record) error {
	defer h.unlockTurn()
	c := h.engine()
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

// free frees the hold in Redis, l being its last lease, and gives the turn back. The hold has ended when this returns, whatever
// Redis said; what may be left there is cleaned up.
func (h *hold) free(l *level, g holdCounts, r *lua.Record) error {
	c := h.engine()
	call := h.kind.undoing(c, g)
	if r != nil {
		call = h.kind.record(c, g, *r)
	}
	x := c.ops.Op(call, c.opts.CommandTimeout).UntilSent()
	defer x.Recycle()
	began := c.at(x.Begun())
	there, rest, listeners, err := c.sendRelease(x)

	h.lock()
	defer h.unlock()
	h.turn.passLocked()
	if h.over() { // lost while the release was under way
		return h.causeLocked()
	}
	mine := x.Stray() && l.leftLocked() > 0 // an earlier try of this very release whose reply was lost
	if r != nil {
		mine = x.Stray() && c.clock().Since(began) >= r.TTL // what it had left would be there otherwise
	}
	if err == nil && !there && !mine {
		err = ErrLockLost
	}
	if err == nil && r != nil {
		h.entry.deliverLocked(r, began)
	}
	answered := err == nil || err == ErrLockLost
	if left := afterRelease(answered, rest, h.stray); !left.none() {
		switch {
		case r != nil && (err == ErrLockLost || x.Failed() || err == ErrWrongKind):
			call = h.kind.release(c, g) // Redis will not have the record: a marker stays
		case answered:
			call = h.kind.undoing(c, g)
		}
		c.cleaner.add(call, g, h.longest, left)
	}
	h.endReleasedLocked(err)
	h.entry.removeLocked(h)
	h.entry.freedLocked(listeners)
	return err
}

// endReleasedLocked ends a hold whose last lease was released. err is what Redis said.
func (h *hold) endReleasedLocked(err error) {
	h.moveLocked(released)
	h.err = err
}

// lose ends the hold and all its leases. The contexts end first; then others may have the lock, and what may be left of the hold in
// Redis is freed.
func (h *hold) lose(cause error) {
	h.lock()
	l := h.endLocked(cause)
	h.unlock()
	l.finish()
}

// endLocked marks the hold and its leases as lost. The caller finishes the loss. One that is over already has none.
func (h *hold) endLocked(cause error) loss {
	if h.over() {
		return loss{}
	}
	h.moveLocked(lost)
	h.err = cause
	l := loss{h, h.leases}
	h.leases = nil
	for l := l.leases; l != nil; l = l.next {
		l.err = cause
		l.stopAlarmLocked()
	}
	h.cancelRenewalLocked()
	return l
}

// A loss is a hold that was ended under the mutex, with its leases, whose contexts are still to be ended.
type loss struct {
	hold   *hold // nil: there was nothing to lose
	leases *level
}

// finish ends the contexts first, then frees what may be left in Redis, and reports the loss. The caller does not have the mutex.
func (l loss) finish() {
	h := l.hold
	if h == nil {
		return
	}
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.endContexts(h.err)
	}
	h.lock()
	g, c := h.countsLocked(), h.engine()
	c.cleaner.add(h.kind.release(c, g), g, h.longest, afterLoss(h.stray))
	h.entry.removeLocked(h)
	h.entry.freedLocked(0)
	h.unlock()
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.reportLoss(h.err)
	}
}

func finishLosses(all []loss) {
	for _, l := range all {
		l.finish()
	}
}

// renewable is the hold as it is renewed. Levels that come or go meanwhile do no harm: their own commands set their times. It may be
// late, where the process was stopped for a while, and then its leases may end before there is an answer.
func (h *hold) renewable() lua.Renewable {
	h.lock()
	defer h.unlock()
	h.setAlarmsLocked(h.engine().beat())
	return h.renewalLocked()
}

// renewalLocked is what Redis is to have at the least.
func (h *hold) renewalLocked() lua.Renewable {
	g := h.countsLocked()
	g.levels = h.sure
	r := h.kind.renew(g)
	if len(r.Timeouts) > 0 {
		r.Lease = h.needLocked()
	}
	return r
}

// handleRenewed moves the local deadline of the leases that the watchdog keeps.
func (h *hold) handleRenewed(sent clock.Instant, lease time.Duration, asked lua.Renewable) {
	if len(asked.Timeouts) > 0 && asked.Lease < lease {
		return // there were none
	}
	h.lock()
	defer h.unlock()
	h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, lease))
	h.setAlarmsLocked(h.engine().twoBeats())
}

// handleMissing marks the hold lost, unless its last lease was just released. It returns false if the hold has another field by now:
// a renewal on another connection may have arrived after a writer became a reader.
func (h *hold) handleMissing(asked lua.Renewable) bool {
	h.lock()
	wasReleased, same := h.state != held, h.renewalLocked().Field == asked.Field
	h.unlock()
	if !wasReleased && same {
		h.lose(ErrLockLost)
	}
	return wasReleased || same
}

// watchDeadlines sets the alarms of all leases: they may expire before the next renewal succeeds.
func (h *hold) watchDeadlines() {
	h.lock()
	defer h.unlock()
	h.setAlarmsLocked(math.MaxInt64)
}

// setAlarmsLocked sets the alarms of the leases that the watchdog keeps, if no more than a time is left.
func (h *hold) setAlarmsLocked(within time.Duration) {
	for l := h.leases; l != nil; l = l.next {
		if left := l.leftLocked(); l.watched && left <= within {
			l.ringInLocked(left)
		}
	}
}

func (h *hold) reportRenewFailed(err error) {
	c := h.engine()
	h.lock()
	l := h.leases
	h.unlock()
	if l == nil {
		return
	}
	c.opts.Logger.Warn("reqlock: renewal failed; it is retried until the lease ends", "lock", c.logged(l.name), "owner", h.field, "error", err)
	notify(l.caller, c.opts.Observer.RenewFailed, func() Event { return l.event(err) })
}
