package adaptertest

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

var ownership = []scenario{
	{name: "guards inside each other re-enter", run: nestedGuards},
	{name: "guards inside each other on different keys", run: nestedKeys},
	{name: "a handler that locks the same name re-enters", run: handlerLocks},
	{name: "goroutines of one request exclude each other", run: handlerGoroutines},
	{name: "an owner in BaseContext", run: ownerInBaseContext},
	{name: "a lease's context as BaseContext", run: leaseInBaseContext},
	{name: "a guarded handler's context as BaseContext", run: handlerInBaseContext},
	{name: "the handler has the values of outer contexts", run: outerValues},
}

func nestedGuards(e *env) {
	cfg := e.config()
	s := e.serve(Route{Pattern: orders, Guards: []guard.Config{cfg, cfg, cfg}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if counts := e.holds(lockName); !slices.Equal(counts, []string{"3"}) {
			e.Errorf("hold counts %v, want one owner with 3", counts)
		}
		if err := guard.Release(r.Context()); err != nil {
			e.Errorf("Release of the innermost guard: %v", err)
		}
		if counts := e.holds(lockName); !slices.Equal(counts, []string{"2"}) {
			e.Errorf("after a Release, hold counts %v, want one owner with 2", counts)
		}
		e.wantErr("a second Release does not reach the next guard", guard.Release(r.Context()), core.ErrNotHeld)
	}})
	s.get(order).want(e, 200, "")
	e.wantFree(lockName)
}

func nestedKeys(e *env) {
	inner := e.config(keyedBy(keyfuncs.Const("inner")))
	s := e.serve(Route{Pattern: orders, Guards: []guard.Config{e.config(), inner}, Handler: func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		e.wantHeld("reqlock:inner")
		if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != "reqlock:inner" {
			e.Errorf("LeaseFrom returned %v, %v; want the inner guard's", lease, ok)
		}
	}})
	s.get(order).want(e, 200, "")
	release := e.hold("reqlock:inner")
	s.get(order).wantProblem(e, 409, "locked", "1")
	e.wantFree(lockName)
	release()
}

func handlerLocks(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{lockName, "another"} {
			lease, err := e.locks.Lock(name).Acquire(r.Context(), core.AcquireOptions{})
			if err != nil {
				e.Errorf("Acquire %s: %v", name, err)
				continue
			}
			again, err := e.locks.Lock(name).Acquire(lease.Context(), core.AcquireOptions{})
			if err != nil {
				e.Errorf("Acquire %s again: %v", name, err)
				continue
			}
			if held, err := e.locks.Lock(name).IsHeld(lease.Context()); !held || err != nil {
				e.Errorf("IsHeld %s: %v, %v", name, held, err)
			}
			if name == "another" {
				_, err := e.locks.Lock(name).Acquire(r.Context(), core.AcquireOptions{})
				e.wantErr("Acquire twice with the request's context", err, core.ErrNotAcquired)
				if err != nil && !strings.Contains(err.Error(), "held by this same request; pass lease.Context()") {
					e.Errorf("the error does not say what to change: %v", err)
				}
			}
			for _, l := range []*core.Lease{again, lease} {
				if err := l.Release(r.Context()); err != nil {
					e.Errorf("Release %s: %v", name, err)
				}
			}
		}
		e.wantFree("another")
		if counts := e.holds(lockName); !slices.Equal(counts, []string{"1"}) {
			e.Errorf("hold counts %v, want one owner with 1", counts)
		}
	})
	s.get(order).want(e, 200, "")
	e.wantFree(lockName)
}

// Another name than the guard's keeps goroutines of one request apart. The guard's name does not,
// until the handler gives it away.
func handlerGoroutines(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				err := core.Do(r.Context(), e.locks.Lock("stock"), core.AcquireOptions{WaitTime: patience}, func(context.Context) error {
					if n := inside.Add(1); n != 1 {
						e.Errorf("%d goroutines of one request are inside", n)
					}
					runtime.Gosched()
					inside.Add(-1)
					return nil
				})
				if err != nil {
					e.Error(err)
				}
			})
		}
		all.Wait()

		again := func(ctx context.Context) error {
			return core.Do(ctx, e.locks.Lock(lockName), core.AcquireOptions{}, func(context.Context) error { return nil })
		}
		if err := again(r.Context()); err != nil {
			e.Errorf("the guard's name: %v", err)
		}
		lease, ok := guard.Detach(r.Context())
		if !ok {
			e.Error("Detach found no lease")
			return
		}
		e.wantErr("the guard's name after Detach", again(r.Context()), core.ErrNotAcquired)
		bound, unbind := lease.Bind(r.Context())
		if err := again(bound); err != nil {
			e.Errorf("the guard's name, with a context of the detached lease: %v", err)
		}
		unbind()
		if err := lease.Release(r.Context()); err != nil {
			e.Error(err)
		}
	})
	s.get(order).want(e, 200, "")
	e.wantFree(lockName)
}

// In these servers, the BaseContext has an owner by mistake. All requests would have that owner.

func ownerInBaseContext(e *env) {
	excludes(e, core.WithOwner(background))
}

func leaseInBaseContext(e *env) {
	lease, err := e.locks.Lock("of the server").Acquire(background, core.AcquireOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.ends = append(e.ends, func() {
		if err := lease.Release(background); err != nil {
			e.Error(err)
		}
	})
	excludes(e, lease.Context())
}

func handlerInBaseContext(e *env) {
	g := e.gate()
	outer := e.serveOrders(g.ServeHTTP)
	p := outer.startGet(order)
	inside := g.next()
	lease, err := e.locks.Lock("of the handler").Acquire(inside.ctx, core.AcquireOptions{})
	if err != nil {
		e.Fatal(err)
	}
	excludes(e, lease.Context())
	if err := lease.Release(background); err != nil {
		e.Error(err)
	}
	e.wantHeld(lockName)
	inside.leave()
	p.answer().want(e, 200, "done")
}

// excludes shows that two requests to a server with that BaseContext exclude each other, and that
// the second does not have the lease of the first.
func excludes(e *env, base context.Context) {
	e.Helper()
	const name = "inside"
	g := e.gate()
	s := e.serveWith(func(srv *Server) { srv.BaseContext = base }, Route{Pattern: orders, Guards: []guard.Config{e.config(keyedBy(keyfuncs.Const(name)))}, Handler: g.ServeHTTP})
	first := s.startGet(order)
	inside := g.next()
	s.get(order).wantProblem(e, 409, "locked", "1")
	inside.leave()
	first.answer().want(e, 200, "done")
	g.wantRuns(1)
}

func outerValues(e *env) {
	type contextKey struct{}
	s := e.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, "there")))
		})
	}), Route{Pattern: orders, Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if got := r.Context().Value(contextKey{}); got != "there" {
			e.Errorf("the outer value is %v", got)
		}
		if e.adapter.Router != nil && r.Context().Value(http.ServerContextKey) == nil {
			e.Error("http.ServerContextKey is not there")
		}
	}})
	s.get(order).want(e, 200, "")
}
