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
	{name: "once: around a lock that is lost, or ends by MaxHold", run: onceAroundLoss, setup: []func(*setup){watchdogTimeout(4 * time.Second)}},
	{name: "once: inside a lock works, and is logged once", run: onceInsideLock},
	{name: "once: KeyFrom, DownstreamKey, NoStore and StoreFor", run: onceHandler},
	{name: "once: the status in an Outcome", run: onceStatus},
	{name: "once: a Config that can never work panics", run: onceInvalidConfig},
}

func onceHundred(fx *fixture) {
	const n = 100
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP, repeatsWait)
	var all []*pendingRequest
	for range n {
		all = append(all, s.start(s.newRequestWithKey("{}")))
	}
	inside := g.nextRun()
	fx.eventually("the repeats wait", func() bool { return fx.locks.Stats().Waiting == n-1 })
	inside.finish()
	replayed := 0
	for _, p := range all {
		a := p.mustGetAnswer()
		a.want(fx, 200, "done")
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	g.wantRuns(1)
	if replayed != n-1 {
		fx.Errorf("%d answers are replays, want %d", replayed, n-1)
	}
	if got := fx.outcomesOf(n); got["200"] != n-1 || got["ran"] != 1 {
		fx.Errorf("the outcomes are %v", got)
	}
}

func onceLocked(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP)
	first := s.start(s.newRequestWithKey("{}"))
	inside := g.nextRun()
	s.postWithKey("{}").wantProblem(fx, 409, "locked", "1")
	s.postWithKey("{}", with("X-User", "bert"), with("Idempotency-Key", "")).wantProblem(fx, 400, "key-invalid", "")
	inside.finish()
	done := first.mustGetAnswer()
	done.wantOwn(fx, 200, "done")
	s.postWithKey("{}").wantReplay(fx, done)
	g.wantRuns(1)
	if text := fx.log.text(); text != "" {
		fx.Errorf("logged: %s", text)
	}
}

func onceWaitsInVain(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP, func(cfg *idempotency.Config) { cfg.WaitTime = time.Millisecond })
	first := s.start(s.newRequestWithKey("{}"))
	inside := g.nextRun()
	s.postWithKey("{}").wantProblem(fx, 409, "wait-timeout", "1")
	inside.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	g.wantRuns(1)
}

// onceSequential repeats a request as soon as the client has the answer: the record is stored by
// then.
func onceSequential(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	for i := range 100 {
		other := with("Idempotency-Key", strconv.Itoa(i))
		first := s.postWithKey("x", other)
		first.wantOwn(fx, 201, fmt.Sprintf("%d x", i+1))
		s.postWithKey("x", other).wantReplay(fx, first)
	}
}

// onceCommands counts two commands for a run, as for a guard, and one for a replay. The client may ask
// something in the background meanwhile, such as when its subscription is confirmed, so the least counts.
func onceCommands(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	cost := func(key string) int {
		before := fx.scripts()
		s.postWithKey("{}", with("Idempotency-Key", key))
		return fx.scripts() - before
	}
	s.postWithKey("the scripts are loaded", with("Idempotency-Key", "warm"))
	s.postWithKey("the scripts are loaded", with("Idempotency-Key", "warm"))
	run, replay := cost("a"), cost("a")
	for _, key := range []string{"b", "c", "d"} {
		run, replay = min(run, cost(key)), min(replay, cost(key))
	}
	if run != 2 || replay != 1 {
		fx.Errorf("a run has cost %d scripts and a replay %d, want 2 and 1", run, replay)
	}
}

// scripts returns how many scripts Redis has run.
func (fx *fixture) scripts() int {
	stats := fx.rdb.InfoMap(background, "commandstats").Val()["Commandstats"]
	n, _ := strconv.Atoi(regexp.MustCompile(`calls=(\d+)`).FindStringSubmatch(stats["cmdstat_evalsha"])[1])
	return n
}

func onceRoutes(fx *fixture) {
	c := &counter{}
	var routes []Route
	paths := []string{order, "/orders/" + key + "/pay", "/invoices/" + key, "/orders"}
	for _, pattern := range []string{orders, orders + "/pay", "/invoices/{id}", "/orders"} {
		routes = append(routes, Route{Pattern: pattern, Once: []idempotency.Config{fx.once()}, Handler: c.ServeHTTP})
	}
	s := fx.serve(routes...)
	for i, path := range paths {
		at := func(r *http.Request) { r.URL.Path = path }
		own := s.postWithKey("x", at)
		own.wantOwn(fx, 201, fmt.Sprintf("%d x", i+1))
		s.postWithKey("x", at).wantReplay(fx, own)
	}
}

