package adaptertest

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// RunHeavy runs the tests that need the whole machine, one after another. They test the guard with
// many requests, and one adapter is enough for that.
func RunHeavy(t *testing.T, a Adapter) {
	for _, s := range []scenario{
		{name: "10,000 waiting streams are cancelled", run: streamsCancelled, setup: []func(*setup){crowded}},
		{name: "10,000 attempts at a queue that is full", run: queueStaysFull, setup: []func(*setup){crowded}},
		{name: "2,000 long answers to a client that sends one request after another", run: manyLongAnswers, setup: []func(*setup){crowded}},
		{name: "200 uploads that stall", run: stalledUploads},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(newEnv(t, a, s.setup...)) })
	}
}

// lines are clients of a site, each with its own connection.
func (s *site) lines(n int) (clients []*http.Client) {
	s.e.Helper()
	for range n {
		transport := s.client.Transport.(*http.Transport).Clone()
		client := &http.Client{Transport: transport}
		response, err := client.Do(s.request(http.MethodGet, "/free", nil)) // opens it
		if err != nil {
			s.e.Fatal(err)
		}
		_ = response.Body.Close()
		s.e.ends = append(s.e.ends, transport.CloseIdleConnections)
		clients = append(clients, client)
	}
	return clients
}

func free(http.ResponseWriter, *http.Request) {}

func streamsCancelled(e *env) {
	const connections, streams = 50, 200
	release := e.hold(lockName)
	g := e.gate()
	s := e.serveWith(http2,
		Route{Pattern: orders, Guards: []guard.Config{e.config(func(cfg *guard.Config) { cfg.MaxWaiters, cfg.WaitTime = -1, crowdPatience })}, Handler: g.ServeHTTP},
		Route{Pattern: "/free", Handler: free})
	clients := s.lines(connections)
	before := runtime.NumGoroutine()

	ctx, hangUp := context.WithCancel(e.Context())
	defer hangUp()
	var all sync.WaitGroup
	for _, client := range clients {
		for range streams {
			all.Go(func() {
				if response, err := client.Do(s.request(http.MethodGet, order, nil).WithContext(ctx)); err == nil {
					e.Errorf("a request that waits is answered %d", response.StatusCode)
					_ = response.Body.Close()
				}
			})
		}
	}
	e.eventually("all requests wait", func() bool { return e.locks.Stats().Waiting == connections*streams })
	hangUp()
	all.Wait()
	for range connections * streams {
		if o := e.outcome(); o.Status != 499 {
			e.Fatalf("the outcome is %+v, want status 499", o)
		}
	}
	e.eventually("no request waits", func() bool { return e.locks.Stats().Waiting == 0 })
	e.eventually("their goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+connections })
	e.eventually("no connection listens", func() bool {
		channels, err := e.rdb.PubSubChannels(background, "redisson*").Result()
		return err == nil && len(channels) == 0
	})
	g.wantRuns(0)

	release()
	next := s.startGet(order)
	g.next().leave()
	next.answer().want(e, http.StatusOK, "done")
}

func queueStaysFull(e *env) {
	const waiters, attempts, connections, streams = 100, 10_000, 4, 50
	g := e.gate()
	s := e.serveWith(http2,
		Route{Pattern: orders, Guards: []guard.Config{e.config(func(cfg *guard.Config) {
			// No waiter leaves, however slow the machine is.
			cfg.MaxWaiters, cfg.Observe, cfg.WaitTime = waiters, nil, time.Hour
		})}, Handler: g.ServeHTTP},
		Route{Pattern: "/free", Handler: free})
	s.client.Timeout = 0
	first := s.startGet(order)
	holder := g.next()
	var queue []*pending
	for range waiters {
		queue = append(queue, s.startGet(order))
	}
	e.eventually("the queue is full", func() bool { return e.locks.Stats().Waiting == waiters })

	clients := s.lines(connections)
	var refused atomic.Int64
	try := func(n int) {
		var all sync.WaitGroup
		for i := range connections * streams {
			client := &site{e: e, client: clients[i%connections]}
			all.Go(func() {
				for range n / (connections * streams) {
					if a := client.send(s.request(http.MethodGet, order, nil)); a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "1" {
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
	}
	try(attempts / 10)
	heap, goroutines := heapNow(), runtime.NumGoroutine()
	try(attempts - attempts/10)
	if n := refused.Load(); n != attempts {
		e.Errorf("%d of %d attempts got 503", n, attempts)
	}
	e.eventually("the heap has shrunk again", func() bool { return heapNow()-heap <= 8*mebibyte })
	e.eventually("their goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+connections })

	if n := e.locks.Stats().Waiting; n != waiters {
		e.Errorf("%d requests wait, want %d", n, waiters)
	}
	e.wantHeld(lockName)
	if holder.ctx.Err() != nil {
		e.Errorf("the holder's context has ended: %v", context.Cause(holder.ctx))
	}
	g.wantRuns(1)
	holder.leave()
	first.answer().want(e, http.StatusOK, "done")
	for range queue {
		g.next().leave()
	}
	for _, p := range queue {
		p.answer().want(e, http.StatusOK, "done")
	}
}

// heapNow returns the bytes in use on the heap.
func heapNow() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// manyLongAnswers bounds how many requests wait longer than the 100ms that docs/waiting.md
// recommends. A pause of the machine makes a few wait longer.
func manyLongAnswers(e *env) {
	const requests = 2_000
	s := e.serveOrders(answerLong, waits)
	long := 0
	for _, o := range s.oneAfterAnother(requests) {
		if o.Waited > 100*time.Millisecond {
			long++
		}
	}
	if long > requests/100 {
		e.Errorf("%d of %d requests have waited for longer than 100ms", long, requests)
	}
}
