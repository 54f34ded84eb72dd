package ginlock

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Coalesce returns a middleware that runs the rest of the chain once for all requests that want the
// same at the same time, and gives them its answer. If a run leaves errors with c.Error and no answer,
// middleware further out answers, and nothing is shared. Nor is the answer of gin.Engine.HandleContext,
// which goes past the middleware of the first route. It panics on a Config that can never work; see
// coalesce.New.
func Coalesce(locks *core.Client, cfg coalesce.Config) gin.HandlerFunc {
	g, err := coalesce.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runForAll(g))
}

// runForAll serves requests that want the same with one run.
func runForAll(g *coalesce.Guard) server {
	return func(c *gin.Context, r *http.Request, next chain) (ran bool) {
		outer := &counter{sink{c.Writer}, c.Writer.Size()}
		g.Serve(outer, r, func(own *http.Request, rec *coalesce.Recorder) {
			if rec == nil {
				ran = next(c, own)
				return
			}
			w, failed := newWriter(rec.Wrap(outer), outer), len(c.Errors)
			c.Writer = w
			defer func() {
				c.Writer = outer.ResponseWriter
				if outer.bypassed() { // HandleContext replaces the writer of c by Gin's own.
					rec.Bypassed(0)
				}
			}()
			ran = next(c, own)
			switch {
			case len(c.Errors) > failed && !answered(w):
				// Middleware further out may answer the errors, in its own way.
				rec.Bypassed(0)
				outer.ResponseWriter.WriteHeader(w.Status())
			case guard.Interruption(own.Context()) != nil && !answered(w) && w.Status() == http.StatusOK:
				// It was interrupted, and has answered nothing.
			case !outer.bypassed():
				w.WriteHeaderNow()
			}
		})
		return ran
	}
}

// A counter is a sink that counts what it passes on. The writer of the chain cannot: when the client
// has left, it goes on as if all were sent.
type counter struct {
	sink
	size int // what Size is if nothing bypasses the counter
}

// bypassed reports whether Gin's writer has sent something else.
func (c *counter) bypassed() bool { return c.Size() != c.size }

func (c *counter) WriteHeader(status int) {
	c.sink.WriteHeader(status)
	c.size = max(c.size, 0)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.sink.Write(p)
	c.size = max(c.size, 0) + n
	return n, err
}
