package tutorial

import (
	"net/http"

	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
)

// around serves the requests of matched routes.
func around(serve func(c *Context, r *http.Request, next Handler)) Middleware {
	return func(next Handler) Handler {
		return func(c *Context) {
			if c.Pattern == "" { // no route has matched
				next(c)
				return
			}
			original, bound := c.Request, adapter.Bind(c.Request.Context(), c)
			r := adapter.SetRoute(bound, original, c.Pattern, c.Names, c.Values)
			defer func() {
				c.Request = original
				adapter.KeepForm(original, r)
				bound.End()
			}()
			serve(c, r, next)
		}
	}
}

func New(locks *core.Client, cfg guard.Config) Middleware {
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err) // at start-up
	}
	return around(func(c *Context, r *http.Request, next Handler) {
		g.Serve(c.Writer, r, func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			next(c)
		})
	})
}

func Idempotent(locks *core.Client, cfg idempotency.Config) Middleware {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(func(c *Context, r *http.Request, next Handler) {
		outer := c.Writer
		defer func() { c.Writer = outer }()
		g.Serve(outer, r, func(r *http.Request, rec *idempotency.Recorder) {
			c.Request, c.Writer = r, rec.Wrap(outer)
			next(c)
		})
	})
}

// Value is a key of what middleware has put into the context with c.Set(name, value).
func Value(name string) keyfuncs.Func {
	return adapter.Value("web.Context", name, (*Context).Get)
}
