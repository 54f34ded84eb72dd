package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

var onceRuns = []scenario{
	{name: "once: a hundred equal requests at the same time", run: onceHundred},
	{name: "once: a repeat while the first runs", run: onceLocked},
	{name: "once: a repeat whose WaitTime ends", run: onceWaitsInVain},
	{name: "once: one answer after another", run: onceSequential},
	{name: "once: commands", run: onceCommands},
	{name: "once: the same key on other routes", run: onceRoutes},
	{name: "once: a route that is renamed", run: onceRenamed},
	{name: "once: a form that is sent again with another boundary", run: onceForms},
	{name: "once: Optional", run: onceOptional},
	{name: "once: mounted twice", run: onceTwice},
	{name: "once: around a lock, a replay takes none, and its 409 is not recorded", run: onceAroundLock},
	{name: "once: around a lock, repeats of a request that waits for it", run: onceAroundWait},
	{name: "once: around a lock that is lost, or ends by MaxHold", run: onceAroundLoss, setup: []func(*setup){watchdogTimeout(2 * time.Second)}},
	{name: "once: inside a lock works, and is logged once", run: onceInsideLock},
	{name: "once: KeyFrom, DownstreamKey, NoStore and StoreFor", run: onceHandler},
	{name: "once: the status in an Outcome", run: onceStatus},
	{name: "once: a Config that can never work panics", run: onceInvalidConfig},
}

func onceHundred(e *env) {
	const n = 100
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP, repeatsWait)
	var all []*pending
	for range n {
		all = append(all, s.start(s.paying("{}")))
	}
	inside := g.next()
	e.eventually("the repeats wait", func() bool { return e.locks.Stats().Waiting == n-1 })
	inside.leave()
	replayed := 0
	for _, p := range all {
		a := p.answer()
		a.want(e, 200, "done")
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	g.wantRuns(1)
	if replayed != n-1 {
		e.Errorf("%d answers are replays, want %d", replayed, n-1)
	}
	if got := e.outcomesOf(n); got["200"] != n-1 || got["ran"] != 1 {
		e.Errorf("the outcomes are %v", got)
	}
}

func onceLocked(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP)
	first := s.start(s.paying("{}"))
	inside := g.next()
	s.pay("{}").wantProblem(e, 409, "locked", "1")
	s.pay("{}", with("X-User", "bert"), with("Idempotency-Key", "")).wantProblem(e, 400, "key-invalid", "")
	inside.leave()
	done := first.answer()
	done.wantOwn(e, 200, "done")
	s.pay("{}").wantReplay(e, done)
	g.wantRuns(1)
	if text := e.log.text(); text != "" {
		e.Errorf("logged: %s", text)
	}
}

func onceWaitsInVain(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP, func(cfg *idempotency.Config) { cfg.WaitTime = 1 })
	first := s.start(s.paying("{}"))
	inside := g.next()
	s.pay("{}").wantProblem(e, 409, "wait-timeout", "1")
	inside.leave()
	first.answer().wantOwn(e, 200, "done")
	g.wantRuns(1)
}

// onceSequential repeats a request as soon as the client has the answer: the record is stored by
// then.
func onceSequential(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	for i := range 100 {
		other := with("Idempotency-Key", strconv.Itoa(i))
		first := s.pay("x", other)
		first.wantOwn(e, 201, fmt.Sprintf("%d x", i+1))
		s.pay("x", other).wantReplay(e, first)
	}
}

// onceCommands counts two commands for a run, as for a guard, and one for a replay.
func onceCommands(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	s.pay("the scripts are loaded", with("Idempotency-Key", "warm"))
	s.pay("the scripts are loaded", with("Idempotency-Key", "warm"))
	for i, want := range []int{2, 1, 1} {
		before := e.scripts()
		s.pay("{}")
		if got := e.scripts() - before; got != want {
			e.Errorf("request %d has cost %d scripts, want %d", i, got, want)
		}
	}
}

