package adaptertest

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/guard"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

var delegated = []scenario{
	{name: "Delegates: a request enters its caller's lock", run: delegatesEnter, setup: []func(*setup){callee}},
	{name: "Delegates: a handler calls with the context of its request", run: delegatesCall, setup: []func(*setup){callee}},
	{name: "Delegates: the caller's lock is over, 409 at once", run: delegatesParentLost, setup: []func(*setup){callee}},
	{name: "Delegates: a token that does not count, 409 as without", run: delegatesIgnored, setup: []func(*setup){callee}},
	{name: "Delegates: together, or one at a time", run: delegatesSiblings, setup: []func(*setup){callee}},
	{name: "Delegates with Limit: the request uses its caller's permit", run: delegatesLimit, setup: []func(*setup){callee}},
	{name: "Delegates with several keys", run: delegatesSeveralKeys, setup: []func(*setup){callee}},
}

// callee makes the lock client that of a service that others delegate to.
func callee(s *setup) { s.options.Delegation = serviceOf("callee") }

func serviceOf(name string) delegation.Service {
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		panic(err)
	}
	return delegation.Service{Keys: keys, Name: name}
}

// together lets guests in.
func together(cfg *guard.Config) { cfg.Delegates = guard.DelegatesTogether }

// newCaller returns the lock client of another service.
func (fx *fixture) newCaller() *core.Client {
	return fx.newLocks(fx.redis.Addr(), core.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience, Delegation: serviceOf("caller")})
}

// mustDelegate acquires locks as a caller would, and returns the lease with the tokens for an audience.
func (fx *fixture) mustDelegate(audience string, names ...string) (lease *core.Lease, tokens string) {
	fx.Helper()
	c := fx.newCaller()
	locks := make([]core.Locker, len(names))
	for i, name := range names {
		locks[i] = c.Lock(name)
	}
	return fx.mustDelegateOf(audience, core.MultiLock(locks...))
}

// mustDelegateOf is mustDelegate for any lock of the caller.
func (fx *fixture) mustDelegateOf(audience string, l core.Locker) (lease *core.Lease, tokens string) {
	fx.Helper()
	lease, err := l.Acquire(background, core.AcquireOptions{})
	if err != nil {
		fx.Fatal(err)
	}
	fx.ends = append(fx.ends, func() { _ = lease.Release(background) }) // the test may have released it
	if tokens, err = lease.Delegate(audience); err != nil {
		fx.Fatal(err)
	}
	return lease, tokens
}

func (fx *fixture) mustReleaseLease(lease *core.Lease) {
	fx.Helper()
	if err := lease.Release(background); err != nil {
		fx.Error(err)
	}
}

// orderWith returns a request for order with tokens.
func (s *testServer) orderWith(tokens string) *http.Request {
	r := s.newRequest(http.MethodGet, order, nil)
	r.Header.Set(delegation.Header, tokens)
	return r
}

func delegatesEnter(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, together)
	lease, tokens := fx.mustDelegate("callee", lockName)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	pending := s.start(s.orderWith(tokens))
	run := g.nextRun()
	if n := len(fx.holds(lockName)); n != 2 {
		fx.Errorf("%d hold the lock, want the caller and its guest", n)
	}
	fx.mustReleaseLease(lease)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	run.finish()
	pending.mustGetAnswer().want(fx, 200, "done")
	fx.wantFree(lockName)
	if n := fx.locks.Counters().Guests; n != 1 {
		fx.Errorf("%d guests, want 1", n)
	}
}

// The handler of one service calls another through httplock.Transport. What it takes under its lock
// with the context of its request is found by every framework.
func delegatesCall(fx *fixture) {
	b := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "b") }, together)
	client := &http.Client{Transport: httplock.Transport(b.client.Transport, delegation.Config{Hosts: map[string]string{b.addr(): "callee"}})}
	defer client.CloseIdleConnections()
	caller := fx.newCaller()
	a := fx.serveOn(caller, func(*Server) {}, Route{Pattern: orders, Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		call := b.newRequest(http.MethodGet, order, nil)
		answer, err := client.Do(call.WithContext(r.Context()))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}})
	a.get(order).want(fx, 200, "b")
	fx.eventuallyFree(lockName)
	if n := fx.locks.Counters().Guests; n != 1 {
		fx.Errorf("%d guests, want 1", n)
	}
}

func delegatesParentLost(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, together, waits)
	lease, tokens := fx.mustDelegate("callee", lockName)
	fx.mustReleaseLease(lease)
	s.send(s.orderWith(tokens)).wantProblem(fx, 409, "parent-lost", "")
	g.wantRuns(0)
	if o := fx.outcome(); o.Ran || o.Status != 409 {
		fx.Errorf("the outcome is %+v", o)
	}
	if text := fx.log.text(); strings.Contains(text, tokens) {
		fx.Errorf("a token is logged: %s", text)
	}
}

