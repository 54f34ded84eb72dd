package adaptertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

var endings = []scenario{
	{name: "the lock is free when the client has the answer", run: freeWithAnswer},
	{name: "the client hangs up while the handler runs", run: clientHangsUp},
	{name: "the handler's context ends when it returns", run: contextEndsWithHandler},
	{name: "a handler that panics", run: handlerPanics},
	{name: "a handler that aborts", run: handlerAborts},
	{name: "a handler that ends its goroutine", run: handlerGoexits},
	{name: "a ReleaseBy that panics", run: releasePanics},
	{name: "a ReleaseBy that ends its goroutine", run: releaseGoexits},
	{name: "a Locker that panics", run: lockerPanics},
	{name: "ForceUnlock while the handler runs", run: takenByForce, setup: []func(*setup){watchdogTimeout(12 * time.Second)}},
	{name: "the lock is deleted", run: deleted, setup: []func(*setup){watchdogTimeout(12 * time.Second)}},
	{name: "the lock is lost and the handler does not notice", run: lostUnnoticed},
	{name: "the lease expires while the handler runs", run: leaseOver},
	{name: "the client of the locks is closed while the handler runs", run: closedWhileRunning},
	{name: "the lock is renewed for as long as the handler runs", run: renewed, setup: []func(*setup){watchdogTimeout(15 * time.Second)}},
}

func freeWithAnswer(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) { fx.wantHeld(lockName) })
	for range 50 {
		s.get(order).want(fx, 200, "")
		fx.wantFree(lockName)
	}
}

func clientHangsUp(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP)
	first := s.startGet(order)
	inside := g.nextRun()
	first.disconnect()
	mustReceive(fx, "the handler's context ends", inside.ctx.Done())
	fx.wantErr("its cause", context.Cause(inside.ctx), context.Canceled)
	fx.wantHeld(lockName)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	fx.eventuallyFree(lockName)
	second := s.startGet(order)
	g.nextRun().finish()
	second.mustGetAnswer().want(fx, 200, "done")
	g.wantRuns(2)
}

func contextEndsWithHandler(fx *fixture) {
	contexts := make(chan context.Context, 1)
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			fx.Error("the context has ended before the handler")
		}
		contexts <- r.Context()
	})
	s.get(order).want(fx, 200, "")
	ctx := mustReceive(fx, "the handler runs", contexts)
	fx.wantErr("the context of a handler that has returned", ctx.Err(), context.Canceled)
	if _, ok := guard.LeaseFrom(ctx); ok {
		fx.Error("LeaseFrom returned a lease after the handler")
	}
	fx.wantErr("Release with it", guard.Release(ctx), core.ErrNotHeld)
}

// explode panics. The stack of the panic has its name.
func explode(http.ResponseWriter, *http.Request) { panic(errExploded) }

var errExploded = errors.New("exploded")

// recovering is an outer middleware that sends panics to channels and answers 500.
func recovering(caught chan<- any, stacks chan<- string, look func()) func(*Server) {
	return around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if p := recover(); p != nil {
					look()
					caught <- p
					stacks <- string(debug.Stack())
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			next.ServeHTTP(w, r)
		})
	})
}

func handlerPanics(fx *fixture) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := fx.serveWith(recovering(caught, stacks, func() { fx.wantFree(lockName) }),
		Route{Pattern: orders, Guards: []guard.Config{fx.config(), fx.config()}, Handler: explode})
	s.get(order).want(fx, 500, "")
	if p := mustReceive(fx, "the middleware recovers", caught); p != errExploded {
		fx.Errorf("the middleware recovered %v", p)
	}
	if stack := mustReceive(fx, "the middleware recovers", stacks); !strings.Contains(stack, "adaptertest.explode(") {
		fx.Errorf("the stack does not show the handler:\n%s", stack)
	}
	for range 2 {
		if o := fx.outcome(); !o.Ran || o.Status != 0 || o.Err != nil {
			fx.Errorf("the outcome is %+v", o)
		}
	}
}

func handlerAborts(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	if a := s.send(s.newRequest(http.MethodGet, order, nil)); a.err == nil {
		fx.Errorf("the answer is %+v, want none", a)
	}
	fx.eventuallyFree(lockName)
	if text := s.errors.text(); text != "" {
		fx.Errorf("the server has logged %s", text)
	}
	fx.outcome()
}

func handlerGoexits(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) { runtime.Goexit() })
	if a := s.send(s.newRequest(http.MethodGet, order, nil)); a.err == nil {
		fx.Errorf("the answer is %+v, want none", a)
	}
	fx.eventuallyFree(lockName)
	fx.outcome()
}

