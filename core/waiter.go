package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A request holds the arguments of a call of Acquire.
type request struct {
	ctx   context.Context
	name  string // the lock's name
	kind  *kinds.Kind
	link  *lineage.Link // the lineage of ctx; nil: none
	fixed time.Duration // LeaseTime; 0: the watchdog renews the lease
	began clock.Moment

	holder *hold // who kept it out; nil: a holder outside this client
}

// A waiter is a call of Acquire whose owner does not hold the lock. It runs in a loop on the
// caller's goroutine: it plans a step with the mutex held, then carries it out without the mutex.
// Other goroutines only poke it to plan again, or remove it from the queue with an error or a
// lease. Package claim defines its states.
//
// A process may have thousands of waiters, so one is kept small: what few of them need is aside.
type waiter struct {
	request
	claim.Waiter[*waiter] // guarded by the shard's mutex, like all fields below
	entry                 *entry
	signal                chan struct{} // holds one poke; made before the first sleep

	// The number of the wire owner of the attempt or hand-over in flight. 0: there is none, or
	// ForceUnlock has taken it.
	pending  uint64
	handover *handover // what gave it a lease; nil: no hand-over has
	aside    *aside    // nil: it has had no trouble, and has no place

	alarm   schedule.Entry // pokes the waiter at the end of a sleep
	inRoom  bool           // it counts towards MaxWaiting; used by the caller's goroutine only
	blocked bool           // Observer.Waiting was called; used by the caller's goroutine only
	warned  bool           // warnOfSelf has logged it; used by the caller's goroutine only
	waited  bool           // the lock was held while it was in the queue
}

// An aside is what few waiters have: a place if Redis keeps the queue, and trouble.
type aside struct {
	place
	trouble
}

// A trouble is what a waiter has met that few meet.
type trouble struct {
	err    error // why another goroutine removed it from the queue; nil: none has
	hinted bool  // ForceUnlock of another client may have taken the pending wire owner

	// An outage: the attempts that have failed in a row, if the waiter outlasts that.
	failures uint8
	failure  error // why the last attempt failed; nil: it did not
}

// troubledLocked returns the trouble of w to write to.
func (w *waiter) troubledLocked() *trouble {
	if w.aside == nil {
		w.aside = new(aside)
	}
	return &w.aside.trouble
}

// removedLocked returns why another goroutine has removed w from the queue; nil: none has.
func (w *waiter) removedLocked() error {
	if w.aside == nil {
		return nil
	}
	return w.aside.err
}

// failureLocked returns the error of the latest attempt of a waiter that outlasts it; nil: that
// attempt did not fail.
func (w *waiter) failureLocked() error {
	if w.aside == nil {
		return nil
	}
	return w.aside.failure
}

// handedLocked returns the lease from a hand-over; nil: there is none.
func (w *waiter) handedLocked() *level {
	if w.handover == nil {
		return nil
	}
	return w.handover.lease
}

// A place is a waiter's place in the queue that Redis keeps. The caller's goroutine uses it, and so
// does a hand-over while the waiter is the heir.
type place struct {
	owner   uint64        // the number of the wire owner in the queue
	wire    string        // the wire owner's name in Redis
	channel *hub.Channel  // where Redis tells this waiter that it is first; nil: not subscribed
	left    claim.Left    // what Redis may have of the wire owner
	clock   int64         // the server's clock in ms, from the last reply; 0: unknown
	read    clock.Instant // when that reply was read
}

// waiters pools waiters that have left the queue and that nothing refers to.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(ctx context.Context, eng *engine, name string, k *kinds.Kind, link *lineage.Link, opts AcquireOptions) *waiter {
	w := waiters.Get().(*waiter)
	w.request = request{ctx: ctx, name: name, kind: k, link: link, fixed: opts.LeaseTime, began: clock.Now()}
	w.NoWait, w.Limit, w.Class = opts.WaitTime == 0, opts.waiters(), k.Class()
	if opts.WaitTime >= 0 {
		w.Deadline = w.began.Add(opts.WaitTime)
	}
	w.Every = pollEvery(opts.WaitTime)
	return w.prepare(eng)
}

