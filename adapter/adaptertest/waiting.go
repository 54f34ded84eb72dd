package adaptertest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/guard"
)

var waiting = []scenario{
	{name: "a free lock lets the handler run", run: freeLock},
	{name: "requests with other keys do not wait", run: otherKeys},
	{name: "a waiting request runs when the lock is released", run: waitsItsTurn},
	{name: "a client that leaves while it waits", run: clientLeavesQueue},
	{name: "a client that leaves while it waits, with a body", run: clientLeavesQueueWithBody},
	{name: "a client that leaves while its key is derived", run: clientLeavesKey},
	{name: "a deadline ends while the request waits", run: deadlineWhileWaiting},
	{name: "a deadline ends while Redis is silent", run: deadlineWhileRedisIsSilent, setup: []func(*setup){proxied, commandTimeout(patience)}},
	{name: "a thousand requests in sequence", run: sequential},
}

func freeLock(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld(lockName)
		if r.PathValue("id") != key {
			fx.Errorf("the handler sees id %q", r.PathValue("id"))
		}
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	})
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		a := s.send(s.newRequest(method, order, strings.NewReader("body")))
		a.want(fx, http.StatusCreated, "made")
		if a.header.Get("X-Mine") != "yes" || a.header.Get("Retry-After") != "" {
			fx.Errorf("%s: headers %v", method, a.header)
		}
		fx.wantFree(lockName)
		if o := fx.outcome(); !o.Ran || o.Status != fx.knownStatus(http.StatusCreated) || o.Err != nil || o.FailedOpen || o.Held <= 0 || o.Waited <= 0 {
			fx.Errorf("%s: the outcome is %+v", method, o)
		}
	}
	if text := fx.log.text(); text != "" {
		fx.Errorf("logged: %s", text)
	}
}

func otherKeys(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == key {
			g.ServeHTTP(w, r)
		}
	})
	first := s.startGet(order)
	inside := g.nextRun()
	s.get("/orders/other").want(fx, 200, "")
	s.get("/orders/"+strings.ToUpper(key)).want(fx, 200, "")
	s.get(order).wantProblem(fx, 409, "locked", "1")
	s.get("/orders/"+strings.ReplaceAll(key, "k", "%6B")).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	first.mustGetAnswer().want(fx, 200, "done")
}

func waitsItsTurn(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, waits)
	first := s.startGet(order)
	inside := g.nextRun()
	second := s.startGet(order)
	fx.eventually("the second waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	seen := time.Now()
	time.Sleep(20 * time.Millisecond) // a wait to measure
	g.wantRuns(1)
	waited := time.Since(seen)
	inside.finish()
	first.mustGetAnswer().want(fx, 200, "done")
	if o := fx.outcome(); o.Held < waited {
		fx.Errorf("Held of the first is %s, want at least %s", o.Held, waited)
	}
	g.nextRun().finish()
	second.mustGetAnswer().want(fx, 200, "done")
	if o := fx.outcome(); o.Waited < waited {
		fx.Errorf("Waited of the second is %s, want at least %s", o.Waited, waited)
	}
}

func clientLeavesQueue(fx *fixture) {
	leavesQueue(fx, func(s *testServer) *http.Request { return s.newRequest(http.MethodGet, order, nil) }, waits)
}

func clientLeavesQueueWithBody(fx *fixture) {
	leavesQueue(fx, func(s *testServer) *http.Request {
		return s.newRequest(http.MethodPost, order, strings.NewReader("an unread body"))
	}, func(cfg *guard.Config) { waits(cfg); cfg.BufferBody = 1000 })
}

// leavesQueue hangs up while the request waits with a long WaitTime.
func leavesQueue(fx *fixture, request func(*testServer) *http.Request, change func(*guard.Config)) {
	release := fx.mustHold(lockName)
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, change)
	p := s.start(request(s))
	fx.eventually("the request waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	p.disconnect()
	o := fx.outcome()
	if o.Status != 499 || o.FailedOpen || o.Held != 0 {
		fx.Errorf("the outcome is %+v, want status 499", o)
	}
	if n := fx.locks.Stats().Waiting; n != 0 {
		fx.Errorf("%d are still waiting", n)
	}
	release()
	fx.eventuallyFree(lockName)
	p = s.startGet(order)
	g.nextRun().finish()
	p.mustGetAnswer().want(fx, 200, "done")
	g.wantRuns(1)
}

// A key function may fail because the request has ended, which is no fault of the request.
func clientLeavesKey(fx *fixture) {
	looking := make(chan struct{})
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") },
		keyedBy(func(r *http.Request) (string, error) {
			close(looking)
			<-r.Context().Done()
			return "", r.Context().Err()
		}))
	p := s.startGet(order)
	mustReceive(fx, "the key is derived", looking)
	p.disconnect()
	if o := fx.outcome(); o.Status != 499 {
		fx.Errorf("the outcome is %+v, want status 499", o)
	}
}

// withDeadline sets a deadline for all requests, as an outer middleware does.
func withDeadline(d time.Duration) func(*Server) {
	return around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), d)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	})
}

func deadlineWhileWaiting(fx *fixture) {
	fx.mustHold(lockName)
	g := fx.newBlockingHandler()
	s := fx.serveWith(withDeadline(2*time.Second), Route{Pattern: orders, Guards: []guard.Config{fx.config(waits)}, Handler: g.ServeHTTP})
	s.get(order).wantProblem(fx, 409, "wait-timeout", "1")
	g.wantRuns(0)
	if o := fx.outcome(); o.Status != 409 {
		fx.Errorf("the outcome is %+v", o)
	}
}

// Redis is silent, so the lock may be free or held. A request must neither run nor get 409, with
// and without WaitTime, and with several keys.
func deadlineWhileRedisIsSilent(fx *fixture) {
	fx.proxy.Stall()
	fx.ends = append(fx.ends, fx.proxy.Restore)
	g := fx.newBlockingHandler()
	failOpen := func(cfg *guard.Config) { cfg.FailOpen = true }
	two := keysAre("a", "b")
	s := fx.serveWith(withDeadline(50*time.Millisecond),
		Route{Pattern: "/once", Guards: []guard.Config{fx.config(failOpen, keysAre("a"))}, Handler: g.ServeHTTP},
		Route{Pattern: "/waits", Guards: []guard.Config{fx.config(failOpen, waits, keysAre("a"))}, Handler: g.ServeHTTP},
		Route{Pattern: "/two", Guards: []guard.Config{fx.config(failOpen, waits, two)}, Handler: g.ServeHTTP},
	)
	for _, path := range []string{"/once", "/waits", "/two"} {
		s.get(path).wantProblem(fx, 503, "backend-unavailable", "1")
		if o := fx.outcome(); o.Status != 503 || o.FailedOpen {
			fx.Errorf("%s: the outcome is %+v", path, o)
		}
	}
	g.wantRuns(0)
}

func sequential(fx *fixture) {
	var runs atomic.Int64
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		_, _ = w.Write([]byte(strings.Repeat("x", 1000)))
	})
	for i := range 1000 {
		if a := s.get(order); a.status != 200 {
			fx.Fatalf("request %d: %d %s", i, a.status, a.body)
		}
		fx.outcome()
	}
	if runs.Load() != 1000 {
		fx.Errorf("the handler ran %d times", runs.Load())
	}
}
