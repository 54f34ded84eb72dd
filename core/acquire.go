package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// An acquisition is one call of Acquire.
type acquisition struct {
	c     *Client
	ctx   context.Context
	lock  *Lock
	opts  AcquireOptions
	owner *owner
	began instant
	field string // wire owner of the hold to be; empty before the first try, and after one whose outcome is in doubt
	queue place
}

// A place is what a waiter of a queued kind has in Redis: its wire owner stands in the queue there.
type place struct {
	taken bool // or may be
	doubt bool // a try may yet arrive
	clock int64
	read  instant // when the server's clock was that
}

// errLate: the reply took longer than the lease lasts.
var errLate = fmt.Errorf("%w: the lease was over when the reply came; use a longer LeaseTime", ErrLockLost)

func (c *Client) acquire(ctx context.Context, l *Lock, opts AcquireOptions) (*Lease, error) {
	if err := opts.check(); err != nil {
		return nil, opErr("acquire", l.name, err)
	}
	if l.err != nil {
		return nil, opErr("acquire", l.name, l.err)
	}
	ctx = effective(ctx)
	a := &acquisition{c: c, ctx: ctx, lock: l, opts: opts, owner: ownerFrom(ctx), began: c.clock()}
	if a.owner == nil {
		a.owner = newOwner()
	}
	lease, err := a.run()
	if err != nil {
		var held *NotAcquiredError
		if !errors.As(err, &held) {
			err = opErr("acquire", l.name, err)
		}
		notify(c.opts.Observer.NotAcquired, ctx, func() Event { return a.event("", err) })
		return nil, err
	}
	if opts.vote {
		lease.tighten()
	}
	notify(c.opts.Observer.Acquired, ctx, func() Event { return a.event(lease.hold.field, nil) })
	return lease, nil
}

func (a *acquisition) run() (*Lease, error) {
	for {
		if a.ctx.Err() != nil {
			return nil, ended(a.ctx)
		}
		e := a.c.lock(a.lock.key)
		if h := e.holdOf(a.owner); h != nil {
			e.unlock()
			lease, err := a.reenter(h)
			if err == ErrReleased {
				continue // it was on its way out when we came
			}
			return lease, err
		}
		if a.c.state.Load() != open {
			e.unlock()
			return nil, ErrClosed
		}
		if a.opts.vote {
			return a.askPastQueue(e)
		}
		w, err := a.admit(e)
		if err != nil {
			e.unlock()
			return nil, a.recordOr(err)
		}
		a.c.acquiring.Add(1)
		e.unlock()
		lease, again, err := a.wait(e, w)
		a.leave(e, w, lease)
		a.c.acquiring.Done()
		if !again {
			return lease, err
		}
	}
}

// reenter adds a lease to a hold that the owner has.
func (a *acquisition) reenter(h *hold) (*Lease, error) {
	c := a.c
	if c.state.Load() == closed {
		return nil, ErrClosed
	}
	lease := c.newLease(a.ctx, h, a.lock, a.opts.LeaseTime)
	err := h.update(a.ctx, a.lock.kind, lease.duration(), func(sent instant) error {
		end := leaseEnd(sent, lease.duration())
		if lease.watched {
			end = later(end, h.renewed) // the watchdog does not wait for re-entries
		}
		switch {
		case c.state.Load() == closed: // Close has ended all leases there were
			return ErrClosed
		case c.clock().until(end) <= 0:
			return errLate
		}
		h.add(lease, sent)
		return nil
	})
	if err != nil {
		lease.cancel(err)
		return nil, err
	}
	return lease, nil
}

// late says that a lease granted by a command sent at some time is over already.
func (a *acquisition) late(sent instant) bool {
	return a.c.clock().until(leaseEnd(sent, a.c.leaseTime(a.opts.LeaseTime))) <= 0
}

// admit puts the caller into the queue, if it may. Locked.
func (a *acquisition) admit(e *entry) (*waiter, error) {
	if len(e.queue) > 0 {
		if a.opts.WaitTime == 0 && !e.joins(a.lock.kind) {
			return nil, a.notAcquired(e.ttl())
		}
		if a.opts.MaxWaiters > 0 && e.waiting() >= a.opts.MaxWaiters {
			return nil, ErrTooManyWaiters
		}
	}
	w := &waiter{by: a, kind: a.lock.kind, owner: a.owner, opts: a.opts}
	if a.opts.WaitTime >= 0 {
		w.deadline = in(a.opts.WaitTime)
	}
	e.enqueue(w)
	return w, nil
}

