package adaptertest_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// BenchmarkAdded measures the difference between a route with a guard and a route whose handler
// acquires the lock from core itself. It needs no Redis: every Acquire gets the same lease, and the
// handler detaches it, so that the guard has nothing to release.
func BenchmarkAdded(b *testing.B) {
	locks, err := core.New(redistest.Start(b).Client(b), core.Options{})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	lease, err := locks.Lock("reqlock:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := lease.Release(ctx); err != nil {
			b.Error(err)
		}
		if err := locks.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	guarded := guard.Config{
		Key:    keyfuncs.PathValue("id"),
		Locker: func(*http.Request, string) core.Locker { return held{lease} },
	}
	for _, a := range frameworks {
		b.Run(a.Name, func(b *testing.B) {
			with := requests(a, locks, func(_ http.ResponseWriter, r *http.Request) {
				if _, ok := guard.Detach(r.Context()); !ok {
					b.Error("there was no lock")
				}
			}, guarded)
			without := requests(a, locks, func(_ http.ResponseWriter, r *http.Request) {
				ctx := core.WithNewOwner(r.Context())
				mine, err := guarded.Locker(r, "reqlock:42").Acquire(ctx, core.AcquireOptions{})
				if err != nil {
					b.Error(err)
				}
				bound, release := mine.Bind(ctx)
				defer release()
				if _, ok := guard.Detach(bound); ok {
					b.Error("there was a guard")
				}
			})

			added := testing.AllocsPerRun(1000, with) - testing.AllocsPerRun(1000, without)
			b.ResetTimer()
			perRequest := fastest(b.N, with) - fastest(b.N, without)
			b.ReportMetric(added, "added-allocs/op")
			b.ReportMetric(float64(perRequest.Nanoseconds()), "added-ns/op")
		})
	}
}

// requests returns a function that sends one request to a route.
func requests(a adaptertest.Adapter, locks *core.Client, handler http.HandlerFunc, guards ...guard.Config) func() {
	router := a.Router(locks, adaptertest.Route{Method: http.MethodGet, Pattern: "/orders/{id}", Guards: guards, Handler: handler})
	r, w := httptest.NewRequest(http.MethodGet, "/orders/42", nil), httptest.NewRecorder()
	return func() { router.ServeHTTP(w, r.WithContext(context.Background())) }
}

// fastest returns the shortest time of n calls.
func fastest(n int, f func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for n > 0 {
		few := min(n, 100)
		began := time.Now()
		for range few {
			f()
		}
		best, n = min(best, time.Since(began)/time.Duration(few)), n-few
	}
	return best
}

// held is a lock that every Acquire gets.
type held struct{ lease *core.Lease }

func (h held) Name() string { return h.lease.Name() }

func (h held) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) { return h.lease, nil }
