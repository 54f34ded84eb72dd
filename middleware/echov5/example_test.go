// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
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
