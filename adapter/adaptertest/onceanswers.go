package adaptertest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/reqlock/reqlock/idempotency"
)

var onceAnswers = []scenario{
	{name: "once: replays are identical", run: onceIdentical},
	{name: "once: headers that are not replayed", run: onceHeaders},
	{name: "once: headers of outer middleware", run: onceHeadersFromOutside},
	{name: "once: a header that outer middleware has set to the same value", run: onceHeaderSetAgain},
	{name: "once: HEAD", run: onceHead},
	{name: "once: answers that are not stored", run: onceNotStored},
	{name: "once: an error that nothing answers is not stored", run: onceUnanswered},
	{name: "once: answers that cannot be replayed", run: onceNotReplayable},
}

// answers are handlers by the status that they answer with.
var answers = []struct {
	name   string
	status int
	handle http.HandlerFunc
}{
	{"nothing", 200, func(http.ResponseWriter, *http.Request) {}},
	{"a body", 200, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "body") }},
	{"a body in parts", 200, func(w http.ResponseWriter, r *http.Request) {
		for range 1000 {
			_, _ = io.WriteString(w, "a part\n")
		}
	}},
	{"headers with several values", 201, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header()["Link"] = []string{"<a>; rel=next", "<b>; rel=prev", ""}
		w.Header().Add("X-Bytes", "\xe9\xff")
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{")
		w.Header().Set("X-Late", "too late")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "}")
	}},
	{"binary", 200, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte{0, 1, 0xff, 0xfe, '\r', '\n', 0})
	}},
	{"its length", 200, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "body")
	}},
	{"as much as is kept", 200, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}},
	{"copied", 200, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("copied", 20_000)))
	}},
	{"no type", 200, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}},
	{"no content", 204, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Mine", "yes")
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "none"); err == nil {
			w.Header().Set("X-Written", "it could be")
		}
	}},
	{"not modified", 304, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(http.StatusNotModified)
	}},
	{"a redirect", 303, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
	}},
	{"an error of the client's", 404, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }},
	{"another", 422, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) }},
}

// countRuns counts the runs of a handler.
func countRuns(runs *atomic.Int64, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		handle(w, r)
	}
}

func onceIdentical(fx *fixture) {
	for _, test := range answers {
		var runs atomic.Int64
		s := fx.serveOnce(countRuns(&runs, test.handle))
		s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		with := with("Idempotency-Key", strconv.Itoa(test.status)+strings.ReplaceAll(test.name, " ", "-"))
		first := s.postWithKey("x", with)
		if first.status != test.status || first.header.Get("Idempotent-Replayed") != "" {
			fx.Errorf("%s: answer %d %v", test.name, first.status, first.header)
		}
		for range 2 {
			again := s.postWithKey("x", with)
			if again.wantReplay(fx, first); runs.Load() != 1 {
				fx.Errorf("%s: the handler ran %d times", test.name, runs.Load())
			}
			if allows := again.status != 204 && again.status != 304; allows && again.header.Get("Content-Length") != strconv.Itoa(len(again.body)) {
				fx.Errorf("%s: the length is %q", test.name, again.header.Get("Content-Length"))
			}
		}
	}
}

func onceHeaders(fx *fixture) {
	handle := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Set-Cookie", "X-Request-Id", "Ratelimit-Remaining", "X-Ratelimit-Limit", "Retry-After", "Server", "Authorization", "Proxy-Authorization", "X-Auth-Token", "X-Mine", "X-Hop"} {
			w.Header().Set(name, "1")
		}
		w.Header().Set("Connection", "X-Hop")
		_, _ = io.WriteString(w, "done")
	}
	for _, test := range []struct {
		filter idempotency.HeaderFilter
		kept   []string
	}{
		{nil, []string{"X-Mine"}},
		{func(name string) bool { return name == "Set-Cookie" || name == "X-Hop" || name == "Connection" }, []string{"Set-Cookie"}},
		{func(name string) bool { return name == "X-Request-Id" || idempotency.DefaultHeaders(name) }, []string{"X-Mine", "X-Request-Id"}},
		{func(name string) bool { return name == "X-Auth-Token" || idempotency.DefaultHeaders(name) }, []string{"X-Auth-Token", "X-Mine"}},
	} {
		s := fx.serveOnce(handle, func(cfg *idempotency.Config) { cfg.Headers = test.filter })
		user := with("X-User", strings.Join(test.kept, "+"))
		first := s.postWithKey("x", user)
		if first.header.Get("Set-Cookie") != "1" || first.header.Get("Authorization") != "1" || first.header.Get("X-Hop") != "1" {
			fx.Errorf("the first answer has lost headers: %v", first.header)
		}
		again := s.postWithKey("x", user)
		again.want(fx, 200, "done")
		var kept []string
		for name, values := range again.header {
			if slices.Equal(values, []string{"1"}) {
				kept = append(kept, name)
			}
		}
		if slices.Sort(kept); !slices.Equal(kept, test.kept) {
			fx.Errorf("kept %q, want %q", kept, test.kept)
		}
	}
}