// scripts returns how many scripts Redis has run.
func (e *env) scripts() int {
	stats := e.rdb.InfoMap(background, "commandstats").Val()["Commandstats"]
	n, _ := strconv.Atoi(regexp.MustCompile(`calls=(\d+)`).FindStringSubmatch(stats["cmdstat_evalsha"])[1])
	return n
}

func onceRoutes(e *env) {
	c := &counter{}
	var routes []Route
	paths := []string{order, "/orders/" + key + "/pay", "/invoices/" + key, "/orders"}
	for _, pattern := range []string{orders, orders + "/pay", "/invoices/{id}", "/orders"} {
		routes = append(routes, Route{Pattern: pattern, Once: []idempotency.Config{e.once()}, Handler: c.ServeHTTP})
	}
	s := e.serve(routes...)
	for i, path := range paths {
		at := func(r *http.Request) { r.URL.Path = path }
		own := s.pay("x", at)
		own.wantOwn(e, 201, fmt.Sprintf("%d x", i+1))
		s.pay("x", at).wantReplay(e, own)
	}
}

// onceRenamed retries a payment after a deployment that changed the pattern of the route.
func onceRenamed(e *env) {
	route := func(name string) func(*idempotency.Config) {
		return func(cfg *idempotency.Config) { cfg.Route = name }
	}
	for i, test := range []struct {
		before, after string
		// config changes both, and later only the later one.
		config, later []func(*idempotency.Config)
	}{
		{before: "/pay/{id}", after: "/pay/{payment}"},
		{before: "/pay/{id}", after: "/pay/{payment}", config: []func(*idempotency.Config){route("payments")}},
		{before: "/pay/{id}", after: "/{kind}/{id}", config: []func(*idempotency.Config){route("payments")}},
		{before: "/pay/{id}", after: "/{kind}/{id}", later: []func(*idempotency.Config){route("/pay/{}")}},
		{before: "/pay/{id}", after: "/pay/{rest...}"},
		{before: "/{kind}/{id}", after: "/pay/{id}", later: []func(*idempotency.Config){route("/{}/{}")}},
	} {
		c := &counter{}
		var downstream []string
		deploy := func(pattern string, change ...func(*idempotency.Config)) *site {
			locks := e.stranger() // another process
			routes := Route{Pattern: pattern, Once: []idempotency.Config{e.once(change...)}, Handler: func(w http.ResponseWriter, r *http.Request) {
				downstream = append(downstream, idempotency.DownstreamKey(r.Context(), "bank"))
				if r.Header.Get("X-Fail") != "" {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				c.ServeHTTP(w, r)
			}}
			return e.serveOn(locks, func(*Server) {}, routes)
		}
		s, next := deploy(test.before, test.config...), deploy(test.after, append(slices.Clone(test.config), test.later...)...)
		at := func(r *http.Request) {
			r.URL.Path = "/pay/1"
			r.Header.Set("Idempotency-Key", fmt.Sprint(key, i))
		}
		fails := with("X-Fail", "yes")
		s.pay("x", at, fails).wantOwn(e, 502, "")
		next.pay("x", at, fails).wantOwn(e, 502, "")
		if len(downstream) != 2 || downstream[0] != downstream[1] {
			e.Errorf("%s and %s have downstream keys %q", test.before, test.after, downstream)
		}
		first := s.pay("x", at)
		first.wantOwn(e, 201, "1 x")
		next.pay("x", at).wantReplay(e, first)
		c.want(e, 1)
	}
}

// onceForms sends one form several times. As with HTTP libraries, each time has a new boundary. The
// handler gets the whole form.
func onceForms(e *env) {
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		file, _, err := r.FormFile("upload")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(w, file)
		for _, values := range [][]string{r.MultipartForm.Value["0"], r.MultipartForm.Value["7"]} {
			fmt.Fprint(w, values)
		}
	})
	form := func(content string) func(*http.Request) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body) // a bytes.Buffer never fails
		for i := range 8 {
			_ = w.WriteField(strconv.Itoa(i), "first")
			_ = w.WriteField(strconv.Itoa(i), "second")
		}
		file, _ := w.CreateFormFile("upload", "some.bin")
		_, _ = io.WriteString(file, content)
		_ = w.Close()
		return func(r *http.Request) {
			*r = *s.paying(body.String())
			r.Header.Set("Content-Type", w.FormDataContentType())
		}
	}
	first := s.pay("", form("50"))
	first.wantOwn(e, 200, "50[first second][first second]")
	for range 3 {
		s.pay("", form("50")).wantReplay(e, first)
		s.pay("", form("70")).wantProblem(e, 422, "key-reused", "")
	}
	if runs.Load() != 1 {
		e.Errorf("the handler ran %d times, want once", runs.Load())
	}
}

