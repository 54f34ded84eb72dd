package guard_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// An adapter for a router calls Serve around the handler of each route.
func Example() {
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

	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Header("Order")})
	if err != nil {
		log.Fatal(err)
	}
	pay := func(_ http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		fmt.Println("paying under the lock", lease.Name())
	}
	route := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Serve(w, r, pay) })

	for _, order := range []string{"42", ""} {
		r := httptest.NewRequest("POST", "/pay", nil)
		if order != "" {
			r.Header.Set("Order", order)
		}
		w := httptest.NewRecorder()
		route.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// paying under the lock reqlock:42
	// 200 ""
	// 400 "application/problem+json"
}

// A handler releases the lock early if the rest of its work does not need it.
func ExampleRelease() {
	redis, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const("stock")})
	if err != nil {
		log.Fatal(err)
	}
	g.Serve(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), func(_ http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		if err := guard.Release(r.Context()); err != nil {
			fmt.Println("the stock may have changed meanwhile:", err)
			return
		}
		locked, err := locks.Lock(lease.Name()).IsLocked(r.Context())
		fmt.Println("locked while the handler goes on:", locked, err)
	})
	// Output: locked while the handler goes on: false <nil>
}
