package core

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
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
	kind  *kinds.Kind   // what the first lease asked for; the sides of a read/write lock share a hold
	link  *lineage.Link // the lineage of the context that acquired it; nil: none
	wire  string        // the wire owner
	token uint64        // fencing token; 0: none
	item  watchdog.Item[*hold]

	// Guarded by the shard's mutex.
	next   *hold // the neighbours in the entry's holdSet
	prev   *hold
	leases *level // neither released nor expired; their number is the hold count
	claim  claim.Hold
	armed  bool // the watchdog renews the hold
	// The loss of the hold is in the log.
	lossLogged bool
	err        error         // lost: the cause; released: the error of the release
	renewed    clock.Instant // local deadline of the leases that the watchdog renews
	// Longest lease so far. Redis drops the hold within it after the hold's last command.
	longest time.Duration
	excess  *excess     // nil: as far as is known, the hash lives for no longer than it should
	record  *lua.Record // the next command that lowers the hold count of a Once stores it
	// withdrawn says that the lease of a Once that was released last has done nothing.
	withdrawn bool

	first level // most holds have no other lease
}

// causeLocked returns why the hold has ended.
func (h *hold) causeLocked() error {
	if h.claim.State() == claim.Released {
		return ErrReleased
	}
	return h.err
}

// endedLocked returns why the hold has ended; nil: it has not.
func (h *hold) endedLocked() error {
	if !h.claim.Ended() {
		return nil
	}
	return h.causeLocked()
}

// newHold makes the hold that w gets if Redis grants it the lock, and its first lease.
// left is what the owner's commands may leave in Redis beside the grant.
func (w *waiter) newHold(wire string, left claim.Left, acquired clock.Moment) (*hold, *level) {
	h := &hold{
		entry: w.entry,
		kind:  w.kind,
		link:  w.link,
		wire:  wire,
		claim: claim.NewHold(w.kind.Shared, left),
	}
	h.item.Hold, h.item.Slot = h, uint16(h.engine().slot(w.entry.key))
	h.first.init(h, &w.request, acquired)
	return h, &h.first
}

// owner returns the owner of WithOwner that has the hold; 0: none.
func (h *hold) owner() uint64 { return ownerOf(h.link) }

func (h *hold) engine() *engine { return h.entry.shard.engine }

// addLocked adds a lease that Redis granted. sent is when its command was sent.
func (h *hold) addLocked(l *level, sent, at clock.Instant) {
	l.next, h.leases = h.leases, l
	h.claim.Enter(l.kind.Shared)
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
			h.claim.Leave(l.kind.Shared)
			break
		}
	}
	l.stopAlarmLocked()
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
func (h *hold) countsLocked() kinds.Hold {
	return h.countsOfLocked(h.claim.Counts())
}

// countsOfLocked returns the hold's counts with the given levels.
func (h *hold) countsOfLocked(n claim.Counts) kinds.Hold {
	g := kinds.Hold{Terms: &h.kind.Terms, Key: h.entry.key, Wire: h.wire, Counts: n, Deepest: h.claim.Deepest()}
	if g.Shared > 0 {
		g.Need = h.neededTTLLocked()
	}
	return g
}

// planCountsLocked returns the counts to send to Redis: one level for each lease, plus one of kind
// more unless it is nil. The caller has the turn. The error says why the hold has ended, or that
// the owner may not enter more.
func (h *hold) planCountsLocked(more *kinds.Kind) (kinds.Hold, error) {
	if err := h.endedLocked(); err != nil {
		return kinds.Hold{}, err
	}
	entry := claim.NoEntry
	if more != nil {
		entry = claim.EntryOf(more.Shared)
	}
	n, ok := h.claim.Plan(entry)
	if !ok {
		return kinds.Hold{}, ErrUpgrade
	}
	return h.countsOfLocked(n), nil
}

func (h *hold) planCounts(more *kinds.Kind) (kinds.Hold, error) {
	h.entry.open()
	defer h.entry.close()
	return h.planCountsLocked(more)
}

// downgraded reports whether g turns a writer's hold into a reader's.
func (h *hold) downgraded(g kinds.Hold) bool { return claim.Downgraded(h.kind.Shared, g.Counts) }

// turn returns the turn of the hold for the caller, who has it.
func (h *hold) turn() turn {
	s := h.entry.shard
	return turn{&s.mu, &h.claim.Turn, &s.engine.background}
}

// tryTurn takes the turn if it is free. Otherwise it returns the caller's place in line.
func (h *hold) tryTurn() (turn, *claim.Candidate) {
	h.entry.open()
	defer h.entry.close()
	if place := h.claim.Turn.Take(); place != nil {
		return turn{}, place
	}
	return h.turn(), nil
}