func onceOptional(e *env) {
	c := &counter{}
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := idempotency.KeyFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			e.Errorf("KeyFrom reports %v", ok)
		}
		if _, ok := guard.LeaseFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			e.Errorf("LeaseFrom reports %v", ok)
		}
		c.ServeHTTP(w, r)
	}, func(cfg *idempotency.Config) { cfg.Optional = true })
	without := func(r *http.Request) { r.Header.Del("Idempotency-Key") }
	s.pay("x", without).wantOwn(e, 201, "1 x")
	s.pay("x", without).wantOwn(e, 201, "2 x")
	s.pay("x", with("Idempotency-Key", "")).wantProblem(e, 400, "key-invalid", "")
	first := s.pay("x")
	first.wantOwn(e, 201, "3 x")
	s.pay("x").wantReplay(e, first)
}

// onceTwice has the middleware twice, as on a group and on one of its routes.
func onceTwice(e *env) {
	c := &counter{}
	s := e.serve(Route{Pattern: orders, Once: []idempotency.Config{e.once(), e.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			e.Errorf("KeyFrom: %q, %v", got, ok)
		}
		if r.Header.Get("X-Secret") != "" {
			idempotency.NoStore(r.Context())
		}
		c.ServeHTTP(w, r)
	}})
	s.pay("x", with("X-Secret", "yes")).wantOwn(e, 201, "1 x")
	first := s.pay("x")
	first.wantOwn(e, 201, "2 x")
	s.pay("x").wantReplay(e, first)
}

// bothLayers is a route with idempotency, OutcomeRefuse among it, around a lock.
func (e *env) bothLayers(handler http.HandlerFunc, change ...func(*guard.Config)) Route {
	return Route{Pattern: orders, Once: []idempotency.Config{e.once(refuses, repeatsWait)}, Guards: []guard.Config{e.config(change...)}, Handler: handler}
}

// onceAroundLock holds the lock of the route as another process would. Its 409 frees the key for
// the same request, and a replay neither needs the lock nor takes it.
func onceAroundLock(e *env) {
	c := &counter{}
	s := e.serve(e.bothLayers(func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != lockName {
			e.Errorf("LeaseFrom: %v, %v", lease, ok)
		}
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			e.Errorf("KeyFrom: %q, %v", got, ok)
		}
		c.ServeHTTP(w, r)
	}))
	release := e.hold(lockName)
	for range 2 {
		a := s.pay("x")
		a.wantProblem(e, 409, "locked", "1")
		if a.header.Get("Idempotent-Replayed") != "" {
			e.Error("the 409 was recorded")
		}
	}
	s.pay("y").wantProblem(e, 422, "key-reused", "")
	c.want(e, 0)
	release()
	first := s.pay("x")
	first.wantOwn(e, 201, "1 x")
	e.wantFree(lockName)
	release = e.hold(lockName)
	s.pay("x").wantReplay(e, first)
	s.pay("x", with("Idempotency-Key", "another")).wantProblem(e, 409, "locked", "1")
	release()
	c.want(e, 1)
	if text := e.log.text(); text != "" {
		e.Errorf("logged: %s", text)
	}
}

