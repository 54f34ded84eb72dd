package core

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A hold is the time from an owner acquiring a lock to its last release or its loss. It has one
// field in Redis. The name of that field is never used again, so a late command of an earlier hold
// finds nothing to change.
//
// A process may have a hundred thousand holds, each with its lease, so both are kept small.
type hold struct {
	entry *entry
	kind  *kind         // of the first lease; the sides of a read/write lock share a hold
	link  *lineage.Link // of the context that acquired it; nil: none
	field string        // the wire owner
	token uint64        // fencing token; 0: none
	item  watchdog.Item[*hold]

	// Guarded by the shard's mutex.
	next    *hold // in the entry's holdSet
	prev    *hold
	leases  *level // neither released nor expired; their number is the hold count
	levels  levels // of leases
	sure    levels // Redis has at least these levels
	deepest int32  // highest number of shared levels ever sent to Redis
	state   holdState
	armed   bool // the watchdog renews the hold
	stray   bool // an acquire may still arrive at Redis
	// The loss of the hold is in the log.
	lossLogged bool
	turn       turn
	err        error         // lost: the cause; released: the error of the release
	renewed    clock.Instant // local deadline of the leases that the watchdog renews
	// Longest lease so far. Redis drops the hold within it after the hold's last command.
	longest time.Duration
	excess  *excess     // nil: as far as is known, the hash lives for no longer than it should
	record  *lua.Record // of a Once: the next command that lowers the hold count stores it
	// withdrawn says that the lease of a Once that was released last has done nothing.
	withdrawn bool

	first level // most holds have no other lease
}

// A holdState is the state of a hold. holdMoves lists the transitions.
type holdState uint8

const (
	held     holdState = iota // has leases, or is about to have its first
	freeing                   // the last lease was released; Redis does not know yet
	released                  // Redis confirmed the release, or the release failed
	lost                      // missing in Redis, expired, force-unlocked, or the client was closed
)

// holdMoves lists the states that may follow each state. A re-entry may get the turn before the
// release of the last lease does. The hold is then held again, and that release only lowers the
// count.
var holdMoves = [...][]holdState{
	held:     {freeing, lost},
	freeing:  {held, released, lost},
	released: {},
	lost:     {},
}

func (s holdState) String() string { return [...]string{"held", "freeing", "released", "lost"}[s] }

// moveLocked is the only place that changes the state. It refuses a transition that holdMoves
// lacks.
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

// strict makes an illegal transition panic. Tests set it.
var strict bool

// over reports whether the hold has ended.
func (h *hold) over() bool { return h.state >= released }

// causeLocked returns why the hold has ended.
func (h *hold) causeLocked() error {
	if h.state == released {
		return ErrReleased
	}
	return h.err
}

// newHold makes the hold that w gets if Redis grants it the lock, and its first lease.
func (w *waiter) newHold(field string, stray bool, acquired clock.Moment) (*hold, *level) {
	h := &hold{
		entry: w.entry,
		kind:  w.kind,
		link:  w.link,
		field: field,
		stray: stray,
		sure:  levels{}.plus(w.kind.shared),
	}
	h.deepest = h.sure.shared
	h.item.Hold, h.item.Slot = h, uint16(h.engine().slot(w.entry.key))
	h.first.init(h, &w.request, acquired)
	return h, &h.first
}

// owner returns the owner of WithOwner that has the hold; 0: none.
func (h *hold) owner() uint64 { return ownerOf(h.link) }

func (h *hold) engine() *engine { return h.entry.shard.engine }

func (h *hold) lock()   { h.entry.lock() }
func (h *hold) unlock() { h.entry.unlock() }

// addLocked adds a lease that Redis granted. sent is when its command was sent.
func (h *hold) addLocked(l *level, sent, at clock.Instant) {
	l.next, h.leases = h.leases, l
	h.levels = h.levels.plus(l.kind.shared)
	if h.state == freeing {
		h.moveLocked(held)
	}
	h.prolongLocked(l, sent, at, l.duration())
}

// prolongLocked moves the deadline of a lease, but never to an earlier time.
func (h *hold) prolongLocked(l *level, sent, at clock.Instant, d time.Duration) {
	h.longest = max(h.longest, d)
	if l.watched {
		h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, d))
	} else {
		l.deadline = clock.Later(l.deadline, clock.LeaseEnd(sent, d))
	}
	l.setAlarmLocked(at)
	if !h.armed && l.needsRenewalLocked(at) {
		h.armed = true
		h.entry.shard.dog.Arm(&h.item, l.leftAtLocked(at))
	}
}

