package echolock

import (
	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
)

// Coalesce returns a middleware that runs the rest of the chain once for all requests that want the
// same at the same time, and gives them its answer. The error that a handler returns is answered by
// Echo's HTTPErrorHandler at once, so that this answer is shared as well: middleware further out gets
// nil. If HTTPErrorHandler writes nothing, nothing is shared. Coalesce panics on a Config that can never
// work; see coalesce.New.
func Coalesce(locks *core.Client, cfg coalesce.Config, options ...Option) echo.MiddlewareFunc {
	wrap := newWrapper(options, &cfg.ErrorHandler)
	g, err := coalesce.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return wrap.around(recording(g.Serve))
}
