package adaptertest

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

var limits = []scenario{
	{name: "Limit: beyond it, 429 at once", run: limitRefuses},
	{name: "Limit: beyond it, a request waits until one leaves", run: limitWaits},
	{name: "Limit: beyond it, 429 after WaitTime", run: limitTimesOut},
	{name: "Limit: never more inside, over two processes", run: limitUnderLoad},
	{name: "Limit: a handler that panics gives its permit back", run: limitPanics},
	{name: "Limit: a client that leaves while it waits", run: limitClientLeaves},
	{name: "Limit with several keys: a permit of each or none", run: limitSeveralKeys},
	{name: "Limit with FailOpen", run: limitFailsOpen, setup: []func(*setup){proxied}},
	{name: "Limit with MaxHold", run: limitMaxHold},
	{name: "Limit with MaxWaiters", run: limitMaxWaiters},
	{name: "Limit with Release", run: limitRelease},
	{name: "Limit with Detach", run: limitDetach},
	{name: "a limit inside a lock", run: limitInsideLock},
	{name: "a lock inside a limit", run: lockInsideLimit},
	{name: "a limit and a lock with the same key", run: limitBesideLock},
}

// limitName is the limit of two requests that limited gives to order.
const limitName = "reqlock:%limit:2:" + key

// limited lets two requests in at a time.
func limited(cfg *guard.Config) { cfg.Limit = 2 }

// forgetLimits removes limits of two requests from Redis, where they live for a day. Before, all
// permits must be back. Call it when the servers run: they stop before that.
func (fx *fixture) forgetLimits(names ...string) {
	fx.ends = append(fx.ends, func() {
		for _, name := range names {
			if !within(fx.patience, func() bool { return fx.permits(name) == 0 }) {
				fx.Errorf("%d permits of %s are not given back", fx.permits(name), name)
			}
			if free, err := fx.rdb.Get(background, name).Result(); free != "2" || err != nil {
				fx.Errorf("%q permits of %s are free in Redis (%v), want 2", free, name, err)
			}
			fx.rdb.Del(background, name, "{"+name+"}:permits")
		}
	})
}

// permits returns how many permits of a limit are taken.
func (fx *fixture) permits(name string) int {
	fx.Helper()
	n, err := fx.rdb.ZCard(background, "{"+name+"}:timeout").Result()
	if err != nil {
		fx.Error(err)
	}
	return int(n)
}

// wantPermits fails the test unless so many permits of a limit are taken.
func (fx *fixture) wantPermits(name string, want int) {
	fx.Helper()
	if n := fx.permits(name); n != want {
		fx.Errorf("%d permits of %s are taken, want %d", n, name, want)
	}
}

// newLimitedHandler returns a blocking handler that two requests may be inside.
func (fx *fixture) newLimitedHandler() *blockingHandler {
	g := fx.newBlockingHandler()
	g.most = 2
	return g
}

// serveLimited is serveOrders with a limit of two.
func (fx *fixture) serveLimited(handler http.HandlerFunc, change ...func(*guard.Config)) *testServer {
	fx.Helper()
	s := fx.serveOrders(handler, append([]func(*guard.Config){limited}, change...)...)
	fx.forgetLimits(limitName)
	return s
}

// fill sends two requests for order, which are inside then.
func (s *testServer) fill(g *blockingHandler) (pending [2]*pendingRequest, inside [2]*handlerRun) {
	s.fx.Helper()
	for i := range pending {
		pending[i] = s.startGet(order)
		inside[i] = g.nextRun()
	}
	return pending, inside
}

func limitRefuses(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP)
	pending, inside := s.fill(g)
	fx.wantPermits(limitName, 2)
	s.get(order).wantProblem(fx, 429, "limit", "1")
	if o := fx.outcome(); o.Ran || o.Status != 429 || o.Held != 0 {
		fx.Errorf("the outcome is %+v", o)
	}
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
		fx.wantPermits(limitName, 1-i)
		if o := fx.outcome(); !o.Ran || o.Err != nil || o.Status != fx.knownStatus(200) || o.Held <= 0 || o.Waited <= 0 {
			fx.Errorf("the outcome is %+v", o)
		}
	}
	g.wantRuns(2)
	if text := fx.log.text(); text != "" {
		fx.Errorf("logged: %s", text)
	}
}

func limitWaits(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, waits)
	pending, inside := s.fill(g)
	third := s.startGet(order)
	fx.eventually("the third waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	g.wantRuns(2)
	inside[0].finish()
	pending[0].mustGetAnswer().want(fx, 200, "done")
	last := g.nextRun()
	fx.wantPermits(limitName, 2)
	last.finish()
	third.mustGetAnswer().want(fx, 200, "done")
	inside[1].finish()
	pending[1].mustGetAnswer().want(fx, 200, "done")
}

