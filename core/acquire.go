package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// A request is what a call of Acquire wants.
type request struct {
	ctx        context.Context
	name       string // of the lock
	kind       *kind
	owner      owner
	fixed      time.Duration // LeaseTime; 0: the watchdog's
	began      clock.Moment
	deadline   clock.Moment // of WaitTime; 0: none
	maxWaiters int32
	noWait     bool // without WaitTime
	vote       bool
	shown      bool // errors may hold the name
}

func newRequest(ctx context.Context, l *Lock, opts AcquireOptions) request {
	r := request{
		ctx:        ctx,
		name:       l.name,
		shown:      l.c.opts.LogNames,
		kind:       l.kind,
		owner:      ownerFrom(ctx),
		fixed:      opts.LeaseTime,
		began:      clock.Now(),
		maxWaiters: opts.waiters(),
		noWait:     opts.WaitTime == 0,
		vote:       opts.vote,
	}
	if r.owner == 0 {
		r.owner = newOwner()
	}
	if opts.WaitTime >= 0 {
		r.deadline = r.began.Add(opts.WaitTime)
	}
	return r
}

// A place is what a waiter of a queued kind has in Redis: its wire owner stands in the queue there. The caller's goroutine
// has it, and whoever hands the lock to a waiter that does not ask.
type place struct {
	field   string        // the wire owner
	channel *hub.Channel  // subscribed to: what is published for it alone
	calls   uint32        // counts that; guarded by the shard's mutex
	taken   bool          // or may be
	doubt   bool          // a try may yet arrive
	clock   int64         // of the server, ms
	read    clock.Instant // when it was that
}

func (p *place) mayBeTaken() bool { return p != nil && p.taken }
func (p *place) inDoubt() bool    { return p != nil && p.doubt }

// errLate: the reply took longer than the lease lasts.
var errLate = fmt.Errorf("%w: the lease was over when the reply came; use a longer LeaseTime, or WatchdogTimeout where there is none", ErrLockLost)

// errForced: ForceUnlock found the grant in Redis before its reply was read.
var errForced = fmt.Errorf("%w: ForceUnlock took it before Acquire returned", ErrLockLost)

func (c *Client) acquire(ctx context.Context, l *Lock, opts AcquireOptions) (*Lease, error) {
	if err := opts.check(); err != nil {
		return nil, opErr("acquire", l.label(), err)
	}
	if l.err != nil {
		return nil, opErr("acquire", l.label(), l.err)
	}
	r := newRequest(effective(ctx), l, opts)
	lease, err := c.enter(&r, l.key) // from here on the Lock is not needed any more
	if err != nil {
		if _, held := err.(*NotAcquiredError); !held { // one that is wrapped is why ctx has ended, and another lock's
			err = opErr("acquire", c.label(r.name), err)
		}
		notify(c.opts.Observer.NotAcquired, r.ctx, func() Event { return r.event("", err) })
		return nil, err
	}
	if r.vote {
		lease.tighten()
	}
	notifyOr(lease.disown, c.opts.Observer.Acquired, r.ctx, func() Event { return r.event(lease.hold.field, nil) })
	return lease, nil
}

// waiters pools waiters that are out and that nothing refers to any more.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func (c *Client) newWaiter(r *request) *waiter {
	w := waiters.Get().(*waiter)
	w.request = *r
	if r.kind.queued {
		w.place = &place{field: c.newField()}
	}
	return w
}

// recycle returns w to the pool if its first attempt succeeded. Such a waiter has never slept, so no hand-over, alarm or channel knows it.
func (w *waiter) recycle() {
	if w.signal == nil && w.place == nil {
		*w = waiter{}
		waiters.Put(w)
	}
}

// field is the wire owner of the hold to be: a new one for each try, unless it has a place in a queue; see leave.
func (w *waiter) field() string {
	if w.place != nil {
		return w.place.field
	}
	return w.entry.client().newField()
}

