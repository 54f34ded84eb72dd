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
		notify(c.opts.Observer.NotAcquired, ctx, a.event("", err))
		return nil, err
	}
	notify(c.opts.Observer.Acquired, ctx, a.event(lease.hold.field, nil))
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
		w, err := a.admit(e)
		if err != nil {
			e.unlock()
			return nil, err
		}
		a.c.acquiring.Add(1)
		e.unlock()
		lease, again, err := a.wait(e, w)
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
	lease := c.newLease(a.ctx, h, a.lock.name, a.opts.LeaseTime)
	err := h.update(a.ctx, 1, lease.duration(), func(sent instant) error {
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
		if a.opts.WaitTime == 0 {
			return nil, a.notAcquired(e.ttl())
		}
		if a.opts.MaxWaiters > 0 && e.waiting() >= a.opts.MaxWaiters {
			return nil, ErrTooManyWaiters
		}
	}
	w := &waiter{kind: a.lock.kind, owner: a.owner, opts: a.opts, signal: make(chan struct{}, 1)}
	if a.opts.WaitTime >= 0 {
		w.deadline = time.Now().Add(a.opts.WaitTime)
	}
	e.enqueue(w)
	return w, nil
}

// wait takes a waiter through its life; see waiter. again says that its owner has got the lock by another call.
func (a *acquisition) wait(e *entry, w *waiter) (lease *Lease, again bool, err error) {
	waited := false
	for {
		e.shard.mu.Lock()
		step, pause := e.next(w, time.Now())
		var arrivals uint64
		switch step {
		case ask:
			arrivals = e.asks(w)
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
				notify(a.c.opts.Observer.Waiting, a.ctx, a.event("", nil))
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
		}
	}
}

// sleep returns false when the caller's context has ended.
func (a *acquisition) sleep(w *waiter, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.signal:
	case <-timer.C:
	case <-a.ctx.Done():
		return false
	}
	return true
}

// quit takes the waiter out of the queue.
func (a *acquisition) quit(e *entry, w *waiter) {
	e.shard.mu.Lock()
	e.leave(w)
	e.unlock()
}

// ask asks Redis once for the lock. It returns neither lease nor error when the caller is to wait on.
func (a *acquisition) ask(e *entry, w *waiter, arrivals uint64) (*Lease, error) {
	c := a.c
	if a.field == "" {
		a.field = c.newField()
	}
	field, d := a.field, c.leaseTime(a.opts.LeaseTime)
	x := c.exchange(w.kind.acquire(e.key, field, d), c.opts.CommandTimeout)
	answer, err := x.run(a.ctx.Done(), c.closing)
	if err == errLeft {
		a.quit(e, w)
		c.background.Go(func() {
			if granted, _, _ := x.grant(x.await()); granted || x.doubt {
				c.cleaner.add(w.kind, e.key, field, d, true, x.doubt)
			}
		})
		if a.ctx.Err() != nil {
			return nil, ended(a.ctx)
		}
		return nil, ErrClosed
	}

	granted, ttl, err := x.grant(answer, err)
	switch {
	case err != nil:
		a.fail(e, w, arrivals, err)
	case granted:
		var lease *Lease
		if lease, err = a.granted(e, w, x); err == nil {
			return lease, nil
		}
	default:
		err = a.refused(e, w, ttl)
	}
	if granted || x.doubt {
		c.cleaner.add(w.kind, e.key, field, d, granted || err != nil, x.doubt)
		a.field = ""
	}
	return nil, err
}

// grant reads the answer to an acquire script. One that cannot be read may mean anything.
func (x *exchange) grant(answer any, err error) (granted bool, ttl time.Duration, _ error) {
	if err != nil {
		return false, 0, err
	}
	granted, ttl, err = lua.ReadAcquire(answer)
	x.doubt = x.doubt || err != nil
	return granted, ttl, err
}

// granted makes a lease of a grant, unless it has come too late for the caller.
func (a *acquisition) granted(e *entry, w *waiter, x *exchange) (*Lease, error) {
	h := a.c.newHold(e, w, a.field, x.doubt)
	lease := a.c.newLease(a.ctx, h, a.lock.name, a.opts.LeaseTime)
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
func (a *acquisition) refused(e *entry, w *waiter, ttl time.Duration) error {
	e.shard.mu.Lock()
	defer e.unlock()
	e.note(ttl)
	switch {
	case w.out: // the next look tells why
		return nil
	case a.opts.WaitTime == 0:
		e.leave(w)
		return a.notAcquired(ttl)
	}
	e.sleeps(w, ttl)
	return nil
}

// fail ends the wait with an error. Where that is Redis's, or the network's, those who have queued up meanwhile would only
// run into it one after another, each for a CommandTimeout: it is theirs too.
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
