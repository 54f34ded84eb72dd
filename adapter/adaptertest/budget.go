package adaptertest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// All guards of a process share the budget of bodies, so each of these tests runs alone.
var budgets = []scenario{
	{name: "a body budget: no room for a body", run: budgetBusy, alone: true},
	{name: "a body budget: room is returned", run: budgetGivenBack, alone: true},
	{name: "a body budget: the room is taken while the handler runs", run: budgetHeld, alone: true},
}

// budget sets the budget for one test, which must return all of it.
func (fx *fixture) budget(bytes int64) {
	guard.SetBodyBudget(bytes)
	fx.ends = append(fx.ends, func() {
		guard.SetBodyBudget(0)
		if !within(fx.patience, func() bool { return request.BudgetUsed() == 0 }) {
			fx.Errorf("%d bytes of the body budget are still taken", request.BudgetUsed())
		}
	})
}

// readers returns a route for each way in which a guard reads a body, and the Content-Type for the
// paths that need one.
func (fx *fixture) readers(handler http.HandlerFunc) (routes []Route, types map[string]string) {
	routes = []Route{
		{Pattern: "/buffer/{id}", Guards: []guard.Config{fx.config(func(cfg *guard.Config) { cfg.BufferBody = 1 << 20 })}},
		{Pattern: "/json/{id}", Guards: []guard.Config{fx.config(by(keyfuncs.JSON("/id")))}},
		{Pattern: "/form/{id}", Guards: []guard.Config{fx.config(by(keyfuncs.FormValue("id")))}},
		{Pattern: "/hash/{id}", Guards: []guard.Config{fx.config(by(keyfuncs.BodyHash()))}},
		{Pattern: "/skip/{id}", Guards: []guard.Config{fx.config(by(func(r *http.Request) (string, error) {
			if _, err := keyfuncs.BodyHash()(r); err != nil {
				return "", err
			}
			return "", keyfuncs.ErrSkip
		}))}},
		{Pattern: "/once/{id}", Once: []idempotency.Config{fx.once()}},
	}
	for i := range routes {
		routes[i].Handler = handler
	}
	return routes, map[string]string{"/json/1": "application/json", "/form/1": "application/x-www-form-urlencoded"}
}

var readerPaths = []string{"/buffer/1", "/json/1", "/form/1", "/hash/1", "/skip/1", "/once/1"}

// reading returns a request with a body of that size, which each of the readers can read.
func (s *testServer) reading(path, contentType string, size int) *http.Request {
	body := "id=1&x=" + strings.Repeat("x", size-7)
	if contentType == "application/json" {
		body = `{"id":1,"x":"` + strings.Repeat("x", size-15) + `"}`
	}
	r := s.newRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "anna")
	return r
}

// stall sends only the beginning of a body.
func (s *testServer) stall(path string, length, sent int) net.Conn {
	s.fx.Helper()
	conn := s.dial()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n", path, length); err != nil {
		s.fx.Fatal(err)
	}
	if _, err := io.WriteString(conn, strings.Repeat("x", sent)); err != nil {
		s.fx.Fatal(err)
	}
	return conn
}

