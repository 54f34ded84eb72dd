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
func (fx *fixture) holdLock(lock func(*core.Client) core.Locker) (release func()) {
	fx.Helper()
	lease, err := lock(fx.newOtherLocks()).Acquire(background, core.AcquireOptions{})
	if err != nil {
		fx.Fatal(err)
	}
	return func() {
		fx.Helper()
		if err := lease.Release(background); err != nil {
			fx.Errorf("the other process releases: %v", err)
		}
	}
}

func reader(c *core.Client) core.Locker { return c.ReadWriteLock(lockName).Read() }
func writer(c *core.Client) core.Locker { return c.ReadWriteLock(lockName).Write() }

func fairTurns(fx *fixture) {
	release := fx.holdLock(func(c *core.Client) core.Locker { return c.FairLock(lockName) })
	var mu sync.Mutex
	var turns []string
	s := fx.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, r.URL.RawQuery)
	}, inMode(guard.ModeFair), waits)
	var all []*pendingRequest
	want := strings.Split("abcdef", "")
	for i, name := range want {
		all = append(all, s.startGet(order+"?"+name))
		fx.eventually("the waiter is in the queue", func() bool {
			return fx.rdb.LLen(background, "redisson_lock_queue:{"+lockName+"}").Val() == int64(i+1)
		})
	}
	release()
	for _, p := range all {
		p.mustGetAnswer().want(fx, 200, "")
	}
	if !slices.Equal(turns, want) {
		fx.Errorf("served in the order %v", turns)
	}
}

func fencedTokens(fx *fixture) { fx.tokensGrow(inMode(guard.ModeFenced)) }

func fencedFairTokens(fx *fixture) {
	fx.tokensGrow(func(cfg *guard.Config) { cfg.Mode, cfg.Fenced = guard.ModeFair, true })
}

// fencedReadWrite sends readers and writers of one name at once. No writer is beside another
// request, and all are answered 200.
func fencedReadWrite(fx *fixture) {
	fx.forgetTokens()
	var mu sync.Mutex
	var readers, writers, written int
	var last uint64
	s := fx.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		token, fenced := fx.tokenOf(r)
		mu.Lock()
		if r.Method == "GET" {
			readers++
		} else {
			writers++
			written++
			if token <= last {
				fx.Errorf("token %d after %d", token, last)
			}
			last = token
		}
		if fenced != (r.Method != "GET") || writers > 1 || writers > 0 && readers > 0 {
			fx.Errorf("%s has token %d, %v, beside %d readers and %d writers", r.Method, token, fenced, readers, writers)
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
	var all []*pendingRequest
	for i := range 60 {
		method := "GET"
		if i%3 == 0 {
			method = "POST"
		}
		all = append(all, s.start(s.newRequest(method, order, nil)))
	}
	for _, p := range all {
		if a := p.mustGetAnswer(); a.err != nil || a.status != 200 {
			fx.Errorf("%d, %v", a.status, a.err)
		}
	}
	if written != 20 {
		fx.Errorf("%d writers ran, want 20", written)
	}
}

// forgetTokens deletes the counter of tokens at the end of the test. Redisson never does.
func (fx *fixture) forgetTokens() {
	fx.ends = append(fx.ends, func() { fx.rdb.Del(background, "redisson_lock_token:{"+lockName+"}") })
}

// tokenOf returns the fencing token of a request's lease; ok is false if it has none.
func (fx *fixture) tokenOf(r *http.Request) (token uint64, ok bool) {
	lease, ok := guard.LeaseFrom(r.Context())
	if !ok {
		fx.Error("no lease")
		return 0, false
	}
	return lease.Token()
}

// tokensGrow sends requests one after the other, and checks that each has a greater token.
func (fx *fixture) tokensGrow(mode func(*guard.Config)) {
	fx.Helper()
	fx.forgetTokens()
	var last uint64
	s := fx.serveOrders(func(_ http.ResponseWriter, r *http.Request) {
		token, ok := fx.tokenOf(r)
		if !ok || token <= last {
			fx.Errorf("token %d, %v, after %d", token, ok, last)
		}
		last = token
	}, mode, waits)
	for range 3 {
		s.get(order).want(fx, 200, "")
	}
	if last < 3 {
		fx.Errorf("the last token is %d", last)
	}
}

// shares shows that the handlers of two requests run at the same time.
func (fx *fixture) shares(s *testServer, g *blockingHandler, one, two *http.Request) {
	fx.Helper()
	g.most = 2
	defer func() { g.most = 1 }()
	first := s.start(one)
	inside := g.nextRun()
	second := s.start(two)
	beside := g.nextRun()
	inside.finish()
	beside.finish()
	for _, p := range []*pendingRequest{first, second} {
		if a := p.mustGetAnswer(); a.err != nil || a.status != 200 {
			fx.Errorf("%d, %v", a.status, a.err)
		}
	}
}

func readersShare(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, inMode(guard.ModeRead))
	fx.shares(s, g, s.newRequest("POST", order, nil), s.newRequest("GET", order, nil))
	release := fx.holdLock(reader)
	p := s.startGet(order)
	g.nextRun().finish()
	p.mustGetAnswer().want(fx, 200, "done")
	release()
	release = fx.holdLock(writer)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	release()
}