func limitTimesOut(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, func(cfg *guard.Config) { cfg.WaitTime, cfg.RetryAfter = 30*time.Millisecond, 2*time.Second })
	pending, inside := s.fill(g)
	s.get(order).wantProblem(fx, 429, "limit", "2")
	if o := fx.outcome(); o.Status != 429 || o.Waited < 30*time.Millisecond {
		fx.Errorf("the outcome is %+v", o)
	}
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
}

func limitUnderLoad(fx *fixture) {
	var inside, most, runs atomic.Int32
	handler := func(http.ResponseWriter, *http.Request) {
		n := inside.Add(1)
		if n > 2 {
			fx.Errorf("%d handlers are inside", n)
		}
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		for range 20 { // another handler could enter
			runtime.Gosched()
		}
		runs.Add(1)
		inside.Add(-1)
	}
	route := Route{Pattern: orders, Guards: []guard.Config{fx.config(limited, waits)}, Handler: handler}
	servers := []*testServer{fx.serve(route), fx.serveOn(fx.newOtherLocks(), func(*Server) {}, route)}
	fx.forgetLimits(limitName)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() { servers[i%2].send(servers[i%2].newRequest(http.MethodGet, order, nil)).want(fx, 200, "") })
	}
	all.Wait()
	if runs.Load() != 40 {
		fx.Errorf("%d handlers have run", runs.Load())
	}
	fx.wantPermits(limitName, 0)
}

func limitPanics(fx *fixture) {
	caught, stacks := make(chan any, 3), make(chan string, 3)
	s := fx.serveWith(recovering(caught, stacks, func() { fx.wantPermits(limitName, 0) }), Route{Pattern: orders, Guards: []guard.Config{fx.config(limited)}, Handler: explode})
	fx.forgetLimits(limitName)
	for range 3 { // more than there are permits
		if a := s.get(order); a.status != 500 {
			fx.Errorf("answer %d %s", a.status, a.body)
		}
		if p := mustReceive(fx, "the handler has panicked", caught); p != errExploded {
			fx.Errorf("the panic is %v", p)
		}
	}
}

func limitClientLeaves(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, waits)
	pending, inside := s.fill(g)
	third := s.startGet(order)
	fx.eventually("the third waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	third.disconnect()
	if o := fx.outcome(); o.Status != 499 || o.Ran {
		fx.Errorf("the outcome is %+v, want status 499", o)
	}
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
	fx.wantPermits(limitName, 0)
	g.wantRuns(2)
}

func limitSeveralKeys(fx *fixture) {
	names := make(map[string]string)
	for _, k := range []string{"a", "b", "c"} {
		names[k] = "reqlock:%limit:2:" + k
	}
	g := fx.newLimitedHandler()
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(limited, keysAre("b", "a", "b"))}, Handler: func(w http.ResponseWriter, r *http.Request) {
			if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != "multi("+names["a"]+", "+names["b"]+")" {
				fx.Errorf("LeaseFrom returned %v, %v; want one for both", lease, ok)
			}
			g.ServeHTTP(w, r)
		}},
		Route{Pattern: "/other", Guards: []guard.Config{fx.config(limited, keysAre("c", "b"))}, Handler: g.ServeHTTP},
	)
	fx.forgetLimits(names["a"], names["b"], names["c"])
	pending, inside := s.fill(g)
	fx.wantPermits(names["a"], 2)
	fx.wantPermits(names["b"], 2)
	s.get("/other").wantProblem(fx, 429, "limit", "1")
	fx.wantPermits(names["c"], 0)
	inside[0].finish()
	pending[0].mustGetAnswer().want(fx, 200, "done")
	other := s.startGet("/other")
	last := g.nextRun()
	for k, want := range map[string]int{"a": 1, "b": 2, "c": 1} {
		fx.wantPermits(names[k], want)
	}
	last.finish()
	other.mustGetAnswer().want(fx, 200, "done")
	inside[1].finish()
	pending[1].mustGetAnswer().want(fx, 200, "done")
}

// A full limit is no outage: FailOpen runs the handler only if Redis is unavailable.
func limitFailsOpen(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := guard.LeaseFrom(r.Context()); !ok {
			_, _ = io.WriteString(w, "no permit")
			return
		}
		g.ServeHTTP(w, r)
	}, failsOpen)
	pending, inside := s.fill(g)
	s.get(order).wantProblem(fx, 429, "limit", "1")
	fx.outcome()
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
		fx.outcome()
	}
	fx.replyToScripts(outOfMemory)
	s.get(order).want(fx, 200, "no permit")
	if o := fx.outcome(); !o.FailedOpen || !o.Ran || o.Err == nil {
		fx.Errorf("the outcome is %+v", o)
	}
}

func limitMaxHold(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, holdsFor)
	pending, inside := s.fill(g)
	for _, run := range inside {
		mustReceive(fx, "the handler's context ends", run.ctx.Done())
		fx.wantErr("its cause", context.Cause(run.ctx), guard.ErrMaxHold)
	}
	if n := fx.locks.Stats().Renewals; n != 0 {
		fx.Errorf("%d permits are still renewed", n)
	}
	s.get(order).wantProblem(fx, 429, "limit", "1")
	fx.outcome()
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
		if o := fx.outcome(); !o.Ran || o.Err != guard.ErrMaxHold {
			fx.Errorf("the outcome is %+v", o)
		}
	}
	fx.wantPermits(limitName, 0)
}

