package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// service returns the service that docs/guides/frameworks.md tests.
func service(locks *core.Client) http.Handler {
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(held)))
	return mux
}

func TestBusyOrder(t *testing.T) {
	srv, err := embedded.Start() // Redis, inside this process
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	locks, err := core.New(srv.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	// Hold the lock as another request would.
	lease, err := locks.Lock("reqlock:order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())

	w := httptest.NewRecorder()
	service(locks).ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/pay", nil))
	if w.Code != http.StatusConflict {
		t.Errorf("second payment: status %d, want 409", w.Code)
	}
}

// docs/guides/frameworks.md: a guarded handler that is called without its router.
func TestHandlerWithoutRouter(t *testing.T) {
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	locks, err := core.New(srv.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id"), Logger: slog.New(slog.DiscardHandler)})
	handler := lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := post("/orders/42/pay")
	if got := answerOf(handler, r); !strings.HasPrefix(got, "500 ") || !strings.Contains(got, "misconfigured") {
		t.Error("no router: ", got)
	}
	r.SetPathValue("id", "42")
	if got := answerOf(handler, r); !strings.HasPrefix(got, "200 ") {
		t.Error("a path value that the test sets: ", got)
	}
}

// docs/guides/frameworks.md: a test without Redis, and a lost lock.
func TestTestsOfFaults(t *testing.T) {
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), DialerRetries: 1})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	lost := httplock.New(locks, httplock.Config{Key: keyfuncs.Const("k"), Logger: slog.New(slog.DiscardHandler)})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if freed, err := locks.Lock("reqlock:k").ForceUnlock(t.Context()); !freed || err != nil {
			t.Error(freed, err)
		}
		<-r.Context().Done()
		fmt.Fprint(w, errors.Is(context.Cause(r.Context()), core.ErrLockLost))
	}))
	if got := answerOf(lost, post("/")); got != "200 true" {
		t.Error("the lock is lost: ", got)
	}
	if err := locks.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := locks.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis cannot be reached") {
		t.Errorf("there is no Redis: Ping: %v", err)
	}
	if got := answerOf(service(locks), post("/orders/42/pay")); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "backend-unavailable") {
		t.Error("there is no Redis: ", got)
	}
}
