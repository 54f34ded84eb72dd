package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/waitqueue"
)

// A request is what a call of Acquire wants.
type request struct {
	ctx   context.Context
	name  string // of the lock
	kind  *kind
	owner owner
	fixed time.Duration // LeaseTime; 0: the watchdog's
	began clock.Moment
}

// A waiter is a caller of Acquire whose owner does not hold the lock. It runs on the caller's goroutine: it looks at its entry for
// what to do, does that without the mutex, and looks again. Others only poke it to look, or take it out with an error or a lease.
// Package waitqueue has its states.
type waiter struct {
	request
	waitqueue.Waiter[*waiter] // guarded by the shard's mutex, as all below
	entry                     *entry
	place                     *place                // nil, unless Redis keeps the queue
	signal                    chan struct{}         // holds one poke; made before it first sleeps
	alarm                     schedule.Entry[alarm] // pokes it, if need be

	coming   string // the wire owner that it is asking for, or is offered; empty: none
	err      error  // why others took it out
	lease    *level // handed to it
	forced   bool   // ForceUnlock took what is coming before it was known to be granted
	troubles uint8  // questions in a row that Redis did not answer
}

// A place is what a waiter of a queued kind has in Redis: its wire owner stands in the queue there. The caller's goroutine has it,
// and so has a hand-over while the waiter is the heir.
type place struct {
	field   string        // the wire owner
	channel *hub.Channel  // subscribed to: what is published for it alone
	left    residue       // of the wire owner
	clock   int64         // of the server, ms
	read    clock.Instant // when it was that
}

// waiters pools waiters that are out and that nothing refers to any more.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(ctx context.Context, e *engine, name string, k *kind, o owner, opts AcquireOptions) *waiter {
	w := waiters.Get().(*waiter)
	w.request = request{ctx: ctx, name: name, kind: k, owner: o, fixed: opts.LeaseTime, began: clock.Now()}
	w.Once, w.Limit, w.Class = opts.WaitTime == 0, opts.waiters(), k.class()
	if opts.WaitTime >= 0 {
		w.Deadline = w.began.Add(opts.WaitTime)
	}
	return w.prepare(e)
}

// again returns a waiter that wants the same. Of w others may not have heard yet that it is out.
func (w *waiter) again() *waiter {
	next := waiters.Get().(*waiter)
	next.request, next.Once, next.Limit, next.Class, next.Deadline = w.request, w.Once, w.Limit, w.Class, w.Deadline
	return next.prepare(w.entry.engine())
}

func (w *waiter) prepare(e *engine) *waiter {
	w.Item = w
	if w.kind.queued {
		w.place = &place{field: e.newField()}
	}
	return w
}

// recycle returns w to the pool if its first attempt succeeded. Such a waiter has never slept, so no hand-over, alarm or channel
// knows it.
func (w *waiter) recycle() {
	if w.signal == nil && w.place == nil {
		*w = waiter{}
		waiters.Put(w)
	}
}

// field is the wire owner of the hold to be: a new one for each try, unless the waiter has a place in a queue.
func (w *waiter) field() string {
	if w.place != nil {
		return w.place.field
	}
	return w.entry.engine().newField()
}

func (w *waiter) ring() { w.poke() }

// poke has the waiter look again.
func (w *waiter) poke() {
	select {
	case w.signal <- struct{}{}:
	default: // it has one already, or does not sleep and looks before it does
	}
}

// wake pokes what the queue says is to be woken.
func wake(woken []*waitqueue.Waiter[*waiter]) {
	for _, w := range woken {
		w.Item.poke()
	}
}

// failAll gives an error to waiters that the queue has taken out.
func failAll(out []*waitqueue.Waiter[*waiter], err error) {
	for _, w := range out {
		w.Item.err = err
		w.Item.poke()
	}
}

// Notify takes a message on the waiter's own channel.
func (w *waiter) Notify() {
	w.entry.lock()
	w.entry.queue.Call(&w.Waiter)
	w.poke()
	w.entry.unlock()
}

// A step is what a waiter does next.
type step uint8

const (
	ask       step = iota
	sleep          // for plan.pause, unless poked
	startOver      // its owner has the lock by another call
	giveUp         // its time is over
	fail           // with plan.err
	take           // waiter.lease

	// Only on arrival; it has not joined the queue.
	reenter  // plan.hold, which its owner has
	vote     // ask, past the queue
	turnAway // with plan.err, unless there is a record
	refuse   // with plan.err
)

