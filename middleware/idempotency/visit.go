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

// A visit is one request in one guard. The context of the request leads to it.
type visit struct {
	g      *Guard
	server *http.Server // which the request came by
	outer  *visit       // of a guard around this one
	inside bool         // that one has the same name: it does everything

	key   string // as the client means it
	name  string
	print [printSize]byte

	marker []byte          // what OutcomeRefuse leaves of a run, as Redis has it
	lease  *core.OnceLease // that the handler runs under
	replay *record         // that the request is answered with

	noStore  atomic.Bool
	storeFor atomic.Int64 // nanoseconds; 0: Config.TTL
}

type visitKey struct{}

// visitFrom returns the visit that a context leads to; also if it is a *gin.Context.
func visitFrom(ctx context.Context) *visit {
	v, _ := framework.Value(ctx, visitKey{}).(*visit)
	for v != nil && (v.inside || v.key == "") { // the latter came without a key, and knows nothing
		v = v.outer
	}
	return v
}

// visitOf is for the functions that the guard calls in the course of a visit.
func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

func server(ctx context.Context) *http.Server {
	srv, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	return srv
}

func (v *visit) ttl() time.Duration {
	if d := v.storeFor.Load(); d != 0 {
		return time.Duration(d)
	}
	return v.g.cfg.TTL
}

// KeyFrom returns the idempotency key of the request of ctx, without quotes. There is none outside an idempotent handler, and
// in a request that came without.
func KeyFrom(ctx context.Context) (string, bool) {
	v := visitFrom(ctx)
	if v == nil || v.key == "" {
		return "", false
	}
	return v.key, true
}

// DownstreamKey makes a key for a request to another service, such as DownstreamKey(ctx, "stripe", "charge"). It is the same
// whenever the handler runs again for the same key of the same caller, so that the other service finds out, and another
// one for other parts. It depends on Config.Route, and stays the same where that does. It has 64 characters, and tells nothing of the
// client's key. "": KeyFrom has none.
func DownstreamKey(ctx context.Context, parts ...string) string {
	if _, ok := KeyFrom(ctx); !ok {
		return ""
	}
	s := newSum("downstream")
	s.add(visitFrom(ctx).name)
	s.add(parts...)
	return s.hex()
}

// NoStore has the result of this run not stored, whatever Config.Store says: the key is free when the handler returns. Outside an
// idempotent handler it does nothing.
func NoStore(ctx context.Context) {
	if v := visitFrom(ctx); v != nil {
		v.noStore.Store(true)
	}
}

// StoreFor has the result of this run, if it is stored, kept for d instead of Config.TTL. Less than 1ms is as NoStore. Outside an idempotent
// handler it does nothing.
func StoreFor(ctx context.Context, d time.Duration) {
	if d < time.Millisecond {
		NoStore(ctx)
		return
	}
	if v := visitFrom(ctx); v != nil {
		v.storeFor.Store(int64(d))
	}
}

// handlerContext is parent's, but does not end when the client hangs up. It ends when the lease is lost, at the deadline, and with end.
// After passed, the answer being one that nobody will ask for again, it ends with parent in any case.
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

// hungUp: the cancellation has no cause; HTTP/3 says that the connection is closed.
func hungUp(cause error) bool { return cause == context.Canceled || errors.Is(cause, net.ErrClosed) }
