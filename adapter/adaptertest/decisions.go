package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

var decisions = []scenario{
	{name: "several keys: all locks or none", run: allOrNone},
	{name: "several keys in any order", run: anyOrder},
	{name: "equal keys count once", run: equalKeys},
	{name: "WaitTime is for all keys together", run: oneWaitTime},
	{name: "ErrSkip", run: skips},
	{name: "Policy", run: policyDecides},
	{name: "Policy starts with the values of the Config", run: policyStarts},
	{name: "names", run: names},
	{name: "Locker", run: lockers},
	{name: "ErrorHandler", run: errorHandler},
	{name: "ErrorHandler gets the error of a key function", run: errorHandlerOwn},
	{name: "a CORS preflight does not run beside the holder", run: preflightLocked},
	{name: "PassPreflight", run: preflightPasses},
	{name: "HEAD", run: head},
	{name: "a Config that can never work panics", run: invalidConfig},
}

func allOrNone(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"reqlock:a", "reqlock:b", "reqlock:c"} {
			fx.wantHeld(name)
		}
		if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != "multi(reqlock:a, reqlock:b, reqlock:c)" {
			fx.Errorf("LeaseFrom returned %v, %v; want one for all", lease, ok)
		}
	}, keysAre("c", "a", "b"))
	s.get(order).want(fx, 200, "")
	for _, taken := range []string{"reqlock:a", "reqlock:b", "reqlock:c"} {
		release := fx.mustHold(taken)
		s.get(order).wantProblem(fx, 409, "locked", "1")
		for _, name := range []string{"reqlock:a", "reqlock:b", "reqlock:c"} {
			if name != taken {
				fx.wantFree(name)
			}
		}
		release()
	}
}

// anyOrder shows that requests for the same keys in any order do not deadlock.
func anyOrder(fx *fixture) {
	var inside sync.Mutex
	handler := func(w http.ResponseWriter, r *http.Request) {
		if !inside.TryLock() {
			fx.Error("two handlers are inside")
			return
		}
		// Another handler could enter now if the locks did not exclude it.
		time.Sleep(100 * time.Microsecond)
		inside.Unlock()
	}
	var routes []Route
	orders := [][]string{{"a", "b"}, {"b", "a"}, {"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}}
	for i, keys := range orders {
		routes = append(routes, Route{
			Pattern: fmt.Sprintf("/%d", i), Guards: []guard.Config{fx.config(keysAre(keys...), waits)}, Handler: handler,
		})
	}
	s := fx.serve(routes...)
	var all []*pendingRequest
	for i := range 20 * len(orders) {
		all = append(all, s.startGet(fmt.Sprintf("/%d", i%len(orders))))
	}
	for _, p := range all {
		p.mustGetAnswer().want(fx, 200, "")
	}
}

func equalKeys(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		if counts := fx.holds("reqlock:a"); !slices.Equal(counts, []string{"1"}) {
			fx.Errorf("hold counts %v, want one owner with 1", counts)
		}
		if lease, ok := guard.Detach(r.Context()); !ok {
			fx.Error("Detach returned no lease")
		} else if err := lease.Release(r.Context()); err != nil {
			fx.Error(err)
		}
		fx.wantFree("reqlock:a")
	}, keysAre("a", "a", "a"))
	s.get(order).want(fx, 200, "")
}

func oneWaitTime(fx *fixture) {
	const wait = 5 * time.Second // longer than a slow machine may pause
	releaseA := fx.mustHold("reqlock:a")
	fx.mustHold("reqlock:b")
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, keysAre("a", "b"), func(cfg *guard.Config) { cfg.WaitTime = wait })
	p := s.startGet(order)
	fx.eventually("the request waits for a", func() bool { return fx.locks.Stats().Waiting == 1 })
	time.Sleep(wait * 8 / 10) // the first key takes most of WaitTime
	releaseA()
	p.mustGetAnswer().wantProblem(fx, 409, "wait-timeout", "1")
	fx.wantFree("reqlock:a")
	if o := fx.outcome(); o.Waited < wait || o.Waited > wait*17/10 {
		fx.Errorf("the request waited %s, want %s for both keys", o.Waited, wait)
	}
	g.wantRuns(0)
}

