package echolock

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/conformance"
)

var adapter = conformance.Adapter{Name: "Echo", Router: router, Rest: "*"}

func router(locks *core.Client, routes ...conformance.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*", "{", ":", "}", "")
	e := echo.New()
	for _, route := range routes {
		var chain []echo.MiddlewareFunc
		for _, cfg := range route.Guards {
			chain = append(chain, New(locks, Config{Config: cfg}))
		}
		handler := func(c echo.Context) error {
			route.Handler(c.Response(), c.Request())
			return nil
		}
		if route.Method == "" {
			e.Any(patterns.Replace(route.Pattern), handler, chain...)
		} else {
			e.Add(route.Method, patterns.Replace(route.Pattern), handler, slices.Clone(chain)...)
		}
	}
	return e
}

func TestMain(m *testing.M) { conformance.Main(m, adapter) }

func TestConformance(t *testing.T) { conformance.Run(t, adapter) }
