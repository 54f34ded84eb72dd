// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echov5"
)

// One payment of an order at a time, on however many servers.
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

	lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
	e := echo.New()
	post := func(path string) int {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		return w.Code
	}
	e.POST("/orders/:id/pay", func(c *echo.Context) error {
		if c.Param("id") == "1" {
			fmt.Println("order 1 once more, meanwhile:", post("/orders/1/pay"))
			fmt.Println("order 2, meanwhile:", post("/orders/2/pay"))
		}
		return c.NoContent(http.StatusOK)
	}, lock)

	fmt.Println("order 1:", post("/orders/1/pay"))
	// Output:
	// order 1 once more, meanwhile: 409
	// order 2, meanwhile: 200
	// order 1: 200
}

// A handler that calls another service, under its lock and once for each idempotency key, needs no
// other import.
func ExampleLeaseFrom() {
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

	lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
	once := echolock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
	e := echo.New()
	e.POST("/orders/:id/pay", func(c *echo.Context) error {
		lease, ok := echolock.LeaseFrom(c.Request().Context())
		fmt.Printf("under %s: %t\n", lease.Name(), ok)
		key, _ := echolock.KeyFrom(c.Request().Context())
		charge := echolock.DownstreamKey(c.Request().Context(), "bank", "charge")
		fmt.Printf("idempotency key %s, the same for another service: %t\n", key, charge == echolock.DownstreamKey(c.Request().Context(), "bank", "charge"))
		echolock.StoreFor(c.Request().Context(), time.Hour) // the answer for repeats
		err := echolock.Release(c.Request().Context())
		_, ok = echolock.LeaseFrom(c.Request().Context())
		fmt.Printf("released: %v, again under a lock: %t\n", err, ok)
		return err
	}, once, lock)
	request := httptest.NewRequest("POST", "/orders/1/pay", nil)
	request.Header.Set("Idempotency-Key", "k-1")
	e.ServeHTTP(httptest.NewRecorder(), request)
	// Output:
	// under reqlock:1: true
	// idempotency key k-1, the same for another service: true
	// released: <nil>, again under a lock: false
}

// Two clients want one report. It is computed once.
func ExampleCoalesce() {
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

	one := echolock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone})
	e := echo.New()
	runs := 0
	e.GET("/report", func(c *echo.Context) error {
		runs++
		return c.String(http.StatusOK, "sold: 7") // in production, the query that takes seconds
	}, one)
	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/report", nil))
		fmt.Println(w.Body)
	}
	fmt.Println("runs:", runs)
	// Output:
	// sold: 7
	// sold: 7
	// runs: 1
}