// dropLocked removes a lease. A hold without leases is freeing.
func (h *hold) dropLocked(l *level) {
	for at := &h.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			h.levels = h.levels.minus(l.kind.shared)
			break
		}
	}
	l.stopAlarmLocked()
	if h.leases == nil {
		h.moveLocked(freeing)
	}
	h.cancelRenewalLocked()
}

// cancelRenewalLocked stops the renewal if no lease needs it any more.
func (h *hold) cancelRenewalLocked() {
	if h.armed && !h.needsRenewalLocked() {
		h.armed = false
		h.entry.shard.dog.Cancel(&h.item)
	}
}

// needsRenewalLocked reports whether any lease needs the watchdog.
func (h *hold) needsRenewalLocked() bool {
	if h.leases == nil {
		return false
	}
	at := h.engine().clock()
	for l := h.leases; l != nil; l = l.next {
		if l.needsRenewalLocked(at) {
			return true
		}
	}
	return false
}

// roundingLoss is what a TTL may lose because it is sent in whole milliseconds, and because the
// server counts from the beginning of one.
const roundingLoss = 2 * time.Millisecond

// neededTTLLocked returns the TTL that the longest lease needs in Redis.
func (h *hold) neededTTLLocked() (longest time.Duration) {
	at := h.engine().clock()
	for l := h.leases; l != nil; l = l.next {
		need := l.duration()
		if !l.watched {
			need = l.leftAtLocked(at)
			need += min(clock.Margin(need)+roundingLoss, math.MaxInt64-need)
		}
		longest = max(longest, need)
	}
	return max(longest, minLease)
}

// countsLocked returns the hold's counts by its current leases.
func (h *hold) countsLocked() holdCounts {
	g := holdCounts{terms: &h.kind.terms, key: h.entry.key, field: h.field, levels: h.levels, deepest: h.deepest}
	if g.shared > 0 {
		g.need = h.neededTTLLocked()
	}
	return g
}

// planCountsLocked returns the counts to send to Redis: one level for each lease, plus one of kind
// more unless it is nil. The caller has the turn. The error says why the hold has ended, or that
// the owner may not enter more.
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
	// A level given up here may be gone from now on, whatever the outcome of the command.
	if g.total() > 0 {
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

// downgraded reports whether g turns a writer's hold into a reader's.
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

// unlockTurn passes the turn to the next in line.
func (h *hold) unlockTurn() {
	h.lock()
	h.turn.passLocked()
	h.unlock()
}

// update sends the hold count and the wanted lease. more, unless nil, adds a level of that kind.
// update calls applied, with the mutex locked, once Redis has accepted the command. If ctx ends
// first, the turn is kept until the reply has arrived.
func (h *hold) update(
	ctx context.Context, more *kind, lease time.Duration, applied func(sent clock.Instant) error,
) error {
	c, until := h.engine(), redisop.Until{Context: ctx}
	_ = ctx.Done() // a nil ctx panics here, and not with the turn
	if err := h.lockTurn(ctx); err != nil {
		return err
	}
	g, err := h.planCounts(more)
	// An extension, but the lease was released. That release has the next turn.
	if err == nil && g.total() == 0 {
		err = ErrReleased
	}
	if err != nil {
		h.unlockTurn()
		return err
	}
	x := c.ops.Op(h.kind.update(c, g, h.outlast(lease)), c.opts.CommandTimeout).Replicated()
	if more == nil { // an extension
		x.UntilSent()
	}
	answer, err := x.Run(until)
	if err == redisop.ErrLeft {
		if !c.background.Go(func() { h.finishUpdate(x, g) }) {
			h.unlockTurn()
		}
		return ended(ctx)
	}
	err = h.apply(x, g, answer, err, func(sent clock.Instant) error {
		if x.Unacked() != nil { // the script always writes, so there is something to confirm
			return x.Unacked()
		}
		return applied(sent)
	})
	takeBack := err == errLate || errors.Is(err, ErrNotReplicated)
	if !takeBack || !c.background.Go(h.restoreCount) {
		h.unlockTurn()
	}
	return err
}

// restoreCount takes back a level that Redis has added and no lease is for. It has the turn. No
// caller waits for it, because its ctx may end meanwhile.
func (h *hold) restoreCount() {
	defer h.unlockTurn()
	h.sendCount()
}

// finishUpdate waits for an update whose caller has left. If Redis applied it, finishUpdate
// restores the count.
func (h *hold) finishUpdate(x *redisop.Op, g holdCounts) {
	defer h.unlockTurn()
	answer, err := x.Await()
	if h.apply(x, g, answer, err, noop) == nil {
		h.sendCount()
	}
}

// apply handles the reply to an update.
func (h *hold) apply(x *redisop.Op, g holdCounts, answer any, err error, applied func(sent clock.Instant) error) error {
	if err == ErrWrongKind && h.overwritten() {
		return h.loseBy(errOverwritten)
	}
	if err != nil {
		return err
	}
	there, err := x.Call().ReadUpdate(answer)
	if err != nil {
		return err
	}
	if !there {
		return h.loseBy(ErrLockLost)
	}
	h.lock()
	defer h.unlock()
	if h.over() {
		return h.causeLocked()
	}
	h.sure = g.levels
	if h.downgraded(g) {
		wake(h.entry.queue.Wake()) // readers may enter now
	}
	return applied(x.Sent())
}

// loseBy ends the hold and returns the cause, or why the hold ended before.
func (h *hold) loseBy(cause error) error {
	h.lose(cause)
	_, err := h.planCounts(nil)
	return err
}

// overwritten reports whether the key of the lock has another type by now, after a command has
// found a key that has. That may have been a key beside the lock's, which proves nothing.
func (h *hold) overwritten() bool {
	c := h.engine()
	x := c.ops.Op(lua.Present(h.entry.key, []string{h.field}), c.opts.CommandTimeout).UntilSent()
	_, err := x.Run(redisop.Until{})
	return err == ErrWrongKind
}

func noop(clock.Instant) error { return nil }

// sendCount sends the hold count. The caller has the turn. A failed downgrade is retried. Any other
// failure is ignored, because the next change sends the count again.
func (h *hold) sendCount() {
	if g, err := h.trySendCount(); err != nil {
		h.retryDowngrade(g)
	}
}

// trySendCount makes one attempt and returns the counts it sent.
func (h *hold) trySendCount() (holdCounts, error) {
	c := h.engine()
	g, err := h.planCounts(nil)
	if err != nil || g.total() == 0 {
		return g, nil
	}
	x := c.ops.Op(h.kind.update(c, g, 0), c.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
	return g, h.apply(x, g, answer, err, noop)
}

// retryDowngrade resends the count in the background until Redis accepts it, if it is that of a
// downgrade. Until then no reader can enter, and the next change may be hours away.
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
			_, err := h.trySendCount()
			h.unlockTurn()
			if err == nil { // accepted, or no longer needed
				return
			}
		}
	})
}

