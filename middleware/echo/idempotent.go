package echolock

import (
	"net/http"

	"github.com/labstack/echo/v4"
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
	return func(c echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		if hasOwnRouter(c, r.Host) { // whose routes may have the paths of others
			r.Pattern = r.Host + r.Pattern
		}
		g.Serve(c.Response(), r, func(r *http.Request, rec *idempotency.Recorder) {
			c.SetRequest(r)
			if rec == nil {
				err = next(c)
				return
			}
			record(c, next, rec)
		})
		return err
	}
}

// A recorder takes the answer of a run. Failed says that the handler has failed: without an answer,
// nothing is recorded.
type recorder interface {
	Wrap(http.ResponseWriter) http.ResponseWriter
	Failed()
}

// record runs the handler, and Echo's answer to its error, with their own response over the
// recorder. The hooks of the outer response belong to middleware further out, and run when the
// answer is sent, replayed or not.
func record(c echo.Context, next echo.HandlerFunc, rec recorder) {
	outer := c.Response()
	own := newResponse(c, rec.Wrap(outer))
	own.Status = http.StatusOK // Echo's own begins with it.
	c.SetResponse(own)
	defer c.SetResponse(outer)
	if err := next(c); err != nil {
		answer(c, err)
		rec.Failed() // It counts only if that has written nothing.
	}
}
