package core

import (
	"context"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/framework"
)

// An owner is who holds locks, as this process sees it: whoever carries it in its context re-enters what it holds. It is
// never seen outside the process; there, each hold has a wire owner of its own. 0: nobody.
type owner uint64

var (
	owners atomic.Uint64
	holds  atomic.Uint64 // numbers the wire owners of this process
)

func newOwner() owner { return owner(owners.Add(1)) }

type ownerKey struct{}

func ownerFrom(ctx context.Context) owner {
	if o, ok := framework.Value(ctx, ownerKey{}).(*owner); ok {
		return *o
	}
	return 0
}

// effective is the context that Acquire watches: where a framework's own never ends by itself, which Gin's does not, it is the
// request's.
func effective(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		if request := framework.RequestContext(ctx); request != nil {
			return request
		}
	}
	return ctx
}

func withOwner(ctx context.Context, o owner) context.Context { return &ownerContext{ctx, o} }

// An ownerContext is what context.WithValue would make, and can be part of something else.
type ownerContext struct {
	context.Context
	owner owner
}

func (c *ownerContext) Value(key any) any {
	if key == (ownerKey{}) {
		return &c.owner // a number would be put on the heap each time
	}
	return c.Context.Value(key)
}

// WithOwner returns a context with an owner, which is ctx itself where it has one already. Acquires with contexts of one
// owner re-enter the locks that it holds. Without it every Acquire has an owner of its own, which is found in the context of
// its Lease: ownership is never taken from the goroutine.
func WithOwner(ctx context.Context) context.Context {
	if ownerFrom(ctx) != 0 {
		return ctx
	}
	return WithNewOwner(ctx)
}

// WithNewOwner returns a context with a new owner, whatever ctx has: for work that must not share the locks of the
// code that started it.
func WithNewOwner(ctx context.Context) context.Context { return withOwner(ctx, newOwner()) }
