package echolock

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"
)

// This file has what Echo v5 does in another way than v4. The other tests of this package are
// translated from those for v4, and conformance_test.go has those of adaptertest.

// doubtful is the status for a request whose path has a route, but whose method has none. Echo v5
// tells that.
const doubtful = http.StatusNotFound

// seenAfterPanic is the answer that middleware sees which is around the one that recovers: Echo
// answers later.
const seenAfterPanic = "200 0 false"

// quiet keeps Echo from logging.
func quiet(e *echo.Echo) { e.Logger = slog.New(slog.DiscardHandler) }

// response returns Echo's response of a context.
func response(c *echo.Context) *echo.Response {
	own, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		panic(err)
	}
	return own
}

// writerOf returns the writer that a response is over.
func writerOf(r *echo.Response) http.ResponseWriter { return r.ResponseWriter }

// handleErrors sets Echo's HTTPErrorHandler.
func handleErrors(e *echo.Echo, handle func(c *echo.Context, err error)) { e.HTTPErrorHandler = handle }

// setParam sets the only parameter of a path.
func setParam(c *echo.Context, name, value string) {
	c.SetPathValues(echo.PathValues{{Name: name, Value: value}})
}

// serveHost does nothing: an Echo v5 has one router for all hosts.
func serveHost(*echo.Echo, string, echo.MiddlewareFunc) {}