func delegatesIgnored(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, together)
	deaf := fx.serveOrders(g.ServeHTTP)
	lease, tokens := fx.mustDelegate("callee", lockName)
	strange, err := lease.Delegate("another-service")
	if err != nil {
		fx.Fatal(err)
	}
	for what, token := range map[string]string{
		"forged": tokens[:len(tokens)-8] + "AAAAAAAA", "of another service": strange, "no token": "x", "cut": tokens[:40], "none": "",
	} {
		s.send(s.orderWith(token)).wantProblem(fx, 409, "locked", "1")
		if fx.Failed() {
			fx.Fatal(what)
		}
	}
	deaf.send(deaf.orderWith(tokens)).wantProblem(fx, 409, "locked", "1")
	g.wantRuns(0)
	if c := fx.locks.Counters(); c.Guests != 0 || c.TokensIgnored != 4 {
		fx.Errorf("%d guests, %d tokens ignored, want 0 and 4", c.Guests, c.TokensIgnored)
	}
}

func delegatesSiblings(fx *fixture) {
	for _, mode := range []guard.Delegates{guard.DelegatesTogether, guard.DelegatesOneAtATime} {
		g := fx.newBlockingHandler()
		g.most = 2
		s := fx.serveOrders(g.ServeHTTP, waits, func(cfg *guard.Config) { cfg.Delegates = mode })
		lease, tokens := fx.mustDelegate("callee", lockName)
		first := s.start(s.orderWith(tokens))
		run := g.nextRun()
		second := s.start(s.orderWith(tokens))
		if mode == guard.DelegatesTogether {
			g.nextRun().finish()
			second.mustGetAnswer().want(fx, 200, "done")
		} else {
			fx.eventually("the second waits", func() bool { return fx.locks.Stats().Waiting > 0 })
			g.wantRuns(1)
		}
		run.finish()
		first.mustGetAnswer().want(fx, 200, "done")
		if mode == guard.DelegatesOneAtATime {
			g.nextRun().finish()
			second.mustGetAnswer().want(fx, 200, "done")
		}
		fx.mustReleaseLease(lease)
		fx.wantFree(lockName)
	}
}

func delegatesLimit(fx *fixture) {
	g := fx.newLimitedHandler()
	s := fx.serveLimited(g.ServeHTTP, together)
	permits := fx.newCaller().Semaphore(limitName, 2)
	lease, tokens := fx.mustDelegateOf("callee", permits)
	other, _ := fx.mustDelegateOf("callee", permits)
	s.get(order).wantProblem(fx, 429, "limit", "1")
	pending := s.start(s.orderWith(tokens))
	run := g.nextRun()
	fx.wantPermits(limitName, 2)
	fx.mustReleaseLease(lease)
	s.get(order).wantProblem(fx, 429, "limit", "1")
	s.send(s.orderWith(tokens)).wantProblem(fx, 409, "parent-lost", "")
	run.finish()
	pending.mustGetAnswer().want(fx, 200, "done")
	fx.wantPermits(limitName, 1)
	fx.mustReleaseLease(other)

	// Guests of one permit may exclude each other, though a limit lets two in.
	single := fx.serveOrders(g.ServeHTTP, limited, waits, func(cfg *guard.Config) { cfg.Delegates = guard.DelegatesOneAtATime })
	lease, tokens = fx.mustDelegateOf("callee", permits)
	first := single.start(single.orderWith(tokens))
	run = g.nextRun()
	second := single.start(single.orderWith(tokens))
	fx.eventually("the second waits", func() bool { return fx.locks.Stats().Waiting > 0 })
	g.wantRuns(2)
	run.finish()
	first.mustGetAnswer().want(fx, 200, "done")
	g.nextRun().finish()
	second.mustGetAnswer().want(fx, 200, "done")
	fx.mustReleaseLease(lease)
}

func delegatesSeveralKeys(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, together, keysAre(key, "fixed"))
	lease, tokens := fx.mustDelegate("callee", lockName, "reqlock:fixed")
	pending := s.start(s.orderWith(tokens))
	g.nextRun().finish()
	pending.mustGetAnswer().want(fx, 200, "done")
	fx.mustReleaseLease(lease)

	// A lock that the caller does not hold is waited for like any other.
	release := fx.mustHold("reqlock:fixed")
	lease, tokens = fx.mustDelegate("callee", lockName)
	s.send(s.orderWith(tokens)).wantProblem(fx, 409, "locked", "1")
	release()
	pending = s.start(s.orderWith(tokens))
	g.nextRun().finish()
	pending.mustGetAnswer().want(fx, 200, "done")
	fx.mustReleaseLease(lease)
}
