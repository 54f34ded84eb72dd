package docs_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// docs/reference/answers.md
func TestAnswerOfYours(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)

	cfg := httplock.Config{
		Key: keyfuncs.PathValue("id"),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var refusal *guard.Error // always set here
			if errors.As(err, &refusal) && refusal.Type == guard.ProblemLocked {
				http.Error(w, "this order is being paid already", http.StatusConflict)
				return
			}
			guard.WriteProblem(w, r, err)
		},
	}

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", httplock.New(locks, cfg)(http.HandlerFunc(held)))
	hold(t, locks, "reqlock:42")
	if got := answerOf(mux, post("/orders/42/pay")); got != "409 this order is being paid already\n" {
		t.Error(got)
	}
}

// docs/guides/operations.md and docs/guides/runbooks.md
func TestBounds(t *testing.T) {
	defer guard.SetBodyBudget(64 << 20) // the default
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	guard.SetBodyBudget(256 << 20) // for all guards of the process
	locks, err := core.New(rdb, core.Options{WatchdogTimeout: 15 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:        keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		WaitTime:   2 * time.Second,
		MaxWaiters: 50,
		MaxHold:    time.Minute,
		BufferBody: 64 << 10,
	})

	bounded := httplock.New(locks, httplock.Config{
		Key:        keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		MaxHold:    30 * time.Second, // ReqlockLockStuck
		WaitTime:   2 * time.Second,  // ReqlockWaitersPileUp: then 409
		MaxWaiters: 20,               // then 503 at once
	})

	defer locks.Close(t.Context())
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", oneAtATime(http.HandlerFunc(held)))
	mux.Handle("POST /orders/{id}/ship", bounded(http.HandlerFunc(held)))
	for _, path := range []string{"/orders/42/pay", "/orders/42/ship"} {
		if got := answerOf(mux, post(path)); got != "200 reqlock:order:42" {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func Example_metrics() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	var outcomes expvar.Map // or counters of whatever you measure with
	var lost expvar.Int
	locks, err := core.New(rdb, core.Options{Observer: core.Observer{
		Lost: func(context.Context, core.Event) { lost.Add(1) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key: keyfuncs.PathValue("id"),
		Observe: func(r *http.Request, o guard.Outcome) { // also o.Waited, o.Held, for histograms
			outcome := "ran"
			if refusal := (*guard.Error)(nil); errors.As(o.Err, &refusal) {
				outcome = strings.TrimPrefix(refusal.Type, "urn:reqlock:problem:")
			}
			outcomes.Add(outcome, 1)
		},
	})

	defer locks.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("POST /metered/{id}", oneAtATime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(httptest.NewRecorder(), post("/metered/1")) // while this one has the lock
	})))
	mux.ServeHTTP(httptest.NewRecorder(), post("/metered/1"))
	fmt.Println(&outcomes, &lost)
	// Output: {"locked": 1, "ran": 1} 0
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	ctx, mux := t.Context(), http.NewServeMux()

	if err := locks.Ping(ctx); err != nil { // at start-up
		log.Fatal(err)
	}
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Ping(r.Context()); err != nil {
			slog.Error("not ready", "error", err) // it names users and addresses: not for clients
			http.Error(w, "locks do not work", http.StatusServiceUnavailable)
		}
	})

	if got := answerOf(mux, httptest.NewRequest(http.MethodGet, "/readyz", nil)); got != "200 " {
		t.Error(got)
	}
}

// docs/guides/operations.md
func TestIdentitySuffix(t *testing.T) {
	t.Parallel()

	rdb := redis.NewClient(&redis.Options{
		Addr:           "localhost:6379",
		IdentitySuffix: reqlock.Identity, // lib-name=go-redis(reqlock-0.2.0,go1.26)
	})

	if got := rdb.Options().IdentitySuffix; got != "reqlock-0.2.0" {
		t.Errorf("the identity is %q: correct docs/guides/operations.md", got)
	}
	if err := rdb.Close(); err != nil {
		t.Error(err)
	}
}

// docs/guides/fencing.md: without its counter, tokens of a name begin at 1 again.
func TestDeleteTokens(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	defer locks.Close(context.Background())
	next := func() uint64 {
		lease, err := locks.FencedLock("reqlock:order:42").Acquire(ctx, core.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(ctx)
		token, _ := lease.Token()
		return token
	}
	if first, second := next(), next(); first != 1 || second != 2 {
		t.Errorf("tokens %d and %d, want 1 and 2", first, second)
	}
	forget := func() error {
		err := rdb.Del(ctx, core.KeysOf("reqlock:order:42").Tokens).Err() // after the row of order 42
		return err
	}
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	if token := next(); token != 1 {
		t.Errorf("token %d, want 1", token)
	}
}
