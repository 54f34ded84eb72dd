package docs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// docs/guides/waiting.md
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

// docs/guides/keys.md
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

// docs/guides/locks.md
func TestLatch(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	run := func(ctx context.Context, importPart func(context.Context) error) error {
		imported := locks.CountDownLatch("imported:2026-11-28")
		if _, err := imported.TrySetCount(ctx, 4); err != nil { // the first part sets it
			return err
		}
		if err := importPart(ctx); err != nil {
			return err
		}
		if err := imported.CountDown(ctx); err != nil { // once for each part
			return err
		}
		return imported.Await(ctx) // until the count is 0, in any process
	}
	var done atomic.Int32
	last := make(chan struct{})
	results := make(chan error)
	for i := range 4 {
		go func() {
			results <- run(t.Context(), func(context.Context) error {
				if i == 3 {
					<-last
				}
				done.Add(1)
				return nil
			})
		}()
	}
	await(t, "three parts to wait", func() bool { return locks.Stats().Waiting == 3 })
	select {
	case err := <-results:
		t.Fatalf("a part returned before the last: %v", err)
	default:
	}
	close(last)
	for range 4 {
		if err := <-results; err != nil || done.Load() != 4 {
			t.Errorf("%v, after %d parts", err, done.Load())
		}
	}
}

// docs/guides/locks.md
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

// docs/guides/locks.md
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

// docs/reference/guarantees.md: without replicas, no lock is granted.
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

// docs/guides/redisson.md
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

// docs/guides/limits.md
func TestSharedPermits(t *testing.T) {
	t.Parallel()
	ctx, locks := t.Context(), newLocks(t)
	if err := locks.Semaphore("exports", 0).SetPermits(ctx, 5); err != nil { // as a JVM does
		t.Fatal(err)
	}
	free := -1
	export := func(ctx context.Context) (err error) {
		free, err = locks.Semaphore("exports", 0).Available(ctx)
		return err
	}

	exports := locks.Semaphore("exports", 0) // a JVM has said how many: setPermits(5)
	err := core.Do(ctx, exports, core.AcquireOptions{WaitTime: 10 * time.Second}, export)

	if err != nil || free != 4 {
		t.Errorf("%d permits are free, %v; want 4", free, err)
	}
}

// docs/guides/migrating.md
func TestMigrated(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	mux := http.NewServeMux()
	pay := http.HandlerFunc(held)

	oneAtATime := httplock.New(locks, httplock.Config{
		Key:       keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), // name and keys
		WaitTime:  2 * time.Second,                                     // acquireTimeout
		LeaseTime: 60 * time.Second,                                    // expire; without it, the lock lasts as long as the handler
	})
	mux.Handle("POST /orders/{id}/pay", oneAtATime(pay))

	if got := answerOf(mux, post("/orders/42/pay")); got != "200 reqlock:order:42" {
		t.Error(got)
	}
}
