package idempotency

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/framework"
)

// An attempt is one request in one guard. The context of the request leads to it.
type attempt struct {
	g      *Guard
	server *http.Server // that the request came by
	outer  *attempt     // of a guard around this one
	nested bool         // outer has the same name, and does everything

	key   string // that the client sent
	name  string
	print [printSize]byte

	marker []byte          // what OutcomeRefuse leaves of a run, as stored in Redis
	lease  *core.OnceLease // that the handler runs under; nil: it runs without

	noStore  atomic.Bool
	storeFor atomic.Int64 // nanoseconds; 0: Config.TTL
}

type attemptKey struct{}

// attemptFrom returns the innermost attempt of ctx that has a key of its own; nil: there is none. ctx
// may be a framework's own context.
func attemptFrom(ctx context.Context) *attempt {
	a, _ := framework.Value(ctx, attemptKey{}).(*attempt)
	for a != nil && (a.nested || a.key == "") {
		a = a.outer
	}
	return a
}

func (a *attempt) ttl() time.Duration {
	if d := a.storeFor.Load(); d != 0 {
		return time.Duration(d)
	}
	return a.g.cfg.TTL
}

// KeyFrom returns the idempotency key of the request of ctx, without quotes. false: ctx is not that of
// an idempotent handler, or the request has no key.
func KeyFrom(ctx context.Context) (string, bool) {
	a := attemptFrom(ctx)
	if a == nil {
		return "", false
	}
	return a.key, true
}

// DownstreamKey returns a key for a request to another service, such as
// DownstreamKey(ctx, "stripe", "charge"). It is the same whenever the handler runs again for the same
// key of the same caller, so that the other service detects the repeat. Other parts give another key,
// and so does another Config.Route. It has 64 characters and does not reveal the client's key. "": the
// request has no key; see KeyFrom.
func DownstreamKey(ctx context.Context, parts ...string) string {
	if _, ok := KeyFrom(ctx); !ok {
		return ""
	}
	s := newSum("downstream")
	s.add(attemptFrom(ctx).name)
	s.add(parts...)
	return s.hex()
}

// NoStore prevents the result of this run from being stored, whatever Config.Store says: the key is
// free when the handler returns. Outside an idempotent handler it does nothing.
func NoStore(ctx context.Context) {
	if a := attemptFrom(ctx); a != nil {
		a.noStore.Store(true)
	}
}

// StoreFor keeps the result of this run, if it is stored, for d instead of Config.TTL. Less than 1ms
// means NoStore. Outside an idempotent handler it does nothing.
func StoreFor(ctx context.Context, d time.Duration) {
	if d < time.Millisecond {
		NoStore(ctx)
		return
	}
	if a := attemptFrom(ctx); a != nil {
		a.storeFor.Store(int64(d))
	}
}

// handlerContext returns a context with the values of parent that goes on when the client hangs up. It
// ends when the lease is lost, at parent's deadline, and with end. passed is to be called when the
// answer turns out to be one that cannot be replayed: from then on, ctx ends whenever parent does.
func handlerContext(parent context.Context, lease *core.Lease) (ctx context.Context, passed, end func()) {
	ctx, unbind := lease.Bind(context.WithoutCancel(parent))
	endDeadline := func() {}
	if deadline, ok := parent.Deadline(); ok {
		ctx, endDeadline = context.WithDeadline(ctx, deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var follow atomic.Bool
	stop := context.AfterFunc(parent, func() {
		if parent.Err() == context.Canceled && (follow.Load() || !hungUp(context.Cause(parent))) {
			cancel(context.Cause(parent))
		}
	})
	passed = func() {
		follow.Store(true)
		if parent.Err() != nil {
			cancel(context.Cause(parent))
		}
	}
	return ctx, passed, func() {
		stop()
		cancel(context.Canceled)
		endDeadline()
		unbind()
	}
}

// hungUp reports whether a context with that cause ended because the client hung up: net/http gives
// no cause, HTTP/3 servers give net.ErrClosed.
func hungUp(cause error) bool { return cause == context.Canceled || errors.Is(cause, net.ErrClosed) }
