package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

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

// Validate reports what New would refuse.
func ExampleConfig_Validate() {
	err := guard.Config{Key: keyfuncs.PathValue("id"), WaitTime: -time.Second}.Validate()
	fmt.Println(err != nil)
	// Output: true
}

// Bodies that guards of this process have in memory take 16 MiB at most.
func ExampleSetBodyBudget() {
	guard.SetBodyBudget(16 << 20)
}

// A service with answers of its own leaves the others to WriteProblem.
func ExampleWriteProblem() {
	answer := func(w http.ResponseWriter, r *http.Request, err error) {
		if errors.Is(err, core.ErrNotAcquired) {
			http.Error(w, "somebody else is paying this order", http.StatusConflict)
			return
		}
		guard.WriteProblem(w, r, err)
	}
	for _, err := range []error{core.ErrNotAcquired, errors.New("a fault")} {
		w := httptest.NewRecorder()
		answer(w, httptest.NewRequest("POST", "/pay", nil), err)
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// 409 text/plain; charset=utf-8
	// 500 application/problem+json
}

// The lock of a key has the name that a program in Java uses.
func ExampleExact() {
	fmt.Println(guard.Exact("order:42"))
	// Output: order:42
}

// A handler starts work that outlives it, and takes the lock along.
func ExampleDetach() {
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

	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const("import")})
	if err != nil {
		log.Fatal(err)
	}
	imported := make(chan error)
	g.Serve(httptest.NewRecorder(), httptest.NewRequest("POST", "/import", nil), func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.Detach(r.Context()) // not released when this handler returns
		if !ok {
			http.Error(w, "no lock", http.StatusInternalServerError)
			return
		}
		go func() { // the work
			imported <- lease.Release(context.WithoutCancel(r.Context()))
		}()
		w.WriteHeader(http.StatusAccepted)
	})
	fmt.Println("released by the work:", <-imported)
	// Output: released by the work: <nil>
}
