package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/request"
)

// An attemptContext leads to the attempt that the request of a context is. It knows the server, too:
// in guards inside each other, that lookup must not go through all of them.
type attemptContext struct {
	context.Context
	a *attempt
}

func (c *attemptContext) Value(key any) any {
	switch key {
	case attemptKey{}:
		return c.a
	case http.ServerContextKey:
		return request.ServerValue(c.a.server)
	}
	return c.Context.Value(key)
}

// String avoids a data race when fmt prints the context, whose attempt may change meanwhile.
func (c *attemptContext) String() string { return fmt.Sprint(c.Context, ".idempotency") }

// A runContext is the context of a handler. It has the values of its parent, and goes on when the
// client hangs up. It ends when the lease is lost, at the parent's deadline, and with end. From
// follow on, it ends whenever the parent does.
type runContext struct {
	ctx     context.Context
	parent  context.Context
	follows atomic.Bool

	// Each ends a part of ctx.
	cancel     context.CancelCauseFunc
	stopTimer  context.CancelFunc // nil: parent has no deadline
	unbind     context.CancelFunc
	stopParent func() bool
}

func newRunContext(parent context.Context, lease *core.Lease) *runContext {
	c := &runContext{parent: parent}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(parent))
	if deadline, ok := parent.Deadline(); ok {
		c.ctx, c.stopTimer = context.WithDeadline(c.ctx, deadline)
	}
	// A context below this one would ask when it ends, and so make it listen to the lease.
	c.ctx, c.unbind = lease.Bind(c.ctx)
	c.stopParent = context.AfterFunc(parent, c.parentEnded)
	return c
}

func (c *runContext) parentEnded() {
	cause := context.Cause(c.parent)
	if c.parent.Err() == context.Canceled && (c.follows.Load() || !hungUp(cause)) {
		c.cancel(cause)
	}
}

// follow is for a run whose answer cannot be replayed: nothing is gained by running it to its end.
func (c *runContext) follow() {
	c.follows.Store(true)
	if c.parent.Err() != nil {
		c.cancel(context.Cause(c.parent))
	}
}

// interruption returns why the context ended before the handler did, or that of a guard further in;
// nil: neither did.
func (c *runContext) interruption() error { return guard.Interruption(c.ctx) }

func (c *runContext) end() {
	c.cancel(context.Canceled)
	if c.stopTimer != nil {
		c.stopTimer()
	}
	c.unbind()
	c.stopParent()
}

// hungUp reports whether a context with that cause ended because the client hung up: net/http gives
// no cause, HTTP/3 servers give net.ErrClosed.
func hungUp(cause error) bool { return cause == context.Canceled || errors.Is(cause, net.ErrClosed) }
