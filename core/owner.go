package core

import (
	"context"
	"sync/atomic"

	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/lineage"
)

// The owners of WithOwner, within this process. Redis never sees them: there, each hold has its own
// wire owner. 0 means none.
var owners atomic.Uint64

// effective returns the context that Acquire watches: ctx, or the context that it stands for if ctx
// itself never ends.
func effective(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		if other := ctxvalue.Behind(ctx); other != nil {
			return other
		}
	}
	return ctx
}

// A linkContext is a context with a link of its own. It is like the context of context.WithValue,
// without the allocation for the value.
type linkContext struct {
	context.Context
	link lineage.Link
}

func (c *linkContext) Value(key any) any {
	if key == (lineage.Key{}) {
		return &c.link
	}
	return c.Context.Value(key)
}

// withoutQueue returns a context with a new owner, whose Acquires try once and never queue. It is
// cut off from the leases of ctx.
func withoutQueue(ctx context.Context) context.Context {
	c := &linkContext{Context: ctx}
	c.link.Continue(lineage.From(ctx))
	c.link.Outer, c.link.Owner, c.link.PastQueue = nil, owners.Add(1), true
	return c
}

// WithOwner returns a context with an owner: ctx itself if it has one, otherwise a child of ctx
// with a new one. Acquire with contexts of one owner enters the locks again that the owner holds,
// whichever they are. So goroutines that share the owner do not exclude each other.
//
// Few programs need it: a context that comes from a lease (Lease.Context, Lease.Bind, RunWhileHeld,
// or the request's context below a guard) enters the lock of that lease again. Without an owner,
// any other Acquire is by an owner of its own. Ownership never depends on the goroutine.
func WithOwner(ctx context.Context) context.Context {
	outer := lineage.From(ctx)
	if outer != nil && outer.Owner != 0 {
		return ctx
	}
	c := &linkContext{Context: ctx}
	c.link.Continue(outer)
	c.link.Owner = owners.Add(1)
	return c
}

// WithNewOwner returns a context with a new owner that is cut off from the leases and the owner of
// ctx: it enters none of their locks again. Use it for work that outlives the code that starts it,
// and must not share its locks, such as a job that a request leaves behind with
// context.WithoutCancel.
func WithNewOwner(ctx context.Context) context.Context {
	return &linkContext{Context: ctx, link: lineage.Link{Owner: owners.Add(1)}}
}

// ownerOf returns the owner of WithOwner in a lineage; 0: none.
func ownerOf(link *lineage.Link) uint64 {
	if link == nil {
		return 0
	}
	return link.Owner
}
