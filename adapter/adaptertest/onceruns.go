package adaptertest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

var onceRuns = []scenario{
	{name: "once: a hundred equal requests at the same time", run: onceHundred},
	{name: "once: a repeat while the first runs", run: onceLocked},
	{name: "once: waiting for a run whose answer is not stored", run: onceWaitsThenRuns},
	{name: "once: a repeat whose WaitTime ends", run: onceWaitsInVain},
	{name: "once: one answer after another", run: onceSequential},
	{name: "once: commands", run: onceCommands},
	{name: "once: scopes, methods and routes of a key", run: onceScopes},
	{name: "once: the same key on other routes", run: onceRoutes},
	{name: "once: a route that is renamed", run: onceRenamed},
	{name: "once: key syntax", run: onceKeySyntax},
	{name: "once: Strict", run: onceStrict},
	{name: "once: Optional", run: onceOptional},
	{name: "once: Methods and Header", run: onceMethods},
	{name: "once: another request with the key", run: onceReused},
	{name: "once: fingerprints", run: onceFingerprints},
	{name: "once: large bodies", run: onceLargeBodies},
	{name: "once: a body over the limit", run: onceBodyTooLarge},
	{name: "once: a scope that refuses", run: onceScopeRefuses},
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

func onceWaitsThenRuns(e *env) {
	g := e.gate()
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
		g.ServeHTTP(w, r)
	}, repeatsWait)
	first := s.start(s.paying("{}"))
	inside := g.next()
	second := s.start(s.paying("{}"))
	e.eventually("the repeat waits", func() bool { return e.locks.Stats().Waiting == 1 })
	inside.leave()
	first.answer().wantOwn(e, 502, "done")
	g.next().leave()
	done := second.answer()
	done.wantOwn(e, 200, "done")
	s.pay("{}").wantReplay(e, done)
	g.wantRuns(2)
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

// The record is stored before the answer is sent, so a client with the answer can repeat the request.
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

// A run costs two commands, as with a guard, and a replay one.
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

