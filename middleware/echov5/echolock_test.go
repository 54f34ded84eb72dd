// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// An echoServer serves an Echo.
type echoServer struct {
	*locktest.Server
	echo *echo.Echo
}

// newServer serves an Echo; its routes may be added until the first request.
func newServer(t *testing.T) *echoServer {
	t.Helper()
	e := echo.New()
	return &echoServer{locktest.NewServer(t, e), e}
}

// answerLock answers with the name of the lock that is held, and the pattern.
func answerLock(c *echo.Context) error {
	name := "no lock"
	if lease, ok := guard.LeaseFrom(c.Request().Context()); ok {
		name = lease.Name()
	}
	return c.String(http.StatusOK, name+", "+c.Request().Pattern)
}

func by(key keyfuncs.Func) Config { return Config{Key: key} }

func TestNew_Mounted(t *testing.T) {
	t.Parallel()
	lock := New(locktest.NewLocks(t), by(keyfuncs.PathValue("id")))
	for name, mount := range map[string]func(*echo.Echo){
		"echo":            func(e *echo.Echo) { e.Use(lock); e.GET("/api/orders/:id", answerLock) },
		"group":           func(e *echo.Echo) { e.Group("/api", lock).GET("/orders/:id", answerLock) },
		"group inside":    func(e *echo.Echo) { e.Group("/api").Group("/orders", lock).GET("/:id", answerLock) },
		"route":           func(e *echo.Echo) { e.GET("/api/orders/:id", answerLock, lock) },
		"without a slash": func(e *echo.Echo) { e.GET("api/orders/:id", answerLock, lock) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			mount(s.echo)
			id := url.PathEscape(name)
			for range 2 {
				s.Want("GET", "/api/orders/"+id, 200, "reqlock:"+name+", /api/orders/:id")
			}
		})
	}
}

