package ginlock

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key, and answers repeats with the
// first result. A status that a handler only sets, as by c.Status, is sent when the chain is through. Where a run has left errors with c.Error
// and no answer, that is for middleware further out to give: nothing is recorded. It panics on a Config that can never work; see
// idempotency.New.
//
// gin.Engine.HandleContext answers past the middleware of the first route, whose repeats then get 409 not-replayable.
func Idempotent(locks *core.Client, cfg idempotency.Config) gin.HandlerFunc {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(func(c *gin.Context, r *http.Request, next chain) {
		outer := sink{c.Writer}
		g.Serve(outer, r, func(r *http.Request, rec *idempotency.Recorder) {
			if rec == nil {
				next(outer, r)
				return
			}
			w := newWriter(rec.Wrap(outer), outer)
			c.Writer = w
			defer func() { c.Writer = outer.ResponseWriter }()
			began, failed := outer.Written(), len(c.Errors)
			next(w, r)
			switch {
			case !began && answered(outer):
				rec.Bypassed(outer.Status()) // HandleContext takes the writer away
			case len(c.Errors) > failed && !answered(w):
				// Middleware further out may answer errors: with what is not known here.
				idempotency.NoStore(r.Context())
				outer.ResponseWriter.WriteHeader(w.Status())
			default:
				w.WriteHeaderNow()
			}
		})
	})
}

// answered says whether an answer was begun. Gin takes an informational one for that, after which the answer is still to come.
func answered(w gin.ResponseWriter) bool { return w.Written() && (w.Status() >= 200 || w.Size() > 0) }