// The same key is another one for another user and another method.
func onceScopes(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	first := s.pay("x")
	first.wantOwn(e, 201, "1 x")
	for i, other := range []func(*http.Request){
		with("X-User", "bert"),
		with("X-User", "ann"),
		with("X-User", "annaPOST"),
		func(r *http.Request) { r.Method = http.MethodPatch },
		with("Idempotency-Key", key+"1"),
		with("Idempotency-Key", strings.ToUpper(key)),
	} {
		own := s.pay("x", other)
		own.wantOwn(e, 201, fmt.Sprintf("%d x", i+2))
		s.pay("x", other).wantReplay(e, own)
	}
	s.pay("x").wantReplay(e, first)
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

// The retry of a payment comes to the next deployment, whose route has another pattern for the same path.
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
			return e.serveWith(func(srv *httptest.Server) { srv.Config.Handler = e.adapter.Router(locks, routes) })
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

func onceKeySyntax(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	long := strings.Repeat("k", 255)
	runs := int64(0)
	for _, same := range [][]string{
		{"abc", `"abc"`, " abc\t", ` "abc" `},
		{"a,b", `"a,b"`},
		{`a\b`, `"a\\b"`},
		{`"a\"b"`},
		{"!~", `"!~"`},
		{long, `"` + long + `"`},
		{"ABC"},
	} {
		runs++
		for _, value := range same {
			a := s.raw("X-User: anna\r\nIdempotency-Key: "+value+"\r\nContent-Length: 0\r\n", "")
			if a.want(e, 201, fmt.Sprintf("%d ", runs)); a.status != 201 {
				e.Errorf("of the key %.50q", value)
			}
		}
		c.want(e, runs)
	}
	for _, value := range []string{
		"", " ", `""`, `"`, `"abc`, `abc"`, `a"b`, `"abc"x`, `"abc";p=1`, `"a", "b"`, `"a\b"`, `"abc\"`, `"abc\`, "a b", `"a b"`, "a\tb",
		"k\u00e9y", "k\xffy", `"k` + "\u00e9" + `y"`, long + "k", `"` + long + `k"`,
	} {
		a := s.raw("X-User: anna\r\nIdempotency-Key: "+value+"\r\nContent-Length: 0\r\n", "")
		if a.wantProblem(e, 400, "key-invalid", ""); a.status != 400 {
			e.Errorf("of the key %.50q", value)
		}
	}
	s.raw("X-User: anna\r\nIdempotency-Key: abc\r\nIdempotency-Key: abc\r\nContent-Length: 0\r\n", "").wantProblem(e, 400, "key-invalid", "")
	s.raw("X-User: anna\r\nContent-Length: 0\r\n", "").wantProblem(e, 400, "key-missing", "")
	c.want(e, runs)
}

func onceStrict(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.Strict = true })
	s.pay("x").wantProblem(e, 400, "key-invalid", "")
	s.pay("x", with("Idempotency-Key", `"`+key+`"`)).wantOwn(e, 201, "1 x")
}

func onceOptional(e *env) {
	c := &counter{}
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := idempotency.KeyFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			e.Errorf("KeyFrom says %v", ok)
		}
		if _, ok := guard.LeaseFrom(r.Context()); ok != (r.Header.Get("Idempotency-Key") != "") {
			e.Errorf("LeaseFrom says %v", ok)
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

func onceMethods(e *env) {
	c := &counter{}
	s := e.serve(
		Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: c.ServeHTTP},
		Route{Pattern: "/put/{id}", Once: []idempotency.Config{e.once(func(cfg *idempotency.Config) {
			cfg.Methods, cfg.Header = []string{"PUT"}, "x-request-token"
		})}, Handler: c.ServeHTTP},
	)
	put := func(r *http.Request) {
		r.Method, r.URL.Path = "PUT", "/put/1"
		r.Header.Set("X-Request-Token", r.Header.Get("Idempotency-Key"))
		r.Header.Del("Idempotency-Key")
	}
	for i, test := range []struct {
		change func(*http.Request)
		once   bool
	}{
		{func(r *http.Request) { r.Method = "PUT" }, false},
		{func(r *http.Request) { r.Method = "DELETE" }, false},
		{func(r *http.Request) { r.URL.Path = "/put/1" }, false},
		{put, true},
		{func(r *http.Request) { r.Method = "PATCH" }, true},
	} {
		c.runs.Store(0)
		s.pay("x", test.change).wantOwn(e, 201, "1 x")
		again := s.pay("x", test.change)
		if replayed := again.header.Get("Idempotent-Replayed") == "true"; replayed != test.once {
			e.Errorf("request %d: replayed is %v", i, replayed)
		}
	}
}

func onceReused(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	first := s.pay(`{"amount":1}`)
	first.wantOwn(e, 201, `1 {"amount":1}`)
	for name, other := range map[string]func(*http.Request){
		"body":         func(r *http.Request) { *r = *s.paying(`{"amount":2}`) },
		"longer body":  func(r *http.Request) { *r = *s.paying(`{"amount":1} `) },
		"no body":      func(r *http.Request) { *r = *s.paying("") },
		"query":        func(r *http.Request) { r.URL.RawQuery = "currency=eur" },
		"path":         func(r *http.Request) { r.URL.Path = "/orders/other" },
		"Content-Type": with("Content-Type", "text/plain"),
		"no type":      func(r *http.Request) { r.Header.Del("Content-Type") },
		"encoding":     with("Content-Encoding", "br"),
	} {
		a := s.pay(`{"amount":1}`, other)
		if a.wantProblem(e, 422, "key-reused", ""); a.status != 422 {
			e.Errorf("of another %s", name)
		}
		s.pay(`{"amount":1}`).wantReplay(e, first)
	}
	s.pay(`{"amount":1}`, with("User-Agent", "another"), with("X-Other", "yes")).wantReplay(e, first)
	c.want(e, 1)
}

func onceFingerprints(e *env) {
	sum := func(f idempotency.Fingerprint) func(*idempotency.Config) {
		return func(cfg *idempotency.Config) { cfg.Fingerprint = f }
	}
	c := &counter{}
	for i, test := range []struct {
		fingerprint idempotency.Fingerprint
		same, other []string
	}{
		{idempotency.FingerprintJSON, []string{`{"a":1,"b":[1,"x"]}`, ` {"b": [1, "\u0078"], "a": 1}`}, []string{`{"a":1}`, `{"a":1,"b":[1,"y"]}`, "no JSON"}},
		{idempotency.FingerprintFields("/a", "/b/0"), []string{`{"a":1,"b":[2]}`, `{"b":[2,3],"a":1,"c":1}`}, []string{`{"a":1}`, `{"a":2,"b":[2]}`, "no JSON", ""}},
		{idempotency.FingerprintNone, []string{"this", "that", ""}, nil},
	} {
		path := fmt.Sprintf("/%d/{id}", i)
		s := e.serve(Route{Pattern: path, Once: []idempotency.Config{e.once(sum(test.fingerprint))}, Handler: c.ServeHTTP})
		at := func(r *http.Request) { r.URL.Path = fmt.Sprintf("/%d/1", i) }
		first := s.pay(test.same[0], at)
		first.wantOwn(e, 201, fmt.Sprintf("%d %s", i+1, test.same[0]))
		for _, body := range test.same {
			s.pay(body, at).wantReplay(e, first)
		}
		for _, body := range test.other {
			s.pay(body, at).wantProblem(e, 422, "key-reused", "")
		}
		s.pay(test.same[0], func(r *http.Request) { r.URL.Path = fmt.Sprintf("/%d/2", i) }).wantProblem(e, 422, "key-reused", "")
	}
	c.want(e, 3)
}

// 50 MB that differ in their last byte.
func onceLargeBodies(e *env) {
	const size = 50_000_000
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.MaxRequestBody = size })
	body := func(last string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, size-1), strings.NewReader(last)))
			r.ContentLength = size
		}
	}
	first := s.pay("", body("a"))
	first.wantOwn(e, 201, "1 a")
	s.pay("", body("b")).wantProblem(e, 422, "key-reused", "")
	s.pay("", body("a")).wantReplay(e, first)
	c.want(e, 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func onceBodyTooLarge(e *env) {
	c := &counter{}
	s := e.serve(
		Route{Pattern: orders, Once: []idempotency.Config{e.once(func(cfg *idempotency.Config) { cfg.MaxRequestBody = 10 })}, Handler: c.ServeHTTP},
		Route{Pattern: "/none/{id}", Once: []idempotency.Config{e.once(func(cfg *idempotency.Config) {
			cfg.MaxRequestBody, cfg.Fingerprint = 10, idempotency.FingerprintNone
		})}, Handler: c.ServeHTTP},
	)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, change := range []func(*http.Request){func(*http.Request) {}, chunked} {
		s.pay("eleven byte", change).wantProblem(e, 413, "body-too-large", "")
	}
	s.pay("just ten b", chunked).wantOwn(e, 201, "1 just ten b")
	s.pay("eleven byte", func(r *http.Request) { r.URL.Path = "/none/1" }).wantOwn(e, 201, "2 eleven byte")
}

func onceScopeRefuses(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) {
		cfg.Scope = func(r *http.Request) (string, error) {
			switch user := r.Header.Get("X-User"); user {
			case "nobody":
				return "", &guard.Error{Status: 401, Type: "urn:reqlock:problem:mine", Title: "Who are you?", Detail: "Log in."}
			case "broken":
				return "", fmt.Errorf("of user %w", keyfuncs.ErrInvalid)
			case "internal":
				return "", keyfuncs.ErrSkip
			default:
				return user, nil
			}
		}
	})
	s.pay("x", with("X-User", "")).wantProblem(e, 400, "key-missing", "")
	s.pay("x", with("X-User", "nobody")).wantProblem(e, 401, "mine", "")
	s.pay("x", with("X-User", "broken")).wantProblem(e, 400, "key-invalid", "")
	c.want(e, 0)
	s.pay("x", with("X-User", "internal")).wantOwn(e, 201, "1 x")
	s.pay("x", with("X-User", "internal")).wantOwn(e, 201, "2 x")
}

// A group and one of its routes may both have the middleware.
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
		e.wantPanic(says, func() { e.adapter.Router(test.locks, route) }, idempotency.ErrInvalidConfig, says)
	}
}
