package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A boundContext is what Bind makes: ctx with the lease's owner, and an end of its own. Most handlers of requests never ask for that
// end. Until one does, neither ctx nor the lease knows of it: to register with both, and to leave them again, would be a good part
// of what a lock around a handler costs.
type boundContext struct {
	context.Context // which was bound
	lease           *Lease
	id              identity

	once   sync.Once
	end    context.Context         // ends when this one does; made when it is first asked for
	made   atomic.Bool             // end is
	cancel context.CancelCauseFunc // of end; nil: it was not asked for before it was over
}

func (c *boundContext) Done() <-chan struct{} { return c.ending().Done() }
func (c *boundContext) Err() error            { return c.ending().Err() }

// Value asks end for all but the owner, if there is one or the lease is lost: context.Cause, and contexts made of this one, look
// there for what can be cancelled.
func (c *boundContext) Value(key any) any {
	if key == (identityKey{}) {
		return &c.id
	}
	if c.made.Load() || c.lease.loss() != nil {
		if v := c.ending().Value(key); v != nil {
			return v
		}
	}
	return c.Context.Value(key)
}

// String follows the contexts of package context. Without it, fmt would read fields that other goroutines write.
func (c *boundContext) String() string { return fmt.Sprint(c.Context, ".Bind") }

// ending is end.
func (c *boundContext) ending() context.Context {
	c.once.Do(func() {
		c.end, c.cancel = context.WithCancelCause(c.Context)
		if err := c.lease.bind(c); err != nil {
			c.cancel(err)
		}
		c.made.Store(true)
	})
	return c.end
}

// free is the function that Bind returns.
func (c *boundContext) free() {
	c.once.Do(func() {
		c.end = c.over()
		c.made.Store(true)
	})
	if c.cancel != nil {
		c.lease.unbind(c)
		c.cancel(context.Canceled)
	}
}

// over is a context that has ended, for the reason why this one has, or else now.
func (c *boundContext) over() context.Context {
	if c.Context.Err() != nil {
		return c.Context
	}
	if err := c.lease.loss(); err != nil {
		return endedBy(err)
	}
	return freedContext
}

var freedContext = endedBy(context.Canceled)

func endedBy(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// bind has a context end when the lease is lost. The error is why it is lost already.
func (l *Lease) bind(c *boundContext) error {
	l.lock()
	defer l.unlock()
	if l.err == nil {
		a := l.listenedLocked()
		a.bound = append(a.bound, c)
	}
	return l.lossLocked()
}

// unbind forgets a context.
func (l *Lease) unbind(c *boundContext) {
	l.lock()
	defer l.unlock()
	if a := l.listeners; a != nil {
		if i := slices.Index(a.bound, c); i >= 0 {
			a.bound = slices.Delete(a.bound, i, i+1)
		}
	}
}

func (l *Lease) loss() error {
	l.lock()
	defer l.unlock()
	return l.lossLocked()
}