// A releasePlan is how to release a lease in Redis.
type releasePlan struct {
	way    releaseWay
	counts holdCounts
	ending
	handover *handover
	err      error
}

type releaseWay uint8

const (
	alreadyOver releaseWay = iota // nothing to send; the result is plan.err
	lowersCount                   // other leases remain
	handsOver                     // the last lease; a waiter gets the lock
	freesHold                     // the last lease
)

// planReleaseLocked decides how to release l, which was dropped. The caller has the turn; execute
// passes it on.
func (h *hold) planReleaseLocked(l *level) releasePlan {
	g, err := h.planCountsLocked(nil)
	if err != nil {
		if err == ErrReleased { // a concurrent release of another lease freed the hold for both
			err = h.err
		}
		h.turn.passLocked()
		return releasePlan{way: alreadyOver, err: err}
	}
	p := releasePlan{way: lowersCount, counts: g, ending: ending{h.record, h.withdrawn}}
	if g.total() > 0 {
		return p
	}
	if p.handover = h.handOverLocked(l, g); p.handover != nil {
		p.way = handsOver
		return p
	}
	h.entry.freeingLocked()
	p.way = freesHold
	return p
}

func (h *hold) execute(p releasePlan, l *level) error {
	switch p.way {
	case lowersCount:
		return h.lower(p.counts, p.record)
	case handsOver:
		over, err := p.handover.run()
		p.handover.op.Recycle()
		if !over {
			return h.free(l, p.counts, p.ending)
		}
		h.unlockTurn()
		return err
	case freesHold:
		return h.free(l, p.counts, p.ending)
	}
	return p.err
}

// release releases a dropped lease in Redis: it lowers the count, or frees the hold with its last
// lease. It waits for the turn for up to CommandTimeout.
func (h *hold) release(l *level) error {
	h.lock()
	turn := h.turn.tryLocked()
	if turn == nil { // the common case
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
		_ = inTurn() // the caller has its error; the cleaner or the next change repairs Redis
	}
	if !c.background.Go(later) {
		later() // the client is closed, so commands fail fast
	}
	return redisop.ErrTimeout
}