// Echo runs the middleware of a group for requests that none of its routes matches as well.
func TestNew_Unmatched(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:one for all")
	lock := New(locks, by(keyfuncs.Const("one for all")))
	const refused = "urn:reqlock:problem:locked"
	for name, test := range map[string]struct {
		mount    func(*echo.Echo)
		requests [][3]any // method and path, status, text
	}{
		"echo": {func(e *echo.Echo) { e.Use(lock); e.GET("/orders/:id", answerLock) }, [][3]any{
			{"GET /orders/1", 409, refused}, {"GET /elsewhere", 404, "Not Found"}, {"POST /orders/1", 405, ""}, {"OPTIONS /orders/1", 204, ""}, {"echo_route_not_found /orders/1", 405, ""},
		}},
		"group": {func(e *echo.Echo) { e.Group("/api", lock).GET("/orders/:id", answerLock) }, [][3]any{
			{"GET /api/orders/1", 409, refused}, {"GET /api/elsewhere", 404, "Not Found"}, {"GET /api", 404, ""}, {"POST /api/orders/1", 404, ""}, {"echo_route_not_found /api/x", 404, ""}, {"GET /", 404, ""},
		}},
		"RouteNotFound": {func(e *echo.Echo) {
			mine := func(c *echo.Context) error { return c.String(http.StatusNotFound, "mine") }
			e.RouteNotFound("/*", mine, lock)
			g := e.Group("/api", lock)
			g.GET("/orders/:id", answerLock)
			g.RouteNotFound("/*", mine)
		}, [][3]any{
			{"GET /api/orders/1", 409, refused}, {"GET /api/elsewhere", 404, "mine"}, {"POST /api/orders/1", 404, "mine"}, {"GET /elsewhere", 404, "mine"},
		}},
		"on the path of a group": {func(e *echo.Echo) {
			g := e.Group("/api", lock)
			g.GET("", answerLock)
			g.POST("/*", answerLock)
			item := e.Group("/items/:id", lock)
			item.GET("", answerLock)
			item.PUT("/*", answerLock)
		}, [][3]any{
			{"GET /api", 409, refused}, {"POST /api/x", 409, refused}, {"POST /api/", 409, refused},
			{"GET /items/1", 409, refused}, {"GET /items/%31", 409, refused}, {"POST /items/", 404, ""},
			{"PUT /items/1/x", 409, refused}, {"PUT /items/1/", 409, refused},
			{"POST /api", doubtful, ""}, {"OPTIONS /api", doubtful, ""}, {"echo_route_not_found /api", doubtful, ""}, {"GET /api/x", doubtful, ""},
			{"GET /items/1/x", doubtful, ""},
			{"POST /items/1", 404, "Not Found"}, {"OPTIONS /items/1", 404, ""}, {"echo_route_not_found /items/1", 404, ""},
		}},
		"a group without a slash": {func(e *echo.Echo) {
			g := e.Group("api", lock)
			g.GET("", answerLock)
			g.GET("/orders/:id", answerLock)
		}, [][3]any{
			{"GET /api", 409, refused}, {"POST /api", doubtful, ""}, {"GET /api/orders/1", 409, refused}, {"GET /api/x", 404, ""},
		}},
		"a group of everything": {func(e *echo.Echo) {
			g := e.Group("", lock)
			g.GET("/", answerLock)
			g.GET("/orders/:id", answerLock)
		}, [][3]any{
			{"GET /", 409, refused}, {"POST /", 404, ""}, {"GET /orders/1", 409, refused}, {"POST /orders/1", 404, ""}, {"GET /x", 404, ""},
		}},
		"the same path twice": {func(e *echo.Echo) {
			e.Group("/api", lock).GET("", answerLock)
			e.POST("/api", answerLock)
		}, [][3]any{
			{"GET /api", 409, refused}, {"POST /api", 200, "no lock"}, {"PUT /api", doubtful, ""},
		}},
		"all of a group": {func(e *echo.Echo) { e.Group("/api", lock).GET("/*", answerLock) }, [][3]any{
			{"GET /api/orders/1", 409, refused}, {"GET /elsewhere", 404, ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			test.mount(s.echo)
			for range 2 {
				for _, r := range test.requests {
					method, path, _ := strings.Cut(r[0].(string), " ")
					s.Want(method, path, r[1].(int), r[2].(string))
				}
			}
		})
	}
}

// A route comes after requests to its path, which had only a not-found handler.
func TestNew_RouteAddedLater(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:k")
	s := newServer(t)
	g := s.echo.Group("/api", New(locks, by(keyfuncs.Const("k"))))
	s.Want("GET", "/api", 404, "Not Found")
	g.GET("", answerLock)
	s.Want("GET", "/api", 409, "locked")
}

// Middleware after the router may change what the router has matched: the method, to one without a
// route, the path and the host.
func TestNew_ChangedAfterRouting(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:one for all")
	s := newServer(t)
	s.echo.Use(middleware.MethodOverride(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r := c.Request()
			if path := r.Header.Get("X-Path"); path != "" {
				r.URL.Path, r.URL.RawPath = path, ""
			}
			if host := r.Header.Get("X-Host"); host != "" {
				r.Host = host
			}
			return next(c)
		}
	})
	lock := New(locks, by(keyfuncs.Const("one for all")))
	g := s.echo.Group("/orders", lock)
	g.GET("/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "read") })
	g.POST("/:id", answerLock)
	g.POST("", answerLock)
	g.POST("/all/*", answerLock)
	s.echo.Group("/items/:id", lock).POST("", answerLock)
	serveHost(s.echo, "shop.test", lock)
	for _, path := range []string{"/items/1", "/orders/1", "/orders/%31", "/orders", "/orders/all/", "/orders/all/x"} {
		s.Want("POST", path, 409, "locked")
		for _, method := range []string{"PUT", "GET", "OPTIONS", "nonsense", echo.RouteNotFound} {
			s.Want("POST", path, 409, "locked", echo.HeaderXHTTPMethodOverride, method)
		}
		for _, to := range []string{"/elsewhere", "/orders/x/y", "/orders/", "/"} {
			s.Want("POST", path, 409, "locked", "X-Path", to)
		}
		s.Want("POST", path, 409, "locked", "X-Host", "shop.test")
	}
}

// Unit tests of handlers set a path that no router has matched.
func TestNew_WithoutRouter(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	w := httptest.NewRecorder()
	c := echo.New().NewContext(httptest.NewRequest("GET", "/orders/1", nil), w)
	c.SetPath("/orders/:id")
	setParam(c, "id", "1")
	if err := New(locks, by(keyfuncs.PathValue("id")))(answerLock)(c); err != nil || w.Body.String() != "reqlock:1, /orders/:id" {
		t.Errorf("answer %q (%v)", w.Body, err)
	}
}

func TestNew_PreRewrite(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:1")
	s := newServer(t)
	s.echo.Pre(middleware.Rewrite(map[string]string{"/old/*": "/orders/$1"}))
	s.echo.GET("/orders/:id", answerLock, New(locks, by(keyfuncs.PathValue("id"))))
	s.Want("GET", "/old/2", 200, "reqlock:2, /orders/:id")
	for _, path := range []string{"/orders/1", "/orders/%31", "/old/1", "/old/%31"} {
		s.Want("GET", path, 409, "locked")
	}
}

// In Pre, no route has matched yet. A request that a route will match does not bypass the lock.
func TestNew_Pre(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:anna")
	s := newServer(t)
	var log bytes.Buffer
	byRoute := by(keyfuncs.PathValue("id"))
	byRoute.Logger = slog.New(slog.NewTextHandler(&log, nil))
	hasUser := func(c *echo.Context) bool { return c.Request().Header.Get("X-User") != "" }
	s.echo.Pre(New(locks, byRoute, WithSkipper(hasUser)), New(locks, by(keyfuncs.Header("X-User"))))
	s.echo.GET("/orders/:id", answerLock)
	s.echo.Group("/shops", func(next echo.HandlerFunc) echo.HandlerFunc { return next }).GET("/:id", answerLock)
	for _, path := range []string{"/orders/1", "/shops/1"} {
		s.Want("GET", path, 500, "misconfigured")
		s.Want("GET", path, 409, "locked", "X-User", "anna")
		s.Want("GET", path, 200, "reqlock:bert, ", "X-User", "bert")
	}
	s.Want("POST", "/orders/1", 405, "Method Not Allowed")
	for _, path := range []string{"/elsewhere", "/shops"} {
		s.Want("GET", path, 404, "Not Found")
		s.Want("GET", path, 404, "Not Found", "X-User", "anna")
	}
	if !strings.Contains(log.String(), "mount the guard where the route has been matched") {
		t.Errorf("the log does not name the change to make: %s", &log)
	}
}

func TestWithSkipper(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:1")
	s := newServer(t)
	skip := func(c *echo.Context) bool { return c.QueryParam("skip") != "" }
	s.echo.GET("/orders/:id", answerLock, New(locks, by(keyfuncs.PathValue("id")), WithSkipper(skip)))
	s.Want("GET", "/orders/1", 409, "locked")
	s.Want("GET", "/orders/1?skip=1", 200, "no lock, ")
}

// central counts the errors that reach Echo's HTTPErrorHandler, which answers 418.
func (s *echoServer) central() *atomic.Int64 {
	var calls atomic.Int64
	handleErrors(s.echo, func(c *echo.Context, err error) {
		calls.Add(1)
		if response(c).Committed {
			s.Errorf("the central error handler gets %v after the answer", err)
		}
		_ = c.String(http.StatusTeapot, "central: "+err.Error())
	})
	return &calls
}

func TestWithErrorHandler_AnswersOnce(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:k")
	for name, test := range map[string]struct {
		handler func(c *echo.Context, err error) error
		status  int
		text    string
		central int64
	}{
		"the guard's own": {nil, 409, "urn:reqlock:problem:locked", 0},
		"ErrorHandler answers": {func(c *echo.Context, err error) error {
			var e *guard.Error
			if !errors.As(err, &e) || !errors.Is(err, core.ErrNotAcquired) {
				t.Errorf("ErrorHandler gets %v", err)
			}
			return c.String(http.StatusLocked, "mine: "+c.Path())
		}, 423, "mine: /orders", 0},
		"ErrorHandler passes it on": {func(c *echo.Context, err error) error { return err }, 418, "central: reqlock: guard:", 1},
		"ErrorHandler has another":  {func(*echo.Context, error) error { return errors.New("another") }, 418, "central: another", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			calls := s.central()
			lock := New(locks, by(keyfuncs.Const("k")), WithErrorHandler(test.handler))
			s.echo.GET("/orders", func(*echo.Context) error { t.Error("the handler runs without the lock"); return nil }, lock)
			s.Want("GET", "/orders", test.status, test.text)
			if n := calls.Load(); n != test.central {
				t.Errorf("the central error handler is called %d times, want %d", n, test.central)
			}
		})
	}
}

