package caddylock

import (
	"context"
)

// A gate is a context that ends when the client leaves, until the lock is acquired. After that it
// no longer does: most services go on when Caddy hangs up, and the lock must be held until they are
// done.
type gate struct {
	context.Context
	stop func() bool
	end  context.CancelCauseFunc
}

func newGate(client context.Context) *gate {
	ctx, end := context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() { end(context.Cause(client)) })
	return &gate{ctx, stop, end}
}

// detach lets the context outlive the client. If the client has left already, it has ended.
func (g *gate) detach() { g.stop() }

// close ends the context.
func (g *gate) close() {
	g.stop()
	g.end(nil)
}
