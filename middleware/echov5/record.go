// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// A recorder takes the answer of a run. Failed says that the handler has failed: without an answer,
// nothing is recorded.
type recorder interface {
	Wrap(http.ResponseWriter) http.ResponseWriter
	Failed()
}

// recording returns a server whose requests serve answers, or runs the rest of the chain for, with a
// recorder of the answer. Without one, nothing is recorded.
func recording[R interface {
	comparable
	recorder
}](serve func(http.ResponseWriter, *http.Request, func(*http.Request, R))) server {
	return func(c *echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		serve(c.Response(), r, func(r *http.Request, rec R) {
			c.SetRequest(r)
			var none R
			if rec == none {
				err = next(c)
				return
			}
			record(c, next, rec)
		})
		return err
	}
}

// record runs the handler, and Echo's answer to its error, with their own response over the
// recorder. The hooks of the outer response belong to middleware further out, and run when the
// answer is sent, replayed or not.
func record(c *echo.Context, next echo.HandlerFunc, rec recorder) {
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
