package core

import (
	"context"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/framework"
)

// An owner holds locks, as this process sees it. Code that carries it in its context enters what it holds again. Redis never sees
// it: there, each hold has a wire owner of its own. 0: none.
type owner uint64

var owners atomic.Uint64

func newOwner() owner { return owner(owners.Add(1)) }

// An identity is what a context says of a caller.
type identity struct {
	owner owner
	voter bool // it acquires a member of a RedLock
}

type identityKey struct{}

func identityFrom(ctx context.Context) identity {
	if id, ok := framework.Value(ctx, identityKey{}).(*identity); ok {
		return *id
	}
	return identity{}
}

func ownerFrom(ctx context.Context) owner { return identityFrom(ctx).owner }

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

func withOwner(ctx context.Context, o owner) context.Context {
	return &identityContext{ctx, identity{owner: o}}
}

// withVoter returns a context with a new owner, for one attempt at a RedLock.
func withVoter(ctx context.Context) context.Context {
	return &identityContext{ctx, identity{newOwner(), true}}
}

// An identityContext is like one of context.WithValue, without an allocation for the value.
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