// Middleware around the guard sets its headers on every answer, replays included.
func onceHeadersFromOutside(fx *fixture) {
	var n atomic.Int64
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Serial", strconv.FormatInt(n.Add(1), 10))
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("X-Taken-Away", "no")
			w.Header().Add("Vary", "Origin")
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("X-Taken-Away")
		w.Header().Add("Vary", "Accept")
		_, _ = io.WriteString(w, "done")
	}})
	for i := range 3 {
		serial := strconv.Itoa(i + 1)
		a := s.postWithKey("x", with("Origin", "https://"+serial))
		a.want(fx, 200, "done")
		if a.header.Get("X-Serial") != serial || a.header.Get("Access-Control-Allow-Origin") != "https://"+serial ||
			a.header.Get("X-Taken-Away") != "" || !slices.Equal(a.header["Vary"], []string{"Origin", "Accept"}) {
			fx.Errorf("answer %d has header %v", i, a.header)
		}
	}
}

// onceHeaderSetAgain has outer middleware whose next version does not set the header.
func onceHeaderSetAgain(fx *fixture) {
	var n atomic.Int64
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				w.Header().Set("X-Again", "a")
				w.Header().Set("X-Once", "a")
			}
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Again", "a")
		_, _ = io.WriteString(w, "done")
	}})
	for i := range 2 {
		a := s.postWithKey("x")
		a.want(fx, 200, "done")
		if a.header.Get("X-Again") != "a" || a.header.Get("X-Once") != []string{"a", ""}[i] {
			fx.Errorf("answer %d has header %v", i, a.header)
		}
	}
}

func onceHead(fx *fixture) {
	for i, handle := range []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "body") },
		func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "9000") },
		func(w http.ResponseWriter, r *http.Request) {},
	} {
		s := fx.serveOnce(handle, func(cfg *idempotency.Config) { cfg.Methods = []string{"HEAD"} })
		head := func(r *http.Request) {
			*r = *s.newRequest(http.MethodHead, order, nil)
			r.Header.Set("X-User", strconv.Itoa(i))
			r.Header.Set("Idempotency-Key", key)
		}
		first := s.postWithKey("", head)
		first.wantOwn(fx, 200, "")
		s.postWithKey("", head).wantReplay(fx, first)
	}
}

func onceNotStored(fx *fixture) {
	status := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, "done") }
	}
	var once []func(*idempotency.Config)
	for _, test := range []struct {
		handle http.HandlerFunc
		status int
	}{
		{status(500), 500}, {status(502), 502}, {status(503), 503},
		{status(401), 401}, {status(408), 408}, {status(409), 409}, {status(412), 412}, {status(416), 416}, {status(421), 421},
		{status(423), 423}, {status(425), 425}, {status(429), 429},
		{func(w http.ResponseWriter, r *http.Request) { // also where it cannot be recorded
			w.WriteHeader(500)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "done")
		}, 500},
		{func(w http.ResponseWriter, r *http.Request) {
			idempotency.NoStore(r.Context())
			status(200)(w, r)
		}, 200},
	} {
		var runs atomic.Int64
		s := fx.serveOnce(countRuns(&runs, test.handle), once...)
		for range 3 {
			s.postWithKey("x").wantOwn(fx, test.status, "done")
		}
		if runs.Load() != 3 || len(fx.records()) != 0 {
			fx.Errorf("status %d: the handler ran %d times, the records are %q", test.status, runs.Load(), fx.records())
		}
	}
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) {
		cfg.Store = func(status int, h http.Header) bool {
			h.Set("Content-Type", "a copy")
			return status != 201
		}
	})
	s.postWithKey("x").wantOwn(fx, 201, "1 x")
	s.postWithKey("x").wantOwn(fx, 201, "2 x")
}

