package routers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/mux"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/core"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

var onMux = adaptertest.Adapter{Name: adaptertest.Mux.Name, Router: muxRouter(func(*mux.Router) {})}

func matchedByMux(r *http.Request) (string, map[string]string) {
	pattern, err := mux.CurrentRoute(r).GetPathTemplate()
	if err != nil {
		return "", nil // the route has no path
	}
	return pattern, mux.Vars(r)
}

// muxRouter returns a Router for routers that set has set up.
func muxRouter(set func(*mux.Router)) func(*core.Client, ...adaptertest.Route) http.Handler {
	return func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		router := mux.NewRouter()
		router.Use(httplock.WithRoute(matchedByMux)) // mux runs it after the match
		set(router)
		for _, route := range routes {
			handler := guarded(locks, route, func(r *http.Request, name string) string { return mux.Vars(r)[name] })
			r := router.Handle(strings.ReplaceAll(route.Pattern, "{rest...}", "{rest:.*}"), handler)
			if route.Method != "" {
				r.Methods(route.Method)
			}
		}
		return router
	}
}

// TestMuxSpellings sets up the router in every way that changes how it reads a URL.
func TestMuxSpellings(t *testing.T) {
	for name, set := range map[string]func(*mux.Router){
		"UseEncodedPath":            func(r *mux.Router) { r.UseEncodedPath() },
		"SkipClean":                 func(r *mux.Router) { r.SkipClean(true) },
		"UseEncodedPath, SkipClean": func(r *mux.Router) { r.UseEncodedPath().SkipClean(true) },
	} {
		adaptertest.RunSpellings(t, adaptertest.Adapter{Name: name, Router: muxRouter(set)})
	}
}
