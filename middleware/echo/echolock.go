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
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Config says what to lock and how. It is guard.Config.
type Config = guard.Config

// An Option configures New and Idempotent, in addition to the Config.
type Option func(*wrapper)

// WithSkipper lets requests through, without a lock or a key, if skip returns true for them. The
// last one counts; nil passes none.
func WithSkipper(skip middleware.Skipper) Option {
	return func(w *wrapper) { w.skip = skip }
}

// WithErrorHandler lets answer write the refusals of the guard, in place of the Config's
// ErrorHandler. New panics if both are set. err is a *guard.Error. The error that answer returns
// goes to Echo's HTTPErrorHandler, as a handler's error does; if answer has sent an answer, it
// returns nil. The last one counts; nil leaves it to the Config.
func WithErrorHandler(answer func(c echo.Context, err error) error) Option {
	return func(w *wrapper) { w.answer = answer }
}

// New returns a middleware that runs the rest of the chain under the lock of its request, or
// answers in its place. It panics on a Config that can never work; see guard.New.
func New(locks *core.Client, cfg Config, options ...Option) echo.MiddlewareFunc {
	wrap := newWrapper(options, &cfg.ErrorHandler)
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return wrap.around(underLock(g))
}

// underLock serves requests under the lock of g.
func underLock(g *guard.Guard) server {
	return func(c echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		g.Serve(c.Response(), r, func(_ http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			err = next(c)
			// Otherwise Echo answers the error after all middleware.
			if err == nil || c.Response().Committed {
				guard.SetStatus(r.Context(), c.Response().Status)
			}
		})
		return err
	}
}

// A wrapper has the state that New and Idempotent share.
type wrapper struct {
	skip middleware.Skipper
	// answer is the function that WithErrorHandler got.
	answer func(c echo.Context, err error) error
	// handlers has the allHandlers of each *echo.Echo as of its first request.
	handlers sync.Map
}

// newWrapper applies options. With WithErrorHandler, it sets the ErrorHandler of a Config.
func newWrapper(options []Option, errorHandler *func(http.ResponseWriter, *http.Request, error)) *wrapper {
	w := &wrapper{}
	for i, option := range options {
		if option == nil {
			panic(fmt.Sprintf("reqlock: echolock: option %d of %d is nil; want one such as WithSkipper(skip)", i+1, len(options)))
		}
		option(w)
	}
	if w.answer != nil {
		if *errorHandler != nil {
			panic("reqlock: echolock: both WithErrorHandler and the Config's ErrorHandler are set; use one of them")
		}
		*errorHandler = w.refuse
	}
	return w
}

// refuse is the ErrorHandler that calls w.answer.
func (w *wrapper) refuse(_ http.ResponseWriter, r *http.Request, err error) {
	c, _ := adapter.Find[echo.Context](r)
	*r.Context().Value(refusalKey{}).(*error) = w.answer(c, err)
}

// refusalKey leads to where refuse leaves the error for Echo's HTTPErrorHandler.
type refusalKey struct{}

// A server serves a request that has Echo's route. It returns the error for Echo's
// HTTPErrorHandler.
type server func(c echo.Context, r *http.Request, next echo.HandlerFunc) error

func (w *wrapper) around(serve server) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if w.skip != nil && w.skip(c) || !w.matched(c) {
				return next(c)
			}
			return w.enter(c, next, serve)
		}
	}
}

func (w *wrapper) enter(c echo.Context, next echo.HandlerFunc, serve server) (err error) {
	request := c.Request()
	ctx := request.Context()
	if w.answer != nil {
		var refused error
		ctx = context.WithValue(ctx, refusalKey{}, &refused)
		defer func() { err = cmp.Or(err, refused) }()
	}
	bound := adapter.Bind(ctx, c)
	r := adapter.SetRoute(bound, request, c.Path(), c.ParamNames(), c.ParamValues())
	defer func() {
		c.SetRequest(request)
		adapter.KeepForm(request, r)
		bound.End()
	}()
	return serve(c, r, next)
}

// matched reports whether Echo has matched a route. It must not miss one, or a client could bypass
// the lock. So it goes by what the router has found, and not by the request: middleware may have
// changed that since.
func (w *wrapper) matched(c echo.Context) bool {
	switch e := c.Echo(); {
	case c.Path() == "":
		found := find(c) // has a path if the router was not asked yet, in Pre
		defer e.ReleaseContext(found)
		return found.Path() != "" && w.matched(found)
	case c.Get(echo.ContextKeyHeaderAllow) != nil && c.ParamNames() == nil:
		// 405, or the answer to OPTIONS. Allow alone stays if middleware asks the router again. The
		// names of a route, or of a not-found handler, are never nil.
		return false
	default:
		return w.matchedPath(e, c)
	}
}

// matchedPath is matched for a path that has a route, a not-found handler, or both.
func (w *wrapper) matchedPath(e *echo.Echo, c echo.Context) bool {
	handlers := w.handlersAtFirst(e)[c.Path()]
	if handlers == notFoundOnly {
		handlers = allHandlers(e)[c.Path()] // there may be a route by now
	}
	if handlers == notFoundOnly || handlers == both && w.sawNoRoute(c) {
		return false
	}
	return true
}

// sawNoRoute reports whether the router has found the not-found handler of a path that has a route
// for another method. The router clears the last parameter then, and a parameter of a route is
// never empty. Middleware may have cleared it too, so sawNoRoute asks the router again.
func (w *wrapper) sawNoRoute(c echo.Context) bool {
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
func (w *wrapper) handlersAtFirst(e *echo.Echo) map[string]handlers {
	paths, ok := w.handlers.Load(e)
	if !ok {
		paths, _ = w.handlers.LoadOrStore(e, allHandlers(e))
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
