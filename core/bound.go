package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// A boundContext is what Bind makes: ctx with the lease's owner, and an end of its own. Most handlers of requests never ask for
// that; until somebody does, neither ctx nor the lease knows of it. To tell them, and to have them forget it, would be a good part
// of what a lock around a handler costs.
type boundContext struct {
	context.Context // which was bound
	lease           *Lease
	owner           owner

	once   sync.Once
	end    context.Context         // ends when this one does; made by whoever asks first
	cancel context.CancelCauseFunc // of end; nil: nobody had asked before it was over
}

func (c *boundContext) Done() <-chan struct{} { return c.ending().Done() }
func (c *boundContext) Err() error            { return c.ending().Err() }

// Value gives the keys of package context to end: with them context.Cause, and contexts made of this one, find what can be
// cancelled. They are the only ones of that type that anybody uses: others use types of their own.
func (c *boundContext) Value(key any) any {
	switch key.(type) {
	case ownerKey:
		return &c.owner
	case *int:
		return c.ending().Value(key)
	}
	return c.Context.Value(key)
}

// String is what package context has for contexts of its own. Without it, fmt would read what others write.
func (c *boundContext) String() string { return fmt.Sprint(c.Context, ".Bind") }

// ending is end.
func (c *boundContext) ending() context.Context {
	c.once.Do(func() {
		c.end, c.cancel = context.WithCancelCause(c.Context)
		if err := c.lease.bind(c); err != nil {
			c.cancel(err)
		}
	})
	return c.end
}

// free is the function that Bind returns.
func (c *boundContext) free() {
	c.once.Do(func() { c.end = c.over() })
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
	return freed
}

var freed = endedBy(context.Canceled)

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
	return l.lostLocked()
}

// unbind has it forgotten.
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
	return l.lostLocked()
}

// lostLocked is why the lease was lost; nil: it was not.
func (l *Lease) lostLocked() error {
	if l.err == ErrReleased {
		return nil
	}
	return l.err
}
