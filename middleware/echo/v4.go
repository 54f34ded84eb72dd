// Package echolock guards Echo handlers with distributed locks: requests with the same key run one
// at a time, on however many machines the service runs.
//
//	lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
//	e.POST("/orders/:id/pay", pay, lock)
//
// It works on an Echo, a group and a single route. Requests that no route matches are not locked,
// with one exception: a path may have both a route and a not-found handler, as a group's own path
// may. If such a path has no parameter but *, a request with a method that has no route is locked
// before it gets its 404. Package guard documents Config and the answers that clients
// get. A handler gets its lease from LeaseFrom(c.Request().Context()).
//
// Add routes with the methods of Echo and Group. Echo does not list those of Router.Add: on the
// path of a not-found handler, their requests are taken for unmatched, and not locked.
//
// Echo renders the error that a handler returns after all middleware: the lock is released by then.
// A handler whose error answer needs the protection of the lock calls c.Error(err) itself.
package echolock

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/guard/routes"
)

// This file has what Echo v4 does in another way than v5. All others are translated for v5.

// statusOf returns the status of the answer, and whether it is sent.
func statusOf(c echo.Context) (status int, committed bool) {
	return c.Response().Status, c.Response().Committed
}

// newResponse returns a response for w.
func newResponse(c echo.Context, w http.ResponseWriter) *echo.Response {
	return echo.NewResponse(w, c.Echo())
}

// answer has Echo answer a handler's error.
func answer(c echo.Context, err error) { c.Error(err) }

// setRoute is adapter.SetRoute with what Echo has matched.
func setRoute(ctx context.Context, r *http.Request, c echo.Context) *http.Request {
	return adapter.SetRoute(ctx, r, c.Path(), c.ParamNames(), c.ParamValues())
}

// hasOwnRouter reports whether the routes of a host are apart from those of others.
func hasOwnRouter(c echo.Context, host string) bool {
	_, own := c.Echo().Routers()[host]
	return own
}

// listed tells File.Check the routes of e.
func listed(e *echo.Echo) func(routes.Route) bool {
	return routes.Listed(e.Routes(), func(r *echo.Route) (method, pattern string) { return r.Method, r.Path })
}

// A matcher tells which requests have a route.
type matcher struct {
	// handlers has the allHandlers of each *echo.Echo as of its first request.
	handlers sync.Map
}

// matched reports whether Echo has matched a route. It must not miss one, or a client could bypass
// the lock. So it goes by what the router has found, and not by the request: middleware may have
// changed that since.
func (m *matcher) matched(c echo.Context) bool {
	switch e := c.Echo(); {
	case c.Path() == "":
		found := find(c) // has a path if the router was not asked yet, in Pre
		defer e.ReleaseContext(found)
		return found.Path() != "" && m.matched(found)
	case c.Get(echo.ContextKeyHeaderAllow) != nil && c.ParamNames() == nil:
		// 405, or the answer to OPTIONS. Allow alone stays if middleware asks the router again. The
		// names of a route, or of a not-found handler, are never nil.
		return false
	default:
		return m.matchedPath(e, c)
	}
}

// matchedPath is matched for a path that has a route, a not-found handler, or both.
func (m *matcher) matchedPath(e *echo.Echo, c echo.Context) bool {
	handlers := m.handlersAtFirst(e)[c.Path()]
	if handlers == notFoundOnly {
		handlers = allHandlers(e)[c.Path()] // there may be a route by now
	}
	if handlers == notFoundOnly || handlers == both && m.sawNoRoute(c) {
		return false
	}
	return true
}

// sawNoRoute reports whether the router has found the not-found handler of a path that has a route
// for another method. The router clears the last parameter then, and a parameter of a route is
// never empty. Middleware may have cleared it too, so sawNoRoute asks the router again.
func (m *matcher) sawNoRoute(c echo.Context) bool {
	if !lastParamEmpty(c) {
		return false
	}
	found := find(c)
	defer c.Echo().ReleaseContext(found)
	return found.Path() == c.Path() && lastParamEmpty(found)
}

// lastParamEmpty reports whether the last parameter of the path, except *, is empty.
func lastParamEmpty(c echo.Context) bool {
	names, values := c.ParamNames(), c.ParamValues()
	for i := min(len(names), len(values)) - 1; i >= 0; i-- {
		if names[i] != "*" {
			return values[i] == ""
		}
	}
	return false
}

// find asks the router of the request's host. The caller releases the context.
func find(c echo.Context) echo.Context {
	e, r := c.Echo(), c.Request()
	router, ok := e.Routers()[r.Host]
	if !ok {
		router = e.Router()
	}
	found := e.AcquireContext()
	found.Reset(r, nil)
	router.Find(r.Method, echo.GetPath(r), found)
	return found
}

// A handlers value says what a path has.
type handlers uint8

const (
	// The path has a route, or nothing that Echo lists.
	routeOnly handlers = iota
	// The path has a handler for requests that no route matches.
	notFoundOnly
	both
)

// handlersAtFirst returns allHandlers as of the first request to e.
func (m *matcher) handlersAtFirst(e *echo.Echo) map[string]handlers {
	paths, ok := m.handlers.Load(e)
	if !ok {
		paths, _ = m.handlers.LoadOrStore(e, allHandlers(e))
	}
	return paths.(map[string]handlers)
}

// allHandlers returns what each path of e has, for all hosts together.
func allHandlers(e *echo.Echo) map[string]handlers {
	routes := e.Router().Routes()
	for _, router := range e.Routers() { // by host
		routes = append(routes, router.Routes()...)
	}
	paths := make(map[string]handlers)
	for _, route := range routes {
		path := "/" + strings.TrimPrefix(route.Path, "/") // as in the router
		kind := routeOnly
		if route.Method == echo.RouteNotFound {
			kind = notFoundOnly
		}
		if before, seen := paths[path]; seen && before != kind {
			kind = both
		}
		paths[path] = kind
	}
	return paths
}