// Echo renders the error of a handler after the lock is released.
func TestNew_HandlersError(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	s := newServer(t)
	var calls atomic.Int64
	handleErrors(s.echo, func(c *echo.Context, err error) {
		calls.Add(1)
		held, asking := locks.Lock("reqlock:k").IsLocked(context.Background())
		_ = c.String(http.StatusTeapot, fmt.Sprint(err, held, asking))
	})
	s.echo.GET("/orders", func(*echo.Context) error { return errors.New("the handler's") }, New(locks, by(keyfuncs.Const("k"))))
	s.Want("GET", "/orders", 418, "the handler's false <nil>")
	if n := calls.Load(); n != 1 {
		t.Errorf("the central error handler is called %d times, want once", n)
	}
}

// Two guards of one request have different error handlers: that of the refusing guard answers.
func TestWithErrorHandler_Nested(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:inner")
	s := newServer(t)
	mount := func(key string) echo.MiddlewareFunc {
		return New(locks, by(keyfuncs.Const(key)), WithErrorHandler(func(c *echo.Context, _ error) error {
			return c.String(http.StatusConflict, "refused by "+key)
		}))
	}
	s.echo.GET("/orders", answerLock, mount("outer"), mount("inner"))
	s.Want("GET", "/orders", 409, "refused by inner")
}

