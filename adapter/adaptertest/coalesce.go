package adaptertest

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/coalesce"
)

// The tests of coalescing that are no row of coalescedRows.
var coalescedOthers = []scenario{
	{name: "Coalesce: the first request streams to its client", run: coalesceStreams},
	{name: "Coalesce: 304 for a client that has the answer", run: coalesceNotModified},
	{name: "Coalesce: an error that the handler leaves to the framework", run: coalesceErrors},
	{name: "Coalesce: a panic is 500 for the others", run: coalescePanics},
	{name: "Coalesce: stale", run: coalesceStale},
	{name: "Coalesce: WaitTime is over", run: coalesceWaitTime},
	{name: "Coalesce: MaxWaiters wait", run: coalesceMaxWaiters},
	{name: "Coalesce: the client of the run leaves", run: coalesceClientLeaves},
	{name: "Coalesce: Redis is down", run: coalesceRedisDown, setup: []func(*setup){proxied}},
	{name: "Coalesce: Redis is down, with FailOpen", run: coalesceFailsOpen, setup: []func(*setup){proxied}},
}

// coalescing returns all tests of coalescing.
func coalescing() (all []scenario) {
	for _, row := range coalescedRows {
		all = append(all, scenario{name: "Coalesce: " + row.name, run: row.run})
	}
	return append(all, coalescedOthers...)
}

// isCoalescing reports whether a test is one of coalescing.
func isCoalescing(name string) bool { return strings.HasPrefix(name, "Coalesce: ") }

// What becomes of the other requests of a coalescedRow.
const (
	shared = ""           // They get the answer of the first.
	alone  = "for itself" // They run while the first does. Any other text is the reason of a coalesce.NotShared.
)

// A coalescedRow is a run, and requests that come while it lasts.
type coalescedRow struct {
	name         string
	others       string
	config       func(*coalesce.Config)
	first, other func(*http.Request) // nil: a plain GET
	handle       http.HandlerFunc    // nil: it answers "done"
}

var coalescedRows = []coalescedRow{
	{name: "one run answers all, byte for byte", others: shared, handle: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		w.Header()["Link"] = []string{"<a>; rel=next", "<b>; rel=prev"}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "sold,")
		_, _ = w.Write([]byte{0, 0xff, '\n'})
	}},
	{name: "404 is shared", others: shared, handle: func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }},
	{name: "5xx is shared for ErrorFor", others: shared, handle: status(http.StatusBadGateway)},
	{name: "HEAD", others: shared, first: sentBy(http.MethodHead), other: sentBy(http.MethodHead)},
	{name: "Authorization with public", others: shared, first: with("Authorization", "a"), other: with("Authorization", "b"), handle: says("Cache-Control", "public")},
	{name: "Vary on a header of the key", others: shared, config: variesByLanguage, handle: says("Vary", "Accept-Language")},

	{name: "Set-Cookie is not shared", others: "set-cookie", handle: says("Set-Cookie", "a=b")},
	{name: "Cache-Control: private is not shared", others: "private", handle: says("Cache-Control", "private")},
	{name: "Cache-Control: no-store is not shared", others: "private", handle: says("Cache-Control", "no-store")},
	{name: "Vary on a header that the key lacks is not shared", others: "vary", config: variesByLanguage, handle: says("Vary", "Accept-Language, Origin")},
	{name: "Vary: * is not shared", others: "vary", handle: says("Vary", "*")},
	{name: "Authorization without public is not shared", others: "credentials", first: with("Authorization", "a"), other: with("Authorization", "b")},
	{name: "206 is not shared", others: "partial", handle: status(http.StatusPartialContent)},
	{name: "429 is not shared", others: "status", handle: status(http.StatusTooManyRequests)},
	{name: "a flushed answer is not shared", others: "flushed", handle: func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush() // The reason shows whether it could be.
		_, _ = io.WriteString(w, "done")
	}},
	{name: "a hijacked connection is not shared", others: "hijacked", handle: func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // The reason is another one then.
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")
		_ = rw.Flush()
	}},
	{name: "an answer larger than MaxAnswer is not shared", others: "too-large", config: func(cfg *coalesce.Config) { cfg.MaxAnswer = 3 }},

	{name: "Range runs for itself", others: alone, other: with("Range", "bytes=0-1")},
	{name: "POST runs for itself", others: alone, first: sentBy(http.MethodPost), other: sentBy(http.MethodPost)},
	{name: "two users do not share", others: alone, first: with("X-User", "anna"), other: with("X-User", "ben"), config: func(cfg *coalesce.Config) {
		cfg.User = func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	}},
	{name: "two languages do not share", others: alone, config: variesByLanguage, first: with("Accept-Language", "de"), other: with("Accept-Language", "en")},
}

func variesByLanguage(cfg *coalesce.Config) { cfg.Vary = []string{"Accept-Language"} }

