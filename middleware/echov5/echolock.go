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
package echolock

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
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
func WithErrorHandler(answer func(c *echo.Context, err error) error) Option {
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
	return func(c *echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		g.Serve(c.Response(), r, func(_ http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			err = next(c)
			// Otherwise Echo answers the error after all middleware.
			if response, unknown := echo.UnwrapResponse(c.Response()); unknown == nil && (err == nil || response.Committed) {
				guard.SetStatus(r.Context(), response.Status)
			}
		})
		return err
	}
}

// A wrapper has what New and Idempotent share.
type wrapper struct {
	skip middleware.Skipper
	// answer is the function that WithErrorHandler got.
	answer func(c *echo.Context, err error) error
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
	c, _ := adapter.Find[*echo.Context](r)
	*r.Context().Value(refusalKey{}).(*error) = w.answer(c, err)
}

// refusalKey leads to where refuse leaves the error for Echo's HTTPErrorHandler.
type refusalKey struct{}

// A server serves a request that has Echo's route. It returns the error for Echo's
// HTTPErrorHandler.
type server func(c *echo.Context, r *http.Request, next echo.HandlerFunc) error

func (w *wrapper) around(serve server) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if w.skip != nil && w.skip(c) || !matched(c) {
				return next(c)
			}
			return w.enter(c, next, serve)
		}
	}
}

func (w *wrapper) enter(c *echo.Context, next echo.HandlerFunc, serve server) (err error) {
	request := c.Request()
	ctx := request.Context()
	if w.answer != nil {
		var refused error
		ctx = context.WithValue(ctx, refusalKey{}, &refused)
		defer func() { err = cmp.Or(err, refused) }()
	}
	bound := adapter.Bind(ctx, c)
	var room [2][8]string // enough for most routes, and off the heap
	names, values := room[0][:0], room[1][:0]
	for _, p := range c.PathValues() {
		names, values = append(names, p.Name), append(values, p.Value)
	}
	r := adapter.SetRoute(bound, request, c.Path(), names, values)
	defer func() {
		c.SetRequest(request)
		adapter.KeepForm(request, r)
		bound.End()
	}()
	return serve(c, r, next)
}

// matched reports whether Echo has matched a route, or will: in Pre, it has not asked its router
// yet. It goes by what the router has found, and not by the request, which middleware may have
// changed since.
func matched(c *echo.Context) bool {
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
