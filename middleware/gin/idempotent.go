package ginlock

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key,
// and answers repeats with the first result. A status that a handler only sets, such as by
// c.Status, is sent at the end of the chain. If a run leaves errors with c.Error and no answer,
// middleware further out answers, and nothing is recorded. It panics on a Config that can never
// work; see idempotency.New.
//
// gin.Engine.HandleContext sends its answer past the middleware of the first route, so repeats get
// 409 not-replayable. Write nothing, and set no status, before HandleContext: the client does not
// get it, which is logged.
func Idempotent(locks *core.Client, cfg idempotency.Config) gin.HandlerFunc {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runOnce(g))
}

// runOnce serves requests once for each key.
func runOnce(g *idempotency.Guard) server {
	return func(c *gin.Context, r *http.Request, next chain) (ran bool) {
		outer := sink{c.Writer}
		g.Serve(outer, r, func(own *http.Request, rec *idempotency.Recorder) {
			if rec == nil {
				ran = next(c, own)
				return
			}
			w := newWriter(rec.Wrap(outer), outer)
			c.Writer = w
			size, status, failed := outer.Size(), outer.Status(), len(c.Errors)
			// HandleContext replaces the writer of c by Gin's own.
			bypassed := func() bool { return answered(outer) && outer.Size() != size }
			defer func() {
				c.Writer = outer.ResponseWriter
				if !bypassed() {
					return
				}
				if rec.Holds() || !w.Written() && w.Status() != status {
					g.WarnDropped(r, "write nothing and set no status before Engine.HandleContext")
				}
				rec.Bypassed(outer.Status())
			}()
			ran = next(c, own)
			switch {
			case bypassed():
			case len(c.Errors) > failed && !answered(w):
				// Middleware further out may answer the errors, in its own way.
				rec.Failed()
				outer.ResponseWriter.WriteHeader(w.Status())
			case guard.Interruption(own.Context()) != nil && !answered(w) && w.Status() == http.StatusOK:
				// It was interrupted, and has answered nothing.
			default:
				w.WriteHeaderNow()
			}
		})
		return ran
	}
}

// answered reports whether an answer was begun. To Gin, an informational answer counts as well.
func answered(w gin.ResponseWriter) bool { return w.Written() && (w.Status() >= 200 || w.Size() > 0) }
