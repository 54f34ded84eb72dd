// Package ginlock guards Gin handlers with distributed locks: requests with the same key run one at
// a time, on however many machines the service runs.
//
//	lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.PathValue("id")})
//	router.POST("/orders/:id/pay", lock, pay)
//
// It works on an engine, a group and a single route; requests that no route matches are not locked.
// A handler that acquires the same lock may pass *gin.Context itself as the context, and re-enters.
// Package guard documents Config and the answers that clients get. A handler gets its lease from
// LeaseFrom(c).
package ginlock

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Config says what to lock and how. It is guard.Config.
type Config = guard.Config

// A *gin.Context has its request under its own key, but not the values of its context.
func init() {
	adapter.RegisterContext(func(ctx context.Context) context.Context {
		if r, ok := ctx.Value(gin.ContextRequestKey).(*http.Request); ok && r != nil {
			return r.Context()
		}
		return nil
	})
}

// New returns a middleware that runs the rest of the chain under the lock of its request, or
// answers and aborts. It panics on a Config that can never work; see guard.New.
func New(locks *core.Client, cfg Config) gin.HandlerFunc {
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(underLock(g))
}

// underLock serves requests under the lock of g.
func underLock(g *guard.Guard) server {
	return func(c *gin.Context, r *http.Request, next chain) (ran bool) {
		g.Serve(c.Writer, r, func(_ http.ResponseWriter, r *http.Request) {
			errs := len(c.Errors)
			ran = next(c, r)
			// Otherwise middleware further out may answer the error.
			if c.Writer.Written() || len(c.Errors) == errs {
				guard.SetStatus(r.Context(), c.Writer.Status())
			}
		})
		return ran
	}
}

// A chain runs the rest of the handlers with a request, and reports whether it did.
type chain func(c *gin.Context, r *http.Request) (ran bool)

func rest(c *gin.Context, r *http.Request) (ran bool) {
	c.Request = r
	c.Next()
	return true
}

// A server runs the rest of the chain with next, or answers in its place. It reports whether the
// rest ran. r knows the matched route.
type server func(c *gin.Context, r *http.Request, next chain) (ran bool)

// around returns a middleware that serves matched requests.
func around(serve server) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.FullPath() != "" { // otherwise no route has matched, and Gin goes on with the chain
			enter(c, serve)
		}
	}
}

func enter(c *gin.Context, serve server) {
	request, bound := c.Request, adapter.Bind(c.Request.Context(), c)
	r := withRoute(bound, c)
	defer func() {
		c.Request = request
		adapter.KeepForm(request, r)
		bound.End()
	}()

	if !serve(c, r, rest) {
		c.Abort()
	}
}

// withRoute returns a copy of the request that has Gin's route. The value of a catch-all loses its
// leading slash, as in other frameworks.
func withRoute(ctx context.Context, c *gin.Context) *http.Request {
	var room [2][8]string // enough for most routes, and off the heap
	names, values := room[0][:0], room[1][:0]
	for _, p := range c.Params {
		value := p.Value
		if strings.HasSuffix(c.FullPath(), "/*"+p.Key) {
			value = strings.TrimPrefix(value, "/")
		}
		names, values = append(names, p.Key), append(values, value)
	}
	return adapter.SetRoute(ctx, c.Request, c.FullPath(), names, values)
}
