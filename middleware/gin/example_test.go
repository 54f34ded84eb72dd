package ginlock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
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

	lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.PathValue("id")})
	router := gin.New()
	post := func(path string) int {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		return w.Code
	}
	router.POST("/orders/:id/pay", lock, func(c *gin.Context) {
		if c.Param("id") == "1" {
			fmt.Println("order 1 once more, meanwhile:", post("/orders/1/pay"))
			fmt.Println("order 2, meanwhile:", post("/orders/2/pay"))
		}
		c.Status(http.StatusOK)
	})

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

	lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.PathValue("id")})
	once := ginlock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
	router := gin.New()
	router.POST("/orders/:id/pay", once, lock, func(c *gin.Context) {
		lease, ok := ginlock.LeaseFrom(c)
		fmt.Printf("under %s: %t\n", lease.Name(), ok)
		key, _ := ginlock.KeyFrom(c)
		charge := ginlock.DownstreamKey(c, "bank", "charge")
		fmt.Printf("idempotency key %s, the same for another service: %t\n", key, charge == ginlock.DownstreamKey(c, "bank", "charge"))
		ginlock.StoreFor(c, time.Hour) // the answer for repeats
		err := ginlock.Release(c)
		_, ok = ginlock.LeaseFrom(c)
		fmt.Printf("released: %v, again under a lock: %t\n", err, ok)
	})
	request := httptest.NewRequest("POST", "/orders/1/pay", nil)
	request.Header.Set("Idempotency-Key", "k-1")
	router.ServeHTTP(httptest.NewRecorder(), request)
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

	one := ginlock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone})
	router := gin.New()
	runs := 0
	router.GET("/report", one, func(c *gin.Context) {
		runs++
		c.String(http.StatusOK, "sold: 7") // in production, the query that takes seconds
	})
	for range 2 {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", "/report", nil))
		fmt.Println(w.Body)
	}
	fmt.Println("runs:", runs)
	// Output:
	// sold: 7
	// sold: 7
	// runs: 1
}
