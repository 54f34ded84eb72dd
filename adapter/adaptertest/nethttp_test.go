package adaptertest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

var (
	onMux = adaptertest.Adapter{Name: adaptertest.ServeMux.Name, Router: muxRouter}
	onChi = adaptertest.Adapter{Name: adaptertest.Chi.Name, Router: chiRouter(), Rest: "*"}
)

func muxRouter(locks *core.Client, routes ...adaptertest.Route) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { route.Serve(w, r, r.PathValue) })
		for _, layer := range slices.Backward(httpLayers(locks, route)) {
			handler = layer(handler)
		}
		mux.Handle(strings.TrimSpace(route.Method+" "+route.Pattern), handler)
	}
	return mux
}

func httpLayers(locks *core.Client, route adaptertest.Route) []func(http.Handler) http.Handler {
	return adaptertest.AllLayers(route,
		func(cfg guard.Config) func(http.Handler) http.Handler { return httplock.New(locks, cfg) },
		func(cfg idempotency.Config) func(http.Handler) http.Handler { return httplock.Idempotent(locks, cfg) },
		func(cfg coalesce.Config) func(http.Handler) http.Handler { return httplock.Coalesce(locks, cfg) })
}

// chiRouter returns a Router for chi routers with that middleware.
func chiRouter(before ...func(http.Handler) http.Handler) func(*core.Client, ...adaptertest.Route) http.Handler {
	return func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		mux := chi.NewRouter()
		mux.Use(before...)
		for _, route := range routes {
			chain := httpLayers(locks, route)
			handler := func(w http.ResponseWriter, r *http.Request) {
				route.Serve(w, r, func(name string) string { return chi.URLParam(r, name) })
			}
			pattern := strings.ReplaceAll(route.Pattern, "{rest...}", "*")
			if route.Method == "" {
				mux.With(chain...).HandleFunc(pattern, handler)
			} else {
				mux.With(chain...).MethodFunc(route.Method, pattern, handler)
			}
		}
		return mux
	}
}

// TestChiSpellings has the middleware of chi that changes the path before it is matched. In the
// router, StripSlashes and CleanPath change it for the router alone: the handler and the keys have
// the slash at the end. So StripSlashes is around the router, and RedirectSlashes before CleanPath.
func TestChiSpellings(t *testing.T) {
	for name, router := range map[string]func(*core.Client, ...adaptertest.Route) http.Handler{
		"StripSlashes": func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
			return middleware.StripSlashes(chiRouter()(locks, routes...))
		},
		"RedirectSlashes":            chiRouter(middleware.RedirectSlashes),
		"RedirectSlashes, CleanPath": chiRouter(middleware.RedirectSlashes, middleware.CleanPath),
	} {
		adaptertest.RunSpellings(t, adaptertest.Adapter{Name: name, Router: router, Rest: "*"})
	}
}
