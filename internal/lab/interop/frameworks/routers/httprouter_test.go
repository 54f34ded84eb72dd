package routers

import (
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

var onHTTPRouter = adaptertest.Adapter{Name: adaptertest.HTTPRouter.Name, Router: httprouterRouter}

// matchedByHTTPRouter is for one route: httprouter does not tell its pattern.
func matchedByHTTPRouter(pattern string) httplock.Match {
	return func(r *http.Request) (string, map[string]string) {
		values := make(map[string]string)
		for _, p := range httprouter.ParamsFromContext(r.Context()) {
			if strings.HasSuffix(pattern, "/*"+p.Key) {
				p.Value = strings.TrimPrefix(p.Value, "/") // as in other routers
			}
			values[p.Key] = p.Value
		}
		return pattern, values
	}
}

// methods are those of a route for all methods.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

func httprouterRouter(locks *core.Client, routes ...adaptertest.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*rest", "{", ":", "}", "")
	router := httprouter.New()
	for _, route := range routes {
		pattern := patterns.Replace(route.Pattern)
		handler := httplock.WithRoute(matchedByHTTPRouter(pattern))(guarded(locks, route, func(r *http.Request, name string) string {
			return httprouter.ParamsFromContext(r.Context()).ByName(name)
		}))
		for _, method := range methods {
			if route.Method == "" || route.Method == method {
				router.Handler(method, pattern, handler)
			}
		}
	}
	return router
}

// guarded returns the handler of a route with its guards.
func guarded(locks *core.Client, route adaptertest.Route, param func(r *http.Request, name string) string) http.Handler {
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route.Serve(w, r, func(name string) string { return param(r, name) })
	})
	lock := func(cfg guard.Config) func(http.Handler) http.Handler { return httplock.New(locks, cfg) }
	once := func(cfg idempotency.Config) func(http.Handler) http.Handler { return httplock.Idempotent(locks, cfg) }
	share := func(cfg coalesce.Config) func(http.Handler) http.Handler { return httplock.Coalesce(locks, cfg) }
	for _, middleware := range slices.Backward(adaptertest.AllLayers(route, lock, once, share)) {
		handler = middleware(handler)
	}
	return handler
}