// onceAroundWait repeats a request that waits for its lock. The repeats wait for that request, and
// not for the lock: they get its answer if the lock comes, and 409 run-failed if it does not.
func onceAroundWait(e *env) {
	c := &counter{}
	asks, wait := make(chan struct{}, 3), make(chan time.Duration, 1)
	s := e.serve(e.bothLayers(c.ServeHTTP, decidedBy(func(_ *http.Request, p *guard.Policy) error {
		p.Keys = []string{key}
		asks <- struct{}{}
		select {
		case p.WaitTime = <-wait:
		case <-e.Context().Done():
		}
		return nil
	})))
	waiting := func(n int) func() bool { return func() bool { return e.locks.Stats().Waiting == n } }
	repeats := func(change ...func(*http.Request)) (all []*pending) {
		for range 3 {
			all = append(all, s.start(s.paying("x", change...)))
		}
		return all
	}
	release := e.hold(lockName)
	wait <- 3 * patience
	first := s.start(s.paying("x"))
	await(e, "the first asks for the lock", asks)
	e.eventually("it waits for the lock", waiting(1))
	later := repeats()
	e.eventually("its repeats wait for it", waiting(4))
	release()
	done := first.answer()
	done.wantOwn(e, 201, "1 x")
	for _, p := range later {
		p.answer().wantReplay(e, done)
	}
	other := with("Idempotency-Key", "another")
	release = e.hold(lockName)
	first = s.start(s.paying("x", other))
	await(e, "the first asks for the lock", asks)
	before := e.scripts()
	later = repeats(other)
	e.eventually("its repeats wait for it", waiting(3))
	e.eventually("one of them has been refused", func() bool { return e.scripts() > before })
	wait <- time.Millisecond
	first.answer().wantProblem(e, 409, "wait-timeout", "1")
	for _, p := range later {
		p.answer().wantProblem(e, 409, "run-failed", "1")
	}
	release()
	wait <- 0
	s.pay("x", other).wantOwn(e, 201, "2 x")
	c.want(e, 2)
}

// onceAroundLoss ends the context of a handler by its lock. A handler that gives no answer then, or
// one that is not recorded, may have had an effect: with OutcomeRefuse, no repeat runs.
func onceAroundLoss(e *env) {
	// The handler answers with this status after the end, unless it is 0.
	var status int
	c := &counter{}
	answer := func(w http.ResponseWriter, r *http.Request, cause error) {
		c.runs.Add(1)
		await(e, "the context of the handler ends", r.Context().Done())
		e.wantErr("its cause", context.Cause(r.Context()), cause)
		if status != 0 {
			w.WriteHeader(status)
		}
	}
	lost := e.bothLayers(func(w http.ResponseWriter, r *http.Request) {
		e.rdb.Del(background, lockName)
		answer(w, r, core.ErrLockLost)
	})
	held := e.bothLayers(func(w http.ResponseWriter, r *http.Request) { answer(w, r, guard.ErrMaxHold) }, holdsFor)
	held.Pattern = "/items/{id}"
	s := e.serve(lost, held)
	for _, path := range []string{order, "/items/" + key} {
		for _, status = range []int{0, http.StatusBadGateway} {
			c.runs.Store(0)
			own := func(r *http.Request) {
				r.URL.Path = path
				r.Header.Set("Idempotency-Key", fmt.Sprint(key, path, status))
			}
			s.pay("x", own)
			s.pay("x", own).wantProblem(e, 409, "outcome-unknown", "")
			c.want(e, 1)
		}
	}
}