// onceUnanswered has a handler that writes nothing. It is an answer, empty, only if the handler
// ends without an error. OutcomeRefuse changes nothing: an error is a known outcome.
func onceUnanswered(fx *fixture) {
	for user, change := range map[string]func(*idempotency.Config){"rerun": func(*idempotency.Config) {}, "refuse": refuses} {
		var runs atomic.Int64
		fails := func() error {
			if runs.Load() <= 2 && fx.adapter.LeavesErrors {
				return ErrUnanswered
			}
			return nil
		}
		s := fx.serve(Route{
			Pattern: orders, Once: []idempotency.Config{fx.once(change)},
			Handler: func(http.ResponseWriter, *http.Request) { runs.Add(1) }, err: fails,
		})
		pay := func() answer { return s.postWithKey("x", with("X-User", user)) }
		want := int64(1)
		for ; fx.adapter.LeavesErrors && want <= 2; want++ {
			a := pay()
			a.wantOwn(fx, a.status, a.body)
			if o := fx.outcome(); !o.Ran || o.Status != 0 && o.Status < 500 {
				fx.Errorf("the outcome is %+v, want no status or that of an error", o)
			}
			if names := fx.records(); len(names) > 0 {
				fx.Errorf("left in Redis: %q", names)
			}
		}
		first := pay()
		first.wantOwn(fx, 200, "")
		if o := fx.outcome(); o.Status != 0 && o.Status != 200 || !o.Ran {
			fx.Errorf("the outcome is %+v, want status 200", o)
		}
		pay().wantReplay(fx, first)
		fx.outcome()
		if runs.Load() != want {
			fx.Errorf("the handler ran %d times, want %d", runs.Load(), want)
		}
		fx.rdb.Del(background, fx.record())
	}
}

// An answer that cannot be recorded reaches the client as without a guard; a repeat gets 409.
func onceNotReplayable(fx *fixture) {
	large := strings.Repeat("0123456789", 200_000)
	for _, test := range []struct {
		name   string
		body   string
		handle http.HandlerFunc
	}{
		{"flushed", "onetwo", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "one")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "two")
		}},
		{"flushed by controller", "onetwo", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "one")
			if err := http.NewResponseController(w).Flush(); err != nil {
				fx.Errorf("Flush: %v", err)
			}
			_, _ = io.WriteString(w, "two")
		}},
		{"flushed first", "two", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "two")
		}},
		{"large", large, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, large) }},
		{"large, in parts", large, func(w http.ResponseWriter, r *http.Request) {
			for part := range slices.Chunk([]byte(large), 1000) {
				_, _ = w.Write(part)
			}
		}},
		{"large, copied", large, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, strings.NewReader(large)) }},
		{"large, with its length", large, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.Copy(w, strings.NewReader(large))
		}},
		{"trailers", "body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-End")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-End", "yes")
		}},
		{"trailers not announced", large[:9000], func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, large[:9000])
			w.Header().Set(http.TrailerPrefix+"X-End", "yes")
		}},
	} {
		var runs atomic.Int64
		s := fx.serveOnce(countRuns(&runs, test.handle))
		response, err := s.client.Do(s.newRequestWithKey("x", with("X-User", test.name)))
		if err != nil {
			fx.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != test.body || response.StatusCode != 200 {
			fx.Errorf("%s: answer %d with %d bytes (%v), want %d", test.name, response.StatusCode, len(body), err, len(test.body))
		}
		if strings.HasPrefix(test.name, "trailers") && response.Trailer.Get("X-End") != "yes" {
			fx.Errorf("%s: trailers %v", test.name, response.Trailer)
		}
		fx.outcome() // the end of a stream is seen before the handler has returned
		for range 2 {
			s.postWithKey("x", with("X-User", test.name)).wantProblem(fx, 409, "not-replayable", "")
			fx.outcome()
		}
		s.postWithKey("y", with("X-User", test.name)).wantProblem(fx, 422, "key-reused", "")
		fx.outcome()
		if runs.Load() != 1 {
			fx.Errorf("%s: the handler ran %d times", test.name, runs.Load())
		}
	}
}
