package adaptertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// RunKeys runs the tests of which requests are repeats of each other: keys, scopes and
// fingerprints. They test idempotency and not its adapters, so that one adapter is enough.
func RunKeys(t *testing.T, a Adapter) {
	for _, s := range []scenario{
		{name: "scopes and methods of a key", run: onceScopes},
		{name: "key syntax", run: onceKeySyntax},
		{name: "Strict", run: onceStrict},
		{name: "Methods and Header", run: onceMethods},
		{name: "a scope that refuses", run: onceScopeRefuses},
		{name: "another request with the key", run: onceReused},
		{name: "fingerprints", run: onceFingerprints},
		{name: "conditions and ranges", run: onceConditions},
		{name: "large bodies", run: onceLargeBodies},
		{name: "a body over the limit", run: onceBodyTooLarge},
		{name: "a body over a limit that was higher", run: onceBodyLimitLowered},
		{name: "a quota of keys", run: onceQuota},
		{name: "how long errors are kept", run: onceErrorTTL},
		{name: "errors are not kept", run: onceStoresSuccess},
		{name: "records in a Redis of their own", run: onceOwnRedis},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(newEnv(t, a))
		})
	}
}

// onceBodyLimitLowered shows that a repeat whose body has become too large gets its answer, and nothing
// else runs.
func onceBodyLimitLowered(e *env) {
	large, c := strings.Repeat("x", 3000), &counter{}
	before := e.serveOnce(c.ServeHTTP)
	first := before.pay(large)
	after := e.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.MaxRequestBody = 1000 })
	after.pay(large).wantReplay(e, first)
	after.pay(large, func(r *http.Request) { r.ContentLength = -1 }).wantReplay(e, first) // chunked
	after.pay(large+"y").wantProblem(e, 422, "key-reused", "")
	after.pay(large, with("Idempotency-Key", "new")).wantProblem(e, 413, "body-too-large", "")
	after.pay("small").wantProblem(e, 422, "key-reused", "")
	c.want(e, 1)
}

// onceQuota shows that a scope may use so many keys, on all routes, and that known keys go on.
func onceQuota(e *env) {
	c := &counter{}
	limited := func(cfg *idempotency.Config) { cfg.MaxKeys, cfg.Route = 3, "route" }
	s := e.serve(
		Route{Pattern: orders, Once: []idempotency.Config{e.once(limited)}, Handler: c.ServeHTTP},
		Route{Pattern: "/other", Once: []idempotency.Config{e.once(limited, func(cfg *idempotency.Config) { cfg.Route = "other" })}, Handler: c.ServeHTTP},
	)
	named := func(n int) func(*http.Request) { return with("Idempotency-Key", fmt.Sprint("key-", n)) }
	first := s.pay("x", named(1))
	first.wantOwn(e, 201, "1 x")
	s.pay("x", named(2)).wantOwn(e, 201, "2 x")
	s.pay("x", named(3), to("/other")).wantOwn(e, 201, "3 x")
	s.pay("x", named(4)).wantProblem(e, 429, "key-quota", "60")
	s.pay("x", named(4), to("/other")).wantProblem(e, 429, "key-quota", "60")
	s.pay("x", named(1)).wantReplay(e, first)
	s.pay("y", named(1)).wantProblem(e, 422, "key-reused", "")
	s.pay("x", named(4), with("X-User", "bert")).wantOwn(e, 201, "4 x")
	if n := len(e.records()); n != 4 {
		e.Errorf("there are %d records, want 4", n)
	}
}

// onceErrorTTL shows that an answer of 4xx lives shorter than others, unless an earlier run of the
// key may have done something.
func onceErrorTTL(e *env) {
	for _, test := range []struct {
		statuses []int // one for each run
		says     func(idempotency.Report)
		minutes  float64
	}{
		{[]int{201}, nil, 60}, {[]int{303}, nil, 60}, {[]int{400}, nil, 5}, {[]int{422}, nil, 5},
		{[]int{422}, idempotency.Report.Done, 60}, {[]int{502, 422}, nil, 60},
	} {
		var runs atomic.Int64
		s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			if test.says != nil {
				test.says(idempotency.Outcome(r.Context()))
			}
			w.WriteHeader(test.statuses[runs.Add(1)-1])
		}, func(cfg *idempotency.Config) { cfg.TTL, cfg.ErrorTTL = time.Hour, 5*time.Minute })
		for range test.statuses {
			s.pay("x")
		}
		if left := e.rdb.PTTL(background, e.record()).Val(); left.Minutes() > test.minutes || left.Minutes() < test.minutes-4 {
			e.Errorf("after %v the record lives for %v, want %v minutes", test.statuses, left, test.minutes)
		}
		e.forgetKeys()
	}
}