// onceRenamed retries a payment after a deployment that changed the pattern of the route.
func onceRenamed(fx *fixture) {
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
		deploy := func(pattern string, change ...func(*idempotency.Config)) *testServer {
			locks := fx.newOtherLocks() // another process
			routes := Route{Pattern: pattern, Once: []idempotency.Config{fx.once(change...)}, Handler: func(w http.ResponseWriter, r *http.Request) {
				downstream = append(downstream, idempotency.DownstreamKey(r.Context(), "bank"))
				if r.Header.Get("X-Fail") != "" {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				c.ServeHTTP(w, r)
			}}
			return fx.serveOn(locks, func(*Server) {}, routes)
		}
		s, next := deploy(test.before, test.config...), deploy(test.after, append(slices.Clone(test.config), test.later...)...)
		at := func(r *http.Request) {
			r.URL.Path = "/pay/1"
			r.Header.Set("Idempotency-Key", fmt.Sprint(key, i))
		}
		fails := with("X-Fail", "yes")
		s.postWithKey("x", at, fails).wantOwn(fx, 502, "")
		next.postWithKey("x", at, fails).wantOwn(fx, 502, "")
		if len(downstream) != 2 || downstream[0] != downstream[1] {
			fx.Errorf("%s and %s have downstream keys %q", test.before, test.after, downstream)
		}
		first := s.postWithKey("x", at)
		first.wantOwn(fx, 201, "1 x")
		next.postWithKey("x", at).wantReplay(fx, first)
		c.want(fx, 1)
	}
}

// onceForms sends one form several times. As with HTTP libraries, each time has a new boundary. The
// handler gets the whole form.
func onceForms(fx *fixture) {
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
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
			*r = *s.newRequestWithKey(body.String())
			r.Header.Set("Content-Type", w.FormDataContentType())
		}
	}
	first := s.postWithKey("", form("50"))
	first.wantOwn(fx, 200, "50[first second][first second]")
	for range 3 {
		s.postWithKey("", form("50")).wantReplay(fx, first)
		s.postWithKey("", form("70")).wantProblem(fx, 422, "key-reused", "")
	}
	if runs.Load() != 1 {
		fx.Errorf("the handler ran %d times, want once", runs.Load())
	}
}

func onceOptional(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := idempotency.KeyFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			fx.Errorf("KeyFrom reports %v", ok)
		}
		if _, ok := guard.LeaseFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			fx.Errorf("LeaseFrom reports %v", ok)
		}
		c.ServeHTTP(w, r)
	}, func(cfg *idempotency.Config) { cfg.Optional = true })
	without := func(r *http.Request) { r.Header.Del("Idempotency-Key") }
	s.postWithKey("x", without).wantOwn(fx, 201, "1 x")
	s.postWithKey("x", without).wantOwn(fx, 201, "2 x")
	s.postWithKey("x", with("Idempotency-Key", "")).wantProblem(fx, 400, "key-invalid", "")
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "3 x")
	s.postWithKey("x").wantReplay(fx, first)
}

// onceTwice has the middleware twice, as on a group and on one of its routes.
func onceTwice(fx *fixture) {
	c := &counter{}
	s := fx.serve(Route{Pattern: orders, Once: []idempotency.Config{fx.once(), fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			fx.Errorf("KeyFrom: %q, %v", got, ok)
		}
		if r.Header.Get("X-Secret") != "" {
			idempotency.NoStore(r.Context())
		}
		c.ServeHTTP(w, r)
	}})
	s.postWithKey("x", with("X-Secret", "yes")).wantOwn(fx, 201, "1 x")
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "2 x")
	s.postWithKey("x").wantReplay(fx, first)
}

// bothLayers is a route with idempotency, OutcomeRefuse among it, around a lock.
func (fx *fixture) bothLayers(handler http.HandlerFunc, change ...func(*guard.Config)) Route {
	return Route{Pattern: orders, Once: []idempotency.Config{fx.once(refuses, repeatsWait)}, Guards: []guard.Config{fx.config(change...)}, Handler: handler}
}

