// Package echolock guards Echo handlers with distributed locks: requests with the same key run one at a time, on however many
// machines the service runs.
//
//	lock := echolock.New(locks, echolock.Config{Config: guard.Config{Key: keyfuncs.PathValue("id")}})
//	e.POST("/orders/:id/pay", pay, lock)
//
// It works on an Echo, a group and a single route; requests that no route matches are not locked, nor those that only find
// the not-found handler of a group. What it does is package guard's; see there for Config, for the answers that clients get,
// and for LeaseFrom, Release and Detach.
//
// Echo renders the error that a handler returns when all middleware is through: after the lock has been released. A handler
// whose error answer belongs to what the lock protects calls c.Error(err) itself.
package echolock

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Config is the guard's, and what Echo's users expect beside it.
type Config struct {
	guard.Config
	// Skipper passes requests for which it returns true. nil: none.
	Skipper middleware.Skipper
	// ErrorHandler answers what the guard refuses, in the place of guard.Config.ErrorHandler; setting both is refused. err is a
	// *guard.Error. What it returns goes to Echo's HTTPErrorHandler, as a handler's error does; after an answer of its own it
	// returns nil. nil: guard.WriteProblem.
	ErrorHandler func(c echo.Context, err error) error
}

// New returns a middleware that runs the rest of the chain under the lock of its request, or answers in its place. It panics
// on a Config that can never work; see guard.New.
func New(locks *core.Client, cfg Config) echo.MiddlewareFunc {
	if cfg.ErrorHandler != nil {
		if cfg.Config.ErrorHandler != nil {
			panic("reqlock: echolock: both Config.ErrorHandler and guard.Config.ErrorHandler are set; use one of them")
		}
		cfg.Config.ErrorHandler = refuser(cfg.ErrorHandler)
	}
	g, err := guard.New(locks, cfg.Config)
	if err != nil {
		panic(err)
	}
	m := &middle{skip: cfg.Skipper, answers: cfg.ErrorHandler != nil}
	return m.around(func(c echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		g.Serve(c.Response(), r, func(_ http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			err = next(c)
			if err == nil || c.Response().Committed { // else Echo answers the error, when all middleware is through
				guard.SetStatus(r.Context(), c.Response().Status)
			}
		})
		return err
	})
}

// refuser makes an ErrorHandler of Echo's kind one of package guard's.
func refuser(answer func(c echo.Context, err error) error) func(http.ResponseWriter, *http.Request, error) {
	return func(_ http.ResponseWriter, r *http.Request, err error) {
		v := r.Context().Value(visitKey{}).(*visit)
		v.err = answer(v.c, err)
	}
}

type middle struct {
	skip     middleware.Skipper
	answers  bool     // by Config.ErrorHandler
	notFound sync.Map // of an *echo.Echo: the paths that it has not-found handlers for, map[string]bool
}

// A visit is one request in the middleware, for Config.ErrorHandler. The context of the request leads to it, and may outlive it:
// Echo uses its contexts again, so c is taken away at the end.
type visit struct {
	c   echo.Context
	err error // for Echo's central error handling
}

type visitKey struct{}

// server serves a request that knows what has matched. It returns what Echo's central error handling is to get.
type server func(c echo.Context, r *http.Request, next echo.HandlerFunc) error

func (m *middle) around(serve server) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if m.skip != nil && m.skip(c) || !m.matched(c) {
				return next(c)
			}
			return m.enter(c, next, serve)
		}
	}
}

func (m *middle) enter(c echo.Context, next echo.HandlerFunc, serve server) (err error) {
	request := c.Request()
	ctx := request.Context()
	if m.answers {
		v := &visit{c: c}
		ctx = context.WithValue(ctx, visitKey{}, v)
		defer func() {
			v.c = nil
			err = cmp.Or(err, v.err)
		}()
	}
	r := guard.SetRoute(ctx, request, c.Path(), c.ParamNames(), c.ParamValues())
	defer func() {
		c.SetRequest(request)
		guard.KeepForm(request, r)
	}()
	return serve(c, r, next)
}

// matched tells what Echo has matched from its handlers for what it has not: those have a path as well, inside a group, which may be
// that of a route. Then the router is asked for what it has not, and if this is it nothing has matched. The method of the request would
// tell nothing: middleware may have changed it since, and no client may get past a lock by that.
func (m *middle) matched(c echo.Context) bool {
	e, r := c.Echo(), c.Request()
	switch {
	case c.Path() == "":
		found := find(e, r, r.Method) // there is something if the router was not asked yet: by Pre
		defer e.ReleaseContext(found)
		return found.Path() != "" && m.matched(found)
	case c.Get(echo.ContextKeyHeaderAllow) != nil && notAllowed(c.Handler()): // the former stays where middleware has asked again
		return false
	case !m.notFoundPaths(e)[c.Path()]:
		return true
	}
	unmatched := find(e, r, echo.RouteNotFound) // no route has this for a method
	defer e.ReleaseContext(unmatched)
	return unmatched.Path() != c.Path() || !same(unmatched.Handler(), c.Handler())
}

// notAllowed says whether a handler is Echo's for methods that a path has not: 405, or the answer to OPTIONS.
func notAllowed(h echo.HandlerFunc) bool {
	return same(h, echo.MethodNotAllowedHandler) || reflect.ValueOf(h).Pointer() == optionsCode
}

// optionsCode is where the code of Echo's handlers of OPTIONS begins: each path has one of its own.
var optionsCode = func() uintptr {
	e := echo.New()
	e.GET("/", echo.NotFoundHandler)
	c := e.NewContext(nil, nil)
	e.Router().Find(http.MethodOptions, "/", c)
	return reflect.ValueOf(c.Handler()).Pointer()
}()

// find asks the router that is in charge of a request. The context it returns is to be released.
func find(e *echo.Echo, r *http.Request, method string) echo.Context {
	router, ok := e.Routers()[r.Host]
	if !ok {
		router = e.Router()
	}
	found := e.AcquireContext()
	found.Reset(r, nil)
	router.Find(method, echo.GetPath(r), found)
	return found
}

// notFoundPaths looks at all routes once, when they are there: with the first request.
func (m *middle) notFoundPaths(e *echo.Echo) map[string]bool {
	if paths, ok := m.notFound.Load(e); ok {
		return paths.(map[string]bool)
	}
	paths := make(map[string]bool)
	add := func(routes []*echo.Route) {
		for _, route := range routes {
			if route.Method == echo.RouteNotFound {
				paths["/"+strings.TrimPrefix(route.Path, "/")] = true // as the router has it
			}
		}
	}
	add(e.Router().Routes())
	for _, router := range e.Routers() { // of hosts
		add(router.Routes())
	}
	m.notFound.Store(e, paths)
	return paths
}

// same compares functions with all that they enclose, as Go does not: Echo encloses handlers and their middleware.
func same(f, g echo.HandlerFunc) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&f)) == *(*unsafe.Pointer)(unsafe.Pointer(&g))
}
