package reqlock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	"github.com/reqlock/reqlock/middleware/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/wasm"
)

// get returns a request for path.
func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

// docs/waiting.md
func TestWaitOrRefuse(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	mux := http.NewServeMux()
	pay := http.HandlerFunc(held)
	ship := pay

	order := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	refuse := httplock.New(locks, httplock.Config{Key: order}) // 409 at once
	wait := httplock.New(locks, httplock.Config{
		Key:        order,
		WaitTime:   2 * time.Second, // then 409
		MaxWaiters: 10,              // the eleventh gets 503 at once
		RetryAfter: 5 * time.Second, // the hint in every refusal
	})
	mux.Handle("POST /orders/{id}/pay", refuse(pay))
	mux.Handle("POST /orders/{id}/ship", wait(ship))

	lease, err := locks.Lock("reqlock:order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := answerOf(mux, post("/orders/42/pay")); got[:3] != "409" {
		t.Errorf("a busy order: %s", got)
	}
	shipped := make(chan string)
	go func() { shipped <- answerOf(mux, post("/orders/42/ship")) }()
	await(t, "a waiter", func() bool { return locks.Stats().Waiting == 1 })
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-shipped; got != "200 reqlock:order:42" {
		t.Errorf("the waiting request: %s", got)
	}
}

// docs/read-write.md
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	mux := http.NewServeMux()
	reading, read := make(chan struct{}), make(chan struct{})
	show := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		reading <- struct{}{}
		<-read
	})
	rebuild := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "rebuilt") })

	shared := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("report:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeReadWrite, // GET and HEAD together, everything else alone
		WaitTime: 2 * time.Second,
	})
	mux.Handle("GET /reports/{id}", shared(show))
	mux.Handle("PUT /reports/{id}", shared(rebuild))

	answers := make(chan string)
	for range 2 {
		go func() { answers <- answerOf(mux, get("/reports/1")) }()
	}
	<-reading
	<-reading // both run
	go func() { answers <- answerOf(mux, httptest.NewRequest(http.MethodPut, "/reports/1", nil)) }()
	await(t, "the writer to wait", func() bool { return locks.Stats().Waiting == 1 })
	close(read)
	got := map[string]int{}
	for range 3 {
		got[<-answers]++
	}
	if got["200 "] != 2 || got["200 rebuilt"] != 1 {
		t.Errorf("answers %v", got)
	}
}