// wait takes a waiter through its life; see waiter. again says that its owner has got the lock by another call.
func (a *acquisition) wait(e *entry, w *waiter) (lease *Lease, again bool, err error) {
	waited := false
	for {
		e.shard.mu.Lock()
		step, pause := e.next(w, now())
		var arrivals uint64
		switch step {
		case ask:
			arrivals = e.asks(w)
			w.asking = true
		case sleep:
		default:
			e.leave(w)
		}
		ttl := e.ttl()
		e.unlock()

		switch step {
		case ask:
			lease, err := a.ask(e, w, arrivals)
			if lease != nil || err != nil {
				return lease, false, err
			}
		case sleep:
			if !waited {
				waited = true
				notify(a.c.opts.Observer.Waiting, a.ctx, func() Event { return a.event("", nil) })
			}
			if !a.sleep(w, pause) {
				a.quit(e, w)
				return nil, false, ended(a.ctx)
			}
		case reenter:
			return nil, true, nil
		case giveUp:
			return nil, false, a.notAcquired(ttl)
		case fail:
			return nil, false, w.err
		case take:
			if a.ctx.Err() != nil {
				w.lease.disown()
				return nil, false, ended(a.ctx)
			}
			return w.lease, false, nil
		}
	}
}

// sleep returns false when the caller's context has ended.
func (a *acquisition) sleep(w *waiter, d time.Duration) bool {
	var over <-chan time.Time
	if d < noEnd { // most waiters need no timer: they are told
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.signal:
	case <-over:
	case <-a.ctx.Done():
		return false
	}
	return true
}

// leave ends what a waiter has of its own beside its place in the queue here: its channel, and its place in Redis's.
func (a *acquisition) leave(e *entry, w *waiter, lease *Lease) {
	if w.sub != nil {
		w.sub.Close()
	}
	if a.queue.taken && lease == nil {
		g := grip{key: e.key, field: a.field}
		a.c.cleaner.add(w.kind.undoing(a.c, g), g, a.c.leaseTime(a.opts.LeaseTime), true, a.queue.doubt)
	}
	a.queue, a.field = place{}, ""
}

// quit takes the waiter out of the queue, because its context has ended or the client is closed.
func (a *acquisition) quit(e *entry, w *waiter) {
	e.shard.mu.Lock()
	e.leave(w)
	lease := w.lease
	e.unlock()
	if lease != nil {
		lease.disown()
	}
}

// ask asks Redis once for the lock. It returns neither lease nor error when the caller is to wait on.
func (a *acquisition) ask(e *entry, w *waiter, arrivals uint64) (*Lease, error) {
	c := a.c
	if a.field == "" {
		a.field = c.newField()
	}
	d := c.leaseTime(a.opts.LeaseTime)
	g := grip{key: e.key, field: a.field, deepest: levels{}.plus(w.kind).shared}
	x := c.exchange(w.kind.acquire(try{key: e.key, field: a.field, lease: d, notAfter: a.notAfter(w)}), c.opts.CommandTimeout).replicated()
	answer, err := x.run(a.ctx.Done(), c.closing)
	if err == errLeft {
		a.quit(e, w)
		queue := a.queue
		a.queue = place{}
		if x.inFlight || x.doubt || queue.taken { // or else nothing of it has been sent
			c.background.Go(func() {
				if answer, _ := x.grant(x.await()); answer.Granted || x.doubt || queue.taken {
					c.cleaner.add(w.kind.undoing(c, g), g, d, true, x.doubt || queue.doubt)
				}
			})
		}
		if a.ctx.Err() != nil {
			return nil, ended(a.ctx)
		}
		return nil, ErrClosed
	}

	told, err := x.grant(answer, err)
	if w.kind.queued { // before it is seen not to ask any more: then another goroutine may hand it the lock
		a.queue.taken = a.queue.taken || told.Granted || x.doubt
		a.queue.doubt = a.queue.doubt || x.doubt
	}
	switch {
	case err != nil:
		a.fail(e, w, arrivals, err)
	case told.Granted:
		var lease *Lease
		if lease, err = a.granted(e, w, x, told.Token); err == nil {
			return lease, nil
		}
	default:
		err = a.refused(e, w, told)
	}
	// Of a queued kind it keeps its wire owner, which has its place in the queue; see leave.
	if !w.kind.queued && (told.Granted || x.doubt) {
		c.cleaner.add(w.kind.undoing(c, g), g, d, told.Granted || err != nil, x.doubt)
		a.field = ""
	}
	return nil, err
}

