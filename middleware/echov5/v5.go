// Package echolock guards handlers of Echo v5 with distributed locks: requests with the same key
// run one at a time, on however many machines the service runs. It is a Go module of its own.
//
//	import echolock "github.com/reqlock/reqlock/middleware/echov5"
//
//	lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
//	e.POST("/orders/:id/pay", pay, lock)
//
// The package has the same name and functions as the one for Echo v4. To move to v5, change the
// import. It works on an Echo, a group and a single route. Requests that no route matches are not
// locked. Package guard documents Config and the answers that clients get. A handler gets its lease
// from LeaseFrom(c.Request().Context()).
//
// Echo renders the error that a handler returns after all middleware: the lock is released by then.
// A handler whose error answer needs the protection of the lock answers it by itself, with
// c.Echo().HTTPErrorHandler(c, err), and returns nil.
//
// Behind echo.NewVirtualHostHandler, equal paths of two hosts are one route for Idempotent: a key
// that is used on both gets 422, unless their idempotency.Config.Route differ.
package echolock

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/guard/routes"
)

// This file has what Echo v5 does in another way than v4. All others but the tests of v5 are
// translated from those for v4.

// statusOf returns the status of the answer, and whether it is sent. 0: a writer of other
// middleware hides it.
func statusOf(c *echo.Context) (status int, committed bool) {
	response, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		return 0, false
	}
	return response.Status, response.Committed
}

// newResponse returns a response for w.
func newResponse(c *echo.Context, w http.ResponseWriter) *echo.Response {
	return echo.NewResponse(w, c.Logger())
}

// answer has Echo answer a handler's error.
func answer(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) }

// setRoute is adapter.SetRoute with what Echo has matched.
func setRoute(ctx context.Context, r *http.Request, c *echo.Context) *http.Request {
	var room [2][8]string // enough for most routes, and off the heap
	names, values := room[0][:0], room[1][:0]
	for _, p := range c.PathValues() {
		names, values = append(names, p.Name), append(values, p.Value)
	}
	return adapter.SetRoute(ctx, r, c.Path(), names, values)
}

// hasOwnRouter reports whether the routes of a host are apart from those of others. An Echo v5 has
// one router, whatever the host is.
func hasOwnRouter(*echo.Context, string) bool { return false }

// listed tells File.Check the routes of e.
func listed(e *echo.Echo) func(routes.Route) bool {
	return routes.Listed(e.Router().Routes(), func(r echo.RouteInfo) (method, pattern string) { return r.Method, r.Path })
}

// A matcher tells which requests have a route.
type matcher struct{}

// matched reports whether Echo has matched a route, or will: in Pre, it has not asked its router
// yet. It goes by what the router has found, and not by the request, which middleware may have
// changed since.
func (matcher) matched(c *echo.Context) bool {
	switch route := c.RouteInfo(); {
	case route.Method != "":
		return route.Method != echo.RouteNotFound
	case route.Name != "":
		return false // 404, 405, or the answer to OPTIONS
	case c.Path() != "":
		return true // a test of a handler has set the path
	default:
		found := c.Echo().AcquireContext()
		defer c.Echo().ReleaseContext(found)
		// The router leaves the pattern in the request.
		r := *c.Request()
		found.Reset(&r, nil)
		c.Echo().Router().Route(found)
		route = found.RouteInfo()
		return route.Method != "" && route.Method != echo.RouteNotFound
	}
}
