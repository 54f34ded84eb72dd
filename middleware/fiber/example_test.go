package fiberlock_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

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

	oneAtATime := fiberlock.New(locks, fiberlock.Config{
		Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
	})
	app := fiber.New()
	app.Post("/orders/:id/pay", oneAtATime, func(c fiber.Ctx) error {
		lease, _ := fiberlock.LeaseFrom(c.Context())
		return c.SendString("paid under " + lease.Name())
	})

	response, err := app.Test(httptest.NewRequest("POST", "/orders/42/pay", nil))
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(body), err)
	// Output: 200 paid under reqlock:order:42 <nil>
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

	lock := fiberlock.New(locks, fiberlock.Config{Key: keyfuncs.PathValue("id")})
	once := fiberlock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
	app := fiber.New()
	app.Post("/orders/:id/pay", once, lock, func(c fiber.Ctx) error {
		lease, ok := fiberlock.LeaseFrom(c.Context())
		fmt.Printf("under %s: %t\n", lease.Name(), ok)
		key, _ := fiberlock.KeyFrom(c.Context())
		charge := fiberlock.DownstreamKey(c.Context(), "bank", "charge")
		fmt.Printf("idempotency key %s, the same for another service: %t\n", key, charge == fiberlock.DownstreamKey(c.Context(), "bank", "charge"))
		fiberlock.StoreFor(c.Context(), time.Hour) // the answer for repeats
		err := fiberlock.Release(c.Context())
		_, ok = fiberlock.LeaseFrom(c.Context())
		fmt.Printf("released: %v, again under a lock: %t\n", err, ok)
		return err
	})
	request := httptest.NewRequest("POST", "/orders/1/pay", nil)
	request.Header.Set("Idempotency-Key", "k-1")
	response, err := app.Test(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
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

	one := fiberlock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone})
	app := fiber.New()
	runs := 0
	app.Get("/report", one, func(c fiber.Ctx) error {
		runs++
		return c.SendString("sold: 7") // in production, the query that takes seconds
	})
	for range 2 {
		response, err := app.Test(httptest.NewRequest("GET", "/report", nil))
		if err != nil {
			log.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		fmt.Println(string(body), err)
	}
	fmt.Println("runs:", runs)
	// Output:
	// sold: 7 <nil>
	// sold: 7 <nil>
	// runs: 1
}
