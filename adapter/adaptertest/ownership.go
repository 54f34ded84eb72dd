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

func nestedGuards(fx *fixture) {
	cfg := fx.config()
	s := fx.serve(Route{Pattern: orders, Guards: []guard.Config{cfg, cfg, cfg}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if counts := fx.holds(lockName); !slices.Equal(counts, []string{"3"}) {
			fx.Errorf("hold counts %v, want one owner with 3", counts)
		}
		if err := guard.Release(r.Context()); err != nil {
			fx.Errorf("Release of the innermost guard: %v", err)
		}
		if counts := fx.holds(lockName); !slices.Equal(counts, []string{"2"}) {
			fx.Errorf("after a Release, hold counts %v, want one owner with 2", counts)
		}
		fx.wantErr("a second Release does not reach the next guard", guard.Release(r.Context()), core.ErrNotHeld)
	}})
	s.get(order).want(fx, 200, "")
	fx.wantFree(lockName)
}

func nestedKeys(fx *fixture) {
	inner := fx.config(keyedBy(keyfuncs.Const("inner")))
	s := fx.serve(Route{Pattern: orders, Guards: []guard.Config{fx.config(), inner}, Handler: func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld(lockName)
		fx.wantHeld("reqlock:inner")
		if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != "reqlock:inner" {
			fx.Errorf("LeaseFrom returned %v, %v; want the inner guard's", lease, ok)
		}
	}})
	s.get(order).want(fx, 200, "")
	release := fx.mustHold("reqlock:inner")
	s.get(order).wantProblem(fx, 409, "locked", "1")
	fx.wantFree(lockName)
	release()
}

func handlerLocks(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{lockName, "another"} {
			lease, err := fx.locks.Lock(name).Acquire(r.Context(), core.AcquireOptions{})
			if err != nil {
				fx.Errorf("Acquire %s: %v", name, err)
				continue
			}
			again, err := fx.locks.Lock(name).Acquire(lease.Context(), core.AcquireOptions{})
			if err != nil {
				fx.Errorf("Acquire %s again: %v", name, err)
				continue
			}
			if held, err := fx.locks.Lock(name).IsHeld(lease.Context()); !held || err != nil {
				fx.Errorf("IsHeld %s: %v, %v", name, held, err)
			}
			if name == "another" {
				_, err := fx.locks.Lock(name).Acquire(r.Context(), core.AcquireOptions{})
				fx.wantErr("Acquire twice with the request's context", err, core.ErrNotAcquired)
				if err != nil && !strings.Contains(err.Error(), "held by this same request; pass lease.Context()") {
					fx.Errorf("the error does not say what to change: %v", err)
				}
			}
			for _, l := range []*core.Lease{again, lease} {
				if err := l.Release(r.Context()); err != nil {
					fx.Errorf("Release %s: %v", name, err)
				}
			}
		}
		fx.wantFree("another")
		if counts := fx.holds(lockName); !slices.Equal(counts, []string{"1"}) {
			fx.Errorf("hold counts %v, want one owner with 1", counts)
		}
	})
	s.get(order).want(fx, 200, "")
	fx.wantFree(lockName)
}

// Another name than the guard's keeps goroutines of one request apart. The guard's name does not,
// until the handler gives it away.
func handlerGoroutines(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				err := core.Do(r.Context(), fx.locks.Lock("stock"), core.AcquireOptions{WaitTime: patience}, func(context.Context) error {
					if n := inside.Add(1); n != 1 {
						fx.Errorf("%d goroutines of one request are inside", n)
					}
					runtime.Gosched()
					inside.Add(-1)
					return nil
				})
				if err != nil {
					fx.Error(err)
				}
			})
		}
		all.Wait()

		again := func(ctx context.Context) error {
			return core.Do(ctx, fx.locks.Lock(lockName), core.AcquireOptions{}, func(context.Context) error { return nil })
		}
		if err := again(r.Context()); err != nil {
			fx.Errorf("the guard's name: %v", err)
		}
		lease, ok := guard.Detach(r.Context())
		if !ok {
			fx.Error("Detach found no lease")
			return
		}
		fx.wantErr("the guard's name after Detach", again(r.Context()), core.ErrNotAcquired)
		bound, unbind := lease.Bind(r.Context())
		if err := again(bound); err != nil {
			fx.Errorf("the guard's name, with a context of the detached lease: %v", err)
		}
		unbind()
		if err := lease.Release(r.Context()); err != nil {
			fx.Error(err)
		}
	})
	s.get(order).want(fx, 200, "")
	fx.wantFree(lockName)
}

// In these servers, the BaseContext has an owner by mistake. All requests would have that owner.

func ownerInBaseContext(fx *fixture) {
	excludes(fx, core.WithOwner(background))
}

func leaseInBaseContext(fx *fixture) {
	lease, err := fx.locks.Lock("of the server").Acquire(background, core.AcquireOptions{})
	if err != nil {
		fx.Fatal(err)
	}
	fx.ends = append(fx.ends, func() {
		if err := lease.Release(background); err != nil {
			fx.Error(err)
		}
	})
	excludes(fx, lease.Context())
}

func handlerInBaseContext(fx *fixture) {
	g := fx.newBlockingHandler()
	outer := fx.serveOrders(g.ServeHTTP)
	p := outer.startGet(order)
	inside := g.nextRun()
	lease, err := fx.locks.Lock("of the handler").Acquire(inside.ctx, core.AcquireOptions{})
	if err != nil {
		fx.Fatal(err)
	}
	excludes(fx, lease.Context())
	if err := lease.Release(background); err != nil {
		fx.Error(err)
	}
	fx.wantHeld(lockName)
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
}

// excludes shows that two requests to a server with that BaseContext exclude each other, and that
// the second does not have the lease of the first.
func excludes(fx *fixture, base context.Context) {
	fx.Helper()
	const name = "inside"
	g := fx.newBlockingHandler()
	s := fx.serveWith(func(srv *Server) { srv.BaseContext = base }, Route{Pattern: orders, Guards: []guard.Config{fx.config(keyedBy(keyfuncs.Const(name)))}, Handler: g.ServeHTTP})
	first := s.startGet(order)
	inside := g.nextRun()
	s.get(order).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	first.mustGetAnswer().want(fx, 200, "done")
	g.wantRuns(1)
}

func outerValues(fx *fixture) {
	type contextKey struct{}
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, "there")))
		})
	}), Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if got := r.Context().Value(contextKey{}); got != "there" {
			fx.Errorf("the outer value is %v", got)
		}
		if fx.adapter.Router != nil && r.Context().Value(http.ServerContextKey) == nil {
			fx.Error("http.ServerContextKey is not there")
		}
	}})
	s.get(order).want(fx, 200, "")
}