// A plan is what a look has found.
type plan struct {
	step     step
	pause    time.Duration
	hold     *hold
	err      error
	ttl      time.Duration // of the holder's key
	arrivals uint32        // waiters there are; see waitqueue.Queue.Dismiss
}

// arriveLocked enters e and takes the first look.
func (w *waiter) arriveLocked(e *entry, at clock.Moment, voter bool) plan {
	w.entry = e
	if h := e.holds.of(w.owner); h != nil {
		return plan{step: reenter, hold: h}
	}
	if e.engine().state.Load() != open {
		return plan{step: refuse, err: ErrClosed}
	}
	if voter {
		e.queue.Leave(&w.Waiter)
		e.shard.acquiring.Add(1)
		e.shard.voters = append(e.shard.voters, w)
		w.coming = w.field()
		return plan{step: vote}
	}
	switch e.queue.Join(&w.Waiter) {
	case waitqueue.Full:
		return plan{step: turnAway, err: ErrTooManyWaiters}
	case waitqueue.Behind:
		if e.queue.Waiters()[0].Item.troubles > 0 {
			return plan{step: turnAway, err: e.shard.trouble}
		}
		return plan{step: turnAway, err: w.notAcquired(e.ttlLocked())}
	}
	e.shard.acquiring.Add(1)
	return w.lookLocked(at)
}

// look is lookLocked for a waiter that has slept or asked.
func (w *waiter) look() plan {
	w.entry.lock()
	defer w.entry.unlock()
	return w.lookLocked(clock.Now())
}

// lookLocked decides what the waiter does next, and takes it out of the queue if it is to leave.
func (w *waiter) lookLocked(at clock.Moment) plan {
	p := w.planLocked(at)
	switch p.step {
	case ask:
		e := w.entry
		e.queue.Asks(&w.Waiter)
		w.coming, p.arrivals = w.field(), e.queue.Arrivals()
	case sleep:
		if w.signal == nil {
			w.signal = make(chan struct{}, 1)
		}
	default:
		wake(w.entry.queue.Leave(&w.Waiter))
	}
	return p
}

func (w *waiter) planLocked(at clock.Moment) plan {
	e := w.entry
	switch {
	case w.lease != nil:
		return plan{step: take}
	case w.err != nil:
		return plan{step: fail, err: w.err}
	case e.holds.of(w.owner) != nil:
		return plan{step: startOver}
	}
	next, pause := e.queue.Next(&w.Waiter, at)
	switch next {
	case waitqueue.Ask:
		left := w.timeLeft(at)
		if left > 0 && w.kind.record != nil && e.recordingLocked() { // the record will be delivered
			return plan{step: sleep, pause: left}
		}
		return plan{step: ask}
	case waitqueue.Sleep:
		return plan{step: sleep, pause: pause}
	}
	return plan{step: giveUp, ttl: e.ttlLocked()}
}

func (w *waiter) timeLeft(at clock.Moment) time.Duration {
	if w.Deadline == 0 {
		return waitqueue.Forever
	}
	return w.Deadline.Since(at)
}

// errStartOver: the owner has got the lock by another call, or the hold to enter was just released.
var errStartOver = errors.New("start over")

// follow carries out the plan of an arrival, and those after it.
func (w *waiter) follow(p plan) (*level, error) {
	switch p.step {
	case reenter:
		lease, err := w.reenter(p.hold)
		if err == ErrReleased {
			err = errStartOver
		}
		return lease, err
	case vote:
		return w.vote()
	case turnAway:
		return nil, w.recordOr(p.err)
	case refuse:
		return nil, p.err
	}
	defer w.entry.shard.acquiring.Done()
	lease, err := w.wait(p)
	w.leavePlace(lease)
	return lease, err
}

// wait takes a waiter in the queue through its life.
func (w *waiter) wait(p plan) (*level, error) {
	for waited := false; ; p = w.look() {
		switch p.step {
		case ask:
			if lease, err := w.ask(p.arrivals); lease != nil || err != nil {
				return lease, err
			}
		case sleep:
			if !waited {
				waited = true
				w.notifyWaiting()
			}
			if !w.sleep(p.pause) {
				return nil, w.leaveQueue()
			}
		case startOver:
			return nil, errStartOver
		case take:
			if w.ctx.Err() != nil {
				w.lease.disown()
				return nil, &stillHeldError{ended(w.ctx)}
			}
			return w.lease, nil
		case giveUp:
			return nil, w.notAcquired(p.ttl)
		default:
			return nil, p.err
		}
	}
}

