package docs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/reqlock/reqlock/coalesce"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

type Report struct{ Tenant string }

func compute(_ context.Context, tenant string) (Report, error) { return Report{tenant}, nil }

// docs/guides/coalesce.md
func TestCoalesce(t *testing.T) {
	t.Parallel()
	locks, ctx, tenant := newLocks(t), context.Background(), "acme"
	for _, want := range []bool{false, true} {
		report, shared, err := coalesce.Do(ctx, locks, "report:"+tenant, coalesce.Options{}, func(ctx context.Context) (Report, error) {
			return compute(ctx, tenant)
		})
		if report.Tenant != "acme" || shared != want || err != nil {
			t.Errorf("%v, shared %v, %v", report, shared, err)
		}
	}
}

// docs/guides/coalesce.md
func TestCoalesceStale(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	report := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("sold: 7")) })
	fresh := httplock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone, Keep: 10 * time.Second, Stale: time.Minute})
	mux := http.NewServeMux()
	mux.Handle("GET /report", fresh(report))
	for _, want := range []bool{false, true} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/report", nil))
		if w.Body.String() != "sold: 7" || (w.Header().Get("Age") != "") != want {
			t.Errorf("%s, %v", w.Body, w.Header())
		}
	}
}

// docs/guides/coalesce.md
func TestCoalesceHTTP(t *testing.T) {
	t.Parallel()
	locks, mux := newLocks(t), http.NewServeMux()
	report := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("sold: 7")) })
	one := httplock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone, Vary: []string{"Accept-Language"}})
	mux.Handle("GET /report", one(report))
	for _, want := range []string{"", "1"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/report", nil))
		if w.Body.String() != "sold: 7" || w.Header().Get("Reqlock-Shared") != want {
			t.Errorf("%s, %v", w.Body, w.Header())
		}
	}
}