// releasesBy is a handler whose ReleaseBy never returns.
func releasesBy(fx *fixture, never func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := guard.ReleaseBy(r.Context(), func(*core.Lease) error { never(); return nil })
		fx.Errorf("ReleaseBy returned %v", err)
	}
}

func releasePanics(fx *fixture) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := fx.serveWith(recovering(caught, stacks, func() { fx.wantFree(lockName) }),
		Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: releasesBy(fx, func() { panic(errExploded) })})
	s.get(order).want(fx, 500, "")
	if p := mustReceive(fx, "the middleware recovers", caught); p != errExploded {
		fx.Errorf("the middleware recovered %v", p)
	}
	if o := fx.outcome(); !o.Ran || o.Status != 0 || o.Err != nil {
		fx.Errorf("the outcome is %+v", o)
	}
}

func releaseGoexits(fx *fixture) {
	s := fx.serveOrders(releasesBy(fx, runtime.Goexit))
	if a := s.send(s.newRequest(http.MethodGet, order, nil)); a.err == nil {
		fx.Errorf("the answer is %+v, want none", a)
	}
	fx.eventuallyFree(lockName)
	fx.outcome()
}

// The Locker panics for the second of two locks.
func lockerPanics(fx *fixture) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := fx.serveWith(recovering(caught, stacks, func() {}), Route{
		Pattern: orders,
		Guards: []guard.Config{fx.config(keysAre("a", "b"), func(cfg *guard.Config) {
			cfg.Locker = func(_ *http.Request, name string) core.Locker {
				if name == "reqlock:b" {
					return panicking{}
				}
				return fx.locks.Lock(name)
			}
		})},
		Handler: func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") },
	})
	s.get(order).want(fx, 500, "")
	if p := mustReceive(fx, "the middleware recovers", caught); p != errExploded {
		fx.Errorf("the middleware recovered %v", p)
	}
	fx.wantFree("reqlock:a")
}

type panicking struct{}

func (panicking) Name() string { return "panicking" }

func (panicking) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) {
	panic(errExploded)
}

func takenByForce(fx *fixture) {
	loses(fx, core.ErrLockLost, func() {
		freed, err := fx.newOtherLocks().Lock(lockName).ForceUnlock(fx.Context())
		if !freed || err != nil {
			fx.Errorf("ForceUnlock: %v, %v", freed, err)
		}
	})
}

func deleted(fx *fixture) {
	loses(fx, core.ErrLockLost, func() { fx.rdb.Del(fx.Context(), lockName) })
}

func leaseOver(fx *fixture) {
	loses(fx, core.ErrLockLost, func() {}, func(cfg *guard.Config) { cfg.LeaseTime = 4 * time.Second })
}

func closedWhileRunning(fx *fixture) {
	loses(fx, core.ErrClosed, func() {
		ctx, cancel := context.WithCancel(fx.Context())
		cancel()
		if err := fx.locks.Close(ctx); err == nil {
			fx.Error("Close returned no error although a lock was held")
		}
	})
}

// loses tests a request that loses its lock by take.
func loses(fx *fixture, cause error, take func(), change ...func(*guard.Config)) {
	fx.Helper()
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, change...)
	p := s.startGet(order)
	inside := g.nextRun()
	take()
	mustReceive(fx, "the handler's context ends", inside.ctx.Done())
	fx.wantErr("its cause", context.Cause(inside.ctx), cause)
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done") // the handler may ignore the loss
	if o := fx.outcome(); !o.Ran || !errors.Is(o.Err, cause) {
		fx.Errorf("the outcome is %+v, want Err %v", o, cause)
	}
	if fx.log.count("was lost while the handler ran") != 1 {
		fx.Errorf("the log does not say that the lock was lost: %s", fx.log.text())
	}
}

// lostUnnoticed loses the lock between two renewals: the release detects the loss.
func lostUnnoticed(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		fx.rdb.Del(fx.Context(), lockName)
		_, _ = io.WriteString(w, "done")
	})
	s.get(order).want(fx, 200, "done")
	if o := fx.outcome(); !errors.Is(o.Err, core.ErrLockLost) {
		fx.Errorf("the outcome is %+v, want Err %v", o, core.ErrLockLost)
	}
}

func renewed(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP)
	p := s.startGet(order)
	inside := g.nextRun()
	left := fx.rdb.PTTL(background, lockName).Val()
	fx.eventually("the lock is renewed", func() bool {
		before := left
		left = fx.rdb.PTTL(background, lockName).Val()
		return left > before
	})
	fx.wantHeld(lockName)
	if err := inside.ctx.Err(); err != nil {
		fx.Errorf("the handler's context has ended: %v", context.Cause(inside.ctx))
	}
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
}