// notAfter is when a try may queue up at the latest, by the server's clock, once that is known. A try that arrives later than
// anybody reckons with would leave a place in the queue that nobody takes.
func (a *acquisition) notAfter(w *waiter) int64 {
	if !w.kind.queued || a.queue.clock == 0 {
		return 0
	}
	a.queue.taken = true
	return a.queue.clock + (a.c.clock().since(a.queue.read) + a.c.opts.CommandTimeout).Milliseconds()
}

// grant reads the answer to an acquire script; a record in it is an error, a *recorded. One that cannot be read may mean
// anything. What replicas have not confirmed is granted, with an error.
func (x *exchange) grant(answer any, err error) (lua.Answer, error) {
	if err != nil {
		return lua.Answer{}, err
	}
	if record, ok := x.call.ReadRecord(answer); ok {
		return lua.Answer{}, &recorded{record}
	}
	told, err := x.call.ReadAcquire(answer)
	x.doubt = x.doubt || err != nil
	if told.Granted {
		err = x.proven()
	}
	return told, err
}

// granted makes a lease of a grant, unless it has come too late for the caller.
func (a *acquisition) granted(e *entry, w *waiter, x *exchange, token uint64) (*Lease, error) {
	h := a.c.newHold(e, w, a.field, x.doubt || a.queue.doubt)
	h.token = token
	lease := a.c.newLease(a.ctx, h, a.lock, a.opts.LeaseTime)
	err := a.ctx.Err()
	if err != nil {
		err = ended(a.ctx)
	}

	e.shard.mu.Lock()
	switch {
	case w.err != nil:
		err = w.err
	case err == nil && a.late(x.sent):
		err = errLate
	}
	if err == nil {
		h.add(lease, x.sent)
		e.grant(w, h)
	} else {
		e.leave(w)
	}
	e.unlock()

	if err != nil {
		lease.cancel(err)
		return nil, err
	}
	return lease, nil
}

// refused has the waiter sleep, or gives up where it does not want to wait.
func (a *acquisition) refused(e *entry, w *waiter, told lua.Answer) error {
	e.shard.mu.Lock()
	defer e.unlock()
	e.note(told.TTL)
	switch {
	case w.out: // the next look tells why
		return nil
	case a.opts.WaitTime == 0:
		e.leave(w)
		return a.notAcquired(told.TTL)
	}
	e.sleeps(w, a.field, told.TTL)
	if w.kind.queued {
		a.queue.clock, a.queue.read = told.Now, a.c.clock()
		if !told.Queued {
			w.pollAt = 0
		}
	}
	return nil
}

// fail ends the wait with an error. Where that is Redis's, or the network's, those who have queued up meanwhile would only
// run into it one after another, each for a CommandTimeout: it is theirs too. So is a record.
func (a *acquisition) fail(e *entry, w *waiter, arrivals uint64, err error) {
	e.shard.mu.Lock()
	defer e.unlock()
	if err == ErrWrongKind {
		e.leave(w)
		return
	}
	e.dismiss(arrivals, err)
}

func (a *acquisition) notAcquired(ttl time.Duration) error {
	return &NotAcquiredError{Name: a.lock.name, TTL: ttl, Waited: a.c.clock().since(a.began)}
}

func (a *acquisition) event(field string, err error) Event {
	return Event{
		Name:   a.lock.name,
		Kind:   a.lock.kind.name,
		Owner:  field,
		Waited: a.c.clock().since(a.began),
		Lease:  a.opts.LeaseTime,
		Err:    err,
	}
}
