package httplock

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/conformance"
)

var chiAdapter = conformance.Adapter{Name: "chi", Router: chiRouter(), Rest: "*"}

// chiRouter translates routes for a router that has some middleware.
func chiRouter(before ...func(http.Handler) http.Handler) func(*core.Client, ...conformance.Route) http.Handler {
	return func(locks *core.Client, routes ...conformance.Route) http.Handler {
		mux := chi.NewRouter()
		mux.Use(before...)
		for _, route := range routes {
			var chain []func(http.Handler) http.Handler
			for _, cfg := range route.Guards {
				chain = append(chain, New(locks, cfg))
			}
			pattern := strings.ReplaceAll(route.Pattern, "{rest...}", "*")
			if route.Method == "" {
				mux.With(chain...).Handle(pattern, route.Handler)
			} else {
				mux.With(chain...).Method(route.Method, pattern, route.Handler)
			}
		}
		return mux
	}
}

func TestChi(t *testing.T) { conformance.Run(t, chiAdapter) }

// chi matches the path as it was sent, and its middleware changes what it matches.
func TestChiSpellings(t *testing.T) {
	conformance.RunSpellings(t, conformance.Adapter{Name: "StripSlashes", Router: chiRouter(middleware.StripSlashes), Rest: "*"})
	conformance.RunSpellings(t, conformance.Adapter{Name: "CleanPath", Router: chiRouter(middleware.CleanPath), Rest: "*"})
}
