package echolock

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

// IdempotentConfig is that of package idempotency, and what Echo's users expect beside it.
type IdempotentConfig struct {
	idempotency.Config
	// Skipper passes requests for which it returns true. nil: none.
	Skipper middleware.Skipper
	// ErrorHandler answers what is refused, in the place of idempotency.Config.ErrorHandler; see Config.ErrorHandler.
	ErrorHandler func(c echo.Context, err error) error
}

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key, and answers repeats with the
// first result. The error that a handler returns is answered by Echo's HTTPErrorHandler at once, so that this answer is
// recorded as well: middleware further out gets nil. It panics on a Config that can never work; see idempotency.New.
func Idempotent(locks *core.Client, cfg IdempotentConfig) echo.MiddlewareFunc {
	if cfg.ErrorHandler != nil {
		if cfg.Config.ErrorHandler != nil {
			panic("reqlock: echolock: both IdempotentConfig.ErrorHandler and idempotency.Config.ErrorHandler are set; use one of them")
		}
		cfg.Config.ErrorHandler = refuser(cfg.ErrorHandler)
	}
	g, err := idempotency.New(locks, cfg.Config)
	if err != nil {
		panic(err)
	}
	m := &middle{skip: cfg.Skipper, answers: cfg.ErrorHandler != nil}
	return m.around(func(c echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		if _, own := c.Echo().Routers()[r.Host]; own { // that of another host has routes of the same paths
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
	})
}

// record runs the handler, and Echo's answer to its error, with a response of their own over the recorder: the hooks of the outer
// one belong to middleware further out, and run for each answer, when it is sent.
func record(c echo.Context, next echo.HandlerFunc, rec *idempotency.Recorder) {
	outer := c.Response()
	c.SetResponse(echo.NewResponse(rec.Wrap(outer), c.Echo()))
	defer c.SetResponse(outer)
	if err := next(c); err != nil {
		c.Error(err)
	}
}
