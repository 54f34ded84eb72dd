package echolock_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	echolock "github.com/reqlock/reqlock/middleware/echov5"
)

var onEcho = adaptertest.Adapter{Name: adaptertest.EchoV5.Name, Router: echoRouter(echo.New), Exceptions: adaptertest.EchoV5.Exceptions, TellsStatus: true, LeavesErrors: true, Rest: "*"}

func TestMain(m *testing.M) { adaptertest.Main(m, onEcho) }

// TestConformance logs a table of all results, which -v shows.
func TestConformance(t *testing.T) { adaptertest.Run(t, onEcho) }

// TestEchoSpellings sets Echo up in every way that changes how it reads a URL.
func TestEchoSpellings(t *testing.T) {
	configured := func(cfg echo.RouterConfig) func() *echo.Echo {
		return func() *echo.Echo { return echo.NewWithConfig(echo.Config{Router: echo.NewRouter(cfg)}) }
	}
	for name, newEcho := range map[string]func() *echo.Echo{
		"UnescapePathParamValues":   configured(echo.RouterConfig{UnescapePathParamValues: true}),
		"UseEscapedPathForMatching": configured(echo.RouterConfig{UseEscapedPathForMatching: true}),
		"RemoveTrailingSlash": func() *echo.Echo {
			e := echo.New()
			e.Pre(middleware.RemoveTrailingSlash())
			return e
		},
	} {
		a := onEcho
		a.Name, a.Router = name, echoRouter(newEcho)
		adaptertest.RunSpellings(t, a)
	}
}

// echoRouter returns a Router for the instances of Echo that newEcho returns.
func echoRouter(newEcho func() *echo.Echo) func(*core.Client, ...adaptertest.Route) http.Handler {
	return func(locks *core.Client, routes ...adaptertest.Route) http.Handler {
		return echoRoutes(newEcho(), locks, routes)
	}
}

func echoRoutes(e *echo.Echo, locks *core.Client, routes []adaptertest.Route) http.Handler {
	patterns := strings.NewReplacer("{rest...}", "*", "{", ":", "}", "")
	answer := e.HTTPErrorHandler
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if !errors.Is(err, adaptertest.ErrUnanswered) {
			answer(c, err)
		}
	}
	for _, route := range routes {
		chain := adaptertest.AllLayers(route,
			func(cfg guard.Config) echo.MiddlewareFunc { return echolock.New(locks, cfg) },
			func(cfg idempotency.Config) echo.MiddlewareFunc { return echolock.Idempotent(locks, cfg) },
			func(cfg coalesce.Config) echo.MiddlewareFunc { return echolock.Coalesce(locks, cfg) })
		handler := func(c *echo.Context) error {
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