// takeTurn waits for the turn, unless ctx ends.
func (h *hold) takeTurn(ctx context.Context) (turn, error) {
	t, place := h.tryTurn()
	if place == nil {
		return t, nil
	}
	select {
	case <-place.Called:
		return h.turn(), nil
	case <-ctx.Done():
		h.entry.open()
		h.claim.Turn.Leave(place)
		h.entry.close()
		return turn{}, ended(ctx)
	}
}

// A change is a command that changes a hold that goes on, and what it is for.
type change struct {
	op     *redisop.Op
	counts kinds.Hold // what it sends
	lease  *level     // the lease that begins or lasts longer; nil: the count is only lowered
	lasts  time.Duration
	enters bool        // the lease begins
	record *lua.Record // what it stores; nil: nothing
}

// update sends the hold count and how long a lease is to last. more, unless nil, adds a level of that
// kind, for which the lease is. If ctx ends first, the turn is kept until the reply has arrived.
func (h *hold) update(ctx context.Context, more *kinds.Kind, l *level, lasts time.Duration) error {
	eng, until := h.engine(), redisop.Until{Context: ctx}
	_ = ctx.Done() // a nil ctx panics here, and not with the turn
	t, err := h.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer t.pass()
	g, err := h.planCounts(more)
	// An extension, but the lease was released. That release has the next turn.
	if err == nil && g.Total() == 0 {
		err = ErrReleased
	}
	if err != nil {
		return err
	}
	x := eng.ops.Op(h.kind.Update(eng.settings(), g, h.outlast(lasts)), eng.opts.CommandTimeout).Replicated()
	if more == nil { // an extension
		x.UntilSent()
	}
	u := change{op: x, counts: g, lease: l, lasts: lasts, enters: more != nil}
	answer, err := x.Run(until)
	if err == redisop.ErrLeft {
		t.giveTo(func() { h.finishUpdate(u) })
		return ended(ctx)
	}
	v := h.apply(u, answer, err, false)
	if v.Resends { // the caller does not wait for that, because its ctx may end meanwhile
		t.giveTo(h.sendCount)
	}
	return v.Err
}

// finishUpdate waits for an update whose caller has left. If Redis applied it, finishUpdate
// restores the count. It has the turn.
func (h *hold) finishUpdate(u change) {
	answer, err := u.op.Await()
	if h.apply(u, answer, err, true).Resends {
		h.sendCount()
	}
}

// apply handles the reply to a change.
func (h *hold) apply(u change, answer any, err error, callerLeft bool) claim.UpdateVerdict {
	known := claim.Update{
		Err: err, Loss: ErrLockLost, Downgrades: h.downgraded(u.counts),
		CountOnly: u.lease == nil, CallerLeft: callerLeft,
	}
	switch {
	case err == ErrWrongKind && h.overwritten():
		known.Err, known.Loss = nil, errOverwritten
	case err == nil:
		known.There, known.Err = u.op.Call().ReadUpdate(answer)
	}
	if known.There && u.lease != nil {
		known.Unproven = u.op.Unacked() // the script always writes, so there is something to confirm
	}
	h.entry.open()
	known.Ended = h.endedLocked()
	if u.lease != nil {
		known.LeaseEnded, known.Late = h.fitsLocked(u)
	}
	v := known.Verdict()
	lost := h.changeLocked(u, v)
	h.entry.close()
	lost.finish()
	return v
}

// fitsLocked returns why the lease of a change has ended or must not begin, and whether it would be
// over before it begins.
func (h *hold) fitsLocked(u change) (end error, late bool) {
	eng := h.engine()
	switch {
	case !u.enters:
		return u.lease.err, false
	case eng.state.Load() == closed: // Close has ended the other leases already
		return ErrClosed, false
	}
	ends := clock.LeaseEnd(u.op.Sent(), u.lasts)
	if u.lease.watched {
		ends = clock.Later(ends, h.renewed) // the watchdog may have renewed the hold meanwhile
	}
	return nil, eng.clock().Until(ends) <= 0
}

// changeLocked carries out the verdict on a change.
func (h *hold) changeLocked(u change, v claim.UpdateVerdict) (lost loss) {
	if v.Loss != nil {
		return h.endLocked(v.Loss)
	}
	if v.Confirms {
		h.claim.Confirm(u.counts.Counts)
	}
	if v.Admits {
		wake(h.entry.queue.Wake())
	}
	if !v.Applies {
		return loss{}
	}
	switch at := h.engine().clock(); {
	case u.enters:
		h.addLocked(u.lease, u.op.Sent(), at)
	case u.lease != nil:
		h.prolongLocked(u.lease, u.op.Sent(), at, u.lasts)
	case h.record == u.record:
		h.record = nil
	}
	return loss{}
}

