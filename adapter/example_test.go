package adapter_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A handle is a handler of a framework that passes the value of its only wildcard as an argument.
type handle func(w http.ResponseWriter, r *http.Request, id string)

// router serves requests for prefix and an id, as a framework would.
func router(prefix string, h handle) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := strings.CutPrefix(r.URL.Path, prefix); ok {
			h(w, r, id)
			return
		}
		http.NotFound(w, r)
	})
}

// newLock returns a middleware for that framework.
func newLock(locks *core.Client, cfg guard.Config) func(pattern string, next handle) handle {
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err) // at start-up
	}
	return func(pattern string, next handle) handle {
		return func(w http.ResponseWriter, original *http.Request, id string) {
			r := adapter.SetRoute(original.Context(), original, pattern, []string{"id"}, []string{id})
			defer adapter.KeepForm(original, r)
			g.Serve(w, r, func(w http.ResponseWriter, r *http.Request) { next(w, r, id) })
		}
	}
}

// An adapter for a framework that does not set path values.
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

	var site http.Handler
	get := func(path string) int {
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	lock := newLock(locks, guard.Config{Key: keyfuncs.PathValue("id")})
	site = router("/orders/", lock("/orders/{id}", func(_ http.ResponseWriter, _ *http.Request, id string) {
		if id == "1" {
			fmt.Println("order 1 once more, meanwhile:", get("/orders/1"))
			fmt.Println("order 2, meanwhile:", get("/orders/2"))
		}
	}))
	fmt.Println("order 1:", get("/orders/1"))
	// Output:
	// order 1 once more, meanwhile: 409
	// order 2, meanwhile: 200
	// order 1: 200
}
