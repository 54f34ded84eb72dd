package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/lineage"
)

// A boundContext is the context that Bind returns: ctx with a link for the lease, which also ends
// when the lease is lost. It registers with ctx and with the lease only when its Done or its cause
// is first needed. Most request handlers never need them, and registering would be a large part of
// the cost of a lock around a handler.
type boundContext struct {
	context.Context // the argument of Bind
	lease           *Lease
	link            lineage.Link

	once   sync.Once
	made   atomic.Bool             // end is there
	end    context.Context         // provides Done and Err; created on demand
	cancel context.CancelCauseFunc // cancels end; nil: end was not needed before free
}

func (c *boundContext) Done() <-chan struct{} { return c.ending().Done() }

// Err creates end only for a context that has ended.
func (c *boundContext) Err() error {
	if !c.made.Load() && c.Context.Err() == nil && c.lease.loss() == nil {
		return nil
	}
	return c.ending().Err()
}

// Value returns the link, and end for the key by which context.Cause and child contexts find what
// they can cancel. It asks the argument of Bind once at most: with two questions, each of the
// contexts that are bound inside each other would double the cost of a lookup.
func (c *boundContext) Value(key any) any {
	switch key {
	case lineage.Key{}:
		return &c.link
	case cancelKey:
		return c.ending().Value(key)
	}
	return c.Context.Value(key)
}

// cancelKey is the key by which package context finds the context to cancel.
var cancelKey = func() (key any) {
	_ = context.Cause(&keySpy{freedContext, &key}) // it asks only contexts that have ended
	return key
}()

// A keySpy notes the key of a lookup.
type keySpy struct {
	context.Context
	key *any
}

func (s *keySpy) Value(key any) any {
	*s.key = key
	return nil
}

// String follows the format of package context. Without it, fmt would print the fields, which races
// with goroutines that write them.
func (c *boundContext) String() string { return fmt.Sprint(c.Context, ".Bind") }

// ending returns end, and creates it if necessary.
func (c *boundContext) ending() context.Context {
	c.once.Do(func() {
		c.end, c.cancel = context.WithCancelCause(c.Context)
		c.made.Store(true)
		if err := c.lease.bind(c); err != nil {
			c.cancel(err)
		}
	})
	return c.end
}

// Unbind is the function that Bind returns.
func (c *boundContext) Unbind() {
	c.once.Do(func() {
		c.end = c.endedContext()
		c.made.Store(true)
	})
	if c.cancel != nil {
		c.lease.unbind(c)
		c.cancel(context.Canceled)
	}
}

// endedContext returns a context that has ended, with the cause of this one if it has one,
// otherwise with context.Canceled.
func (c *boundContext) endedContext() context.Context {
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

// bind makes the loss of the lease end a context. It returns an error if the lease is lost already.
func (l *Lease) bind(c *boundContext) error {
	l.mu().Lock()
	defer l.mu().Unlock()
	if l.err == nil {
		a := l.watchersLocked()
		a.bound = append(a.bound, c)
	}
	return l.lossLocked()
}

// unbind undoes bind.
func (l *Lease) unbind(c *boundContext) {
	l.mu().Lock()
	defer l.mu().Unlock()
	if a := l.watchers; a != nil {
		if i := slices.Index(a.bound, c); i >= 0 {
			a.bound = slices.Delete(a.bound, i, i+1)
		}
	}
}

func (l *Lease) loss() error {
	l.mu().Lock()
	defer l.mu().Unlock()
	return l.lossLocked()
}
