package guard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// newLocks returns a client of a Redis in memory.
func newLocks(t *testing.T) *core.Client {
	t.Helper()
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
		redis.Close()
	})
	return locks
}

// newGuard returns a guard whose outcomes go to that function.
func newGuard(t *testing.T, locks *core.Client, key string, observe func(*http.Request, guard.Outcome)) *guard.Guard {
	t.Helper()
	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const(key), Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The Outcome has the status that an adapter tells, and the error of ReleaseBy.
func TestReleaseBy(t *testing.T) {
	t.Parallel()
	failure := errors.New("the release failed")
	var outcome guard.Outcome
	g := newGuard(t, newLocks(t), "k", func(_ *http.Request, o guard.Outcome) { outcome = o })
	g.Serve(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), func(_ http.ResponseWriter, r *http.Request) {
		guard.SetStatus(r.Context(), 201)
		err := guard.ReleaseBy(r.Context(), func(lease *core.Lease) error {
			return errors.Join(failure, lease.Release(r.Context()))
		})
		if !errors.Is(err, failure) {
			t.Errorf("ReleaseBy: %v, want %v", err, failure)
		}
		if err := guard.ReleaseBy(r.Context(), nil); !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("a second ReleaseBy: %v, want %v", err, core.ErrNotHeld)
		}
	})
	if !outcome.Ran || outcome.Status != 201 || !errors.Is(outcome.Err, failure) {
		t.Errorf("the outcome is %+v, want status 201 and %v", outcome, failure)
	}
}

func TestReleaseBy_OutsideGuard(t *testing.T) {
	t.Parallel()
	guard.SetStatus(t.Context(), 200)
	if err := guard.ReleaseBy(t.Context(), nil); !errors.Is(err, core.ErrNotHeld) {
		t.Errorf("ReleaseBy: %v, want %v", err, core.ErrNotHeld)
	}
}

// The lease of a guard around a router is not that of the route inside.
func TestRouteLease(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	router, route := newGuard(t, locks, "router", nil), newGuard(t, locks, "route", nil)
	if _, ok := guard.RouteLease(httptest.NewRequest("GET", "/", nil)); ok {
		t.Error("a request outside guards has a lease")
	}
	ran := false
	router.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/orders/1", nil), func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "/orders/{id}" // as a router does that matches it here
		if _, ok := guard.RouteLease(r); ok {
			t.Error("the lock around the router is that of the route")
		}
		route.Serve(w, r, func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			lease, ok := guard.RouteLease(r)
			if own, _ := guard.LeaseFrom(r.Context()); !ok || lease != own {
				t.Errorf("the lease of the route is %v, %t; want %v", lease, ok, own)
			}
			if err := guard.Release(r.Context()); err != nil {
				t.Error(err)
			}
			if _, ok := guard.RouteLease(r); ok {
				t.Error("a lease that was released is still that of the route")
			}
		})
	})
	if !ran {
		t.Error("the handler did not run")
	}
}