// again returns a new waiter for the same request. w itself cannot join again, because other
// goroutines may still refer to it.
func (w *waiter) again() *waiter {
	next := waiters.Get().(*waiter)
	next.request, next.NoWait, next.Limit, next.Class = w.request, w.NoWait, w.Limit, w.Class
	next.Deadline, next.Every = w.Deadline, w.Every
	next.blocked, next.warned = w.blocked, w.warned
	return next.prepare(w.entry.engine())
}

func (w *waiter) prepare(eng *engine) *waiter {
	w.Item = w
	if w.kind.RedisQueue {
		owner := newOwner()
		w.aside = &aside{place: place{owner: owner, wire: eng.wireOwner(owner)}}
	}
	return w
}

// recycle returns w to the pool if its first attempt succeeded. Such a waiter has never slept, so
// no hand-over, alarm or channel refers to it.
func (w *waiter) recycle() {
	if w.signal == nil && w.place() == nil {
		*w = waiter{}
		waiters.Put(w)
	}
}

// place returns the waiter's place in the queue that Redis keeps; nil: Redis keeps none.
func (w *waiter) place() *place {
	if !w.kind.RedisQueue {
		return nil
	}
	return &w.aside.place
}

// sendsLocked returns the wire owner for the next attempt or hand-over, which is pending from now on:
// that of the waiter's place in Redis's queue, or else a new one.
func (w *waiter) sendsLocked() (wire string) {
	if p := w.place(); p != nil {
		w.pending = p.owner
		return p.wire
	}
	w.pending = newOwner()
	return w.entry.engine().wireOwner(w.pending)
}

func (w *waiter) ring() { w.poke() }

// poke makes the waiter plan again.
func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default: // a poke is pending, or the waiter has never slept and plans before it does
	}
}

// wake pokes the waiters that a queue event returned.
func wake(woken []*claim.Waiter[*waiter]) {
	for _, w := range woken {
		w.Item.poke()
	}
}

// failAll fails waiters that the queue has removed.
func failAll(out []*claim.Waiter[*waiter], err error) {
	for _, w := range out {
		w.Item.troubledLocked().err = w.Item.given(err)
		w.Item.poke()
	}
}

// given returns what err means to w: the record of a name that is bound to something else is not for
// w.
func (w *waiter) given(err error) error {
	if r, ok := err.(*recorded); ok && r.binding != "" && w.kind.Marks.Binding != "" && r.binding != w.kind.Marks.Binding {
		return ErrBound
	}
	return err
}

