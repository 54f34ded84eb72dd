package fiberlock_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
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
		lease, _ := guard.LeaseFrom(c.Context())
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
