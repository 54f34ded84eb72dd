package core

import (
	"context"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/framework"
)

// An owner identifies a holder of locks within this process. Code whose context has the owner
// re-enters the locks that it holds. Redis never sees owners: there, each hold has its own wire
// owner. 0 means none.
type owner uint64

var owners atomic.Uint64

func newOwner() owner { return owner(owners.Add(1)) }

// An identity is what a context tells about the caller of Acquire.
type identity struct {
	owner     owner
	pastQueue bool // it tries once, without queueing
}

type identityKey struct{}

func identityFrom(ctx context.Context) identity {
	if id, ok := framework.Value(ctx, identityKey{}).(*identity); ok {
		return *id
	}
	return identity{}
}

func ownerFrom(ctx context.Context) owner { return identityFrom(ctx).owner }

// effective returns the context that Acquire watches. The context of some frameworks never ends,
// such as Gin's by default. For them it is the request's context.
func effective(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		if request := framework.RequestContext(ctx); request != nil {
			return request
		}
	}
	return ctx
}

func withOwner(ctx context.Context, o owner) context.Context {
	return &identityContext{ctx, identity{owner: o}}
}

// withoutQueue returns a context with a new owner, whose Acquires try once and never queue.
func withoutQueue(ctx context.Context) context.Context {
	return &identityContext{ctx, identity{newOwner(), true}}
}

// An identityContext is like the context of context.WithValue, without the allocation for the
// value.
type identityContext struct {
	context.Context
	id identity
}

func (c *identityContext) Value(key any) any {
	if key == (identityKey{}) {
		return &c.id
	}
	return c.Context.Value(key)
}

// WithOwner returns a context with an owner: ctx itself if it has one, otherwise a child of ctx
// with a new owner. Acquire with contexts of one owner re-enters the locks that the owner holds.
// Without an owner in its context, each Acquire creates one, which the context of its Lease
// carries. Ownership never depends on the goroutine.
func WithOwner(ctx context.Context) context.Context {
	if ownerFrom(ctx) != 0 {
		return ctx
	}
	return WithNewOwner(ctx)
}

// WithNewOwner returns a context with a new owner, even if ctx has one. Use it for work that must
// not share the locks of the code that starts it.
func WithNewOwner(ctx context.Context) context.Context { return withOwner(ctx, newOwner()) }