// Notify handles a message on the waiter's own channel.
func (w *waiter) Notify() {
	w.entry.open()
	w.entry.queue.Call(&w.Waiter)
	w.poke()
	w.entry.close()
}

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
	if h == nil {
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
	if w.link != nil && w.link.PastQueue {
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
	case w.handover != nil:
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
	if p := w.place(); p != nil {
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

// errStartOver: another call of the owner was granted the lock, or the hold to re-enter was just
// released.
var errStartOver = errors.New("start over")

// follow carries out the first plan, and the plans after it.
func (w *waiter) follow(p plan) (*level, error) {
	switch p.step {
	case stepReenter:
		lease, err := w.reenter(p.hold)
		if err == ErrReleased {
			err = errStartOver
		}
		return lease, err
	case stepTryPastQueue:
		return w.tryPastQueue(p.wire)
	case stepTurnAway:
		return nil, w.recordOr(p.err)
	case stepRefuse:
		return nil, p.err
	}
	defer w.leaveRoom()
	lease, err := w.wait(p)
	w.leavePlace(lease)
	return lease, err
}

// wait runs a waiter in the queue until it has a result.
func (w *waiter) wait(p plan) (*level, error) {
	since := w.began // the latest attempt has ended
	for ; ; p = w.next(since) {
		switch p.step {
		case stepAsk:
			if lease, err := w.attempt(p); lease != nil || err != nil {
				return lease, err
			}
			since = clock.Now()
		case stepSleep:
			if err := w.enterRoom(); err != nil {
				_ = w.leaveQueue()
				return nil, w.recordOr(err)
			}
			w.notifyWaiting()
			if !w.sleep(w.warnOfSelf(p)) {
				return nil, w.leaveQueue()
			}
		case stepStartOver:
			return nil, errStartOver
		case stepTake:
			lease := w.handover.lease
			if w.ctx.Err() != nil {
				lease.abandon()
				return nil, &stillHeldError{end: ended(w.ctx)}
			}
			return lease, nil
		default:
			return nil, p.err
		}
	}
}

// enterRoom admits a caller before its first sleep, unless too many of its client wait.
func (w *waiter) enterRoom() error {
	if w.inRoom {
		return nil
	}
	err := w.entry.engine().room.enter()
	w.inRoom = err == nil
	return err
}

// leaveRoom ends an Acquire that was in the queue.
func (w *waiter) leaveRoom() {
	if w.inRoom {
		w.inRoom = false
		w.entry.engine().room.leave()
	}
	w.entry.shard.acquiring.Done()
}

// notifyWaiting calls Observer.Waiting before the first sleep of a call of Acquire. If the callback
// panics, the waiter leaves the queue, because its goroutine will not come back to it.
func (w *waiter) notifyWaiting() {
	if w.blocked {
		return
	}
	w.blocked = true
	notifyOr(w.ctx, w.remove, w.entry.engine().opts.Observer.Waiting, func() Event { return w.event("", nil) })
}

// sleep waits until the waiter is poked, for d at most. It returns false if the caller's context
// has ended.
func (w *waiter) sleep(d time.Duration) bool {
	if d < claim.Forever { // most waiters need no alarm: a message or a release pokes them
		alarms := w.entry.engine().alarms
		alarms.Set(&w.alarm, w, d)
		defer alarms.Cancel(&w.alarm)
	}
	select {
	case <-w.signal:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// leavePlace unsubscribes from the waiter's own channel. Without a lease, it also cleans up the
// waiter's place in Redis's queue.
func (w *waiter) leavePlace(lease *level) {
	p, eng := w.place(), w.entry.engine()
	if p == nil {
		return
	}
	if p.channel != nil {
		eng.hub.Unsubscribe(p.channel, w)
	}
	if lease == nil {
		w.cleanUp(p.wire, p.left)
	}
}

// cleanUp makes the cleaner free what Redis may have of a wire owner.
func (w *waiter) cleanUp(wire string, left claim.Left) {
	if left.None() {
		return
	}
	eng := w.entry.engine()
	g := kinds.Hold{Terms: &w.kind.Terms, Key: w.entry.key, Wire: wire, Deepest: claim.Counts{}.Plus(w.kind.Shared).Shared}
	eng.cleaner.add(w.kind.Free(eng.settings(), g, lua.Removal{Gone: true, Binding: true}), g, w.remains(), left)
}

// remains returns how long Redis can keep anything of a waiter that has left: a hold until its
// lease expires, a place in the queue until other waiters drop it.
func (w *waiter) remains() time.Duration {
	eng := w.entry.engine()
	d := eng.leaseTime(w.fixed)
	if w.place() != nil {
		d = max(d, eng.opts.FairWaitTimeout)
	}
	return d
}

// leaveQueue removes the waiter from the queue, after its context has ended, the client was closed
// or its last attempt had no answer in time. It returns the error for the caller. A lease that was
// handed over meanwhile is released.
func (w *waiter) leaveQueue() error {
	e := w.entry
	e.open()
	wake(e.queue.Leave(&w.Waiter))
	lease, held, by := w.handedLocked(), e.heldLocked(w.kind), w.holderLocked()
	refusal := w.gaveUpLocked(e.ttlLocked())
	e.close()
	if lease != nil {
		lease.abandon()
	}
	switch {
	case w.ctx.Err() == nil && e.engine().state.Load() == open:
		return refusal
	case w.ctx.Err() == nil:
		return ErrClosed
	case held || lease != nil:
		return &stillHeldError{ended(w.ctx), by}
	}
	return ended(w.ctx)
}

// remove removes a waiter whose observer callback panicked.
func (w *waiter) remove() {
	_ = w.leaveQueue()
	w.leavePlace(nil)
}

// lastPatience is how long the attempt at the end of WaitTime waits for its answer. Without one, the
// answer before it counts.
const lastPatience = 500 * time.Millisecond

// attempt sends the acquire script. It returns neither a lease nor an error if the waiter should
// keep waiting.
func (w *waiter) attempt(p plan) (*level, error) {
	e, eng, wire := w.entry, w.entry.engine(), p.wire
	t := kinds.Try{Terms: &w.kind.Terms, Key: e.key, Wire: wire, Lease: eng.leaseTime(w.fixed)}
	if place := w.place(); place != nil && place.clock != 0 {
		t.NotAfter, place.left = w.notAfter(), place.left.Queueing()
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
		if lease, err = w.granted(x, wire, answer.Token, left.Left()); lease != nil {
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

// call returns what an attempt sends.
func (w *waiter) call(p plan, t kinds.Try) lua.Call {
	if p.looks {
		return w.kind.Look(&w.kind.Terms, t.Key)
	}
	return w.kind.Acquire(w.entry.engine().settings(), t)
}

// leaveInFlight leaves the queue while an attempt is in flight. The reply is read in the
// background, and a lock that it grants is freed.
func (w *waiter) leaveInFlight(x *redisop.Op, wire string) error {
	why := w.leaveQueue()
	var left claim.Left
	if p := w.place(); p != nil {
		left, p.left = p.left, claim.Left{} // so that leavePlace does not clean up before the reply
	}
	if x.InFlight() || x.Stray() || !left.None() { // otherwise Redis has received nothing
		w.entry.engine().background.Go(func() {
			reply, err := x.Await()
			answer, _ := readGrant(x, reply, err)
			w.cleanUp(wire, attemptOf(x, answer.Granted, left).Verdict().Clean)
		})
	}
	return why
}

// notAfter returns the latest time, by the server's clock in ms, at which an attempt may queue up
// in Redis. A command that arrives later would add a place for a waiter that is gone. The server's
// clock must be known; until then the script does not queue up.
func (w *waiter) notAfter() int64 {
	p, eng := w.place(), w.entry.engine()
	return p.clock + (eng.clock().Since(p.read) + eng.opts.CommandTimeout).Milliseconds()
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
	case err == nil && x.Call().Looks() && answer.TTL == noKey:
		err = ErrUnrecorded
	}
	return answer, err
}

// attemptOf returns what is known of an attempt after which the wire owner is not used again. place is
// what earlier attempts have left.
func attemptOf(x *redisop.Op, granted bool, place claim.Left) claim.Attempt {
	return claim.Attempt{Granted: granted, Stray: x.Stray(), Looks: x.Call().Looks(), Place: place}
}

// leavesBehind returns what an attempt leaves. The waiter's place takes its part before a hand-over
// can use the place; leavePlace cleans that up.
func (w *waiter) leavesBehind(x *redisop.Op, granted bool) claim.AttemptVerdict {
	p := w.place()
	if p == nil {
		return attemptOf(x, granted, claim.Left{}).Verdict()
	}
	a := attemptOf(x, granted, p.left)
	a.Keeps = true
	v := a.Verdict()
	p.left = v.Place
	return v
}

// late reports whether a lease has expired by at, if its command was queued at sent.
func (w *waiter) late(sent, at clock.Instant) bool {
	return at.Until(clock.LeaseEnd(sent, w.entry.engine().leaseTime(w.fixed))) <= 0
}

// granted turns a grant into a lease. It returns an error if the grant does not count any more. It
// returns neither a lease nor an error if another call of the same owner was granted the lock
// first. The waiter then re-enters that hold, and its own grant, which is valid if the kind is
// shared, is cleaned up.
// left is what the owner's commands may leave in Redis beside the grant.
func (w *waiter) granted(x *redisop.Op, wire string, token uint64, left claim.Left) (*level, error) {
	e := w.entry
	now := time.Now()
	h, lease := w.newHold(wire, left, clock.MomentOf(now))
	h.token = token
	why := w.ended()
	e.open()
	at := e.engine().at(now)
	v := claim.Grant{
		Asks:      w.State() == claim.Asking,
		OwnerHas:  e.holds.of(ownerOf(w.link)) != nil,
		Removed:   w.removedLocked(),
		CallerErr: why,
		Forced:    w.pending == 0,
		Late:      w.late(x.Sent(), at),
		Outrun:    e.outrunLocked(h, clock.MomentOf(x.Begun())),
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
		e.grantLocked(w, h)
	}
	e.close()
	finishLosses(displaced)
	return lease, v.Err
}

// ended returns why the caller's context has ended, or nil. A context may be the caller's code, and
// ask for a lease itself, so the mutex must not be held.
func (w *waiter) ended() error {
	if w.ctx.Err() == nil {
		return nil
	}
	return ended(w.ctx)
}

// answeredLocked ends the attempt or hand-over in flight.
func (w *waiter) answeredLocked() { w.pending = 0 }

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
	known := claim.Refusal{Out: w.State() == claim.Out, NoWait: w.NoWait, Place: answer.Place}
	if p := w.place(); p != nil && !known.Out {
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
	p, most := w.place(), eng.reliedPause(polled)
	if p != nil {
		most = w.inTime(eng.pollPause())
		p.clock, p.read = answer.Now, eng.clock()
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

// pollsForOthersLocked reports whether w is the first of this process that waits for a fair lock. It
// finds the lock free if another waiter has missed its message, and notifies that one.
func (w *waiter) pollsForOthersLocked() bool {
	return w.place() != nil && w.entry.queue.Waiters()[0] == &w.Waiter
}

// inTime returns how long w may be silent, d at most, if it may not hear its channel or polls for
// others. Other waiters for a fair lock may drop one that is silent for longer.
func (w *waiter) inTime(d time.Duration) time.Duration {
	if w.place() == nil {
		return d
	}
	return min(d, w.entry.engine().fairPoll())
}

// fail handles the error of an attempt. It fails every waiter that had joined before the command
// was sent, this one included. The others would only run into the same error one after another,
// each for a CommandTimeout. A record and ErrUnrecorded go to all of them, too, if they want a
// record. Waiters that outlast the error stay, and fail reports whether this one does. ErrWrongKind
// and ErrBound concern this waiter only.
func (w *waiter) fail(arrivals uint32, err error) (stays bool) {
	e := w.entry
	e.open()
	defer e.close()
	known := claim.Failure{Own: err == ErrWrongKind || err == ErrBound, Outlasts: w.outlasts(err), Out: w.State() == claim.Out}
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

// reenter adds a lease to a hold of the owner.
func (w *waiter) reenter(h *hold) (*level, error) {
	eng := h.engine()
	if eng.state.Load() == closed {
		return nil, ErrClosed
	}
	lease := h.newLevel(&w.request, clock.Now())
	if err := h.update(w.ctx, w.kind, lease, lease.duration()); err != nil {
		return nil, err
	}
	return lease, nil
}

// tryPastQueue sends one attempt without queueing. A member of a RedLock must neither wait behind
// other waiters of this process nor keep them waiting.
func (w *waiter) tryPastQueue(wire string) (*level, error) {
	e := w.entry
	defer e.shard.acquiring.Done()
	defer e.removePastQueue(w)
	lease, err := w.attempt(plan{wire: wire})
	w.leavePlace(lease)
	if lease == nil && err == nil {
		e.open()
		err = w.notAcquiredLocked(e.ttlLocked())
		e.close()
	}
	return lease, err
}

// recordOr returns the record of a Once, if there is one, or else refusal. refusal came from the
// queue of this process, not from Redis: the waiters ahead may be about to get the same record.
func (w *waiter) recordOr(refusal error) error {
	if w.kind.Look == nil {
		return refusal
	}
	call := w.kind.Look(&w.kind.Terms, w.entry.key)
	reply, err := w.entry.engine().run(w.ctx, call)
	if err != nil {
		return err
	}
	if record, ok := call.ReadRecord(reply); ok {
		return &recorded{record: []byte(record)}
	}
	switch answer, err := call.ReadAcquire(reply); {
	case err != nil:
		return err
	case answer.Bound:
		return ErrBound
	}
	return refusal
}

// gaveUpLocked returns the error of a waiter whose WaitTime is over.
func (w *waiter) gaveUpLocked(ttl time.Duration) error {
	if err := w.failureLocked(); err != nil {
		return err
	}
	return w.notAcquiredLocked(ttl)
}

func (w *waiter) notAcquiredLocked(ttl time.Duration) error {
	return &NotAcquiredError{
		Name:   w.name,
		TTL:    ttl,
		Waited: clock.Now().Since(w.began),
		shown:  w.entry.engine().opts.LogNames,
		holder: w.holderLocked(),
	}
}

// holderLocked returns who keeps the waiter out, as far as this process knows. A hold that was handed
// to the waiter while it left does not.
func (w *waiter) holderLocked() holder {
	switch {
	case w.handover != nil || w.link == nil || !w.entry.heldFromLocked(w.link.Origin(), w.kind):
		return anotherOwner
	case w.link.PastQueue:
		return sameRequestRed
	}
	return sameRequest
}

// selfPatience is how long a caller that waits for ever waits for a lock of its own request until
// it is logged. Goroutines of one request that exclude each other for a moment are no news.
const selfPatience = time.Second

// warnOfSelf logs that the caller waits without end for a lock that its own request holds. No error
// would ever tell. It returns how long to sleep now.
func (w *waiter) warnOfSelf(p plan) time.Duration {
	if p.holder == anotherOwner || w.warned {
		return p.pause
	}
	if left := selfPatience - clock.Now().Since(w.began); left > 0 {
		return min(p.pause, left)
	}
	w.warned = w.entry.engine().warnOfSelf(w.name, p.holder, true)
	return p.pause
}

func (w *waiter) acquiredEvent(lease *level) Event {
	at := lease.acquired // just now, unless the lease re-enters a hold or was handed over
	if w.blocked || lease != &lease.hold.first {
		at = clock.Now()
	}
	e := w.eventAt(at, lease.hold.wire, nil)
	if o := w.handover; o != nil {
		e.Holder, e.HolderContext = o.hold.wire, o.last.caller
		e.HandOver = o.took
	}
	return e
}

func (w *waiter) event(wire string, err error) Event { return w.eventAt(clock.Now(), wire, err) }

func (w *waiter) eventAt(at clock.Moment, wire string, err error) Event {
	e := Event{
		Name:     w.name,
		Kind:     w.kind.Name,
		Owner:    wire,
		Waited:   at.Since(w.began),
		Lease:    w.fixed,
		Err:      err,
		WaitTime: w.waitTime(),
		Blocked:  w.blocked,
	}
	if h := w.holder; h != nil {
		e.Holder, e.HolderContext = h.wire, h.first.caller
	}
	return e
}

// waitTime returns AcquireOptions.WaitTime.
func (w *waiter) waitTime() time.Duration {
	switch {
	case w.NoWait:
		return 0
	case w.Deadline == 0:
		return WaitForever
	}
	return w.Deadline.Since(w.began)
}