// enter gets a waiter what it wants: by entering a hold of its owner again, or by queueing up.
func (c *Client) enter(r *request, key string) (*Lease, error) {
	for at := r.began; ; at = clock.Now() {
		w := c.newWaiter(r) // a new one each time: of the old one others may not have heard yet that it is out
		if w.ctx.Err() != nil {
			return nil, ended(w.ctx)
		}
		e := c.lock(key)
		w.entry = e
		if h := e.holdOfLocked(w.owner); h != nil {
			e.unlock()
			lease, err := w.reenter(h)
			if err == ErrReleased {
				continue // it was on its way out when we came
			}
			return lease, err
		}
		if c.state.Load() != open {
			e.unlock()
			return nil, ErrClosed
		}
		if w.vote {
			return w.askPastQueue()
		}
		if err := w.admitLocked(); err != nil {
			e.unlock()
			return nil, w.recordOr(err)
		}
		e.shard.acquiring.Add(1)
		lease, again, err := w.wait(at)
		w.leave(lease)
		e.shard.acquiring.Done()
		if lease != nil {
			w.recycle()
		}
		if !again {
			return lease, err
		}
	}
}

// reenter adds a lease to a hold that the owner has.
func (w *waiter) reenter(h *hold) (*Lease, error) {
	c := h.client()
	if c.state.Load() == closed {
		return nil, ErrClosed
	}
	another := h.lease(&w.request, clock.Now())
	lease := &another
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

// late says that a lease granted by a command sent at some time is over already.
func (w *waiter) late(sent, at clock.Instant) bool {
	return at.Until(clock.LeaseEnd(sent, w.entry.client().leaseTime(w.fixed))) <= 0
}

// admitLocked puts the caller into the queue, if it may.
func (w *waiter) admitLocked() error {
	e := w.entry
	if len(e.queue) > 0 {
		if w.noWait && !e.joinsLocked(w.kind) {
			if e.queue[0].troubles > 0 {
				return e.shard.trouble
			}
			return w.notAcquired(e.ttlLocked())
		}
		if !w.noWait && e.waitingLocked() >= int(w.maxWaiters) {
			return ErrTooManyWaiters
		}
	}
	e.enqueueLocked(w)
	return nil
}

// wait takes a waiter through its life; see waiter. again says that its owner has got the lock by another call. Locked; it
// unlocks.
func (w *waiter) wait(at clock.Moment) (lease *Lease, again bool, err error) {
	e, waited := w.entry, false
	for {
		step, pause := e.nextLocked(w, at)
		var arrivals uint64
		switch step {
		case ask:
			arrivals = e.asksLocked(w)
			w.asking, w.coming = true, w.field()
		case sleep:
		default:
			e.leaveLocked(w)
		}
		ttl := e.ttlLocked()
		e.unlock()

		switch step {
		case ask:
			lease, err := w.ask(arrivals)
			if lease != nil || err != nil {
				return lease, false, err
			}
		case sleep:
			if !waited {
				waited = true
				notifyOr(w.abandon, e.client().opts.Observer.Waiting, w.ctx, func() Event { return w.event("", nil) })
			}
			if !w.sleep(pause) {
				return nil, false, w.leaveQueue()
			}
		case reenter:
			return nil, true, nil
		case giveUp:
			return nil, false, w.notAcquired(ttl)
		case fail:
			return nil, false, w.err
		case take:
			if w.ctx.Err() != nil {
				w.lease.disown()
				return nil, false, &stillHeldError{ended(w.ctx)}
			}
			return w.lease, false, nil
		}
		at = clock.Now()
		e.shard.mu.Lock()
	}
}

// sleep returns false when the caller's context has ended.
func (w *waiter) sleep(d time.Duration) bool {
	if d < noEnd { // most waiters need no alarm: they are told
		alarms := w.entry.client().alarms
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

// leave ends what a waiter has of its own beside its place in the queue here: its place in Redis's, and its channel.
func (w *waiter) leave(lease *Lease) {
	p, c := w.place, w.entry.client()
	if p == nil {
		return
	}
	if p.channel != nil {
		c.hub.Unsubscribe(p.channel, w)
	}
	if p.taken && lease == nil {
		g := holdCounts{key: w.entry.key, field: p.field}
		c.cleaner.add(w.kind.undoing(c, g), g, w.remains(), true, p.doubt)
	}
}

// remains is for how long something of a waiter that has left can be in Redis: a hold until its lease is over, a place in the queue
// until others take it for dead.
func (w *waiter) remains() time.Duration {
	d := w.entry.client().leaseTime(w.fixed)
	if w.place != nil {
		d = max(d, w.entry.client().opts.FairWaitTimeout)
	}
	return d
}

// leaveQueue takes the waiter out of the queue after its context has ended or the client was closed, and returns which.
func (w *waiter) leaveQueue() error {
	e := w.entry
	e.shard.mu.Lock()
	e.leaveLocked(w)
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

// abandon takes out a waiter whose caller does not come back to it.
func (w *waiter) abandon() {
	_ = w.leaveQueue()
	w.leave(nil)
	w.entry.shard.acquiring.Done()
}

// ask asks Redis once for the lock. It returns neither lease nor error when the caller is to wait on.
func (w *waiter) ask(arrivals uint64) (*Lease, error) {
	e, c, p := w.entry, w.entry.client(), w.place
	d, field := c.leaseTime(w.fixed), w.coming
	g := holdCounts{key: e.key, field: field, deepest: levels{}.plus(w.kind).shared}
	x := c.ops.Op(w.kind.acquire(c, try{key: e.key, field: field, lease: d, notAfter: w.notAfter()}), c.opts.CommandTimeout).Replicated()
	answer, err := x.Run(w.ctx.Done(), c.closing)
	if err == redisop.ErrLeft {
		why := w.leaveQueue()
		taken, doubt := p.mayBeTaken(), p.inDoubt()
		if p != nil {
			p.taken = false // it is seen to here
		}
		if x.InFlight() || x.Stray() || taken { // or else nothing of it has been sent
			c.background.Go(func() {
				answer, err := x.Await()
				if told, _ := readGrant(x, answer, err); told.Granted || x.Stray() || taken {
					c.cleaner.add(w.kind.undoing(c, g), g, w.remains(), true, x.Stray() || doubt)
				}
			})
		}
		return nil, why
	}

	defer x.Recycle()
	told, err := readGrant(x, answer, err)
	if p != nil { // before it is seen not to ask any more: then another goroutine may hand it the lock
		p.taken = p.taken || told.Granted || x.Stray()
		p.doubt = p.doubt || x.Stray()
	}
	stays := false
	switch {
	case err != nil:
		stays = w.fail(arrivals, err)
	case told.Granted:
		var lease *Lease
		if lease, err = w.granted(x, field, told.Token); lease != nil {
			return lease, nil
		}
	default:
		err = w.refused(told)
	}
	if p == nil && (told.Granted || x.Stray()) {
		c.cleaner.add(w.kind.undoing(c, g), g, d, told.Granted || err != nil, x.Stray())
	}
	if stays {
		notifyOr(w.abandon, c.opts.Observer.Retrying, w.ctx, func() Event { return w.event("", err) })
		return nil, nil
	}
	return nil, err
}

// notAfter is when a try may queue up at the latest, by the server's clock, once that is known. A try that arrives later than
// anybody reckons with would leave a place in the queue that nobody takes.
func (w *waiter) notAfter() int64 {
	p, c := w.place, w.entry.client()
	if p == nil || p.clock == 0 {
		return 0
	}
	p.taken = true
	return p.clock + (c.clock().Since(p.read) + c.opts.CommandTimeout).Milliseconds()
}

// readGrant reads the answer to an acquire script; a record in it is an error, a *recorded. One that cannot be read may mean
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

// granted makes a lease of a grant, unless it has come too late for the caller; neither lease nor error: it is not needed.
func (w *waiter) granted(x *redisop.Op, field string, token uint64) (*Lease, error) {
	e := w.entry
	now := time.Now()
	at := e.client().at(now)
	h, lease := w.newHold(field, x.Stray() || w.place.inDoubt(), clock.MomentOf(now))
	h.token = token
	err := w.ctx.Err()
	if err != nil {
		err = ended(w.ctx)
	}

	e.shard.mu.Lock()
	switch {
	case !w.out && err == nil && e.holdOfLocked(w.owner) != nil: // another call of its owner, a reader too, was faster: it enters that hold
		w.asking, w.coming, w.forced = false, "", false
		e.unlock()
		return nil, nil
	case w.err != nil:
		err = w.err
	case err == nil && w.forced:
		err = errForced
	case err == nil && w.late(x.Sent(), at):
		err = errLate
	}
	var displaced []loss
	if err == nil {
		if displaced = e.displace(h); outran(displaced, clock.MomentOf(x.Begun())) {
			err = errOutrun
		}
	}
	if err == nil {
		h.addLocked(lease, x.Sent(), at)
		e.grantLocked(w, h)
	} else {
		e.leaveLocked(w)
	}
	e.unlock()
	finishLosses(displaced)

	if err != nil {
		return nil, err
	}
	return lease, nil
}

// subscribePatience is how long a waiter for a fair lock waits for its subscription before it queues up.
const subscribePatience = time.Second

// refused has the waiter sleep, or gives up where it does not want to wait.
func (w *waiter) refused(told lua.Answer) error {
	e := w.entry
	e.shard.mu.Lock()
	defer e.unlock()
	e.noteLocked(told.TTL)
	w.troubles = 0
	switch {
	case w.out: // the next look tells why
		return nil
	case w.noWait:
		e.leaveLocked(w)
		return w.notAcquired(told.TTL)
	}
	e.sleepsLocked(w, told.TTL)
	if p := w.place; p != nil {
		p.clock, p.read = told.Now, e.client().clock()
		if !told.Queued { // it queues up when others can see that it lives
			w.pollAt = 0
			if c := e.client(); !c.hub.Confirmed(p.channel) {
				w.pollAt = clock.In(min(c.opts.PollInterval, subscribePatience))
			}
		}
	}
	return nil
}

// fail ends the wait with an error, unless the waiter stays: one that waits for ever does where the cause may pass. Where the error
// is Redis's, or the network's, those who have queued up meanwhile would only run into it one after another, each for a
// CommandTimeout: it is theirs too. So is a record.
func (w *waiter) fail(arrivals uint64, err error) (stays bool) {
	e := w.entry
	e.shard.mu.Lock()
	defer e.unlock()
	if err == ErrWrongKind {
		e.leaveLocked(w)
		return false
	}
	e.dismissLocked(arrivals, err)
	if !w.forEver() || !heals(err) {
		return false
	}
	w.asking, w.coming, w.forced, w.waits = false, "", false, true
	w.troubles, e.shard.trouble = min(w.troubles+1, 100), err
	w.pollAt = clock.In(e.client().troublePause(w.troubles))
	if !w.out {
		e.subscribeLocked(w)
	}
	return true
}

// troublePause is how long a waiter that waits for ever pauses after so many questions that Redis did not answer. When the pub/sub
// connection is back it asks at once.
func (c *Client) troublePause(troubles uint8) time.Duration {
	pause := min(20*time.Millisecond<<min(troubles, 8), c.opts.PollInterval)
	return pause - rand.N(pause/2+1)
}

// forEver reports whether the caller waits until its context ends.
func (r *request) forEver() bool { return r.deadline == 0 }

func (r *request) notAcquired(ttl time.Duration) error {
	return &NotAcquiredError{Name: r.name, TTL: ttl, Waited: clock.Now().Since(r.began), shown: r.shown}
}

func (r *request) event(field string, err error) Event {
	return Event{
		Name:   r.name,
		Kind:   r.kind.name,
		Owner:  field,
		Waited: clock.Now().Since(r.began),
		Lease:  r.fixed,
		Err:    err,
	}
}