// lower sends the count of the remaining leases, with the record r unless it is nil.
func (h *hold) lower(g holdCounts, r *lua.Record) error {
	defer h.unlockTurn()
	c := h.engine()
	call := h.kind.update(c, g, 0)
	if r != nil {
		call = h.kind.record(c, g, *r)
	}
	x := c.ops.Op(call, c.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
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

// free frees the hold in Redis and passes the turn on. l is its last lease. On return the hold has
// ended, whatever Redis replied. The cleaner frees what may be left.
func (h *hold) free(l *level, g holdCounts, e ending) error {
	c, r := h.engine(), e.record
	var call lua.Call
	if r != nil {
		call = h.kind.record(c, g, *r)
	} else {
		call = h.kind.freeing(c, g, lua.Removal{Binding: e.withdrawn})
	}
	x := c.ops.Op(call, c.opts.CommandTimeout).UntilSent()
	defer x.Recycle()
	began := c.at(x.Begun())
	there, rest, listeners, err := c.sendRelease(x)
	var refused error
	if r != nil && r.Spare != "" && err != nil && x.Failed() {
		refused, r = err, &lua.Record{Value: r.Spare, TTL: r.TTL}
		call = h.kind.record(c, g, *r) // the cleaner may have to send it again
		x.Replace(call)
		there, rest, listeners, err = c.sendRelease(x)
	}
	loss := ErrLockLost
	if err == ErrWrongKind && h.overwritten() {
		there, rest, err, loss = false, false, nil, errOverwritten
	}

	h.lock()
	defer h.unlock()
	h.turn.passLocked()
	if h.over() { // lost while the release was under way
		return h.causeLocked()
	}
	freedEarlier := x.Stray() && l.leftLocked() > 0 // by a try of this release whose reply was lost
	if r != nil {
		// Before the TTL has passed, the script finds the record.
		freedEarlier = x.Stray() && c.clock().Since(began) >= r.TTL
	}
	if err == nil && !there && !freedEarlier {
		err = loss
	}
	if err == nil && r != nil {
		h.entry.deliverLocked(h, r, began)
	}
	answered := err == nil || isLoss(err)
	if left := afterRelease(answered, rest, h.straysLocked(answered)); !left.none() {
		switch {
		case isLoss(err), r != nil && x.Failed(), err == ErrWrongKind:
			call = h.kind.release(c, g) // what was done has no record, so a marker must stay
			if alone, ok := call.WithoutRest(); ok && err == ErrWrongKind {
				call = alone // a key beside the lock's has another type
			}
		case answered:
			call = h.kind.freeing(c, g, lua.Removal{Gone: true, Binding: e.withdrawn})
		}
		c.cleaner.add(call, g, h.longest, left)
	}
	h.endReleasedLocked(err)
	h.entry.removeLocked(h)
	h.entry.freedLocked(listeners)
	return cmp.Or(err, refused)
}

// straysLocked reports whether a command that was given up may still give the owner something in
// Redis. freed means that Redis has freed the hold, so that only an acquire can. Otherwise, the
// renewal of a read level may put back the level's time-out key.
func (h *hold) straysLocked(freed bool) bool { return h.stray || !freed && h.deepest > 0 }

// endReleasedLocked ends a hold whose last lease was released. err is the result of the release.
func (h *hold) endReleasedLocked(err error) {
	h.moveLocked(released)
	h.err = err
}

// lose ends the hold and all its leases, and reports whether it had not ended before. Their
// contexts end before anything is freed in Redis.
func (h *hold) lose(cause error) bool {
	h.lock()
	l := h.endLocked(cause)
	h.unlock()
	l.finish()
	return l.hold != nil
}

// endLocked marks the hold and its leases as lost. It returns no loss if the hold has ended before.
// The caller must call finish on the result.
func (h *hold) endLocked(cause error) loss {
	if h.over() {
		return loss{}
	}
	h.moveLocked(lost)
	h.err = cause
	l := loss{h, h.leases}
	h.leases, h.levels = nil, levels{}
	for l := l.leases; l != nil; l = l.next {
		l.err = cause
		l.stopAlarmLocked()
	}
	h.cancelRenewalLocked()
	return l
}

// A loss is a hold that was just marked lost. The contexts of its leases have yet to end.
type loss struct {
	hold   *hold // nil: nothing was lost
	leases *level
}

// finish ends the contexts, then frees what may be left in Redis, then reports the loss. The caller
// must not hold the mutex.
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
	c.cleaner.add(h.kind.release(c, g), g, h.longest, afterLoss(h.straysLocked(false)))
	h.entry.removeLocked(h)
	h.entry.freedLocked(0)
	h.unlock()
	if l.leases != nil {
		h.logLoss(l.leases, h.err)
	}
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.reportLoss(h.err)
	}
}

