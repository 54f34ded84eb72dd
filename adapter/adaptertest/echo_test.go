package adaptertest_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	echolock "github.com/reqlock/reqlock/middleware/echo"
)

var onEcho = adaptertest.Adapter{Name: adaptertest.Echo.Name, Router: echoRouter(func(*echo.Echo) {}), Exceptions: adaptertest.Echo.Exceptions, TellsStatus: true, LeavesErrors: true, Rest: "*"}

// echoRouter returns a Router for instances of Echo that set has set up.
func echoRouter(set func(*echo.Echo)) func(*core.Client, ...adaptertest.Route) http.Handler {
	return func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		e := echo.New()
		set(e)
		return echoRoutes(e, locks, routes)
	}
}

// TestEchoSpellings has the middleware of Echo that changes the path before it is matched.
func TestEchoSpellings(t *testing.T) {
	adaptertest.RunSpellings(t, adaptertest.Adapter{Name: "RemoveTrailingSlash", Rest: "*", Router: echoRouter(func(e *echo.Echo) {
		e.Pre(middleware.RemoveTrailingSlash())
	})})
}

func echoRoutes(e *echo.Echo, locks *core.Client, routes []adaptertest.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*", "{", ":", "}", "")
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !errors.Is(err, adaptertest.ErrUnanswered) {
			e.DefaultHTTPErrorHandler(err, c)
		}
	}
	for _, route := range routes {
		chain := adaptertest.AllLayers(route,
			func(cfg guard.Config) echo.MiddlewareFunc { return echolock.New(locks, cfg) },
			func(cfg idempotency.Config) echo.MiddlewareFunc { return echolock.Idempotent(locks, cfg) },
			func(cfg coalesce.Config) echo.MiddlewareFunc { return echolock.Coalesce(locks, cfg) })
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
