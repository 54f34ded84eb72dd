package adaptertest_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// This adapter would pass the suite: it mounts routes on http.ServeMux with httplock around them.
func Example() {
	onServeMux := adaptertest.Adapter{Name: "http.ServeMux", Router: func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		mux := http.NewServeMux()
		for _, route := range routes {
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { route.Serve(w, r, r.PathValue) })
			lock := func(cfg guard.Config) func(http.Handler) http.Handler { return httplock.New(locks, cfg) }
			once := func(cfg idempotency.Config) func(http.Handler) http.Handler { return httplock.Idempotent(locks, cfg) }
			share := func(cfg coalesce.Config) func(http.Handler) http.Handler { return httplock.Coalesce(locks, cfg) }
			for _, middleware := range slices.Backward(adaptertest.AllLayers(route, lock, once, share)) {
				h = middleware(h)
			}
			mux.Handle(route.Method+" "+route.Pattern, h)
		}
		return mux
	}}
	// A test of the adapter's package calls Run. It takes minutes.
	_ = func(t *testing.T) { adaptertest.Run(t, onServeMux) }

	srv, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	locks, err := core.New(srv.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	router := onServeMux.Router(locks, adaptertest.Route{
		Method:  "POST",
		Pattern: "/orders/{id}/pay",
		Handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "paid") },
	})
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/pay", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 paid
}