// onceAroundLock holds the lock of the route as another process would. Its 409 frees the key for
// the same request, and a replay neither needs the lock nor takes it.
func onceAroundLock(fx *fixture) {
	c := &counter{}
	s := fx.serve(fx.bothLayers(func(w http.ResponseWriter, r *http.Request) {
		fx.wantHeld(lockName)
		if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != lockName {
			fx.Errorf("LeaseFrom: %v, %v", lease, ok)
		}
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			fx.Errorf("KeyFrom: %q, %v", got, ok)
		}
		c.ServeHTTP(w, r)
	}))
	release := fx.mustHold(lockName)
	for range 2 {
		a := s.postWithKey("x")
		a.wantProblem(fx, 409, "locked", "1")
		if a.header.Get("Idempotent-Replayed") != "" {
			fx.Error("the 409 was recorded")
		}
	}
	s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
	c.want(fx, 0)
	release()
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "1 x")
	fx.wantFree(lockName)
	release = fx.mustHold(lockName)
	s.postWithKey("x").wantReplay(fx, first)
	s.postWithKey("x", with("Idempotency-Key", "another")).wantProblem(fx, 409, "locked", "1")
	release()
	c.want(fx, 1)
	if text := fx.log.text(); text != "" {
		fx.Errorf("logged: %s", text)
	}
}

// onceAroundWait repeats a request that waits for its lock. The repeats wait for that request, and
// not for the lock: they get its answer if the lock comes, and 409 run-failed if it does not.
func onceAroundWait(fx *fixture) {
	c := &counter{}
	asks, wait := make(chan struct{}, 3), make(chan time.Duration, 1)
	s := fx.serve(fx.bothLayers(c.ServeHTTP, decidedBy(func(_ *http.Request, p *guard.Policy) error {
		p.Keys = []string{key}
		asks <- struct{}{}
		select {
		case p.WaitTime = <-wait:
		case <-fx.Context().Done():
		}
		return nil
	})))
	waiting := func(n int) func() bool { return func() bool { return fx.locks.Stats().Waiting == n } }
	repeats := func(change ...func(*http.Request)) (all []*pendingRequest) {
		for range 3 {
			all = append(all, s.start(s.newRequestWithKey("x", change...)))
		}
		return all
	}
	release := fx.mustHold(lockName)
	wait <- 3 * patience
	first := s.start(s.newRequestWithKey("x"))
	mustReceive(fx, "the first asks for the lock", asks)
	fx.eventually("it waits for the lock", waiting(1))
	later := repeats()
	fx.eventually("its repeats wait for it", waiting(4))
	release()
	done := first.mustGetAnswer()
	done.wantOwn(fx, 201, "1 x")
	for _, p := range later {
		p.mustGetAnswer().wantReplay(fx, done)
	}
	other := with("Idempotency-Key", "another")
	release = fx.mustHold(lockName)
	first = s.start(s.newRequestWithKey("x", other))
	mustReceive(fx, "the first asks for the lock", asks)
	before := fx.asleep.Load()
	later = repeats(other)
	fx.eventually("its repeats wait for it", func() bool { return fx.asleep.Load()-before == 3 })
	wait <- time.Millisecond
	first.mustGetAnswer().wantProblem(fx, 409, "wait-timeout", "1")
	for _, p := range later {
		p.mustGetAnswer().wantProblem(fx, 409, "run-failed", "1")
	}
	release()
	wait <- 0
	s.postWithKey("x", other).wantOwn(fx, 201, "2 x")
	c.want(fx, 2)
}

// onceAroundLoss ends the context of a handler by its lock. A handler that gives no answer then, or
// one that is not recorded, may have had an effect: with OutcomeRefuse, no repeat runs.
func onceAroundLoss(fx *fixture) {
	// The handler answers with this status after the end, unless it is 0.
	var status int
	c := &counter{}
	answer := func(w http.ResponseWriter, r *http.Request, cause error) {
		c.runs.Add(1)
		mustReceive(fx, "the context of the handler ends", r.Context().Done())
		fx.wantErr("its cause", context.Cause(r.Context()), cause)
		if status != 0 {
			w.WriteHeader(status)
		}
	}
	lost := fx.bothLayers(func(w http.ResponseWriter, r *http.Request) {
		fx.rdb.Del(background, lockName)
		answer(w, r, core.ErrLockLost)
	})
	held := fx.bothLayers(func(w http.ResponseWriter, r *http.Request) { answer(w, r, guard.ErrMaxHold) }, holdsFor)
	held.Pattern = "/items/{id}"
	s := fx.serve(lost, held)
	for _, path := range []string{order, "/items/" + key} {
		for _, status = range []int{0, http.StatusBadGateway} {
			c.runs.Store(0)
			own := func(r *http.Request) {
				r.URL.Path = path
				r.Header.Set("Idempotency-Key", fmt.Sprint(key, path, status))
			}
			s.postWithKey("x", own)
			s.postWithKey("x", own).wantProblem(fx, 409, "outcome-unknown", "")
			c.want(fx, 1)
		}
	}
}

