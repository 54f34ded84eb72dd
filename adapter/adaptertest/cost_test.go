//go:build !race

package adaptertest_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Tests of what a guard costs a request. The race detector makes pools forget, so they are not for
// it.

// costs bounds the allocations that a guard adds to a request with a lock of its own.
var costs = map[string]struct {
	guard float64 // of the adapter and package guard: the request, its context, and the lock's name
	all   float64 // with those of core, and of the Redis client for both commands
}{
	adaptertest.ServeMux.Name: {3, 17},
	adaptertest.Chi.Name:      {3, 17},
	adaptertest.Gin.Name:      {7, 21}, // two more are the map of net/http for path values
	adaptertest.Echo.Name:     {8, 22}, // Gin's, and Echo wraps its middleware anew for each request.
}

// mostOfFirstRun bounds the allocations that idempotency adds to the first request of a key.
const mostOfFirstRun = 94

var (
	byOrder = guard.Config{Key: keyfuncs.PathValue("id"), WaitTime: 5 * time.Second}
	byKey   = idempotency.Config{Scope: idempotency.ScopeGlobal}
)

func TestCost_Guard(t *testing.T) {
	locks := openLocks(t)
	lease, err := locks.Lock("held").Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := byOrder
	cfg.Locker = func(*http.Request, string) core.Locker { return held{lease} }
	for _, a := range frameworks {
		added := added(routeOf(a, locks), routeOf(a, locks, func(r *adaptertest.Route) {
			r.Guards = []guard.Config{cfg}
			r.Handler = func(_ http.ResponseWriter, r *http.Request) { guard.Detach(r.Context()) }
		}))
		if most := costs[a.Name].guard; added > most {
			t.Errorf("%s: a guard adds %.0f allocations of its own, want %.0f at most", a.Name, added, most)
		}
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestCost_All(t *testing.T) {
	locks := openLocks(t)
	for _, a := range frameworks {
		added := added(routeOf(a, locks), routeOf(a, locks, locked))
		if most := costs[a.Name].all; added > most {
			t.Errorf("%s: a guard adds %.0f allocations, want %.0f at most", a.Name, added, most)
		}
	}
}

func TestCost_FirstRun(t *testing.T) {
	locks := openLocks(t)
	added := added(routeOf(onMux, locks), routeOf(onMux, locks, func(r *adaptertest.Route) { r.Once = []idempotency.Config{byKey} }))
	if added > mostOfFirstRun {
		t.Errorf("idempotency adds %.0f allocations to a first run, want %d at most", added, mostOfFirstRun)
	}
}

// added returns how many allocations a request to with has more than one to without, to the
// nearest whole number: garbage collections empty a pool now and then.
func added(without, with http.Handler) float64 {
	return math.Round(allocations(client(with, 0)) - allocations(client(without, 0)))
}

// allocations returns those of the whole process for each call of send.
func allocations(send func()) float64 {
	const requests = 5000
	for range 100 {
		send()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		send()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / requests
}

// BenchmarkCost is for profiles: 64 clients send requests to a route with a guard, and to one
// without.
func BenchmarkCost(b *testing.B) {
	locks := openLocks(b)
	for _, a := range frameworks {
		b.Run(a.Name, func(b *testing.B) { benchmark(b, routeOf(a, locks, locked)) })
		b.Run(a.Name+", no lock", func(b *testing.B) { benchmark(b, routeOf(a, locks)) })
	}
}

func benchmark(b *testing.B, router http.Handler) {
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	var clients atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		send := client(router, int(clients.Add(1)))
		for pb.Next() {
			send()
		}
	})
}

func openLocks(t testing.TB) *core.Client {
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// routeOf returns a router with one route.
func routeOf(a adaptertest.Adapter, locks *core.Client, changes ...func(*adaptertest.Route)) http.Handler {
	route := adaptertest.Route{Method: http.MethodPost, Pattern: "/orders/{id}", Handler: func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	}}
	for _, change := range changes {
		change(&route)
	}
	return a.Router(locks, route)
}

func locked(r *adaptertest.Route) { r.Guards = []guard.Config{byOrder} }

// client returns a function that sends the next request of a client. Each has another order than
// those around it, which no other client has, and another idempotency key. As in net/http's server,
// the context of a request can end, and has the server.
func client(router http.Handler, n int) func() {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), http.ServerContextKey, &http.Server{Handler: router}))
	context.AfterFunc(ctx, cancel)
	requests := make([]*http.Request, 100)
	for i := range requests {
		requests[i] = httptest.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("/orders/%d-%d", n, i), http.NoBody)
		requests[i].Header.Set("Idempotency-Key", "set for each request")
	}
	w, next := &sink{header: make(http.Header)}, 0
	return func() {
		r := requests[next%len(requests)]
		r.Header["Idempotency-Key"][0] = strconv.Itoa(next)
		clear(w.header)
		router.ServeHTTP(w, r)
		next++
	}
}

// A sink is a writer that drops the answers.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header                { return s.header }
func (*sink) WriteHeader(int)                      {}
func (*sink) Write(p []byte) (int, error)          { return len(p), nil }
func (*sink) WriteString(text string) (int, error) { return len(text), nil }