func onceStoresSuccess(e *env) {
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader([]int{400, 422, 201}[runs.Add(1)-1])
	}, func(cfg *idempotency.Config) { cfg.Store = idempotency.StoreSuccess })
	s.pay("x").wantOwn(e, 400, "")
	s.pay("x").wantOwn(e, 422, "")
	done := s.pay("x")
	done.wantOwn(e, 201, "")
	s.pay("x").wantReplay(e, done)
}

// onceOwnRedis has locks in one Redis, and records in another one.
func onceOwnRedis(e *env) {
	other := redistest.Start(e.T)
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.Locks = e.client(other.Addr(), core.Options{}) })
	first := s.pay("x")
	first.wantOwn(e, 201, "1 x")
	s.pay("x").wantReplay(e, first)
	if names := e.records(); len(names) > 0 {
		e.Errorf("left in the Redis of the locks: %q", names)
	}
	if n := len(other.Client(e.T).Keys(background, "*:record").Val()); n != 1 {
		e.Errorf("there are %d records in the other Redis, want 1", n)
	}
}

// onceScopes shows that a key is independent for each user and method.
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
				e.Errorf("with the key %.50q", value)
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
			e.Errorf("with the key %.50q", value)
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
		"condition":    with("If-Match", `"v1"`),
		"range":        with("Range", "bytes=0-1"),
		"Accept":       with("Accept", "text/csv"),
	} {
		a := s.pay(`{"amount":1}`, other)
		if a.wantProblem(e, 422, "key-reused", ""); a.status != 422 {
			e.Errorf("with another %s", name)
		}
		s.pay(`{"amount":1}`).wantReplay(e, first)
	}
	s.pay(`{"amount":1}`, with("User-Agent", "another"), with("X-Other", "yes"), with("Accept-Language", "de")).wantReplay(e, first)
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

// onceConditions has a resource that changes, and one of which clients get a part. The answer to one
// condition or range is never the answer to another.
func onceConditions(e *env) {
	var runs atomic.Int64
	var version atomic.Pointer[string]
	current := func(v string) { version.Store(&v) }
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		switch {
		case r.Header.Get("Range") != "":
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "pa")
		case r.Header.Get("If-Match") != *version.Load():
			w.WriteHeader(http.StatusPreconditionFailed)
		default:
			_, _ = io.WriteString(w, "paid")
		}
	})
	wantRuns := func(want int64) {
		e.Helper()
		if got := runs.Swap(0); got != want {
			e.Errorf("the handler ran %d times, want %d", got, want)
		}
	}
	v1, v2 := with("If-Match", "v1"), with("If-Match", "v2")
	current("v0")
	s.pay("x", v1).wantOwn(e, 412, "")
	s.pay("x", v1).wantOwn(e, 412, "")
	wantRuns(2)
	current("v1")
	done := s.pay("x", v1)
	done.wantOwn(e, 200, "paid")
	current("v2")
	s.pay("x", v1).wantReplay(e, done)
	s.pay("x", v2).wantProblem(e, 422, "key-reused", "")
	s.pay("x").wantProblem(e, 422, "key-reused", "")
	wantRuns(1)

	bert, part := with("X-User", "bert"), with("Range", "bytes=0-1")
	first := s.pay("x", bert, part)
	first.wantOwn(e, 206, "pa")
	s.pay("x", bert, part).wantReplay(e, first)
	s.pay("x", bert).wantProblem(e, 422, "key-reused", "")
	s.pay("x", bert, with("Range", "bytes=2-3")).wantProblem(e, 422, "key-reused", "")
	wantRuns(1)
}

// onceLargeBodies has bodies of 50 MB that differ in their last byte.
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
			case "anonymous":
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
	s.pay("x", with("X-User", "anonymous")).wantProblem(e, 401, "mine", "")
	s.pay("x", with("X-User", "broken")).wantProblem(e, 400, "key-invalid", "")
	c.want(e, 0)
	s.pay("x", with("X-User", "internal")).wantOwn(e, 201, "1 x")
	s.pay("x", with("X-User", "internal")).wantOwn(e, 201, "2 x")
}
