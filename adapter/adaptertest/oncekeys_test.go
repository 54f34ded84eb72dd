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
			s.run(newFixture(t, a))
		})
	}
}

// onceBodyLimitLowered shows that a repeat whose body has become too large gets its answer, and
// nothing else runs.
func onceBodyLimitLowered(fx *fixture) {
	large, c := strings.Repeat("x", 3000), &counter{}
	before := fx.serveOnce(c.ServeHTTP)
	first := before.postWithKey(large)
	after := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.MaxRequestBody = 1000 })
	after.postWithKey(large).wantReplay(fx, first)
	after.postWithKey(large, func(r *http.Request) { r.ContentLength = -1 }).wantReplay(fx, first) // chunked
	after.postWithKey(large+"y").wantProblem(fx, 422, "key-reused", "")
	after.postWithKey(large, with("Idempotency-Key", "new")).wantProblem(fx, 413, "body-too-large", "")
	after.postWithKey("small").wantProblem(fx, 422, "key-reused", "")
	c.want(fx, 1)
}

// onceQuota shows that a scope may use so many keys, on all routes, and that known keys go on.
func onceQuota(fx *fixture) {
	c := &counter{}
	limited := func(cfg *idempotency.Config) { cfg.MaxKeys, cfg.Route = 3, "route" }
	s := fx.serve(
		Route{Pattern: orders, Once: []idempotency.Config{fx.once(limited)}, Handler: c.ServeHTTP},
		Route{Pattern: "/other", Once: []idempotency.Config{fx.once(limited, func(cfg *idempotency.Config) { cfg.Route = "other" })}, Handler: c.ServeHTTP},
	)
	named := func(n int) func(*http.Request) { return with("Idempotency-Key", fmt.Sprint("key-", n)) }
	first := s.postWithKey("x", named(1))
	first.wantOwn(fx, 201, "1 x")
	s.postWithKey("x", named(2)).wantOwn(fx, 201, "2 x")
	s.postWithKey("x", named(3), to("/other")).wantOwn(fx, 201, "3 x")
	s.postWithKey("x", named(4)).wantProblem(fx, 429, "key-quota", "60")
	s.postWithKey("x", named(4), to("/other")).wantProblem(fx, 429, "key-quota", "60")
	s.postWithKey("x", named(1)).wantReplay(fx, first)
	s.postWithKey("y", named(1)).wantProblem(fx, 422, "key-reused", "")
	s.postWithKey("x", named(4), with("X-User", "bert")).wantOwn(fx, 201, "4 x")
	if n := len(fx.records()); n != 4 {
		fx.Errorf("there are %d records, want 4", n)
	}
}

// onceErrorTTL shows that an answer of 4xx lives shorter than others, unless an earlier run of the
// key may have done something.
func onceErrorTTL(fx *fixture) {
	for _, test := range []struct {
		statuses []int // one for each run
		says     func(idempotency.Report)
		minutes  float64
	}{
		{[]int{201}, nil, 60}, {[]int{303}, nil, 60}, {[]int{400}, nil, 5}, {[]int{422}, nil, 5},
		{[]int{422}, idempotency.Report.Done, 60}, {[]int{502, 422}, nil, 60},
	} {
		var runs atomic.Int64
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			if test.says != nil {
				test.says(idempotency.Outcome(r.Context()))
			}
			w.WriteHeader(test.statuses[runs.Add(1)-1])
		}, func(cfg *idempotency.Config) { cfg.TTL, cfg.ErrorTTL = time.Hour, 5*time.Minute })
		for range test.statuses {
			s.postWithKey("x")
		}
		if left := fx.rdb.PTTL(background, fx.record()).Val(); left.Minutes() > test.minutes || left.Minutes() < test.minutes-4 {
			fx.Errorf("after %v the record lives for %v, want %v minutes", test.statuses, left, test.minutes)
		}
		fx.forgetKeys()
	}
}

func onceStoresSuccess(fx *fixture) {
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader([]int{400, 422, 201}[runs.Add(1)-1])
	}, func(cfg *idempotency.Config) { cfg.Store = idempotency.StoreSuccess })
	s.postWithKey("x").wantOwn(fx, 400, "")
	s.postWithKey("x").wantOwn(fx, 422, "")
	done := s.postWithKey("x")
	done.wantOwn(fx, 201, "")
	s.postWithKey("x").wantReplay(fx, done)
}