// notifyWaiting tells the Observer. A callback that panics takes the waiter out, as its caller does not come back to it.
func (w *waiter) notifyWaiting() {
	notifyOr(w.ctx, w.abandon, w.entry.engine().opts.Observer.Waiting, func() Event { return w.event("", nil) })
}

// sleep returns false when the caller's context has ended.
func (w *waiter) sleep(d time.Duration) bool {
	if d < waitqueue.Forever { // most waiters need no alarm: a message or a release wakes them
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

// leavePlace ends what a waiter has beside its place in the queue here: its place in that of Redis, and its channel.
func (w *waiter) leavePlace(lease *level) {
	p, c := w.place, w.entry.engine()
	if p == nil {
		return
	}
	if p.channel != nil {
		c.hub.Unsubscribe(p.channel, w)
	}
	if lease == nil {
		w.cleanUp(p.field, p.left)
	}
}

// cleanUp has what is left of a wire owner freed.
func (w *waiter) cleanUp(field string, left residue) {
	if left.none() {
		return
	}
	c := w.entry.engine()
	g := holdCounts{key: w.entry.key, field: field, deepest: levels{}.plus(w.kind.shared).shared}
	c.cleaner.add(w.kind.undoing(c, g), g, w.remains(), left)
}

// remains is for how long Redis can have something of a waiter that has left: a hold until its lease is over, a place in the queue
// until others take it for dead.
func (w *waiter) remains() time.Duration {
	c := w.entry.engine()
	d := c.leaseTime(w.fixed)
	if w.place != nil {
		d = max(d, c.opts.FairWaitTimeout)
	}
	return d
}

// leaveQueue takes the waiter out of the queue after its context has ended or the client was closed, and returns which.
func (w *waiter) leaveQueue() error {
	e := w.entry
	e.lock()
	wake(e.queue.Leave(&w.Waiter))
	lease, held := w.lease, e.heldLocked(w.kind)
	e.unlock()
	if lease != nil {
		lease.disown()
	}
	switch {
	case w.ctx.Err() == nil:
		return ErrClosed
	case held || lease != nil:
		return &stillHeldError{ended(w.ctx)}
	}
	return ended(w.ctx)
}

// abandon takes out a waiter when an observer has panicked. follow ends the rest.
func (w *waiter) abandon() {
	_ = w.leaveQueue()
	w.leavePlace(nil)
}

// ask asks Redis once for the lock. It returns neither lease nor error when the caller is to wait on.
func (w *waiter) ask(arrivals uint32) (*level, error) {
	e, c := w.entry, w.entry.engine()
	field := w.coming
	x := c.ops.Op(w.kind.acquire(c, try{key: e.key, field: field, lease: c.leaseTime(w.fixed), notAfter: w.notAfter()}), c.opts.CommandTimeout).Replicated()
	answer, err := x.Run(w.ctx.Done(), c.closing)
	if err == redisop.ErrLeft {
		return nil, w.leaveQuestion(x, field)
	}
	defer x.Recycle()
	told, err := readGrant(x, answer, err)
	left := afterGrant(x, told.Granted)
	if p := w.place; p != nil { // before another goroutine may hand it the lock
		p.left = p.left.or(left)
	}
	var lease *level
	stays := false
	switch {
	case err != nil:
		stays = w.fail(arrivals, err)
	case told.Granted:
		if lease, err = w.granted(x, field, told.Token); lease != nil {
			return lease, nil
		}
	default:
		err = w.refused(told)
	}
	if w.place == nil { // a place keeps its wire owner, and leavePlace cleans up
		w.cleanUp(field, left)
	}
	if stays {
		notifyOr(w.ctx, w.abandon, c.opts.Observer.Retrying, func() Event { return w.event("", err) })
		return nil, nil
	}
	return nil, err
}

// leaveQuestion leaves while a question is under way. Its reply is read in the background, and what it grants is freed.
func (w *waiter) leaveQuestion(x *redisop.Op, field string) error {
	why := w.leaveQueue()
	var left residue
	if p := w.place; p != nil {
		left, p.left = p.left, residue{} // leavePlace has nothing to clean up
	}
	if x.InFlight() || x.Stray() || !left.none() { // or else nothing of it was sent
		w.entry.engine().background.Go(func() {
			answer, err := x.Await()
			told, _ := readGrant(x, answer, err)
			w.cleanUp(field, left.or(afterGrant(x, told.Granted)))
		})
	}
	return why
}

// notAfter is when a try may queue up at the latest, by the server's clock, once that is known. A try that arrives later would
// leave a place in the queue that no waiter takes.
func (w *waiter) notAfter() int64 {
	p, c := w.place, w.entry.engine()
	if p == nil || p.clock == 0 {
		return 0
	}
	p.left.there = true
	return p.clock + (c.clock().Since(p.read) + c.opts.CommandTimeout).Milliseconds()
}

// readGrant reads the answer to an acquire script. A record in it is an error, a *recorded. One that cannot be read may mean
// anything. What replicas have not confirmed is granted, with an error.
func readGrant(x *redisop.Op, answer any, err error) (lua.Answer, error) {
	if err != nil {
		return lua.Answer{}, err
	}
	if record, ok := x.Call().ReadRecord(answer); ok {
		return lua.Answer{}, &recorded{record}
	}
	told, err := x.Call().ReadAcquire(answer)
	if err != nil {
		x.Unreadable()
	}
	if told.Granted {
		err = x.Proven()
	}
	return told, err
}

// errLate: the reply took longer than the lease lasts.
var errLate = fmt.Errorf("%w: the lease was over when the reply came; use a longer LeaseTime, or WatchdogTimeout where there is none", ErrLockLost)

// errForced: ForceUnlock found the grant in Redis before its reply was read.
var errForced = fmt.Errorf("%w: ForceUnlock took it before Acquire returned", ErrLockLost)

// errOutrun: the reply to an acquire was overtaken by the grant of another hold of this client. Which of the two Redis has now is
// not known, so neither counts.
var errOutrun = fmt.Errorf("%w: another owner in this process was granted it before the reply came", ErrLockLost)

// late reports whether a lease that was granted by a command sent at some time is over already.
func (w *waiter) late(sent, at clock.Instant) bool {
	return at.Until(clock.LeaseEnd(sent, w.entry.engine().leaseTime(w.fixed))) <= 0
}

// granted makes a lease of a grant, unless that is too late for the caller. It returns neither lease nor error if the grant is not
// needed: another call of the owner was faster, also with a shared kind, and the caller enters that hold.
func (w *waiter) granted(x *redisop.Op, field string, token uint64) (*level, error) {
	e := w.entry
	now := time.Now()
	h, lease := w.newHold(field, x.Stray() || w.place != nil && w.place.left.stray, clock.MomentOf(now))
	h.token = token
	e.lock()
	if w.State() == waitqueue.Asking && w.ctx.Err() == nil && e.holds.of(w.owner) != nil {
		w.answeredLocked()
		e.queue.Sleeps(&w.Waiter, w.PollAt)
		e.unlock()
		return nil, nil
	}
	at := e.engine().at(now)
	err := w.refusalLocked(x, at)
	var displaced []loss
	if err == nil {
		displaced = e.displaceLocked(h)
		if outran(displaced, clock.MomentOf(x.Begun())) {
			err = errOutrun
		}
	}
	if err == nil {
		h.addLocked(lease, x.Sent(), at)
		e.grantLocked(w, h)
	} else {
		wake(e.queue.Leave(&w.Waiter))
	}
	e.unlock()
	finishLosses(displaced)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// refusalLocked returns why a grant does not count; nil: it does.
func (w *waiter) refusalLocked(x *redisop.Op, at clock.Instant) error {
	switch {
	case w.err != nil:
		return w.err
	case w.ctx.Err() != nil:
		return ended(w.ctx)
	case w.forced:
		return errForced
	case w.late(x.Sent(), at):
		return errLate
	}
	return nil
}

// outran reports whether one of the holds was granted after a command was sent. Then Redis may have executed that command before
// or after the grant.
func outran(displaced []loss, sent clock.Moment) bool {
	for _, l := range displaced {
		if l.hold.first.acquired > sent {
			return true
		}
	}
	return false
}

// answeredLocked ends a question or an offer.
func (w *waiter) answeredLocked() { w.coming, w.forced = "", false }

// A waiter for a fair lock waits for its subscription no longer than subscribePatience before it queues up.
const subscribePatience = time.Second

// refused has the waiter sleep, or gives up where it makes a single attempt.
func (w *waiter) refused(told lua.Answer) error {
	e := w.entry
	e.lock()
	defer e.unlock()
	e.noteLocked(told.TTL)
	w.troubles = 0
	switch {
	case w.State() == waitqueue.Out: // the next look says why
		return nil
	case w.Once:
		wake(e.queue.Leave(&w.Waiter))
		return w.notAcquired(told.TTL)
	}
	w.sleepsLocked(told.TTL)
	if w.place != nil {
		w.queueUpLocked(told)
	}
	return nil
}

// sleepsLocked has a waiter that was refused sleep, and hear of releases.
func (w *waiter) sleepsLocked(ttl time.Duration) {
	e, c := w.entry, w.entry.engine()
	w.answeredLocked()
	pause := c.pause(ttl)
	if w.place != nil {
		pause = min(pause, fairPoll, c.opts.FairWaitTimeout/4) // a waiter that is silent for longer may be taken for dead
	}
	failAll(e.queue.Refused(&w.Waiter, clock.In(pause)), ErrTooManyWaiters)
	e.subscribeLocked(w)
}

// queueUpLocked notes the server's clock for the try that takes a place in Redis's queue. It takes one when others can see that it
// lives.
func (w *waiter) queueUpLocked(told lua.Answer) {
	p, c := w.place, w.entry.engine()
	p.clock, p.read = told.Now, c.clock()
	switch {
	case told.Queued:
	case c.hub.Confirmed(p.channel):
		w.PollAt = 0
	default:
		w.PollAt = clock.In(min(c.opts.PollInterval, subscribePatience))
	}
}

// fail ends the wait with an error, unless the waiter stays: one without a time limit does where the cause may pass. Where the error
// is Redis's, or the network's, those who have queued up meanwhile would only run into it one after another, each for a
// CommandTimeout: it is theirs too. So is a record.
func (w *waiter) fail(arrivals uint32, err error) (stays bool) {
	e := w.entry
	e.lock()
	defer e.unlock()
	if err == ErrWrongKind {
		wake(e.queue.Leave(&w.Waiter))
		return false
	}
	e.dismissLocked(arrivals, err)
	if w.Deadline != 0 || !heals(err) {
		return false
	}
	w.answeredLocked()
	w.troubles, e.shard.trouble = min(w.troubles+1, 100), err
	if w.State() != waitqueue.Out {
		failAll(e.queue.Refused(&w.Waiter, clock.In(e.engine().troublePause(w.troubles))), ErrTooManyWaiters)
		e.subscribeLocked(w)
	}
	return true
}

// reenter adds a lease to a hold that the owner has.
func (w *waiter) reenter(h *hold) (*level, error) {
	c := h.engine()
	if c.state.Load() == closed {
		return nil, ErrClosed
	}
	lease := h.newLevel(&w.request, clock.Now())
	err := h.update(w.ctx, w.kind, lease.duration(), func(sent clock.Instant) error {
		end := clock.LeaseEnd(sent, lease.duration())
		if lease.watched {
			end = clock.Later(end, h.renewed) // the watchdog does not wait for re-entries
		}
		switch {
		case c.state.Load() == closed: // Close has ended all leases there were
			return ErrClosed
		case c.clock().Until(end) <= 0:
			return errLate
		}
		h.addLocked(lease, sent, c.clock())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// vote asks Redis once, past those who wait in this process: the member of a RedLock must not wait for the time that others take,
// nor keep them waiting.
func (w *waiter) vote() (*level, error) {
	e := w.entry
	defer e.shard.acquiring.Done()
	defer e.removeVoter(w)
	lease, err := w.ask(0)
	w.leavePlace(lease)
	if lease == nil && err == nil {
		e.lock()
		ttl := e.ttlLocked()
		e.unlock()
		err = w.notAcquired(ttl)
	}
	return lease, err
}

// recordOr returns the record in place of a refusal that was not Redis's: others of this process are first in the queue, but they
// may be there for the record as well, and have only not been answered yet.
func (w *waiter) recordOr(refusal error) error {
	if w.kind.look == nil {
		return refusal
	}
	call := w.kind.look(w.entry.key)
	answer, err := w.entry.engine().ask(w.ctx, call)
	if err != nil {
		return err
	}
	if record, ok := call.ReadRecord(answer); ok {
		return &recorded{record}
	}
	if _, err := call.ReadAcquire(answer); err != nil {
		return err
	}
	return refusal
}

func (w *waiter) notAcquired(ttl time.Duration) error {
	return &NotAcquiredError{Name: w.name, TTL: ttl, Waited: clock.Now().Since(w.began), shown: w.entry.engine().opts.LogNames}
}

func (w *waiter) event(field string, err error) Event {
	return Event{
		Name:   w.name,
		Kind:   w.kind.name,
		Owner:  field,
		Waited: clock.Now().Since(w.began),
		Lease:  w.fixed,
		Err:    err,
	}
}
