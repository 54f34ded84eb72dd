package reqlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
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

// docs/locks.md
func TestItemsOfOneOrder(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	products := []string{"7", "8", "7", "7"}
	failed := make(chan error, len(products))
	var inside sync.Map
	book := func(product string) func(context.Context) error {
		return func(context.Context) error {
			if _, twice := inside.LoadOrStore(product, true); twice {
				return errors.New("two items of one product at once")
			}
			runtime.Gosched()
			inside.Delete(product)
			return nil
		}
	}
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Const("order:42")})
	handler := lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		var work sync.WaitGroup
		for _, product := range products {
			work.Go(func() { // below a guard of the order; two items of one product take turns
				failed <- core.Do(ctx, locks.Lock("stock:"+product), core.AcquireOptions{WaitTime: time.Minute}, book(product))
			})
		}
		work.Wait()
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
	for range products {
		if err := <-failed; err != nil {
			t.Error(err)
		}
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

var errUnsent = errors.New("the request was not sent")

func transfer(w http.ResponseWriter, r *http.Request) {
	err := provider.Charge(r.Context(), idempotency.DownstreamKey(r.Context(), "provider"), 2500)
	switch {
	case errors.Is(err, errUnsent):
		idempotency.Outcome(r.Context()).NothingDone() // whatever the status is
		http.Error(w, "the provider is down", http.StatusServiceUnavailable)
	case err != nil:
		idempotency.Outcome(r.Context()).Done() // perhaps: no repeat may charge again
		http.Error(w, "ask us about the payment", http.StatusBadGateway)
	default:
		w.WriteHeader(http.StatusCreated)
	}
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

	// docs/idempotency-outcomes.md: the charge may have been made, so repeats get the answer.
	once = httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(transfer))
	for _, want := range []string{"502", "502 ask us about the payment\n true"} {
		if got := serves(once, "/transfers"); !strings.HasPrefix(got, want) {
			t.Errorf("answer %q, want %q", got, want)
		}
	}
}

// send repeats a request, with its key, until it has a result.
func send(ctx context.Context, url, key, body string) (*http.Response, error) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Idempotency-Key", key) // the same for all tries
		resp, err := http.DefaultClient.Do(req)
		if err == nil && resp.StatusCode < 500 && resp.Header.Get("Retry-After") == "" {
			return resp, nil
		}
		if err == nil {
			resp.Body.Close()
			if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// docs/idempotency-policy.md: the client repeats a 503, and a 409 with Retry-After.
func TestPolicyClient(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	first, done := make(chan struct{}), make(chan struct{})
	once := httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})
	srv := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			close(first)
			<-done
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	defer srv.Close()
	results := make(chan string, 2)
	try := func() {
		resp, err := send(t.Context(), srv.URL, "k", "50")
		if err != nil {
			results <- err.Error()
			return
		}
		resp.Body.Close()
		results <- resp.Status
	}
	go try()
	<-first
	go try() // gets 409 locked
	close(done)
	for range 2 {
		if got := <-results; got != "201 Created" {
			t.Errorf("a client has %s", got)
		}
	}
	if n := tries.Load(); n != 2 {
		t.Errorf("the handler ran %d times, want twice", n)
	}
}

// docs/idempotency-fingerprints.md: the time of an attempt does not count, and neither does the
// boundary of a form.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal}
	cfg.Fingerprint = idempotency.FingerprintFields("/to", "/amount", "/currency")
	once := httplock.Idempotent(newLocks(t), cfg)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		contentType, body string
		status            int
	}{
		{"application/json", `{"to":"bert","amount":50,"at":1}`, 200},
		{"application/json", `{"to":"bert","amount":50,"at":2}`, 200},
		{"application/json", `{"to":"bert","amount":70,"at":2}`, 422},
		{"multipart/form-data; boundary=a", "--a\r\n\r\n50\r\n--a--", 200},
		{"multipart/form-data; boundary=b", "--b\r\n\r\n50\r\n--b--", 200},
		{"multipart/form-data; boundary=b", "--b\r\n\r\n70\r\n--b--", 422},
	} {
		r, w := httptest.NewRequest("POST", "/", strings.NewReader(test.body)), httptest.NewRecorder()
		r.Header.Set("Content-Type", test.contentType)
		r.Header.Set("Idempotency-Key", test.contentType[:4])
		if once.ServeHTTP(w, r); w.Code != test.status {
			t.Errorf("%s: %d, want %d", test.body, w.Code, test.status)
		}
	}
}

// mostWords has the pages that may have more than 1,500 words, code included. Programs write most
// of the long ones. 0: any number.
var mostWords = map[string]int{
	"README.md":           900,
	"docs/options.md":     1700,
	"docs/benchmarks.md":  0,
	"docs/conformance.md": 0,
}

func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		most, named := mostWords[path]
		if !named {
			most = 1500
		}
		if words := len(regexp.MustCompile(`\S*[A-Za-z0-9]\S*`).FindAllString(text, -1)); words > most && most > 0 {
			t.Errorf("%s has %d words, want at most %d", path, words, most)
		}
	}
}

