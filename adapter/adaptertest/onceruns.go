package adaptertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/middleware/idempotency"
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
	{name: "once: inside a guard, and around one", run: onceGuarded},
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
	count := func() int {
		stats := e.rdb.InfoMap(background, "commandstats").Val()["Commandstats"]
		n, _ := strconv.Atoi(regexp.MustCompile(`calls=(\d+)`).FindStringSubmatch(stats["cmdstat_evalsha"])[1])
		return n
	}
	for i, want := range []int{2, 1, 1} {
		before := count()
		s.pay("{}")
		if got := count() - before; got != want {
			e.Errorf("request %d has cost %d scripts, want %d", i, got, want)
		}
	}
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
		config        []func(*idempotency.Config) // of both
		later         []func(*idempotency.Config) // of the later one
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

// onceForms sends a form again, each time with a boundary of its own, as HTTP libraries do. The
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

func onceGuarded(e *env) {
	c := &counter{}
	s := e.serve(Route{Pattern: orders, Guards: []guard.Config{e.config()}, Once: []idempotency.Config{e.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		e.wantHeld(lockName)
		lease, ok := guard.LeaseFrom(r.Context())
		if !ok || lease.Name() == lockName || lease.Err() != nil {
			e.Errorf("LeaseFrom: %v, %v", lease, ok)
		}
		c.ServeHTTP(w, r)
	}})
	first := s.pay("x")
	first.wantOwn(e, 201, "1 x")
	s.pay("x").wantReplay(e, first)
	e.wantFree(lockName)
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