func skips(fx *fixture) {
	fx.mustHold("reqlock:a")
	s := fx.serve(
		Route{Pattern: "/skipped", Guards: []guard.Config{fx.config(keyedBy(skip))}, Handler: wantNoLease(fx)},
		Route{Pattern: "/one-of-two", Guards: []guard.Config{fx.config(keysAre("a"), func(cfg *guard.Config) { cfg.Keys = append(cfg.Keys, skip) })}, Handler: wantNoLease(fx)},
		Route{Pattern: "/policy", Guards: []guard.Config{fx.config(decidedBy(func(_ *http.Request, p *guard.Policy) error { p.Skip = true; return nil }))}, Handler: wantNoLease(fx)},
		Route{Pattern: "/policy-error", Guards: []guard.Config{fx.config(decidedBy(func(_ *http.Request, p *guard.Policy) error {
			p.Keys = []string{"a"}
			return fmt.Errorf("wrapped: %w", keyfuncs.ErrSkip)
		}))}, Handler: wantNoLease(fx)},
	)
	for _, path := range []string{"/skipped", "/one-of-two", "/policy", "/policy-error"} {
		s.get(path).want(fx, 200, "")
	}
	if len(fx.outcomes) > 0 {
		fx.Errorf("a skipped request has the outcome %+v, want none", <-fx.outcomes)
	}
}

func policyDecides(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.LeaseFrom(r.Context())
		if !ok {
			fx.Error("there is no lease")
			return
		}
		if left := lease.Remaining(); left <= patience || left > time.Minute {
			fx.Errorf("the lease has %s left, want a minute", left)
		}
		if n := fx.locks.Stats().Renewals; n != 0 {
			fx.Errorf("%d locks are renewed", n)
		}
		fx.wantHeld("reqlock:a")
		fx.wantHeld("reqlock:b")
	}, decidedBy(func(r *http.Request, p *guard.Policy) error {
		p.Keys = []string{"b", "a"}
		p.LeaseTime = time.Minute
		if r.Method == http.MethodPost {
			p.WaitTime = 20 * time.Millisecond
		}
		return nil
	}))
	s.get(order).want(fx, 200, "")
	fx.mustHold("reqlock:b")
	s.get(order).wantProblem(fx, 409, "locked", "1")
	s.post(order, "").wantProblem(fx, 409, "wait-timeout", "1")
}

func policyStarts(fx *fixture) {
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) {},
		decidedBy(func(r *http.Request, p *guard.Policy) error {
			if p.WaitTime != 3*time.Second || p.LeaseTime != 5*time.Second || p.Mode != guard.ModeExclusive || p.Keys != nil || p.Skip {
				fx.Errorf("the Policy starts as %+v", *p)
			}
			p.Keys = []string{"a"}
			p.WaitTime, p.LeaseTime = 0, 0
			return nil
		}),
		func(cfg *guard.Config) { cfg.WaitTime, cfg.LeaseTime = 3*time.Second, 5*time.Second })
	s.get(order).want(fx, 200, "")
	s.get(order).want(fx, 200, "") // the change of one policy does not affect the next
}

func names(fx *fixture) {
	wants := func(name string) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { fx.wantHeld(name) }
	}
	exact := func(cfg *guard.Config) { cfg.Name = guard.Exact }
	s := fx.serve(
		Route{Pattern: "/exact/{id}", Guards: []guard.Config{fx.config(exact)}, Handler: wants(key)},
		Route{Pattern: "/braces", Guards: []guard.Config{fx.config(exact, keyedBy(keyfuncs.Const("{1}:a%b")))}, Handler: wants("%7B1%7D:a%25b")},
		Route{Pattern: "/orders/{id}/pay", Guards: []guard.Config{fx.config()}, Handler: wants("reqlock:a cb")},
	)
	s.get("/exact/"+key).want(fx, 200, "")
	s.get("/braces").want(fx, 200, "")
	s.get("/orders/a%20c%62/pay").want(fx, 200, "")
}

func lockers(fx *fixture) {
	other := fx.newOtherLocks()
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld(lockName)
		if other.Stats().Held != 1 || fx.locks.Stats().Held != 0 {
			fx.Error("the lock is not of the Locker's client")
		}
	}, func(cfg *guard.Config) {
		cfg.Locker = func(r *http.Request, name string) core.Locker {
			if r.PathValue("id") != key || name != lockName {
				fx.Errorf("Locker is called for %q, name %q", r.PathValue("id"), name)
			}
			return other.Lock(name)
		}
	})
	s.get(order).want(fx, 200, "")
}

