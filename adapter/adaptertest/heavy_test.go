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
		t.Run(s.name, func(t *testing.T) { s.run(newFixture(t, a, s.setup...)) })
	}
}

// lines are clients of a server, each with its own connection.
func (s *testServer) lines(n int) (clients []*http.Client) {
	s.fx.Helper()
	for range n {
		transport := s.client.Transport.(*http.Transport).Clone()
		client := &http.Client{Transport: transport}
		response, err := client.Do(s.newRequest(http.MethodGet, "/free", nil)) // opens it
		if err != nil {
			s.fx.Fatal(err)
		}
		_ = response.Body.Close()
		s.fx.ends = append(s.fx.ends, transport.CloseIdleConnections)
		clients = append(clients, client)
	}
	return clients
}

func free(http.ResponseWriter, *http.Request) {}

func streamsCancelled(fx *fixture) {
	const connections, streams = 50, 200
	release := fx.mustHold(lockName)
	g := fx.newBlockingHandler()
	s := fx.serveWith(http2,
		Route{Pattern: orders, Guards: []guard.Config{fx.config(func(cfg *guard.Config) { cfg.MaxWaiters, cfg.WaitTime = -1, crowdPatience })}, Handler: g.ServeHTTP},
		Route{Pattern: "/free", Handler: free})
	clients := s.lines(connections)
	before := runtime.NumGoroutine()

	ctx, hangUp := context.WithCancel(fx.Context())
	defer hangUp()
	var all sync.WaitGroup
	for _, client := range clients {
		for range streams {
			all.Go(func() {
				if response, err := client.Do(s.newRequest(http.MethodGet, order, nil).WithContext(ctx)); err == nil {
					fx.Errorf("a request that waits is answered %d", response.StatusCode)
					_ = response.Body.Close()
				}
			})
		}
	}
	fx.eventually("all requests wait", func() bool { return fx.locks.Stats().Waiting == connections*streams })
	hangUp()
	all.Wait()
	for range connections * streams {
		if o := fx.outcome(); o.Status != 499 {
			fx.Fatalf("the outcome is %+v, want status 499", o)
		}
	}
	fx.eventually("no request waits", func() bool { return fx.locks.Stats().Waiting == 0 })
	fx.eventually("their goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+connections })
	fx.eventually("no connection listens", func() bool {
		channels, err := fx.rdb.PubSubChannels(background, "redisson*").Result()
		return err == nil && len(channels) == 0
	})
	g.wantRuns(0)

	release()
	next := s.startGet(order)
	g.nextRun().finish()
	next.mustGetAnswer().want(fx, http.StatusOK, "done")
}

func queueStaysFull(fx *fixture) {
	const waiters, attempts, connections, streams = 100, 10_000, 4, 50
	g := fx.newBlockingHandler()
	s := fx.serveWith(http2,
		Route{Pattern: orders, Guards: []guard.Config{fx.config(func(cfg *guard.Config) {
			// No waiter leaves, however slow the machine is.
			cfg.MaxWaiters, cfg.Observe, cfg.WaitTime = waiters, nil, time.Hour
		})}, Handler: g.ServeHTTP},
		Route{Pattern: "/free", Handler: free})
	s.client.Timeout = 0
	first := s.startGet(order)
	holder := g.nextRun()
	var queue []*pendingRequest
	for range waiters {
		queue = append(queue, s.startGet(order))
	}
	fx.eventually("the queue is full", func() bool { return fx.locks.Stats().Waiting == waiters })

	clients := s.lines(connections)
	var refused atomic.Int64
	try := func(n int) {
		var all sync.WaitGroup
		for i := range connections * streams {
			client := &testServer{fx: fx, client: clients[i%connections]}
			all.Go(func() {
				for range n / (connections * streams) {
					if a := client.send(s.newRequest(http.MethodGet, order, nil)); a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "1" {
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
		fx.Errorf("%d of %d attempts got 503", n, attempts)
	}
	fx.eventually("the heap has shrunk again", func() bool { return heapNow()-heap <= 8*mebibyte })
	fx.eventually("their goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+connections })

	if n := fx.locks.Stats().Waiting; n != waiters {
		fx.Errorf("%d requests wait, want %d", n, waiters)
	}
	fx.wantHeld(lockName)
	if holder.ctx.Err() != nil {
		fx.Errorf("the holder's context has ended: %v", context.Cause(holder.ctx))
	}
	g.wantRuns(1)
	holder.finish()
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	for range queue {
		g.nextRun().finish()
	}
	for _, p := range queue {
		p.mustGetAnswer().want(fx, http.StatusOK, "done")
	}
}

// heapNow returns the bytes in use on the heap.
func heapNow() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// manyLongAnswers bounds how many requests wait longer than the 100ms that docs/guides/waiting.md
// recommends. A pause of the machine makes a few wait longer.
func manyLongAnswers(fx *fixture) {
	const requests = 2_000
	s := fx.serveOrders(answerLong, waits)
	long := 0
	for _, o := range s.oneAfterAnother(requests) {
		if o.Waited > 100*time.Millisecond {
			long++
		}
	}
	if long > requests/100 {
		fx.Errorf("%d of %d requests have waited for longer than 100ms", long, requests)
	}
}