// docs/locks.md
func TestLeader(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	ctx, stop := context.WithCancel(t.Context())
	runs := make(chan struct{})
	schedule := func(ctx context.Context) error {
		runs <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ended := make(chan error)
	go func() {
		err := core.RunWhileHeld(ctx, locks.Lock("scheduler"), func(ctx context.Context) error {
			return schedule(ctx) // ctx ends when the lock is lost; another server takes over
		})
		ended <- err
	}()
	<-runs
	if freed, err := locks.Lock("scheduler").ForceUnlock(t.Context()); !freed || err != nil {
		t.Fatal(freed, err)
	}
	<-runs // it holds the lock again
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// docs/answers.md
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

// docs/wire.md
func TestIdentitySuffix(t *testing.T) {
	t.Parallel()

	rdb := redis.NewClient(&redis.Options{
		Addr:           "localhost:6379",
		IdentitySuffix: reqlock.Identity, // lib-name=go-redis(reqlock-0.1.0,go1.26)
	})

	if got := rdb.Options().IdentitySuffix; got != "reqlock-0.1.0" {
		t.Errorf("the identity is %q: correct docs/wire.md", got)
	}
	if err := rdb.Close(); err != nil {
		t.Error(err)
	}
}

// docs/migrating.md
func TestMigrated(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	mux := http.NewServeMux()
	pay := http.HandlerFunc(held)

	shared := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Name:     guard.Exact,     // order:42, as in redisson.getLock("order:42")
		WaitTime: 2 * time.Second, // as in tryLock(2, TimeUnit.SECONDS)
	})
	mux.Handle("POST /orders/{id}/pay", shared(pay))

	oneAtATime := httplock.New(locks, httplock.Config{
		Key:       keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), // name and keys
		WaitTime:  2 * time.Second,                                     // acquireTimeout
		LeaseTime: 60 * time.Second,                                    // expire; without it, the lock lasts as long as the handler
	})
	mux.Handle("POST /orders/{id}/ship", oneAtATime(pay))

	for path, want := range map[string]string{"/orders/42/pay": "200 order:42", "/orders/42/ship": "200 reqlock:order:42"} {
		if got := answerOf(mux, post(path)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A paymentProvider takes money, once for each key.
type paymentProvider struct{ charges map[string]int }

func (p paymentProvider) Charge(_ context.Context, key string, cents int) error {
	if p.charges[key] == 0 {
		p.charges[key] = cents
		return errors.New("the connection broke")
	}
	return nil
}

var provider = paymentProvider{map[string]int{}}

func charge(w http.ResponseWriter, r *http.Request) {
	// The same for every run of this request: the provider recognizes a repeat after a crash.
	key := idempotency.DownstreamKey(r.Context(), "provider", "charge")
	if err := provider.Charge(r.Context(), key, 2500); err != nil {
		http.Error(w, "the payment failed", http.StatusBadGateway) // a 5xx is not recorded: a repeat runs again
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// docs/idempotency.md: the handler runs twice, and the provider charges once.
func TestDownstreamKey(t *testing.T) {
	t.Parallel()
	once := httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(charge))
	for _, want := range []string{"502", "201", "201  true"} {
		if got := serves(once, "/payments"); !strings.HasPrefix(got, want) {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
	if len(provider.charges) != 1 {
		t.Errorf("charges %v", provider.charges)
	}
}

// longPages may have more than 1,500 words. The rules of the engine belong together. Programs write
// the tables of performance.md and conformance.md.
var longPages = []string{"docs/engine.md", "docs/performance.md", "docs/conformance.md"}

// README.md has at most 900 words, other pages have 1,500. Code is not counted.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		most := 1500
		if path == "README.md" {
			most = 900
		}
		prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
		words := len(regexp.MustCompile(`\S*\w\S*`).FindAllString(prose, -1))
		if words > most && !slices.Contains(longPages, path) {
			t.Errorf("%s has %d words, want at most %d", path, words, most)
		}
	}
}

// docs/wasm.md: a plugin with limits and settings of its service.
func TestPluginLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	plugin, err := wasm.Open(ctx, "examples/wasm/plugin.wasm", wasm.Config{
		Watch:    true,
		Timeout:  10 * time.Millisecond, // of the guest's own time
		MaxLease: time.Minute,
		Settings: []byte(`{"vip": ["acme"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close(context.Background())
	policy := guard.Policy{}
	if err := plugin.Policy(httptest.NewRequest("GET", "/acme/todo", nil), &policy); err != nil || !slices.Equal(policy.Keys, []string{"acme/todo"}) {
		t.Errorf("the plugin decides %v, %v; want the key acme/todo", policy.Keys, err)
	}
}

// docs/keys.md
func byWarehouse(r *http.Request) (string, error) {
	if r.Header.Get("X-Dry-Run") == "true" {
		return "", keyfuncs.ErrSkip // changes nothing, so it needs no lock
	}
	return keyfuncs.Prefix("warehouse:", keyfuncs.PathValue("id"))(r)
}

func TestKeyOfYourOwn(t *testing.T) {
	t.Parallel()
	r := get("/warehouses/7")
	r.SetPathValue("id", "7")
	r.Pattern = "POST /warehouses/{id}"
	if key, err := byWarehouse(r); key != "warehouse:7" || err != nil {
		t.Errorf("key %q, %v; want warehouse:7", key, err)
	}
	r.Header.Set("X-Dry-Run", "true")
	if _, err := byWarehouse(r); !errors.Is(err, keyfuncs.ErrSkip) {
		t.Errorf("a dry run: %v, want ErrSkip", err)
	}
}
