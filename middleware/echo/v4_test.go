package echolock

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

// This file has what Echo v4 does in another way than v5. All other tests are translated for v5.

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// doubtful is the status for a request whose path has a route, but whose method has none, if no
// parameter shows that: it may be a route whose method was changed since. So it gets the lock's
// refusal.
const doubtful = http.StatusConflict

// seenAfterPanic is the answer that middleware sees which is around the one that recovers: Echo has
// answered already.
const seenAfterPanic = "500 36 true"

// quiet keeps Echo from logging.
func quiet(e *echo.Echo) { e.Logger.SetOutput(io.Discard) }

// response returns Echo's response of a context.
func response(c echo.Context) *echo.Response { return c.Response() }

// writerOf returns the writer that a response is over.
func writerOf(r *echo.Response) http.ResponseWriter { return r.Writer }

// handleErrors sets Echo's HTTPErrorHandler.
func handleErrors(e *echo.Echo, handle func(c echo.Context, err error)) {
	e.HTTPErrorHandler = func(err error, c echo.Context) { handle(c, err) }
}

// setParam sets the only parameter of a path.
func setParam(c echo.Context, name, value string) {
	c.SetParamNames(name)
	c.SetParamValues(value)
}

// serveHost gives a host a router of its own.
func serveHost(e *echo.Echo, host string, m echo.MiddlewareFunc) { e.Host(host, m) }

// A route that was added to the router itself is locked.
func TestNew_RoutersOwn(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	lock := New(locktest.NewLocks(t), by(keyfuncs.PathValue("id")))
	s.echo.Router().Add("GET", "/api/orders/:id", lock(answerLock))
	for range 2 {
		s.Want("GET", "/api/orders/1", 200, "reqlock:1, /api/orders/:id")
	}
}

// The middleware of a host runs for requests that none of its routes matches as well.
func TestNew_UnmatchedByHost(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:k")
	s := newServer(t)
	s.echo.GET("/orders/:id", answerLock)
	s.echo.Host("shop.test", New(locks, by(keyfuncs.Const("k")))).GET("/orders/:id/pay", answerLock)
	for range 2 {
		s.Want("GET", "shop.test/orders/1/pay", 409, "urn:reqlock:problem:locked")
		s.Want("GET", "shop.test/elsewhere", 404, "Not Found")
		s.Want("GET", "shop.test/orders/1", 404, "")
		s.Want("GET", "other.test/orders/1", 200, "no lock")
	}
}

// In Pre, the routes of the request's host count.
func TestNew_PreOfHost(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:anna")
	s := newServer(t)
	s.echo.Pre(New(locks, by(keyfuncs.Header("X-User"))))
	s.echo.GET("/orders/:id", answerLock)
	s.echo.Host("shop.test").GET("/hosted/:id", answerLock)
	s.Want("GET", "shop.test/hosted/1", 400, "key-missing")
	s.Want("GET", "shop.test/hosted/1", 409, "locked", "X-User", "anna")
	s.Want("GET", "shop.test/hosted/1", 200, "reqlock:bert, ", "X-User", "bert")
	s.Want("GET", "shop.test/orders/1", 404, "Not Found")
	s.Want("GET", "shop.test/orders/1", 404, "Not Found", "X-User", "anna")
}

// A method without a route gets its 404 behind the lock.
func TestNew_UnmatchedMethod(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.echo.Group("/api", New(locktest.NewLocks(t), by(keyfuncs.Const("k")))).GET("", answerLock)
	s.Want("GET", "/api", 200, "reqlock:k")
	s.Want("POST", "/api", 404, "Not Found")
}

// Middleware that clears a parameter does not make a request unmatched.
func TestNew_ParameterIsCleared(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:k")
	s := newServer(t)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.SetParamValues(strings.TrimSpace(c.Param("id")))
			return next(c)
		}
	})
	s.echo.Group("/items/:id", New(locks, by(keyfuncs.Const("k")))).GET("", answerLock)
	s.Want("GET", "/items/%20", 409, "locked")
	s.Want("POST", "/items/1", 404, "Not Found")
}

// Middleware that asks the router again, for another method, gets that route with its lock.
func TestNew_RoutedAgain(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:1")
	s := newServer(t)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			method := r.Header.Get(echo.HeaderXHTTPMethodOverride)
			if method == "" {
				return next(c)
			}
			r.Method = method
			c.Echo().Router().Find(method, echo.GetPath(r), c)
			return c.Handler()(c)
		}
	})
	s.echo.PUT("/orders/:id", answerLock, New(locks, by(keyfuncs.PathValue("id"))))
	s.echo.PUT("/orders", answerLock, New(locks, by(keyfuncs.Const("1"))))
	for _, method := range []string{"PUT", "POST", "OPTIONS"} {
		s.Want(method, "/orders/1", 409, "locked", echo.HeaderXHTTPMethodOverride, "PUT")
		s.Want(method, "/orders", 409, "locked", echo.HeaderXHTTPMethodOverride, "PUT")
	}
	s.Want("POST", "/orders/1", 405, "Method Not Allowed")
	s.Want("OPTIONS", "/orders/1", 204, "")
	s.Want("PUT", "/orders/1", 405, "Method Not Allowed", echo.HeaderXHTTPMethodOverride, "POST")
}

// Two hosts of one Echo have routes with equal paths.
func TestIdempotent_Hosts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	once := Idempotent(locktest.NewLocks(t), once())
	hosts := []string{"a.example", "b.example"}
	for _, host := range hosts {
		s.echo.Host(host).POST("/pay", func(c echo.Context) error { return c.String(200, host) }, once)
	}
	for _, replayed := range []string{"", "true"} {
		for _, host := range hosts {
			a := s.PostWithKey("/pay", "k", func(r *http.Request) { r.Host = host })
			if a.Body != host || a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: answer %v, want its own, replayed: %q", host, a, replayed)
			}
		}
	}
}
