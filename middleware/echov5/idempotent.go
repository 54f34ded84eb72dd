// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
)

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key,
// and answers repeats with the first result. The error that a handler returns is answered by Echo's
// HTTPErrorHandler at once, so that this answer is recorded as well: middleware further out gets
// nil. If HTTPErrorHandler writes nothing, nothing is recorded, and a repeat runs again. Idempotent
// panics on a Config that can never work; see idempotency.New.
func Idempotent(locks *core.Client, cfg idempotency.Config, options ...Option) echo.MiddlewareFunc {
	wrap := newWrapper(options, &cfg.ErrorHandler)
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return wrap.around(runOnce(g))
}

// runOnce serves requests once for each key.
func runOnce(g *idempotency.Guard) server {
	serve := recording(g.Serve)
	return func(c *echo.Context, r *http.Request, next echo.HandlerFunc) error {
		if hasOwnRouter(c, r.Host) { // whose routes may have the paths of others
			r.Pattern = r.Host + r.Pattern
		}
		return serve(c, r, next)
	}
}
