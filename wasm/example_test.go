package wasm_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/wasm"
)

// The plugin of examples/wasm derives locks from the request's path: one for the tenant and one for
// the list.
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
	ctx := context.Background()
	defer locks.Close(ctx)

	plugin, err := wasm.Open(ctx, "../examples/wasm/plugin.wasm", wasm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer plugin.Close(ctx)
	lock := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
	mux := http.NewServeMux()
	mux.Handle("POST /{tenant}/{list}", lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		fmt.Println(r.URL.Path, "runs under", lease.Name())
	})))

	for _, path := range []string{"/acme/stock", "/acme/orders"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, nil))
	}
	// Output:
	// /acme/stock runs under reqlock:acme/stock
	// /acme/orders runs under reqlock:acme/orders
}
