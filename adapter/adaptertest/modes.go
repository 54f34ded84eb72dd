package adaptertest

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

var modes = []scenario{
	{name: "Mode Fair: first come, first served", run: fairTurns},
	{name: "Mode Fenced: each request has a greater token", run: fencedTokens},
	{name: "Fenced with Mode Fair: each request has a greater token", run: fencedFairTokens},
	{name: "Fenced with Mode ReadWrite: readers share, and each writer has a greater token, under load", run: fencedReadWrite},
	{name: "Mode Read: together, but not beside a writer", run: readersShare},
	{name: "Mode Write: neither beside readers nor beside writers", run: writersExclude},
	{name: "Mode ReadWrite: GET and HEAD read, the rest writes", run: readWriteByMethod},
	{name: "Mode by Policy", run: modeByPolicy},
	{name: "Modes of several keys", run: modesOfSeveralKeys},
	{name: "a writer inside a reader is a mistake in the program", run: writerInsideReader},
	{name: "a lock of another Mode has the name", run: otherMode},
}

func inMode(m guard.Mode) func(*guard.Config) {
	return func(cfg *guard.Config) { cfg.Mode = m }
}

// holdLock holds any lock, as another process would, until release.
func (e *env) holdLock(lock func(*core.Client) core.Locker) (release func()) {
	e.Helper()
	lease, err := lock(e.stranger()).Acquire(background, core.AcquireOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return func() {
		e.Helper()
		if err := lease.Release(background); err != nil {
			e.Errorf("the other process releases: %v", err)
		}
	}
}

func reader(c *core.Client) core.Locker { return c.ReadWriteLock(lockName).Read() }
func writer(c *core.Client) core.Locker { return c.ReadWriteLock(lockName).Write() }

func fairTurns(e *env) {
	release := e.holdLock(func(c *core.Client) core.Locker { return c.FairLock(lockName) })
	var mu sync.Mutex
	var turns []string
	s := e.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, r.URL.RawQuery)
	}, inMode(guard.ModeFair), waits)
	var all []*pending
	want := strings.Split("abcdef", "")
	for i, name := range want {
		all = append(all, s.startGet(order+"?"+name))
		e.eventually("the waiter is in the queue", func() bool {
			return e.rdb.LLen(background, "redisson_lock_queue:{"+lockName+"}").Val() == int64(i+1)
		})
	}
	release()
	for _, p := range all {
		p.answer().want(e, 200, "")
	}
	if !slices.Equal(turns, want) {
		e.Errorf("served in the order %v", turns)
	}
}

func fencedTokens(e *env) { e.tokensGrow(inMode(guard.ModeFenced)) }

func fencedFairTokens(e *env) {
	e.tokensGrow(func(cfg *guard.Config) { cfg.Mode, cfg.Fenced = guard.ModeFair, true })
}

// fencedReadWrite sends readers and writers of one name at once. No writer is beside another
// request, and all are answered 200.
func fencedReadWrite(e *env) {
	e.forgetTokens()
	var mu sync.Mutex
	var readers, writers, written int
	var last uint64
	s := e.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		token, fenced := e.tokenOf(r)
		mu.Lock()
		if r.Method == "GET" {
			readers++
		} else {
			writers++
			written++
			if token <= last {
				e.Errorf("token %d after %d", token, last)
			}
			last = token
		}
		if fenced != (r.Method != "GET") || writers > 1 || writers > 0 && readers > 0 {
			e.Errorf("%s has token %d, %v, beside %d readers and %d writers", r.Method, token, fenced, readers, writers)
		}
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		defer mu.Unlock()
		if r.Method == "GET" {
			readers--
		} else {
			writers--
		}
	}, func(cfg *guard.Config) { cfg.Mode, cfg.Fenced = guard.ModeReadWrite, true }, waits)
	var all []*pending
	for i := range 60 {
		method := "GET"
		if i%3 == 0 {
			method = "POST"
		}
		all = append(all, s.start(s.request(method, order, nil)))
	}
	for _, p := range all {
		if a := p.answer(); a.err != nil || a.status != 200 {
			e.Errorf("%d, %v", a.status, a.err)
		}
	}
	if written != 20 {
		e.Errorf("%d writers ran, want 20", written)
	}
}

// forgetTokens deletes the counter of tokens at the end of the test. Redisson never does.
func (e *env) forgetTokens() {
	e.ends = append(e.ends, func() { e.rdb.Del(background, "redisson_lock_token:{"+lockName+"}") })
}

// tokenOf returns the fencing token of a request's lease; ok is false if it has none.
func (e *env) tokenOf(r *http.Request) (token uint64, ok bool) {
	lease, ok := guard.LeaseFrom(r.Context())
	if !ok {
		e.Error("no lease")
		return 0, false
	}
	return lease.Token()
}