func sentBy(method string) func(*http.Request) { return func(r *http.Request) { r.Method = method } }

func says(name, value string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(name, value)
		_, _ = io.WriteString(w, "done")
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "done")
	}
}

func (row coalescedRow) run(fx *fixture) {
	handle := row.handle
	if handle == nil {
		handle = status(http.StatusOK)
	}
	s := fx.newStampede(handle, nil, row.config)
	first := s.begin(row.first)
	if row.others == alone {
		own := s.send(s.here, row.other).mustGetAnswer()
		own.want(fx, http.StatusOK, "done")
		if own.header.Get("X-Run") != "2" || own.header.Get("Reqlock-Shared") != "" {
			fx.Errorf("the header is %v", own.header)
		}
		close(s.end)
		first.mustGetAnswer().want(fx, http.StatusOK, "done")
		return
	}
	others := s.crowd(row.other)
	close(s.end)
	answered := first.mustGetAnswer()
	if row.others == shared {
		s.wantShared(answered, others)
		return
	}
	for _, p := range others {
		a := p.mustGetAnswer()
		a.want(fx, answered.status, answered.body)
		if a.header.Get("Reqlock-Shared") != "" {
			fx.Errorf("the answer is shared: %v", a.header)
		}
	}
	s.wantRuns(int64(1 + len(others)))
	for range 1 + len(others) {
		var because *coalesce.NotShared
		if o := fx.outcome(); !errors.As(o.Err, &because) || because.Reason != row.others || !o.Ran {
			fx.Errorf("the outcome is %+v, want the reason %q", o, row.others)
		}
	}
}

// A stampede has a route of two servers, as two processes have them. Its first run lasts until the
// test closes end.
type stampede struct {
	fx          *fixture
	here, there *testServer
	arrived     atomic.Int64 // requests
	runs        atomic.Int64
	began, end  chan struct{}
	left        chan struct{} // receives when a client has left
}

// newStampede serves handler, which ends with err if the framework has errors. Route /free/{id} does
// without Coalesce.
func (fx *fixture) newStampede(handler http.HandlerFunc, err func() error, changes ...func(*coalesce.Config)) *stampede {
	fx.Helper()
	s := &stampede{fx: fx, began: make(chan struct{}, 1), end: make(chan struct{}), left: make(chan struct{}, 100)}
	route := Route{Pattern: orders, Shares: fx.coalesced(changes...), err: err, Handler: func(w http.ResponseWriter, r *http.Request) {
		n := s.runs.Add(1)
		if n == 1 {
			s.began <- struct{}{}
			select {
			case <-s.end:
			case <-fx.Context().Done():
			}
		}
		w.Header().Set("X-Run", strconv.FormatInt(n, 10))
		handler(w, r)
	}}
	watch := around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.arrived.Add(1)
			ended, left := make(chan struct{}), r.Context().Done() // Caddy changes r.
			defer close(ended)
			go func() {
				select {
				case <-left:
					s.left <- struct{}{}
				case <-ended:
				}
			}()
			next.ServeHTTP(w, r)
		})
	})
	s.here = fx.serveOn(fx.locks, watch, route, Route{Pattern: "/free/{id}", err: err, Handler: handler})
	s.there = fx.serveOn(fx.newOtherLocks(), watch, route)
	fx.ends = append(fx.ends, fx.forgetShared) // The servers have ended by then.
	return s
}

// coalesced returns a Config with the log and outcomes of the fixture. Late requests get the answer, too.
func (fx *fixture) coalesced(changes ...func(*coalesce.Config)) *coalesce.Config {
	cfg := &coalesce.Config{
		WaitTime: 3 * patience, Keep: time.Hour, ErrorFor: time.Hour,
		Logger: slog.New(slog.NewTextHandler(fx.log, nil)), Observe: fx.observe,
	}
	for _, change := range changes {
		if change != nil {
			change(cfg)
		}
	}
	return cfg
}

// forgetShared deletes all answers.
func (fx *fixture) forgetShared() {
	for _, name := range fx.rdb.Keys(background, "*reqlock:coalesce:*").Val() {
		fx.rdb.Del(background, name)
	}
}

// send sends a GET of order in the background, with that change.
func (s *stampede) send(to *testServer, change func(*http.Request)) *pendingRequest {
	r := to.newRequest(http.MethodGet, order, nil)
	r.Host = "shop" // both servers are one to clients
	if change != nil {
		change(r)
	}
	return to.start(r)
}

// begin sends the request that runs first.
func (s *stampede) begin(change func(*http.Request)) *pendingRequest {
	s.fx.Helper()
	p := s.send(s.here, change)
	mustReceive(s.fx, "the first request runs", s.began)
	return p
}

