package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/wasm"
)

import (
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := httplock.LeaseFrom(r.Context())
		fmt.Fprintf(w, "paid under lock %q", lease.Name())
	})

	locks, err := core.New(rdb, core.Options{}) // rdb is your go-redis client
	if err != nil {
		log.Fatal(err)
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), // same key: one at a time
		WaitTime: 2 * time.Second,                                     // 0: 409 at once
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", oneAtATime(pay)) // pay is your http.Handler

	defer locks.Close(context.Background())
	web := httptest.NewServer(mux)
	defer web.Close()
	response, err := http.Post(web.URL+"/orders/42/pay", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, string(body))
	// Output: 200 OK paid under lock "reqlock:order:42"
}

func Example_plugin() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	ctx, mux := context.Background(), http.NewServeMux()
	show := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	change := show

	plugin, err := wasm.Open(ctx, "examples/wasm/plugin.wasm", wasm.Config{Watch: true})
	if err != nil {
		log.Fatal(err)
	}
	defer plugin.Close(context.Background()) // after the server's Shutdown
	decided := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
	mux.Handle("GET /{tenant}/{list}", decided(show))
	mux.Handle("POST /{tenant}/{list}", decided(change))
}

func Example_shutdown() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()

	shutdown := func(ctx context.Context, server *http.Server) error {
		closed := make(chan error, 1)
		server.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
		err := errors.Join(server.Shutdown(ctx), <-closed)
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(shutdown(ctx, web.Config))
	_, err = locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	fmt.Println(errors.Is(err, core.ErrClosed))
	// Output:
	// <nil>
	// true
}

func Example_core() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	write := func(ctx context.Context) error {
		held, err := locks.Lock("report:daily").IsHeld(ctx)
		fmt.Println("held:", held)
		return err
	}

	report := func() error {
		lease, err := locks.Lock("report:daily").Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: another owner held it until WaitTime had passed
		}
		defer lease.Release(ctx)
		return write(lease.Context()) // the context ends when the lock is lost
	}

	if err := report(); err != nil {
		log.Fatal(err)
	}
	locked, err := locks.Lock("report:daily").IsLocked(ctx)
	fmt.Println("locked afterwards:", locked, err)
	// Output:
	// held: true
	// locked afterwards: false <nil>
}

func Example_redisson() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, mux := context.Background(), http.NewServeMux()
	defer locks.Close(ctx)
	pay := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println(rdb.Type(ctx, "order:42").Val(), rdb.HVals(ctx, "order:42").Val())
	})

	shared := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		Name:     guard.Exact,     // order:42, as in redisson.getLock("order:42")
		WaitTime: 2 * time.Second, // as in tryLock(2, TimeUnit.SECONDS)
	})
	mux.Handle("POST /orders/{id}/pay", shared(pay))

	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/42/pay", nil))
	// Output: hash [1]
}

// Step 4 of docs/start/first-handler.md. It is compiled and not run, because it uses a fixed port.
func Example_yourRedis() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
}

func Example_idempotency() {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	type contextKey struct{}
	accountKey := contextKey{}
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey, r.Header.Get("Authorization"))))
		})
	}
	payments := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		fmt.Fprintf(w, "payment %d", payments)
	})
	mux := http.NewServeMux()

	once := httplock.Idempotent(locks, idempotency.Config{
		Scope:    keyfuncs.Context(accountKey), // the owner of the keys, set by your authentication
		WaitTime: 10 * time.Second,             // 0: a repeat during the first run gets 409 at once
	})
	mux.Handle("POST /payments", authenticate(once(pay)))

	for _, account := range []string{"anna", "anna", "bert"} {
		r := httptest.NewRequest("POST", "/payments", nil)
		r.Header.Set("Authorization", account)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %s, replayed %q\n", account, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// anna: payment 1, replayed ""
	// anna: payment 1, replayed "true"
	// bert: payment 2, replayed ""
}