// logLoss logs the loss of the hold once, however many leases find out. l is one of them.
func (h *hold) logLoss(l *level, cause error) {
	h.lock()
	logged := h.lossLogged
	h.lossLogged = true
	h.unlock()
	if !logged {
		l.logLoss(cause)
	}
}

func finishLosses(all []loss) {
	for _, l := range all {
		l.finish()
	}
}

// renewable returns the renewal to send. Levels added or dropped while it is under way do no harm,
// because their own commands set the TTL. The process may have been stopped for a while, so a lease
// may expire before the reply arrives: renewable sets the alarms of those that are close.
func (h *hold) renewable() lua.Renewable {
	h.lock()
	defer h.unlock()
	h.setAlarmsLocked(h.engine().beat())
	return h.renewalLocked()
}

// renewalLocked returns a renewal of the levels that Redis has for certain.
func (h *hold) renewalLocked() lua.Renewable {
	g := h.countsLocked()
	g.levels = h.sure
	r := h.kind.renew(g)
	r.Lease = h.neededTTLLocked()
	if h.excess != nil && !h.turn.taken { // no command is under way that needs more
		r.Seen = h.excess.expiry
	}
	return r
}

// handleRenewed moves the local deadline of the leases that the watchdog renews. It returns false
// if the hold is to be renewed again at once. So it is if it has a read level that the renewal did
// not know: the timeout key of that level was not prolonged, so the deadline that all levels share
// must stay. So it is too if its hash turns out to live for too long; the next renewal shortens it.
func (h *hold) handleRenewed(sent clock.Instant, lease time.Duration, asked lua.Renewable, result lua.Renewal) bool {
	h.lock()
	defer h.unlock()
	before := h.excess
	h.excess = before.after(asked, result)
	h.longest = max(h.longest, result.TTL)
	done := before != nil || h.excess == nil
	if asked.Lease < lease {
		return done // no lease was renewed by the watchdog when the renewal was sent
	}
	if int(h.countsLocked().shared) > len(asked.Timeouts) {
		return false
	}
	h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, lease))
	h.setAlarmsLocked(h.engine().twoBeats())
	return done
}

// keepExcess is called if a renewal that shortens the TTL may still arrive at Redis. The excess
// stays, so that outlast keeps moving the time at which the hash expires.
func (h *hold) keepExcess() {
	h.lock()
	defer h.unlock()
	h.excess.expiry = 0
}

// outlast returns the lease to send for a wanted one. The caller has the turn.
func (h *hold) outlast(lease time.Duration) time.Duration {
	h.lock()
	defer h.unlock()
	lease = h.excess.outlast(lease)
	h.longest = max(h.longest, lease)
	return lease
}

// handleMissing marks the hold lost, unless its last lease was just released. It returns false if
// the hold has another field by now: the writer became a reader, and a renewal on another
// connection arrived after that.
func (h *hold) handleMissing(asked lua.Renewable, cause error) bool {
	h.lock()
	wasReleased, same := h.state != held, h.renewalLocked().Field == asked.Field
	h.unlock()
	if !wasReleased && same {
		h.lose(cause)
	}
	return wasReleased || same
}

// watchDeadlines sets the alarms of all leases that the watchdog renews: they may expire before a
// renewal succeeds.
func (h *hold) watchDeadlines() {
	h.lock()
	defer h.unlock()
	h.setAlarmsLocked(math.MaxInt64)
}

// setAlarmsLocked sets the alarms of the leases that the watchdog renews and that expire within a
// duration.
func (h *hold) setAlarmsLocked(within time.Duration) {
	for l := h.leases; l != nil; l = l.next {
		if left := l.leftLocked(); l.watched && left <= within {
			l.ringInLocked(left)
		}
	}
}

// reportRenewFailed calls the Observer, and returns a lease of the hold; nil: it has none any more.
func (h *hold) reportRenewFailed(err error) *level {
	c := h.engine()
	h.lock()
	l := h.leases
	h.unlock()
	if l == nil {
		return nil
	}
	c.counters.renewFailures.Add(1)
	notify(l.caller, c.opts.Observer.RenewFailed, func() Event { return l.event(err) })
	return l
}