// onceOwnRedis has locks in one Redis, and records in another one.
func onceOwnRedis(fx *fixture) {
	other := redistest.Start(fx.T)
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.Locks = fx.newLocks(other.Addr(), core.Options{}) })
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "1 x")
	s.postWithKey("x").wantReplay(fx, first)
	if names := fx.records(); len(names) > 0 {
		fx.Errorf("left in the Redis of the locks: %q", names)
	}
	if n := len(other.Client(fx.T).Keys(background, "*:record").Val()); n != 1 {
		fx.Errorf("there are %d records in the other Redis, want 1", n)
	}
}

// onceScopes shows that a key is independent for each user and method.
func onceScopes(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "1 x")
	for i, other := range []func(*http.Request){
		with("X-User", "bert"),
		with("X-User", "ann"),
		with("X-User", "annaPOST"),
		func(r *http.Request) { r.Method = http.MethodPatch },
		with("Idempotency-Key", key+"1"),
		with("Idempotency-Key", strings.ToUpper(key)),
	} {
		own := s.postWithKey("x", other)
		own.wantOwn(fx, 201, fmt.Sprintf("%d x", i+2))
		s.postWithKey("x", other).wantReplay(fx, own)
	}
	s.postWithKey("x").wantReplay(fx, first)
}

func onceKeySyntax(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
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
			if a.want(fx, 201, fmt.Sprintf("%d ", runs)); a.status != 201 {
				fx.Errorf("with the key %.50q", value)
			}
		}
		c.want(fx, runs)
	}
	for _, value := range []string{
		"", " ", `""`, `"`, `"abc`, `abc"`, `a"b`, `"abc"x`, `"abc";p=1`, `"a", "b"`, `"a\b"`, `"abc\"`, `"abc\`, "a b", `"a b"`, "a\tb",
		"k\u00e9y", "k\xffy", `"k` + "\u00e9" + `y"`, long + "k", `"` + long + `k"`,
	} {
		a := s.raw("X-User: anna\r\nIdempotency-Key: "+value+"\r\nContent-Length: 0\r\n", "")
		if a.wantProblem(fx, 400, "key-invalid", ""); a.status != 400 {
			fx.Errorf("with the key %.50q", value)
		}
	}
	s.raw("X-User: anna\r\nIdempotency-Key: abc\r\nIdempotency-Key: abc\r\nContent-Length: 0\r\n", "").wantProblem(fx, 400, "key-invalid", "")
	s.raw("X-User: anna\r\nContent-Length: 0\r\n", "").wantProblem(fx, 400, "key-missing", "")
	c.want(fx, runs)
}

func onceStrict(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.Strict = true })
	s.postWithKey("x").wantProblem(fx, 400, "key-invalid", "")
	s.postWithKey("x", with("Idempotency-Key", `"`+key+`"`)).wantOwn(fx, 201, "1 x")
}

func onceMethods(fx *fixture) {
	c := &counter{}
	s := fx.serve(
		Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: c.ServeHTTP},
		Route{Pattern: "/put/{id}", Once: []idempotency.Config{fx.once(func(cfg *idempotency.Config) {
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
		s.postWithKey("x", test.change).wantOwn(fx, 201, "1 x")
		again := s.postWithKey("x", test.change)
		if replayed := again.header.Get("Idempotent-Replayed") == "true"; replayed != test.once {
			fx.Errorf("request %d: replayed is %v", i, replayed)
		}
	}
}

func onceReused(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	first := s.postWithKey(`{"amount":1}`)
	first.wantOwn(fx, 201, `1 {"amount":1}`)
	for name, other := range map[string]func(*http.Request){
		"body":         func(r *http.Request) { *r = *s.newRequestWithKey(`{"amount":2}`) },
		"longer body":  func(r *http.Request) { *r = *s.newRequestWithKey(`{"amount":1} `) },
		"no body":      func(r *http.Request) { *r = *s.newRequestWithKey("") },
		"query":        func(r *http.Request) { r.URL.RawQuery = "currency=eur" },
		"path":         func(r *http.Request) { r.URL.Path = "/orders/other" },
		"Content-Type": with("Content-Type", "text/plain"),
		"no type":      func(r *http.Request) { r.Header.Del("Content-Type") },
		"encoding":     with("Content-Encoding", "br"),
		"condition":    with("If-Match", `"v1"`),
		"range":        with("Range", "bytes=0-1"),
		"Accept":       with("Accept", "text/csv"),
	} {
		a := s.postWithKey(`{"amount":1}`, other)
		if a.wantProblem(fx, 422, "key-reused", ""); a.status != 422 {
			fx.Errorf("with another %s", name)
		}
		s.postWithKey(`{"amount":1}`).wantReplay(fx, first)
	}
	s.postWithKey(`{"amount":1}`, with("User-Agent", "another"), with("X-Other", "yes"), with("Accept-Language", "de")).wantReplay(fx, first)
	c.want(fx, 1)
}

func onceFingerprints(fx *fixture) {
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
		s := fx.serve(Route{Pattern: path, Once: []idempotency.Config{fx.once(sum(test.fingerprint))}, Handler: c.ServeHTTP})
		at := func(r *http.Request) { r.URL.Path = fmt.Sprintf("/%d/1", i) }
		first := s.postWithKey(test.same[0], at)
		first.wantOwn(fx, 201, fmt.Sprintf("%d %s", i+1, test.same[0]))
		for _, body := range test.same {
			s.postWithKey(body, at).wantReplay(fx, first)
		}
		for _, body := range test.other {
			s.postWithKey(body, at).wantProblem(fx, 422, "key-reused", "")
		}
		s.postWithKey(test.same[0], func(r *http.Request) { r.URL.Path = fmt.Sprintf("/%d/2", i) }).wantProblem(fx, 422, "key-reused", "")
	}
	c.want(fx, 3)
}

// onceConditions has a resource that changes, and one of which clients get a part. The answer to
// one condition or range is never the answer to another.
func onceConditions(fx *fixture) {
	var runs atomic.Int64
	var version atomic.Pointer[string]
	current := func(v string) { version.Store(&v) }
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
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
		fx.Helper()
		if got := runs.Swap(0); got != want {
			fx.Errorf("the handler ran %d times, want %d", got, want)
		}
	}
	v1, v2 := with("If-Match", "v1"), with("If-Match", "v2")
	current("v0")
	s.postWithKey("x", v1).wantOwn(fx, 412, "")
	s.postWithKey("x", v1).wantOwn(fx, 412, "")
	wantRuns(2)
	current("v1")
	done := s.postWithKey("x", v1)
	done.wantOwn(fx, 200, "paid")
	current("v2")
	s.postWithKey("x", v1).wantReplay(fx, done)
	s.postWithKey("x", v2).wantProblem(fx, 422, "key-reused", "")
	s.postWithKey("x").wantProblem(fx, 422, "key-reused", "")
	wantRuns(1)

	bert, part := with("X-User", "bert"), with("Range", "bytes=0-1")
	first := s.postWithKey("x", bert, part)
	first.wantOwn(fx, 206, "pa")
	s.postWithKey("x", bert, part).wantReplay(fx, first)
	s.postWithKey("x", bert).wantProblem(fx, 422, "key-reused", "")
	s.postWithKey("x", bert, with("Range", "bytes=2-3")).wantProblem(fx, 422, "key-reused", "")
	wantRuns(1)
}

// onceLargeBodies has bodies of 50 MB that differ in their last byte.
func onceLargeBodies(fx *fixture) {
	const size = 50_000_000
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.MaxRequestBody = size })
	body := func(last string) func(*http.Request) {
		return func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, size-1), strings.NewReader(last)))
			r.ContentLength = size
		}
	}
	first := s.postWithKey("", body("a"))
	first.wantOwn(fx, 201, "1 a")
	s.postWithKey("", body("b")).wantProblem(fx, 422, "key-reused", "")
	s.postWithKey("", body("a")).wantReplay(fx, first)
	c.want(fx, 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func onceBodyTooLarge(fx *fixture) {
	c := &counter{}
	s := fx.serve(
		Route{Pattern: orders, Once: []idempotency.Config{fx.once(func(cfg *idempotency.Config) { cfg.MaxRequestBody = 10 })}, Handler: c.ServeHTTP},
		Route{Pattern: "/none/{id}", Once: []idempotency.Config{fx.once(func(cfg *idempotency.Config) {
			cfg.MaxRequestBody, cfg.Fingerprint = 10, idempotency.FingerprintNone
		})}, Handler: c.ServeHTTP},
	)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, change := range []func(*http.Request){func(*http.Request) {}, chunked} {
		s.postWithKey("eleven byte", change).wantProblem(fx, 413, "body-too-large", "")
	}
	s.postWithKey("just ten b", chunked).wantOwn(fx, 201, "1 just ten b")
	s.postWithKey("eleven byte", func(r *http.Request) { r.URL.Path = "/none/1" }).wantOwn(fx, 201, "2 eleven byte")
}

func onceScopeRefuses(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) {
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
	s.postWithKey("x", with("X-User", "")).wantProblem(fx, 400, "key-missing", "")
	s.postWithKey("x", with("X-User", "anonymous")).wantProblem(fx, 401, "mine", "")
	s.postWithKey("x", with("X-User", "broken")).wantProblem(fx, 400, "key-invalid", "")
	c.want(fx, 0)
	s.postWithKey("x", with("X-User", "internal")).wantOwn(fx, 201, "1 x")
	s.postWithKey("x", with("X-User", "internal")).wantOwn(fx, 201, "2 x")
}