// onceInsideLock has the order that is not recommended: each guard logs it once. Locks of another
// purpose are not logged: those that have skipped the request, and those of an idempotent run.
func onceInsideLock(e *env) {
	c := &counter{}
	skips := decidedBy(func(_ *http.Request, p *guard.Policy) error {
		p.Skip = true
		return nil
	})
	inside := func(pattern string, once []idempotency.Config, changes ...func(*guard.Config)) Route {
		return Route{Pattern: pattern, Guards: []guard.Config{e.config(changes...)}, Once: once, Handler: c.ServeHTTP, lockOutside: true}
	}
	otherScope := e.once(func(cfg *idempotency.Config) { cfg.Scope = idempotency.ScopeGlobal })
	s := e.serve(
		inside(orders, []idempotency.Config{e.once(), otherScope}),
		inside("/items/{id}", []idempotency.Config{e.once()}),
		inside("/skips/{id}", []idempotency.Config{e.once()}, skips),
	)
	for _, path := range []string{order, "/items/" + key, "/skips/" + key} {
		at := func(r *http.Request) { r.URL.Path = path }
		first := s.pay("x", at)
		first.want(e, 201, fmt.Sprintf("%d x", c.runs.Load()))
		s.pay("x", at).wantReplay(e, first)
		release := e.hold(lockName)
		if a := s.pay("x", at); path == "/skips/"+key {
			a.wantReplay(e, first)
		} else {
			a.wantProblem(e, 409, "locked", "1")
		}
		release()
	}
	e.wantFree(lockName)
	text := e.log.text()
	if n := e.log.count("a lock is around the idempotency guard"); n != 2 || n != e.log.count("") {
		e.Errorf("%d lines about the order, want one for each of two guards:\n%s", n, text)
	}
	for _, part := range []string{"level=WARN", "method=POST", "mount idempotency outside the lock"} {
		if e.log.count(part) != 2 {
			e.Errorf("the log lacks %s:\n%s", part, text)
		}
	}
}

func onceHandler(e *env) {
	var downstream []string
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if got, ok := idempotency.KeyFrom(ctx); !ok || got != key {
			e.Errorf("KeyFrom: %q, %v", got, ok)
		}
		charge := idempotency.DownstreamKey(ctx, "stripe", "charge")
		if len(charge) != 64 || charge != idempotency.DownstreamKey(ctx, "stripe", "charge") ||
			charge == idempotency.DownstreamKey(ctx, "stripe", "refund") || charge == idempotency.DownstreamKey(ctx, "stripecharge") {
			e.Errorf("DownstreamKey: %q", charge)
		}
		downstream = append(downstream, charge)
		switch r.Header.Get("X-Do") {
		case "no-store":
			idempotency.NoStore(ctx)
		case "not-long":
			idempotency.StoreFor(ctx, 0)
		case "an-hour":
			idempotency.StoreFor(ctx, 3_600_000_000_000)
		}
		_, _ = io.WriteString(w, "done")
	})
	s.pay("x", with("X-Do", "no-store"), with("Idempotency-Key", `"`+key+`"`)).wantOwn(e, 200, "done")
	s.pay("x", with("X-Do", "not-long")).wantOwn(e, 200, "done")
	if names := e.records(); len(names) > 0 {
		e.Errorf("stored %q", names)
	}
	s.pay("x", with("X-Do", "an-hour")).wantOwn(e, 200, "done")
	if ttl := e.rdb.PTTL(background, e.record()).Val(); ttl <= 0 || ttl.Hours() > 1 {
		e.Errorf("the record lives for %s, want up to an hour", ttl)
	}
	s.pay("x", with("X-User", "bert")).wantOwn(e, 200, "done")
	if len(downstream) != 4 || downstream[0] != downstream[1] || downstream[1] != downstream[2] || downstream[2] == downstream[3] {
		e.Errorf("downstream keys %q", downstream)
	}
}

func onceStatus(e *env) {
	s := e.serveOnce(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, ran := range []bool{true, false} {
		s.pay("x").want(e, http.StatusCreated, "")
		if o := e.outcome(); o.Status != http.StatusCreated || o.Ran != ran || errors.Is(o.Err, idempotency.ErrReplayed) == ran {
			e.Errorf("the outcome is %+v, want status 201 and Ran %v", o, ran)
		}
	}
}

func onceInvalidConfig(e *env) {
	for says, test := range map[string]struct {
		locks *core.Client
		cfg   idempotency.Config
	}{
		"Scope is nil":             {e.locks, idempotency.Config{}},
		"there is no *core.Client": {nil, e.once()},
	} {
		route := Route{Pattern: orders, Once: []idempotency.Config{test.cfg}, Handler: func(http.ResponseWriter, *http.Request) {}}
		e.wantPanic(says, func() { e.serveOn(test.locks, func(*Server) {}, route) }, idempotency.ErrInvalidConfig, says)
	}
}