func TestNew_RestoresRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	quiet(s.echo)
	type marker struct{}
	seen := make(chan string, 1)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			before := c.Request().WithContext(context.WithValue(c.Request().Context(), marker{}, "outer"))
			c.SetRequest(before)
			err := next(c)
			_, held := guard.LeaseFrom(c.Request().Context())
			seen <- fmt.Sprint(c.Request() == before, held)
			return err
		}
	}, middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}),
		New(locktest.NewLocks(t), by(keyfuncs.Const("k"))))
	s.echo.GET("/:how", func(c *echo.Context) error {
		if got := c.Request().Context().Value(marker{}); got != "outer" {
			t.Errorf("the handler's context has the value %v, want that of outer middleware", got)
		}
		if c.Param("how") == "panic" {
			panic("the handler fails")
		}
		return c.NoContent(http.StatusNoContent)
	})
	for path, status := range map[string]int{"/return": 204, "/panic": 500} {
		s.Want("GET", path, status, "")
		if got, want := <-seen, "true false"; got != want {
			t.Errorf("after %s: the request is the same, a lock is left: %s; want %s", path, got, want)
		}
	}
}

// The context of a request may outlive it, and must not lead to Echo's pooled context.
func TestNew_PooledContextsKeepNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var kept context.Context
	passOn := WithErrorHandler(func(_ *echo.Context, err error) error { return err })
	seen := make(chan string, 1)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			_, held := guard.LeaseFrom(kept)
			seen <- fmt.Sprint(held, Get(c.Request().WithContext(kept), "user"), kept.Err())
			return err
		}
	})
	s.echo.GET("/:id", func(c *echo.Context) error {
		kept = c.Request().Context()
		c.Set("user", "anna")
		if got := Get(c.Request(), "user"); got != "anna" {
			t.Errorf("user is %v", got)
		}
		return answerLock(c)
	}, New(locktest.NewLocks(t), by(keyfuncs.PathValue("id")), passOn))
	for range 20 {
		s.Want("GET", "/1", 200, "reqlock:1")
		if got, want := <-seen, "false <nil> context canceled"; got != want {
			t.Errorf("a lock is held, the user, the end: %s, want %s", got, want)
		}
	}
}

func TestOptions_Panics(t *testing.T) {
	t.Parallel()
	answer := WithErrorHandler(func(_ *echo.Context, err error) error { return err })
	answered := Config{Key: keyfuncs.Const("k"), ErrorHandler: guard.WriteProblem}
	once := once()
	once.ErrorHandler = guard.WriteProblem
	const both = "reqlock: echolock: both WithErrorHandler and the Config's ErrorHandler are set"
	locktest.WantPanic(t, both, func() { New(nil, answered, answer) })
	locktest.WantPanic(t, both, func() { Idempotent(nil, once, answer) })
	const isNil = "reqlock: echolock: option 2 of 2 is nil"
	locktest.WantPanic(t, isNil, func() { New(nil, Config{}, answer, nil) })
	locktest.WantPanic(t, isNil, func() { Idempotent(nil, idempotency.Config{}, answer, nil) })
}

func TestNew_OutcomeStatus(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	outcomes := make(chan guard.Outcome, 1)
	cfg := by(keyfuncs.PathValue("how"))
	cfg.Observe = func(_ *http.Request, o guard.Outcome) { outcomes <- o }
	s.echo.GET("/:how", func(c *echo.Context) error {
		switch c.Param("how") {
		case "answers":
			return c.String(201, "made")
		case "returns-an-error":
			return echo.NewHTTPError(http.StatusTeapot, "teapot")
		case "answers-an-error":
			answer(c, echo.NewHTTPError(http.StatusTeapot, "teapot"))
			return errors.New("for the log")
		}
		return nil
	}, New(locktest.NewLocks(t), cfg))
	for how, status := range map[string]struct{ sent, observed int }{
		"answers": {201, 201}, "does-nothing": {200, 200}, "returns-an-error": {418, 0}, "answers-an-error": {418, 418},
	} {
		s.Want("GET", "/"+how, status.sent, "")
		if o := <-outcomes; !o.Ran || o.Status != status.observed {
			t.Errorf("%s: observed %+v, want Ran and Status %d", how, o, status.observed)
		}
	}
}
