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

func freeWithAnswer(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) { e.wantHeld(lockName) })
	for range 50 {
		s.get(order).want(e, 200, "")
		e.wantFree(lockName)
	}
}

func clientHangsUp(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP)
	first := s.startGet(order)
	inside := g.next()
	first.hangUp()
	await(e, "the handler's context ends", inside.ctx.Done())
	e.wantErr("its cause", context.Cause(inside.ctx), context.Canceled)
	e.wantHeld(lockName)
	s.get(order).wantProblem(e, 409, "locked", "1")
	inside.leave()
	e.becomesFree(lockName)
	second := s.startGet(order)
	g.next().leave()
	second.answer().want(e, 200, "done")
	g.wantRuns(2)
}

func contextEndsWithHandler(e *env) {
	contexts := make(chan context.Context, 1)
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			e.Error("the context has ended before the handler")
		}
		contexts <- r.Context()
	})
	s.get(order).want(e, 200, "")
	ctx := await(e, "the handler runs", contexts)
	e.wantErr("the context of a handler that has returned", ctx.Err(), context.Canceled)
	if _, ok := guard.LeaseFrom(ctx); ok {
		e.Error("LeaseFrom returned a lease after the handler")
	}
	e.wantErr("Release with it", guard.Release(ctx), core.ErrNotHeld)
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

func handlerPanics(e *env) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := e.serveWith(recovering(caught, stacks, func() { e.wantFree(lockName) }),
		Route{Pattern: orders, Guards: []guard.Config{e.config(), e.config()}, Handler: explode})
	s.get(order).want(e, 500, "")
	if p := await(e, "the middleware recovers", caught); p != errExploded {
		e.Errorf("the middleware recovered %v", p)
	}
	if stack := await(e, "the middleware recovers", stacks); !strings.Contains(stack, "adaptertest.explode(") {
		e.Errorf("the stack does not show the handler:\n%s", stack)
	}
	for range 2 {
		if o := e.outcome(); !o.Ran || o.Status != 0 || o.Err != nil {
			e.Errorf("the outcome is %+v", o)
		}
	}
}

func handlerAborts(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	if a := s.send(s.request(http.MethodGet, order, nil)); a.err == nil {
		e.Errorf("the answer is %+v, want none", a)
	}
	e.becomesFree(lockName)
	if text := s.errors.text(); text != "" {
		e.Errorf("the server has logged %s", text)
	}
	e.outcome()
}

func handlerGoexits(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) { runtime.Goexit() })
	if a := s.send(s.request(http.MethodGet, order, nil)); a.err == nil {
		e.Errorf("the answer is %+v, want none", a)
	}
	e.becomesFree(lockName)
	e.outcome()
}

// releasesBy is a handler whose ReleaseBy never returns.
func releasesBy(e *env, never func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := guard.ReleaseBy(r.Context(), func(*core.Lease) error { never(); return nil })
		e.Errorf("ReleaseBy returned %v", err)
	}
}

func releasePanics(e *env) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := e.serveWith(recovering(caught, stacks, func() { e.wantFree(lockName) }),
		Route{Pattern: orders, Guards: []guard.Config{e.config()}, Handler: releasesBy(e, func() { panic(errExploded) })})
	s.get(order).want(e, 500, "")
	if p := await(e, "the middleware recovers", caught); p != errExploded {
		e.Errorf("the middleware recovered %v", p)
	}
	if o := e.outcome(); !o.Ran || o.Status != 0 || o.Err != nil {
		e.Errorf("the outcome is %+v", o)
	}
}

func releaseGoexits(e *env) {
	s := e.serveOrders(releasesBy(e, runtime.Goexit))
	if a := s.send(s.request(http.MethodGet, order, nil)); a.err == nil {
		e.Errorf("the answer is %+v, want none", a)
	}
	e.becomesFree(lockName)
	e.outcome()
}

// The Locker panics for the second of two locks.
func lockerPanics(e *env) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := e.serveWith(recovering(caught, stacks, func() {}), Route{
		Pattern: orders,
		Guards: []guard.Config{e.config(keysAre("a", "b"), func(cfg *guard.Config) {
			cfg.Locker = func(_ *http.Request, name string) core.Locker {
				if name == "reqlock:b" {
					return panicking{}
				}
				return e.locks.Lock(name)
			}
		})},
		Handler: func(http.ResponseWriter, *http.Request) { e.Error("the handler ran without the lock") },
	})
	s.get(order).want(e, 500, "")
	if p := await(e, "the middleware recovers", caught); p != errExploded {
		e.Errorf("the middleware recovered %v", p)
	}
	e.wantFree("reqlock:a")
}

type panicking struct{}

func (panicking) Name() string { return "panicking" }

func (panicking) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) {
	panic(errExploded)
}

func takenByForce(e *env) {
	loses(e, core.ErrLockLost, func() {
		freed, err := e.stranger().Lock(lockName).ForceUnlock(e.Context())
		if !freed || err != nil {
			e.Errorf("ForceUnlock: %v, %v", freed, err)
		}
	})
}

func deleted(e *env) {
	loses(e, core.ErrLockLost, func() { e.rdb.Del(e.Context(), lockName) })
}

func leaseOver(e *env) {
	loses(e, core.ErrLockLost, func() {}, func(cfg *guard.Config) { cfg.LeaseTime = 4 * time.Second })
}

func closedWhileRunning(e *env) {
	loses(e, core.ErrClosed, func() {
		ctx, cancel := context.WithCancel(e.Context())
		cancel()
		if err := e.locks.Close(ctx); err == nil {
			e.Error("Close returned no error although a lock was held")
		}
	})
}

// loses tests a request that loses its lock by take.
func loses(e *env, cause error, take func(), change ...func(*guard.Config)) {
	e.Helper()
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, change...)
	p := s.startGet(order)
	inside := g.next()
	take()
	await(e, "the handler's context ends", inside.ctx.Done())
	e.wantErr("its cause", context.Cause(inside.ctx), cause)
	inside.leave()
	p.answer().want(e, 200, "done") // the handler may ignore the loss
	if o := e.outcome(); !o.Ran || !errors.Is(o.Err, cause) {
		e.Errorf("the outcome is %+v, want Err %v", o, cause)
	}
	if e.log.count("was lost while the handler ran") != 1 {
		e.Errorf("the log does not say that the lock was lost: %s", e.log.text())
	}
}

// lostUnnoticed loses the lock between two renewals: the release detects the loss.
func lostUnnoticed(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		e.rdb.Del(e.Context(), lockName)
		_, _ = io.WriteString(w, "done")
	})
	s.get(order).want(e, 200, "done")
	if o := e.outcome(); !errors.Is(o.Err, core.ErrLockLost) {
		e.Errorf("the outcome is %+v, want Err %v", o, core.ErrLockLost)
	}
}

func renewed(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP)
	p := s.startGet(order)
	inside := g.next()
	left := e.rdb.PTTL(background, lockName).Val()
	e.eventually("the lock is renewed", func() bool {
		before := left
		left = e.rdb.PTTL(background, lockName).Val()
		return left > before
	})
	e.wantHeld(lockName)
	if err := inside.ctx.Err(); err != nil {
		e.Errorf("the handler's context has ended: %v", context.Cause(inside.ctx))
	}
	inside.leave()
	p.answer().want(e, 200, "done")
}
