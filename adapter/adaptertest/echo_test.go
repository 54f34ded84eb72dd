package adaptertest_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/hosts"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

var onEcho = adaptertest.Adapter{Name: hosts.Echo.Name, Router: echoRouter, Exceptions: hosts.Echo.Exceptions, TellsStatus: true, LeavesErrors: true, Rest: "*"}

func echoRouter(locks *core.Client, routes ...adaptertest.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*", "{", ":", "}", "")
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !errors.Is(err, adaptertest.ErrUnanswered) {
			e.DefaultHTTPErrorHandler(err, c)
		}
	}
	for _, route := range routes {
		var chain []echo.MiddlewareFunc
		for _, cfg := range route.Guards {
			chain = append(chain, echolock.New(locks, cfg))
		}
		for _, cfg := range route.Once {
			chain = append(chain, echolock.Idempotent(locks, cfg))
		}
		handler := func(c echo.Context) error {
			route.Serve(c.Response(), c.Request(), c.Param)
			return route.Err()
		}
		if route.Method == "" {
			e.Any(patterns.Replace(route.Pattern), handler, chain...)
		} else {
			e.Add(route.Method, patterns.Replace(route.Pattern), handler, slices.Clone(chain)...)
		}
	}
	return e
}