// overwritten reports whether the key of the lock has another type by now, after a command has
// found a key that has. That may have been a key beside the lock's, which proves nothing.
func (h *hold) overwritten() bool {
	eng := h.engine()
	x := eng.ops.Op(lua.Present(h.entry.key, []string{h.wire}), eng.opts.CommandTimeout).UntilSent()
	_, err := x.Run(redisop.Until{})
	return err == ErrWrongKind
}

// sendCount sends the hold count. The caller has the turn. A failed downgrade is retried. Any other
// failure is ignored, because the next change sends the count again.
func (h *hold) sendCount() {
	if h.trySendCount().Retries {
		h.retryDowngrade()
	}
}

// trySendCount makes one attempt.
func (h *hold) trySendCount() (v claim.UpdateVerdict) {
	eng := h.engine()
	g, err := h.planCounts(nil)
	if err != nil || g.Total() == 0 {
		return v
	}
	x := eng.ops.Op(h.kind.Update(eng.settings(), g, 0), eng.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
	return h.apply(change{op: x, counts: g}, answer, err, false)
}

// retryDowngrade resends the count of a downgrade in the background until Redis accepts it.
func (h *hold) retryDowngrade() {
	eng := h.engine()
	eng.background.Go(func() {
		for failures := 0; ; failures++ {
			select {
			case <-time.After(min(20*time.Millisecond<<min(failures, 6), time.Second)):
			case <-eng.closing:
				return
			}
			t, _ := h.takeTurn(context.Background())
			v := h.trySendCount()
			t.pass()
			if !v.Retries { // accepted, or no longer needed
				return
			}
		}
	})
}

// A releasePlan is how to release a lease in Redis.
type releasePlan struct {
	way    claim.Way
	counts kinds.Hold
	ending
	handover *handover
	err      error // why the hold had ended already
}

// planReleaseLocked decides how to release l, which was dropped. The caller has the turn.
func (h *hold) planReleaseLocked(l *level) (p releasePlan) {
	g, err := h.planCountsLocked(nil)
	if p.err = err; err == ErrReleased { // a concurrent release of another lease freed the hold for both
		p.err = h.err
	}
	known := claim.Exit{Ended: err != nil, Counts: g.Counts, Deepest: h.claim.Deepest(), HandsOver: h.handsOver()}
	heir := h.heirLocked(&known)
	p.way, p.counts, p.ending = known.Verdict(), g, ending{h.record, h.withdrawn}
	switch p.way {
	case claim.HandsOver:
		p.handover = h.handOverLocked(l, g, heir)
	case claim.FreesHold:
		h.entry.freeingLocked()
	}
	return p
}

// release releases a dropped lease in Redis: it lowers the count, or frees the hold with its last
// lease. It waits for the turn for up to CommandTimeout.
func (h *hold) release(l *level) error {
	eng := h.engine()
	t, place := h.tryTurn()
	if place == nil { // the common case
		return h.releaseWith(t, l)
	}
	timeout := time.NewTimer(eng.opts.CommandTimeout)
	defer timeout.Stop()
	select {
	case <-place.Called:
		return h.releaseWith(h.turn(), l)
	case <-timeout.C:
	}
	later := func() {
		<-place.Called
		_ = h.releaseWith(h.turn(), l) // the caller has its error; the cleaner or the next change repairs Redis
	}
	if !eng.background.Go(later) {
		later() // the client is closed, so commands fail fast
	}
	return redisop.ErrTimeout
}

// releaseWith releases a dropped lease in Redis, with the turn.
func (h *hold) releaseWith(t turn, l *level) error {
	defer t.pass()
	h.entry.open()
	p := h.planReleaseLocked(l)
	h.entry.close()
	switch p.way {
	case claim.LowersCount:
		return h.lower(p.counts, p.record)
	case claim.HandsOver:
		ended, err := p.handover.run()
		p.handover.op.Recycle()
		if ended {
			return err
		}
	case claim.AlreadyOver:
		return p.err
	}
	return h.free(l, p.counts, p.ending)
}

// lower sends the count of the remaining leases, with the record r unless it is nil. The caller has
// the turn.
func (h *hold) lower(g kinds.Hold, r *lua.Record) error {
	eng := h.engine()
	call := h.kind.Update(eng.settings(), g, 0)
	if r != nil {
		call = h.kind.Record(eng.settings(), g, *r)
	}
	x := eng.ops.Op(call, eng.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
	v := h.apply(change{op: x, counts: g, record: r}, answer, err, false)
	if v.Retries {
		h.retryDowngrade()
	}
	return v.Err
}

// free frees the hold in Redis. The caller has the turn. l is its last lease. On return the hold has
// ended, whatever Redis replied. The cleaner frees what may be left.
func (h *hold) free(l *level, g kinds.Hold, e ending) error {
	eng, r := h.engine(), e.record
	var call lua.Call
	if r != nil {
		call = h.kind.Record(eng.settings(), g, *r)
	} else {
		call = h.kind.Free(eng.settings(), g, lua.Removal{Binding: e.withdrawn})
	}
	x := eng.ops.Op(call, eng.opts.CommandTimeout).UntilSent()
	defer x.Recycle()
	began := eng.at(x.Begun())
	there, leftovers, receivers, err := eng.sendRelease(x)
	var refused error
	if r != nil && r.Spare != "" && err != nil && x.Failed() {
		refused, r = err, &lua.Record{Value: r.Spare, TTL: r.TTL}
		call = h.kind.Record(eng.settings(), g, *r) // the cleaner may have to send it again
		x.Replace(call)
		there, leftovers, receivers, err = eng.sendRelease(x)
	}
	known := claim.Release{Err: err, Loss: ErrLockLost, There: there, Leftovers: leftovers, Stray: x.Stray(), Records: r != nil, Failed: x.Failed()}
	if known.WrongKind = err == ErrWrongKind; known.WrongKind && h.overwritten() {
		known = claim.Release{Loss: errOverwritten, Stray: x.Stray(), Records: r != nil}
	}

	h.entry.open()
	defer h.entry.close()
	known.Ended, known.LeaseLeft, known.Strays = h.endedLocked(), l.leftLocked() > 0, h.claim.Strays(known.Err == nil)
	known.RecordOld = r != nil && eng.clock().Since(began) >= r.TTL
	v := known.Verdict()
	if v.Ended { // lost while the release was under way
		return v.Err
	}
	if v.Deliver {
		h.entry.deliverLocked(h, r, began)
	}
	if !v.Clean.None() {
		eng.cleaner.add(h.cleanUpCall(v, call, g, e), g, h.longest, v.Clean)
	}
	h.endReleasedLocked(v.Err)
	h.entry.removeLocked(h)
	h.entry.freedLocked(receivers)
	return cmp.Or(v.Err, refused)
}

// cleanUpCall returns what the cleaner sends after a release, which sent call.
func (h *hold) cleanUpCall(v claim.ReleaseVerdict, call lua.Call, g kinds.Hold, e ending) lua.Call {
	switch v.Call {
	case claim.PlainCall:
		call = h.kind.Release(h.engine().settings(), g)
		if alone, ok := call.HashAlone(); ok && v.Alone {
			return alone
		}
	case claim.GoneCall:
		call = h.kind.Free(h.engine().settings(), g, lua.Removal{Gone: true, Binding: e.withdrawn})
	}
	return call
}

// endReleasedLocked ends a hold whose last lease was released. err is the result of the release.
func (h *hold) endReleasedLocked(err error) {
	h.claim.Release()
	h.err = err
}

// lose ends the hold and all its leases, and reports whether it had not ended before. Their
// contexts end before anything is freed in Redis.
func (h *hold) lose(cause error) bool {
	h.entry.open()
	l := h.endLocked(cause)
	h.entry.close()
	l.finish()
	return l.hold != nil
}

// endLocked marks the hold and its leases as lost. It returns no loss if the hold has ended before.
// The caller must call finish on the result.
func (h *hold) endLocked(cause error) loss {
	if !h.claim.Lose() {
		return loss{}
	}
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
	h.entry.open()
	g, eng := h.countsLocked(), h.engine()
	eng.cleaner.add(h.kind.Release(eng.settings(), g), g, h.longest, claim.AfterLoss(h.claim.Strays(false)))
	h.entry.removeLocked(h)
	h.entry.freedLocked(0)
	h.entry.close()
	if l.leases != nil {
		h.logLoss(l.leases, h.err)
	}
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.reportLoss(h.err)
	}
}

// logLoss logs the loss of the hold once, however many leases find out. l is one of them.
func (h *hold) logLoss(l *level, cause error) {
	h.entry.open()
	logged := h.lossLogged
	h.lossLogged = true
	h.entry.close()
	if !logged {
		l.logLoss(cause)
	}
}

func finishLosses(all []loss) {
	for _, l := range all {
		l.finish()
	}
}

// outlast returns the lease to send for a wanted one. The caller has the turn.
func (h *hold) outlast(lease time.Duration) time.Duration {
	h.entry.open()
	defer h.entry.close()
	lease = h.excess.outlast(lease)
	h.longest = max(h.longest, lease)
	return lease
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