// crowd sends requests to both servers, and waits until they wait.
func (s *stampede) crowd(change func(*http.Request)) (all []*pendingRequest) {
	s.fx.Helper()
	before := s.fx.asleep.Load()
	for range 3 {
		all = append(all, s.send(s.here, change), s.send(s.there, change))
	}
	s.fx.eventually("the others wait", func() bool { return s.arrived.Load() == 7 && s.fx.asleep.Load()-before == 1 })
	return all
}

// wantShared fails the test unless all have the first answer, after one run.
func (s *stampede) wantShared(first answer, others []*pendingRequest) {
	s.fx.Helper()
	want := first.header.Clone()
	want.Set("Reqlock-Shared", "1")
	want.Del("Date")
	for _, p := range others {
		a := p.mustGetAnswer()
		a.want(s.fx, first.status, first.body)
		a.header.Del("Date")
		if !maps.EqualFunc(a.header, want, slices.Equal) {
			s.fx.Errorf("header\n%v, want\n%v", a.header, want)
		}
	}
	s.wantRuns(1)
	for ran := 0; len(others) > 0 && ran < 1+len(others); ran++ {
		if o := s.fx.outcome(); o.Ran == errors.Is(o.Err, coalesce.ErrShared) || o.FailedOpen {
			s.fx.Errorf("the outcome is %+v", o)
		}
	}
}

func (s *stampede) wantRuns(n int64) {
	s.fx.Helper()
	if got := s.runs.Load(); got != n {
		s.fx.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// coalesceStreams has an answer that is larger than all buffers of the server.
func coalesceStreams(fx *fixture) {
	const size = 256 << 10
	read := make(chan struct{})
	s := fx.newStampede(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(2*size))
		_, _ = io.WriteString(w, strings.Repeat("a", size))
		mustReceive(fx, "the client has the first half", read)
		_, _ = io.WriteString(w, strings.Repeat("b", size))
	}, nil)
	close(s.end)
	r := s.here.newRequest(http.MethodGet, order, nil)
	r.Host = "shop"
	response, err := s.here.client.Do(r)
	if err != nil {
		fx.Fatal(err)
	}
	defer response.Body.Close()
	half := make([]byte, size/2)
	if _, err := io.ReadFull(response.Body, half); err != nil {
		fx.Error(err)
	}
	others := s.crowd(nil)
	close(read)
	rest, err := io.ReadAll(response.Body)
	s.wantShared(answer{response.StatusCode, response.Header, string(half) + string(rest), err}, others)
}

func coalesceNotModified(fx *fixture) {
	s := fx.newStampede(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			fx.Error("the handler has the condition of one client")
		}
		says("Etag", `"1"`)(w, r)
	}, nil)
	first := s.begin(with("If-None-Match", `"0"`))
	others := s.crowd(with("If-None-Match", `"0", W/"1"`))
	close(s.end)
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	for _, p := range others {
		a := p.mustGetAnswer()
		a.want(fx, http.StatusNotModified, "")
		if a.header.Get("Etag") != `"1"` || a.header.Get("Reqlock-Shared") != "1" {
			fx.Errorf("the header is %v", a.header)
		}
	}
	s.send(s.here, with("If-None-Match", `"0"`)).mustGetAnswer().want(fx, http.StatusOK, "done")
	s.wantRuns(1)
}

// coalesceErrors: whether an error is shared depends on who answers it, but all get what they would
// get without Coalesce.
func coalesceErrors(fx *fixture) {
	for _, err := range []error{errExploded, ErrUnanswered} {
		s := fx.newStampede(func(http.ResponseWriter, *http.Request) {}, func() error {
			if fx.adapter.LeavesErrors {
				return err
			}
			return nil
		})
		want := s.here.get("/free/1")
		s.arrived.Store(0)
		first := s.begin(nil)
		all := append(s.crowd(nil), first)
		close(s.end)
		for _, p := range all {
			p.mustGetAnswer().want(fx, want.status, want.body)
		}
		fx.outcomesOf(len(all))
		if got := s.runs.Load(); got != 1 && got != int64(len(all)) {
			fx.Errorf("the handler ran %d times, want once for all or once for each", got)
		}
		fx.forgetShared()
	}
}

func coalescePanics(fx *fixture) {
	s := fx.newStampede(func(http.ResponseWriter, *http.Request) { panic(errExploded) }, nil)
	first := s.begin(nil)
	others := s.crowd(nil)
	close(s.end)
	if a := mustReceive(fx, "the first request ends", first.result); a.err == nil {
		fx.Errorf("the answer is %+v, want none", a)
	}
	for _, p := range others {
		a := p.mustGetAnswer()
		a.want(fx, http.StatusInternalServerError, "Internal Server Error\n")
		if a.header.Get("Reqlock-Shared") != "1" {
			fx.Errorf("the header is %v", a.header)
		}
	}
	s.wantRuns(1)
}