func limitMaxWaiters(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, waits, func(cfg *guard.Config) { cfg.MaxWaiters = 1 })
	pending, inside := s.fill(g)
	third := s.startGet(order)
	fx.eventually("the third waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	s.get(order).wantProblem(fx, 503, "queue-full", "1")
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
	g.nextRun().finish()
	third.mustGetAnswer().want(fx, 200, "done")
}

func limitRelease(fx *fixture) {
	g := fx.newBlockingHandler()
	g.most = 3
	s := fx.serveLimited(func(w http.ResponseWriter, r *http.Request) {
		fx.wantErr("Release", guard.Release(r.Context()), nil)
		fx.wantErr("a second Release", guard.Release(r.Context()), core.ErrNotHeld)
		g.ServeHTTP(w, r)
	})
	pending, inside := s.fill(g)
	fx.wantPermits(limitName, 0)
	third := s.startGet(order)
	g.nextRun().finish()
	third.mustGetAnswer().want(fx, 200, "done")
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
}

func limitDetach(fx *fixture) {
	leases := make(chan *core.Lease, 2)
	s := fx.serveLimited(func(_ http.ResponseWriter, r *http.Request) {
		lease, ok := guard.Detach(r.Context())
		if !ok {
			fx.Error("Detach found no lease")
			return
		}
		leases <- lease
	})
	for range 2 {
		s.get(order).want(fx, 200, "")
	}
	s.get(order).wantProblem(fx, 429, "limit", "1")
	for i := range 2 {
		lease := mustReceive(fx, "a lease is detached", leases)
		fx.wantErr("the lease", lease.Err(), nil)
		fx.wantErr("Release", lease.Release(background), nil)
		fx.wantPermits(limitName, 1-i)
	}
}

// A request that waits for a permit keeps its lock, and one that waits for the lock takes no permit.
func limitInsideLock(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(limited)}, Handler: g.ServeHTTP},
		Route{Pattern: "/both/{id}", Guards: []guard.Config{fx.config(), fx.config(limited, waits)}, Handler: g.ServeHTTP},
	)
	fx.forgetLimits(limitName)
	pending, inside := s.fill(g)
	both := s.startGet("/both/" + key)
	fx.eventually("it has the lock, and waits for a permit", func() bool { // Waiting counts first attempts, too
		return len(fx.holds(lockName)) == 1 && fx.locks.Stats().Waiting == 1
	})
	s.get("/both/"+key).wantProblem(fx, 409, "locked", "1")
	inside[0].finish()
	last := g.nextRun()
	fx.wantHeld(lockName)
	fx.wantPermits(limitName, 2)
	last.finish()
	both.mustGetAnswer().want(fx, 200, "done")
	fx.wantFree(lockName)
	inside[1].finish()
	for _, p := range pending {
		p.mustGetAnswer().want(fx, 200, "done")
	}
}

// A request that waits for its lock keeps a permit. All of many requests run.
func lockInsideLimit(fx *fixture) {
	var inside atomic.Int32
	s := fx.serve(Route{Pattern: orders, Guards: []guard.Config{fx.config(limited, waits), fx.config(waits)}, Handler: func(_ http.ResponseWriter, r *http.Request) {
		if n := inside.Add(1); n != 1 {
			fx.Errorf("%d handlers have the lock", n)
		}
		fx.wantHeld(lockName)
		if n := fx.permits(limitName); n < 1 || n > 2 {
			fx.Errorf("%d permits are taken", n)
		}
		inside.Add(-1)
	}})
	fx.forgetLimits(limitName)
	release := fx.mustHold(lockName)
	var all []*pendingRequest
	for i := range 12 {
		all = append(all, s.startGet(order+"?"+strconv.Itoa(i)))
	}
	fx.eventually("all wait: two for the lock", func() bool { return fx.locks.Stats().Waiting == 12 && fx.permits(limitName) == 2 })
	release()
	for _, p := range all {
		p.mustGetAnswer().want(fx, 200, "")
	}
}

func limitBesideLock(fx *fixture) {
	g := fx.newBlockingHandler()
	g.most = 3
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{fx.config(limited)}, Handler: g.ServeHTTP},
		Route{Pattern: "/locked/{id}", Guards: []guard.Config{fx.config()}, Handler: g.ServeHTTP},
	)
	fx.forgetLimits(limitName)
	pending, inside := s.fill(g)
	locked := s.startGet("/locked/" + key)
	last := g.nextRun()
	s.get(order).wantProblem(fx, 429, "limit", "1")
	s.get("/locked/"+key).wantProblem(fx, 409, "locked", "1")
	last.finish()
	locked.mustGetAnswer().want(fx, 200, "done")
	for i, p := range pending {
		inside[i].finish()
		p.mustGetAnswer().want(fx, 200, "done")
	}
}