// tokensGrow sends requests one after the other, and checks that each has a greater token.
func (e *env) tokensGrow(mode func(*guard.Config)) {
	e.Helper()
	e.forgetTokens()
	var last uint64
	s := e.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		token, ok := e.tokenOf(r)
		if !ok || token <= last {
			e.Errorf("token %d, %v, after %d", token, ok, last)
		}
		last = token
	}, mode, waits)
	for range 3 {
		s.get(order).want(e, 200, "")
	}
	if last < 3 {
		e.Errorf("the last token is %d", last)
	}
}

// shares shows that the handlers of two requests run at the same time.
func (e *env) shares(s *site, g *gate, one, two *http.Request) {
	e.Helper()
	g.most = 2
	defer func() { g.most = 1 }()
	first := s.start(one)
	inside := g.next()
	second := s.start(two)
	beside := g.next()
	inside.leave()
	beside.leave()
	for _, p := range []*pending{first, second} {
		if a := p.answer(); a.err != nil || a.status != 200 {
			e.Errorf("%d, %v", a.status, a.err)
		}
	}
}

func readersShare(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, inMode(guard.ModeRead))
	e.shares(s, g, s.request("POST", order, nil), s.request("GET", order, nil))
	release := e.holdLock(reader)
	p := s.startGet(order)
	g.next().leave()
	p.answer().want(e, 200, "done")
	release()
	release = e.holdLock(writer)
	s.get(order).wantProblem(e, 409, "locked", "1")
	release()
}

func writersExclude(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, inMode(guard.ModeWrite))
	first := s.startGet(order)
	inside := g.next()
	s.get(order).wantProblem(e, 409, "locked", "1")
	inside.leave()
	first.answer().want(e, 200, "done")
	for _, side := range []func(*core.Client) core.Locker{reader, writer} {
		release := e.holdLock(side)
		s.get(order).wantProblem(e, 409, "locked", "1")
		release()
	}
}

func readWriteByMethod(e *env) {
	g := e.gate()
	s := e.serveOrders(g.ServeHTTP, inMode(guard.ModeReadWrite))
	e.shares(s, g, s.request("GET", order, nil), s.request("HEAD", order, nil))
	release := e.holdLock(reader)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		s.send(s.request(method, order, nil)).wantProblem(e, 409, "locked", "1")
	}
	release()
	release = e.holdLock(writer)
	s.get(order).wantProblem(e, 409, "locked", "1")
	release()
	writes := s.start(s.request("DELETE", order, nil))
	inside := g.next()
	s.get(order).wantProblem(e, 409, "locked", "1")
	inside.leave()
	writes.answer().want(e, 200, "done")
}

func modeByPolicy(e *env) {
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) {}, decidedBy(func(r *http.Request, p *guard.Policy) error {
		p.Keys = []string{key}
		if r.URL.RawQuery == "read" {
			p.Mode = guard.ModeRead
		} else {
			p.Mode = guard.ModeWrite
		}
		return nil
	}))
	release := e.holdLock(reader)
	s.get(order+"?read").want(e, 200, "")
	s.get(order).wantProblem(e, 409, "locked", "1")
	release()
	s.get(order).want(e, 200, "")
}

func modesOfSeveralKeys(e *env) {
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) {}, keysAre("other", key), inMode(guard.ModeReadWrite))
	release := e.holdLock(reader)
	s.get(order).want(e, 200, "")
	s.post(order, "").wantProblem(e, 409, "locked", "1")
	release()
	s.post(order, "").want(e, 200, "")
}

func writerInsideReader(e *env) {
	outer, inner := e.config(inMode(guard.ModeRead)), e.config(inMode(guard.ModeWrite))
	s := e.serve(
		Route{Pattern: orders, Guards: []guard.Config{outer, inner}, Handler: func(http.ResponseWriter, *http.Request) { e.Error("the handler ran without the lock") }},
		Route{Pattern: "/items/{id}", Guards: []guard.Config{inner, outer}, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	s.get(order).wantProblem(e, 500, "misconfigured", "")
	if text := e.log.text(); !strings.Contains(text, "as a writer") {
		e.Errorf("the log does not say what to do: %s", text)
	}
	s.get("/items/"+key).want(e, 200, "")
}

func otherMode(e *env) {
	release := e.hold(lockName)
	s := e.serveOrders(func(http.ResponseWriter, *http.Request) {}, inMode(guard.ModeReadWrite))
	s.get(order).wantProblem(e, 500, "misconfigured", "")
	release()
	s.get(order).want(e, 200, "")
}