func writersExclude(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, inMode(guard.ModeWrite))
	first := s.startGet(order)
	inside := g.nextRun()
	s.get(order).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	first.mustGetAnswer().want(fx, 200, "done")
	for _, side := range []func(*core.Client) core.Locker{reader, writer} {
		release := fx.holdLock(side)
		s.get(order).wantProblem(fx, 409, "locked", "1")
		release()
	}
}

func readWriteByMethod(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOrders(g.ServeHTTP, inMode(guard.ModeReadWrite))
	fx.shares(s, g, s.newRequest("GET", order, nil), s.newRequest("HEAD", order, nil))
	release := fx.holdLock(reader)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		s.send(s.newRequest(method, order, nil)).wantProblem(fx, 409, "locked", "1")
	}
	release()
	release = fx.holdLock(writer)
	s.get(order).wantProblem(fx, 409, "locked", "1")
	release()
	writes := s.start(s.newRequest("DELETE", order, nil))
	inside := g.nextRun()
	s.get(order).wantProblem(fx, 409, "locked", "1")
	inside.finish()
	writes.mustGetAnswer().want(fx, 200, "done")
}

func modeByPolicy(fx *fixture) {
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) {}, decidedBy(func(r *http.Request, p *guard.Policy) error {
		p.Keys = []string{key}
		if r.URL.RawQuery == "read" {
			p.Mode = guard.ModeRead
		} else {
			p.Mode = guard.ModeWrite
		}
		return nil
	}))
	release := fx.holdLock(reader)
	s.get(order+"?read").want(fx, 200, "")
	s.get(order).wantProblem(fx, 409, "locked", "1")
	release()
	s.get(order).want(fx, 200, "")
}

func modesOfSeveralKeys(fx *fixture) {
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) {}, keysAre("other", key), inMode(guard.ModeReadWrite))
	release := fx.holdLock(reader)
	s.get(order).want(fx, 200, "")
	s.post(order, "").wantProblem(fx, 409, "locked", "1")
	release()
	s.post(order, "").want(fx, 200, "")
}

func writerInsideReader(fx *fixture) {
	outer, inner := fx.config(inMode(guard.ModeRead)), fx.config(inMode(guard.ModeWrite))
	s := fx.serve(
		Route{Pattern: orders, Guards: []guard.Config{outer, inner}, Handler: func(http.ResponseWriter, *http.Request) { fx.Error("the handler ran without the lock") }},
		Route{Pattern: "/items/{id}", Guards: []guard.Config{inner, outer}, Handler: func(http.ResponseWriter, *http.Request) {}},
	)
	s.get(order).wantProblem(fx, 500, "misconfigured", "")
	if text := fx.log.text(); !strings.Contains(text, "as a writer") {
		fx.Errorf("the log does not say what to do: %s", text)
	}
	s.get("/items/"+key).want(fx, 200, "")
}

func otherMode(fx *fixture) {
	release := fx.mustHold(lockName)
	s := fx.serveOrders(func(http.ResponseWriter, *http.Request) {}, inMode(guard.ModeReadWrite))
	s.get(order).wantProblem(fx, 500, "misconfigured", "")
	release()
	s.get(order).want(fx, 200, "")
}
