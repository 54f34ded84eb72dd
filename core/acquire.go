package core

import (
	"context"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// acquire implements Lock.Acquire.
func (c *Client) acquire(ctx context.Context, l *Lock, opts AcquireOptions) (*Lease, error) {
	if err := opts.check(); err != nil {
		return nil, opErr("acquire", l.label(), err)
	}
	if l.err != nil {
		return nil, opErr("acquire", l.label(), l.err)
	}
	id := identityFrom(ctx)
	if id.owner == 0 {
		id.owner = newOwner()
	}
	w := newWaiter(effective(ctx), c.engine, l.name, l.kind, id.owner, opts)
	lease, w, err := c.enter(w, l.key, id.pastQueue)
	if err != nil {
		// A NotAcquiredError already names the lock. A wrapped one is the cause of ctx and names
		// another lock.
		if _, held := err.(*NotAcquiredError); !held {
			err = opErr("acquire", l.label(), err)
		}
		notify(w.ctx, c.opts.Observer.NotAcquired, func() Event { return w.event("", err) })
		return nil, err
	}
	notifyOr(w.ctx, lease.disown, c.opts.Observer.Acquired, func() Event { return w.acquiredEvent(lease) })
	w.recycle()
	return &lease.Lease, nil
}

// enter acquires the lock for w: it re-enters a hold of w's owner, or queues up. It starts over if
// the owner gets or releases the lock meanwhile. It returns the waiter it ended with.
func (c *Client) enter(w *waiter, key string, pastQueue bool) (*level, *waiter, error) {
	for at := w.began; ; at = clock.Now() {
		if w.ctx.Err() != nil {
			return nil, w, ended(w.ctx)
		}
		e := c.names.lock(key)
		p := w.arriveLocked(e, at, pastQueue)
		e.unlock()
		lease, err := w.follow(p)
		if err != errStartOver {
			return lease, w, err
		}
		w = w.again()
	}
}