// testedBlocks has the tests of code blocks, by language. A page is that of the test, or any.
var testedBlocks = map[string]struct{ page, test string }{
	"go":        {"", "TestSnippets"},
	"sh":        {"", "TestCommands"},
	"caddyfile": {"docs/caddy.md", "TestDocs of caddy"},
	"console":   {"docs/commands.md", "TestDocumentation of cmd/reqlock"},
}

// Each guide begins with the reader's problem, in a short paragraph, and ends with code that a test
// runs.
func TestGuides(t *testing.T) {
	t.Parallel()
	_, guides, _ := strings.Cut(read(t, "mkdocs.yml"), "\n  - Guides:\n")
	guides, _, _ = strings.Cut(guides, "\n  - Reference:\n")
	pages := regexp.MustCompile(`(?m)^ +- [^:]+: (\S+\.md)$`).FindAllStringSubmatch(guides, -1)
	if len(pages) < 25 {
		t.Fatalf("found only %d guides", len(pages))
	}
	prose := regexp.MustCompile(`\A# .+\n\n([A-Za-z][^|]+?)\n\n`)
	fence := regexp.MustCompile("(?m)^```(\\w*)$")
	for _, p := range pages {
		page := "docs/" + p[1]
		text := read(t, page)
		if begin := prose.FindStringSubmatch(text); begin == nil {
			t.Errorf("%s does not begin with a title and a paragraph", page)
		} else if words := len(strings.Fields(begin[1])); words < 10 || words > 80 {
			t.Errorf("the first paragraph of %s has %d words, want 10 to 80", page, words)
		}
		fences := fence.FindAllStringSubmatch(text, -1)
		if len(fences) < 2 || !strings.HasSuffix(text, "\n```\n") {
			t.Errorf("%s does not end with code", page)
			continue
		}
		language := fences[len(fences)-2][1]
		if tested, ok := testedBlocks[language]; !ok || tested.page != "" && tested.page != page {
			t.Errorf("%s ends with code of language %q, which no test runs", page, language)
		}
	}
}

// docs/settings.md and docs/runbooks.md
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

// docs/topologies.md: without replicas, no lock is granted.
func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks, err := core.New(rdb, core.Options{
		ReplicaAcks:    2,                      // of all replicas that can be promoted
		ReplicaTimeout: 500 * time.Millisecond, // then core.ErrNotReplicated
	})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	if _, err := locks.Lock("order:42").Acquire(t.Context(), core.AcquireOptions{}); !errors.Is(err, core.ErrNotReplicated) {
		t.Errorf("error %v, want ErrNotReplicated", err)
	}
}

// docs/redisson-differences.md
func TestMajority(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second, third := newLocks(t), newLocks(t), newLocks(t)

	locked := core.RedLock(first.Lock("order:42"), second.Lock("order:42"), third.Lock("order:42"))
	lease, err := locked.Acquire(ctx, core.AcquireOptions{WaitTime: 10 * time.Second})

	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}

// docs/wasm.md: a plugin with limits and settings of its service.
func TestPluginLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	plugin, err := wasm.Open(ctx, "examples/wasm/plugin.wasm", wasm.Config{
		Watch:       true,
		Timeout:     10 * time.Millisecond, // of the guest's own time
		InitTimeout: 5 * time.Minute,       // to compile it, on a busy machine
		MaxLease:    time.Minute,
		Settings:    []byte(`{"vip": ["acme"]}`),
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

// docs/lock-and-idempotency.md: a replay takes no lock, and the lock's refusal is not recorded.
func TestLockAndIdempotency(t *testing.T) {
	t.Parallel()
	locks, mux, accountKey := newLocks(t), http.NewServeMux(), tenantKey{}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey, "anna")))
		})
	}
	pay := http.HandlerFunc(held)
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:    keyfuncs.Context(accountKey), // set by your authentication
		WaitTime: 10 * time.Second,
	})
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		WaitTime: 2 * time.Second,
		MaxHold:  5 * time.Second,
	})
	mux.Handle("POST /orders/{id}/pay", authenticate(once(oneAtATime(pay))))
	sends := func(path, key, want string) {
		t.Helper()
		r, w := post(path), httptest.NewRecorder()
		r.Header.Set("Idempotency-Key", key)
		mux.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Idempotent-Replayed")); !strings.HasPrefix(got, want) {
			t.Errorf("%s, key %s: answer %s, want %s", path, key, got, want)
		}
	}
	sends("/orders/1/pay", "a", "200 reqlock:order:1 ")
	lease, err := locks.Lock("reqlock:order:1").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sends("/orders/1/pay", "a", "200 reqlock:order:1 true")
	sends("/orders/2/pay", "a", "422")
	sends("/orders/1/pay", "b", "409")
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	sends("/orders/1/pay", "b", "200 reqlock:order:1 ")
}
