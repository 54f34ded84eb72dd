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

func freeLock(e *env) {
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		if r.PathValue("id") != key {
			e.Errorf("the handler sees id %q", r.PathValue("id"))
		}
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("made"))
	})
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		a := s.send(s.request(method, order, strings.NewReader("body")))
		a.want(e, http.StatusCreated, "made")
		if a.header.Get("X-Mine") != "yes" || a.header.Get("Retry-After") != "" {
			e.Errorf("%s: headers %v", method, a.header)
		}
		e.wantFree(lockName)
		if o := e.outcome(); !o.Ran || o.Status != e.knownStatus(http.StatusCreated) || o.Err != nil || o.FailedOpen || o.Held <= 0 || o.Waited <= 0 {
			e.Errorf("%s: the outcome is %+v", method, o)
		}
	}
	if text := e.log.text(); text != "" {
		e.Errorf("logged: %s", text)
	}
}

func otherKeys(e *env) {
	g := e.gate()
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == key {
			g.ServeHTTP(w, r)
		}
	})
	first := s.startGet(order)
	inside := g.next()
	s.get("/orders/other").want(e, 200, "")
	s.get("/orders/"+strings.ToUpper(key)).want(e, 200, "")
	s.get(order).wantProblem(e, 409, "locked", "1")
	s.get("/orders/"+strings.ReplaceAll(key, "k", "%6B")).wantProblem(e, 409, "locked", "1")
	inside.leave()
	first.answer().want(e, 200, "done")
}

func waitsItsTurn(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, waits)
	first := s.startGet(order)
	inside := g.next()
	second := s.startGet(order)
	e.eventually("the second waits", func() bool { return e.locks.Stats().Waiting == 1 })
	seen := time.Now()
	time.Sleep(20 * time.Millisecond) // a wait to measure
	g.wantRuns(1)
	waited := time.Since(seen)
	inside.leave()
	first.answer().want(e, 200, "done")
	if o := e.outcome(); o.Held < waited {
		e.Errorf("Held of the first is %s, want at least %s", o.Held, waited)
	}
	g.next().leave()
	second.answer().want(e, 200, "done")
	if o := e.outcome(); o.Waited < waited {
		e.Errorf("Waited of the second is %s, want at least %s", o.Waited, waited)
	}
}

func clientLeavesQueue(e *env) {
	leavesQueue(e, func(s *site) *http.Request { return s.request(http.MethodGet, order, nil) }, waits)
}

func clientLeavesQueueWithBody(e *env) {
	leavesQueue(e, func(s *site) *http.Request {
		return s.request(http.MethodPost, order, strings.NewReader("an unread body"))
	}, func(cfg *guard.Config) { waits(cfg); cfg.BufferBody = 1000 })
}

// leavesQueue hangs up while the request waits with a long WaitTime.
func leavesQueue(e *env, request func(*site) *http.Request, change func(*guard.Config)) {
	release := e.hold(lockName)
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, change)
	p := s.start(request(s))
	e.eventually("the request waits", func() bool { return e.locks.Stats().Waiting == 1 })
	p.hangUp()
	o := e.outcome()
	if o.Status != 499 || o.FailedOpen || o.Held != 0 {
		e.Errorf("the outcome is %+v, want status 499", o)
	}
	if n := e.locks.Stats().Waiting; n != 0 {
		e.Errorf("%d are still waiting", n)
	}
	release()
	e.becomesFree(lockName)
	p = s.startGet(order)
	g.next().leave()
	p.answer().want(e, 200, "done")
	g.wantRuns(1)
}

// A key function may fail because the request has ended, which is no fault of the request.
func clientLeavesKey(e *env) {
	looking := make(chan struct{})
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) { e.Error("the handler ran without the lock") },
		keyedBy(func(r *http.Request) (string, error) {
			close(looking)
			<-r.Context().Done()
			return "", r.Context().Err()
		}))
	p := s.startGet(order)
	await(e, "the key is derived", looking)
	p.hangUp()
	if o := e.outcome(); o.Status != 499 {
		e.Errorf("the outcome is %+v, want status 499", o)
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

func deadlineWhileWaiting(e *env) {
	e.hold(lockName)
	g := e.gate()
	s := e.serveWith(withDeadline(2*time.Second), Route{Pattern: orders, Guards: []guard.Config{e.config(waits)}, Handler: g.ServeHTTP})
	s.get(order).wantProblem(e, 409, "wait-timeout", "1")
	g.wantRuns(0)
	if o := e.outcome(); o.Status != 409 {
		e.Errorf("the outcome is %+v", o)
	}
}

// Redis is silent, so the lock may be free or held. A request must neither run nor get 409, with
// and without WaitTime, and with several keys.
func deadlineWhileRedisIsSilent(e *env) {
	e.proxy.Stall()
	e.ends = append(e.ends, e.proxy.Restore)
	g := e.gate()
	failOpen := func(cfg *guard.Config) { cfg.FailOpen = true }
	two := keysAre("a", "b")
	s := e.serveWith(withDeadline(50*time.Millisecond),
		Route{Pattern: "/once", Guards: []guard.Config{e.config(failOpen, keysAre("a"))}, Handler: g.ServeHTTP},
		Route{Pattern: "/waits", Guards: []guard.Config{e.config(failOpen, waits, keysAre("a"))}, Handler: g.ServeHTTP},
		Route{Pattern: "/two", Guards: []guard.Config{e.config(failOpen, waits, two)}, Handler: g.ServeHTTP},
	)
	for _, path := range []string{"/once", "/waits", "/two"} {
		s.get(path).wantProblem(e, 503, "backend-unavailable", "1")
		if o := e.outcome(); o.Status != 503 || o.FailedOpen {
			e.Errorf("%s: the outcome is %+v", path, o)
		}
	}
	g.wantRuns(0)
}

func sequential(e *env) {
	var runs atomic.Int64
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		_, _ = w.Write([]byte(strings.Repeat("x", 1000)))
	})
	for i := range 1000 {
		if a := s.get(order); a.status != 200 {
			e.Fatalf("request %d: %d %s", i, a.status, a.body)
		}
		e.outcome()
	}
	if runs.Load() != 1000 {
		e.Errorf("the handler ran %d times", runs.Load())
	}
}