// coalesceStale: one request of both servers renews a stale answer, and the others do not wait for it.
func coalesceStale(fx *fixture) {
	began, end := make(chan struct{}), make(chan struct{})
	runs := atomic.Int64{}
	s := fx.newStampede(func(w http.ResponseWriter, _ *http.Request) {
		if runs.Add(1) == 2 {
			close(began)
			mustReceive(fx, "the others have their answers", end)
		}
		_, _ = io.WriteString(w, "done")
	}, nil, func(cfg *coalesce.Config) { cfg.Stale = time.Hour })
	want := func(a answer, run string, shared bool) {
		fx.Helper()
		a.want(fx, http.StatusOK, "done")
		if a.header.Get("X-Run") != run || (a.header.Get("Reqlock-Shared") == "1") != shared || (a.header.Get("Age") != "") != shared {
			fx.Errorf("the header is %v, want that of run %s", a.header, run)
		}
	}
	close(s.end)
	want(s.begin(nil).mustGetAnswer(), "1", false)
	for _, record := range fx.rdb.Keys(background, "*reqlock:coalesce:*:record").Val() {
		// From now on, Redis takes the answer for one whose Keep is over.
		fx.rdb.HSet(background, record, "stale", fx.rdb.PTTL(background, record).Val().Milliseconds())
	}
	renewal := s.send(s.there, nil)
	mustReceive(fx, "a request renews", began)
	for _, srv := range []*testServer{s.here, s.there, s.here, s.there} {
		want(s.send(srv, nil).mustGetAnswer(), "1", true)
	}
	close(end)
	want(renewal.mustGetAnswer(), "2", false)
	for _, srv := range []*testServer{s.here, s.there} {
		want(s.send(srv, nil).mustGetAnswer(), "2", true)
	}
	s.wantRuns(2)
}

func coalesceWaitTime(fx *fixture) {
	s := fx.newStampede(status(http.StatusOK), nil, func(cfg *coalesce.Config) { cfg.WaitTime = 50 * time.Millisecond })
	first := s.begin(nil)
	for _, srv := range []*testServer{s.here, s.there} {
		s.send(srv, nil).mustGetAnswer().wantProblem(fx, 409, "wait-timeout", "1")
	}
	close(s.end)
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	s.wantRuns(1)
}

// coalesceMaxWaiters cannot know which of two requests comes first.
func coalesceMaxWaiters(fx *fixture) {
	s := fx.newStampede(status(http.StatusOK), nil, func(cfg *coalesce.Config) { cfg.MaxWaiters = 1 })
	first := s.begin(nil)
	answers := make(chan answer, 2)
	for range 2 {
		p := s.send(s.here, nil)
		go func() { answers <- <-p.result }()
	}
	mustReceive(fx, "one is refused", answers).wantProblem(fx, 503, "queue-full", "1")
	close(s.end)
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	mustReceive(fx, "the other is answered", answers).want(fx, http.StatusOK, "done")
	s.wantRuns(1)
}

func coalesceClientLeaves(fx *fixture) {
	s := fx.newStampede(func(w http.ResponseWriter, r *http.Request) {
		if err := r.Context().Err(); err != nil {
			fx.Errorf("the context of the run has ended: %v", err)
		}
		_, _ = io.WriteString(w, strings.Repeat("done", 100_000))
	}, nil)
	first := s.begin(nil)
	others := s.crowd(nil)
	first.disconnect()
	mustReceive(fx, "the server notices that the client has left", s.left)
	close(s.end)
	for _, p := range others {
		a := p.mustGetAnswer()
		if a.status != http.StatusOK || a.body != strings.Repeat("done", 100_000) || a.header.Get("Reqlock-Shared") != "1" {
			fx.Errorf("answer %d %v with %d bytes", a.status, a.header, len(a.body))
		}
	}
	s.wantRuns(1)
}

func coalesceRedisDown(fx *fixture) {
	c := &counter{}
	s := fx.serve(Route{Pattern: orders, Shares: fx.coalesced(), Handler: c.ServeHTTP})
	fx.replyToScripts(outOfMemory)
	for range 2 {
		s.get(order).wantProblem(fx, 503, "backend-unavailable", "1")
	}
	c.want(fx, 0)
}

func coalesceFailsOpen(fx *fixture) {
	c := &counter{}
	s := fx.serve(Route{Pattern: orders, Shares: fx.coalesced(func(cfg *coalesce.Config) { cfg.FailOpen = true }), Handler: c.ServeHTTP})
	fx.replyToScripts(outOfMemory)
	for n := range 3 {
		s.get(order).want(fx, http.StatusCreated, strconv.Itoa(n+1)+" ")
		if o := fx.outcome(); !o.Ran || !o.FailedOpen {
			fx.Errorf("the outcome is %+v", o)
		}
	}
}
