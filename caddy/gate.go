package caddylock

import (
	"context"
	"sync/atomic"
)

// A gate is a context that ends when the client leaves, until the lock is acquired. After that it
// no longer does: most services go on when Caddy hangs up, and the lock must be held until they are
// done. A deadline of the request always ends it.
type gate struct {
	context.Context
	client   context.Context
	detached atomic.Bool
	stop     func() bool
	end      context.CancelCauseFunc
	free     context.CancelFunc // It frees the timer of the deadline.
}

func newGate(client context.Context) *gate {
	g := &gate{client: client, free: func() {}}
	ctx := context.WithoutCancel(client)
	if deadline, ok := client.Deadline(); ok {
		ctx, g.free = context.WithDeadline(ctx, deadline)
	}
	g.Context, g.end = context.WithCancelCause(ctx)
	g.stop = context.AfterFunc(client, g.follow)
	return g
}

// follow ends the context with that of the client, unless a deadline does.
func (g *gate) follow() {
	if g.client.Err() != context.DeadlineExceeded {
		g.end(context.Cause(g.client))
	}
}

// Err knows at once that the client has left: the error of a body that it broke off comes before
// the function of context.AfterFunc runs.
func (g *gate) Err() error {
	if !g.detached.Load() && g.client.Err() != nil {
		g.follow()
	}
	return g.Context.Err()
}

// detach lets the context outlive the client. If the client has left already, it has ended.
func (g *gate) detach() {
	g.detached.Store(true)
	g.stop()
}

// close ends the context.
func (g *gate) close() {
	g.stop()
	g.end(nil)
	g.free()
}
