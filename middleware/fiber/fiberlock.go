// Package fiberlock guards handlers of Fiber v3 with distributed locks: requests with the same key
// run one at a time, on however many machines the service runs. It is a Go module of its own.
//
//	import fiberlock "github.com/reqlock/reqlock/middleware/fiber"
//
//	lock := fiberlock.New(locks, fiberlock.Config{Key: keyfuncs.PathValue("id")})
//	app.Post("/orders/:id/pay", lock, pay)
//
// Mount it on routes, before their handlers. With App.Use, Fiber has not matched the route that
// will answer, so keys that need the route get 500 there. So does keyfuncs.Path, unless Fiber tells
// upper from lower case and a path with a slash at the end from one without, by fiber.Config.
//
// In the handler, c.Context() ends when the lock is lost, and is what LeaseFrom, Release and Detach
// need. Package guard documents Config and the answers that clients get.
//
// Fiber runs on fasthttp, which has neither net/http's requests nor its connections. So a guard
// does not notice that a client has left: bound its wait with WaitTime. Fiber sends an answer after
// the handler has returned, when the lock is released, also the one of SendStreamWriter. Key
// functions, ErrorHandler and Observe get a copy of the request. Its path is spelled as the pattern
// of the route, where Fiber ignores the difference.
//
// Fiber keeps a multipart form as it has parsed it. Guards get it with its values by name, and then
// its files, unless fiber.Config.DisablePreParseMultipartForm is set.
//
// With fiber.Config.StreamRequestBody, a body is read in pieces, up to the limit of what reads it,
// and the handler finds all of it, as a stream. A guard that refuses a request before its body has
// ended closes the connection. A policy that goes on although a body without a Content-Length was
// too long gets its request refused with 413.
package fiberlock

import (
	"context"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Config is the guard's.
type Config = guard.Config

// A fiber.Ctx is a context without the values and the end of c.Context().
func init() {
	adapter.RegisterContext(func(ctx context.Context) context.Context {
		if c, ok := ctx.(fiber.Ctx); ok {
			return c.Context()
		}
		return nil
	})
}

// New returns a middleware that runs the rest of the chain under the lock of its request, or
// answers in its place. It panics on a Config that can never work; see guard.New.
func New(locks *core.Client, cfg Config) fiber.Handler {
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(underLock(g, fiber.Ctx.Next))
}

// A served serves a request with a writer, and with the request as net/http has it.
type served func(c fiber.Ctx, w *writer, r *http.Request) error

// underLock runs next under the lock of the request.
func underLock(g *guard.Guard, next func(fiber.Ctx) error) served {
	return func(c fiber.Ctx, w *writer, r *http.Request) (err error) {
		g.Serve(w, r, func(_ http.ResponseWriter, r *http.Request) {
			c.SetContext(r.Context())
			// Otherwise Fiber answers the error after all middleware.
			if err = w.run(r, next); err == nil {
				guard.SetStatus(r.Context(), c.Response().StatusCode())
			}
		})
		return err
	}
}

// around returns a middleware that serves requests.
func around(serve served) fiber.Handler {
	return func(c fiber.Ctx) error {
		before := c.Context()
		bound := adapter.Bind(before, c)
		b := bodyOf(c)
		defer func() {
			b.leave()
			c.SetContext(before)
			bound.End()
		}()
		pattern, names, values := routeOf(c)
		path, known := pathOf(c, pattern, values)
		r, err := requestOf(c, path, b)
		if err != nil {
			return fiber.ErrBadRequest
		}
		r = adapter.SetRoute(bound, r, pattern, names, values)
		if !known {
			r = adapter.WithoutPath(r)
		}
		return serve(c, newWriter(c, b), r)
	}
}

// routeOf returns the matched route. A wildcard * is *1 in Fiber's own list.
func routeOf(c fiber.Ctx) (pattern string, names, values []string) {
	route := c.Route()
	for _, param := range route.Params {
		name := param
		if param == "*1" || param == "+1" {
			name = param[:1]
		}
		names, values = append(names, strings.Clone(name)), append(values, strings.Clone(c.Params(param)))
	}
	return strings.Clone(route.Path), names, values
}

// Value returns a key function for what middleware has stored with c.Locals(name, value), such as
// the authenticated user. The value is a string, an integer or a fmt.Stringer. Value works in the
// guards of this package, and the middleware must run before them.
//
// A missing or empty value is keyfuncs.ErrMissing: the request gets 400, and the answer does
// not say what is missing. In any other guard it is keyfuncs.ErrNoRoute, 500. Value panics if name
// is empty.
func Value(name string) keyfuncs.Func { return adapter.Value("fiber.Ctx", name, local) }

// Get returns the value that middleware has stored with c.Locals(name, value). It is for key
// functions and scopes that need more than Value. It returns nil if there is no value, if r did not
// come from a guard of this package, or if its handler has returned.
func Get(r *http.Request, name string) any {
	c, ok := adapter.Find[fiber.Ctx](r)
	if !ok {
		return nil
	}
	return local(c, name)
}

// local copies strings: those of Fiber may be parts of a buffer that it uses again.
func local(c fiber.Ctx, name string) any {
	value := c.Locals(name)
	if text, ok := value.(string); ok {
		return strings.Clone(text)
	}
	return value
}