func budgetBusy(fx *fixture) {
	const large = 60_000
	fx.budget(100_000)
	var runs sync.Map
	routes, types := fx.readers(func(w http.ResponseWriter, r *http.Request) {
		runs.Store(r.URL.Path, true)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	s := fx.serve(routes...)
	stalled := s.stall("/hash/1", 70_000, 50_000)
	fx.eventually("half of the budget is taken", func() bool { return request.BudgetUsed() > 50_000-request.Exempt })
	post := func(path string, size int, chunked bool) answer {
		r := s.reading(path, types[path], size)
		r.Header.Set("X-User", fmt.Sprint(size, chunked))
		if chunked {
			r.ContentLength = -1
		}
		return s.must(s.send(r))
	}
	for _, path := range readerPaths {
		for _, chunked := range []bool{false, true} {
			post(path, large, chunked).wantProblem(fx, 503, "busy", "1")
			if o := fx.outcome(); o.Status != 503 {
				fx.Errorf("%s: the outcome is %+v", path, o)
			}
		}
		if _, ran := runs.Load(path); ran {
			fx.Errorf("%s: the handler ran", path)
		}
		post(path, 2000, false).want(fx, 200, "") // small bodies are let in
		if path != "/skip/1" {
			fx.outcome()
		}
		// Larger than the whole budget.
		post(path, 200_000, false).wantProblem(fx, 413, "body-too-large", "")
		fx.outcome()
	}
	if err := stalled.Close(); err != nil {
		fx.Error(err)
	}
	fx.eventually("the room of the stalled body is returned", func() bool { return request.BudgetUsed() == 0 })
	for _, path := range readerPaths {
		for _, chunked := range []bool{false, true} {
			post(path, large, chunked).want(fx, 200, "")
		}
	}
}

func budgetGivenBack(fx *fixture) {
	const size = 60_000
	fx.budget(100_000)
	routes, types := fx.readers(func(w http.ResponseWriter, r *http.Request) {
		if request.BudgetUsed() == 0 {
			fx.Errorf("%s: nothing is taken while the handler runs", r.URL.Path)
		}
		panic(http.ErrAbortHandler)
	})
	s := fx.serve(routes...)
	for _, path := range readerPaths {
		for range 3 {
			if a := s.send(s.reading(path, types[path], size)); a.err == nil {
				fx.Errorf("%s: answer %d %s", path, a.status, a.body)
			}
			if path == "/skip/1" {
				fx.eventually("the skipped request has ended", func() bool { return request.BudgetUsed() == 0 })
				continue
			}
			fx.outcome()
			fx.eventually("the room is given back", func() bool { return request.BudgetUsed() == 0 })
		}
	}
}

// A handler goes on after its client hangs up, and keeps its body.
func budgetHeld(fx *fixture) {
	const size = 60_000
	fx.budget(100_000)
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP)
	first := s.start(s.newRequestWithKey(strings.Repeat("x", size)))
	inside := g.nextRun()
	first.disconnect()
	other := with("X-User", "bert")
	s.postWithKey(strings.Repeat("x", size), other).wantProblem(fx, 503, "busy", "1")
	fx.outcome()
	inside.finish()
	fx.outcome()
	fx.eventually("the room is given back", func() bool { return request.BudgetUsed() == 0 })
	second := s.start(s.newRequestWithKey(strings.Repeat("x", size), other))
	g.nextRun().finish()
	second.mustGetAnswer().want(fx, 200, "done")
}

// stalledUploads shows the bound on the memory that clients can claim by starting large uploads.
func stalledUploads(fx *fixture) {
	const uploads, size = 200, 1 << 20
	const slack = 16 << 20 // for connections and requests
	fx.budget(0)
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) {}, by(keyfuncs.BodyHash()))
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	text := strings.Repeat("x", size-1)
	before := heap()
	var all sync.WaitGroup
	conns := make(chan net.Conn, uploads)
	for range uploads {
		conn := s.dial()
		conns <- conn
		all.Go(func() {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n", order, size)
			_, _ = io.WriteString(conn, text) // fails after a refusal
		})
	}
	all.Wait()
	refused := 0
	fx.eventually("the uploads that were not refused have arrived", func() bool {
		for len(fx.outcomes) > 0 {
			if o := fx.outcome(); o.Status != 503 {
				fx.Fatalf("the outcome is %+v", o)
			}
			refused++
		}
		return request.BudgetUsed() == int64(uploads-refused)*(size-request.Exempt)
	})
	if refused == uploads || refused < uploads-request.DefaultBudget/(size-request.Exempt) {
		fx.Errorf("%d of %d uploads were refused", refused, uploads)
	}
	if grown := int64(heap()) - int64(before); grown > request.DefaultBudget+slack {
		fx.Errorf("%d stalled uploads hold %d bytes more", uploads, grown)
	} else {
		fx.Logf("%d of %d uploads are refused, the heap has grown by %d MiB", refused, uploads, grown>>20)
	}
	close(conns)
	for conn := range conns {
		_ = conn.Close()
	}
	for range uploads - refused {
		fx.outcome()
	}
}
