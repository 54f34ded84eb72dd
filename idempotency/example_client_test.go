package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

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

// A client repeats a payment that the server could not make, and gets the result of the second run.
// One more repeat gets the same result.
func Example_client() {
	redis, err := embedded.Start() // in production, a Redis that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	runs := 0
	once := httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
	shop := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if runs++; runs == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	defer shop.Close()

	for range 2 {
		resp, err := send(context.Background(), shop.URL, "8e03978e", "50")
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Printf("%s, replayed %q\n", resp.Status, resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("runs:", runs)
	// Output:
	// 201 Created, replayed ""
	// 201 Created, replayed "true"
	// runs: 2
}