func errorHandler(fx *fixture) {
	fx.mustHold(lockName)
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") }, func(cfg *guard.Config) {
		cfg.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
			own, ok := err.(*guard.Error)
			if !ok || own.Status != 409 || own.Type != "urn:reqlock:problem:locked" || own.RetryAfter != time.Second {
				fx.Errorf("ErrorHandler gets %#v", err)
			}
			fx.wantErr("the cause", err, core.ErrNotAcquired)
			if r.PathValue("id") != key {
				fx.Errorf("ErrorHandler sees id %q", r.PathValue("id"))
			}
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write([]byte("busy"))
		}
	})
	s.get(order).want(fx, http.StatusLocked, "busy")
	if o := fx.outcome(); o.Status != 409 {
		fx.Errorf("the outcome is %+v", o)
	}
}

// errorHandlerOwn shows that ErrorHandler gets a wrapped *Error unwrapped.
func errorHandlerOwn(fx *fixture) {
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") },
		keyedBy(func(*http.Request) (string, error) { return "", fmt.Errorf("wrapped: %w", paymentRequired) }),
		func(cfg *guard.Config) {
			cfg.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
				if err != error(paymentRequired) {
					fx.Errorf("ErrorHandler gets %#v", err)
				}
				w.WriteHeader(http.StatusPaymentRequired)
			}
		})
	s.get(order).want(fx, http.StatusPaymentRequired, "")
}

// preflightLocked has a route for every method, whose handler does not check the method.
func preflightLocked(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP)
	p := s.start(s.newRequest(http.MethodPost, order, nil))
	inside := g.nextRun()
	r := s.newRequest(http.MethodOptions, order, nil)
	r.Header.Set("Origin", "https://shop.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	s.must(s.send(r)).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	p.mustGetAnswer().want(fx, 200, "done")
	g.wantRuns(1)
}

func preflightPasses(fx *fixture) {
	fx.mustHold(lockName)
	s := fx.serveOrders(wantNoLease(fx), func(cfg *guard.Config) { cfg.PassPreflight = true })
	for _, test := range []struct {
		method string
		header []string
		passes bool
	}{
		{"OPTIONS", []string{"Origin", "Access-Control-Request-Method"}, true},
		{"OPTIONS", []string{"Origin"}, false},
		{"OPTIONS", []string{"Access-Control-Request-Method"}, false},
		{"OPTIONS", nil, false},
		{"POST", []string{"Origin", "Access-Control-Request-Method"}, false},
	} {
		r := s.newRequest(test.method, order, nil)
		for _, name := range test.header {
			r.Header.Set(name, "x")
		}
		if a := s.must(s.send(r)); (a.status == 200) != test.passes {
			fx.Errorf("%s with %v: %d", test.method, test.header, a.status)
		}
	}
}

func head(fx *fixture) {
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.must(s.send(s.newRequest(http.MethodHead, order, nil))).want(fx, 204, "")
	fx.mustHold(lockName)
	want := s.get(order).header
	a := s.must(s.send(s.newRequest(http.MethodHead, order, nil)))
	a.want(fx, 409, "")
	for _, name := range []string{"Content-Type", "Retry-After", "Content-Length"} {
		if got := a.header.Get(name); got == "" || got != want.Get(name) {
			fx.Errorf("header %s is %q, of a GET %q", name, got, want.Get(name))
		}
	}
}

func invalidConfig(fx *fixture) {
	for name, test := range map[string]struct {
		locks *core.Client
		cfg   guard.Config
		says  []string
	}{
		"nothing is set":     {fx.locks, guard.Config{}, []string{"set exactly one of Key, Keys and Policy"}},
		"several are wrong":  {fx.locks, fx.config(func(cfg *guard.Config) { cfg.WaitTime, cfg.MaxHold = core.WaitForever, -1 }), []string{"WaitTime is WaitForever", "MaxHold is -1ns"}},
		"there is no client": {nil, fx.config(), []string{"neither a *core.Client nor a Locker"}},
	} {
		route := Route{Pattern: orders, Guards: []guard.Config{test.cfg}, Handler: func(http.ResponseWriter, *http.Request) {}}
		fx.wantPanic(name, func() { fx.serveOn(test.locks, func(*Server) {}, route) }, guard.ErrInvalidConfig, test.says...)
	}
}

// wantPanic fails the test unless f panics with an error that matches want and says all of that.
func (fx *fixture) wantPanic(name string, f func(), want error, says ...string) {
	fx.Helper()
	defer func() {
		fx.Helper()
		err, _ := recover().(error)
		if !errors.Is(err, want) {
			fx.Errorf("%s: panics with %v, want %v", name, err, want)
			return
		}
		for _, text := range says {
			if !strings.Contains(err.Error(), text) {
				fx.Errorf("%s: panics with %v, want %q in it", name, err, text)
			}
		}
	}()
	f()
}
