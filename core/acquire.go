package core

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lineage"
)

// acquire implements Lock.Acquire.
func (c *Client) acquire(ctx context.Context, l *Lock, opts AcquireOptions) (*Lease, error) {
	if err := opts.check(); err != nil {
		return nil, opErr("acquire", l.label(), err)
	}
	if l.err != nil {
		return nil, opErr("acquire", l.label(), l.err)
	}
	// From here on nothing refers to l: it is no longer in memory while the caller waits.
	key := l.key
	w := newWaiter(effective(ctx), c.engine, l.name, l.kind, lineage.From(ctx), opts)
	lease, w, err := c.enter(w, key)
	c.countGuest(w, err)
	if err != nil {
		if held, ok := err.(heldError); ok {
			c.warnOfSelf(w.name, held.heldBy(), false)
		}
		// A NotAcquiredError already names the lock. A wrapped one is the cause of ctx and names
		// another lock.
		if _, held := err.(*NotAcquiredError); !held {
			err = opErr("acquire", c.label(w.name), err)
		}
		c.refusals.add(w, key, err, time.Now())
		notify(w.ctx, c.opts.Observer.NotAcquired, func() Event { return w.event("", err) })
		return nil, err
	}
	notifyOr(w.ctx, lease.abandon, c.opts.Observer.Acquired, func() Event { return w.acquiredEvent(lease) })
	w.recycle()
	return &lease.Lease, nil
}

// enter acquires the lock for w: it enters again a hold that w's lineage or owner has, or queues
// up. It starts over if the owner gets the lock meanwhile, or the hold ends. It returns the waiter
// it ended with.
func (c *Client) enter(w *waiter, key string) (*level, *waiter, error) {
	for at := w.began; ; at = clock.Now() {
		if w.ctx.Err() != nil {
			return nil, w, ended(w.ctx)
		}
		var h *hold
		if !w.kind.Counted {
			h = c.heldBy(w.link, key)
		}
		if h == nil && w.kind.Invites() {
			if g, ok := c.invitation(w.link, key); ok {
				if err := w.enterAsGuest(g); err != nil {
					return nil, w, err
				}
			}
		}
		e := c.names.open(key, w.kind.Counted)
		p := w.arriveLocked(e, h, at)
		e.close()
		lease, err := w.follow(p)
		if err != errStartOver {
			return lease, w, err
		}
		w = w.again()
	}
}

// heldBy returns the hold of a key that a lineage has a live lease of, the nearest first; nil: it
// has none. What the lineage has was acquired before the call, so a key without holds needs no
// walk, and nor does a lineage that only begins. The caller must not hold the mutex.
func (c *Client) heldBy(link *lineage.Link, key string) *hold {
	if link == nil || link.Outer == nil && link.Lease == nil || !c.names.holds(key) {
		return nil
	}
	for ; link != nil; link = link.Outer {
		if l, ok := link.Lease.(*Lease); ok && !link.Detached() {
			if h := holdIn(l, c.engine, key); h != nil {
				return h
			}
		}
	}
	return nil
}

// holdIn returns the hold of a lock that a live lease is of, or stands for; nil: there is none.
func holdIn(l *Lease, eng *engine, key string) *hold {
	return l.backend.(interface {
		holdIn(eng *engine, key string) *hold
	}).holdIn(eng, key)
}