// onceInsideLock has the order that is not recommended: each guard logs it once. Locks of another
// purpose are not logged: those that have skipped the request, and those of an idempotent run.
func onceInsideLock(fx *fixture) {
	c := &counter{}
	skips := decidedBy(func(_ *http.Request, p *guard.Policy) error {
		p.Skip = true
		return nil
	})
	inside := func(pattern string, once []idempotency.Config, changes ...func(*guard.Config)) Route {
		return Route{Pattern: pattern, Guards: []guard.Config{fx.config(changes...)}, Once: once, Handler: c.ServeHTTP, lockOutside: true}
	}
	otherScope := fx.once(func(cfg *idempotency.Config) { cfg.Scope = idempotency.ScopeGlobal })
	s := fx.serve(
		inside(orders, []idempotency.Config{fx.once(), otherScope}),
		inside("/items/{id}", []idempotency.Config{fx.once()}),
		inside("/skips/{id}", []idempotency.Config{fx.once()}, skips),
	)
	for _, path := range []string{order, "/items/" + key, "/skips/" + key} {
		at := func(r *http.Request) { r.URL.Path = path }
		first := s.postWithKey("x", at)
		first.want(fx, 201, fmt.Sprintf("%d x", c.runs.Load()))
		s.postWithKey("x", at).wantReplay(fx, first)
		release := fx.mustHold(lockName)
		if a := s.postWithKey("x", at); path == "/skips/"+key {
			a.wantReplay(fx, first)
		} else {
			a.wantProblem(fx, 409, "locked", "1")
		}
		release()
	}
	fx.wantFree(lockName)
	text := fx.log.text()
	if n := fx.log.count("a lock is around the idempotency guard"); n != 2 || n != fx.log.count("") {
		fx.Errorf("%d lines about the order, want one for each of two guards:\n%s", n, text)
	}
	for _, part := range []string{"level=WARN", "method=POST", "mount idempotency outside the lock"} {
		if fx.log.count(part) != 2 {
			fx.Errorf("the log lacks %s:\n%s", part, text)
		}
	}
}

func onceHandler(fx *fixture) {
	var downstream []string
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if got, ok := idempotency.KeyFrom(ctx); !ok || got != key {
			fx.Errorf("KeyFrom: %q, %v", got, ok)
		}
		charge := idempotency.DownstreamKey(ctx, "stripe", "charge")
		if len(charge) != 64 || charge != idempotency.DownstreamKey(ctx, "stripe", "charge") ||
			charge == idempotency.DownstreamKey(ctx, "stripe", "refund") || charge == idempotency.DownstreamKey(ctx, "stripecharge") {
			fx.Errorf("DownstreamKey: %q", charge)
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
	s.postWithKey("x", with("X-Do", "no-store"), with("Idempotency-Key", `"`+key+`"`)).wantOwn(fx, 200, "done")
	s.postWithKey("x", with("X-Do", "not-long")).wantOwn(fx, 200, "done")
	if names := fx.records(); len(names) > 0 {
		fx.Errorf("stored %q", names)
	}
	s.postWithKey("x", with("X-Do", "an-hour")).wantOwn(fx, 200, "done")
	if ttl := fx.rdb.PTTL(background, fx.record()).Val(); ttl <= 0 || ttl.Hours() > 1 {
		fx.Errorf("the record lives for %s, want up to an hour", ttl)
	}
	s.postWithKey("x", with("X-User", "bert")).wantOwn(fx, 200, "done")
	if len(downstream) != 4 || downstream[0] != downstream[1] || downstream[1] != downstream[2] || downstream[2] == downstream[3] {
		fx.Errorf("downstream keys %q", downstream)
	}
}

func onceStatus(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, ran := range []bool{true, false} {
		s.postWithKey("x").want(fx, http.StatusCreated, "")
		if o := fx.outcome(); o.Status != http.StatusCreated || o.Ran != ran || errors.Is(o.Err, idempotency.ErrReplayed) == ran {
			fx.Errorf("the outcome is %+v, want status 201 and Ran %v", o, ran)
		}
	}
}

func onceInvalidConfig(fx *fixture) {
	for says, test := range map[string]struct {
		locks *core.Client
		cfg   idempotency.Config
	}{
		"Scope is nil":             {fx.locks, idempotency.Config{}},
		"there is no *core.Client": {nil, fx.once()},
	} {
		route := Route{Pattern: orders, Once: []idempotency.Config{test.cfg}, Handler: func(http.ResponseWriter, *http.Request) {}}
		fx.wantPanic(says, func() { fx.serveOn(test.locks, func(*Server) {}, route) }, idempotency.ErrInvalidConfig, says)
	}
}
