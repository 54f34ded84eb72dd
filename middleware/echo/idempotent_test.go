package echolock

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

func once() idempotency.Config {
	return idempotency.Config{Scope: idempotency.ScopeGlobal}
}

// TestIdempotent_Replays has each of the ways in which Echo answers; an error is one of them.
func TestIdempotent_Replays(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	quiet(s.echo)
	var runs atomic.Int64
	lock := Idempotent(locktest.NewLocks(t), once())
	count := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			runs.Add(1)
			return next(c)
		}
	}
	for name, test := range map[string]struct {
		status int
		body   string
		handle echo.HandlerFunc
		stored bool
	}{
		"nothing":    {200, "", func(echo.Context) error { return nil }, true},
		"no-content": {204, "", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, true},
		"json":       {201, "{\"id\":1}\n", func(c echo.Context) error { return c.JSON(http.StatusCreated, map[string]int{"id": 1}) }, true},
		"string":     {200, "text", func(c echo.Context) error { return c.String(200, "text") }, true},
		"blob":       {200, "\x00\xff", func(c echo.Context) error { return c.Blob(200, "application/octet-stream", []byte("\x00\xff")) }, true},
		"read":       {200, "copied", func(c echo.Context) error { return c.Stream(200, "text/plain", strings.NewReader("copied")) }, true},
		"redirect":   {303, "", func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/done") }, true},
		"an-error":   {404, "{\"message\":\"no such order\"}\n", func(echo.Context) error { return echo.NewHTTPError(404, "no such order") }, true},
		"ours":       {500, "{\"message\":\"Internal Server Error\"}\n", func(echo.Context) error { return errors.New("broken") }, false},
		"conflict":   {409, "{\"message\":\"Conflict\"}\n", func(echo.Context) error { return echo.NewHTTPError(409, "Conflict") }, false},
		"answered":   {201, "done", func(c echo.Context) error { _ = c.String(201, "done"); return errors.New("too late") }, true},
		"early-hints": {200, "done", func(c echo.Context) error {
			c.Response().WriteHeader(http.StatusEarlyHints)
			return c.String(200, "done")
		}, true},
		"hooks": {200, "done", func(c echo.Context) error {
			response(c).Before(func() { c.Response().Header().Set("X-Before", "1") })
			response(c).After(func() { c.Response().Header().Set("X-After", "1") })
			return c.String(200, "done")
		}, true},
	} {
		s.echo.POST("/"+name, test.handle, lock, count)
		if first := s.WantTwice(s.Repeated("/"+name, &runs), test.status, test.body, test.stored); first.Header.Get("X-After") != "" {
			t.Errorf("%s: answer %v has what was set after it", name, first)
		}
	}
}

// Hooks of outer middleware run once for each answer, and their headers are not recorded.
func TestIdempotent_OuterHooks(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	answers := 0
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			response(c).Before(func() {
				answers++
				c.Response().Header().Add("X-Answer", fmt.Sprint(answers))
			})
			return next(c)
		}
	})
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, "done") }, Idempotent(locktest.NewLocks(t), once()))
	for _, want := range []string{"1", "2", "3"} {
		if a := s.PostWithKey("/", "k"); a.Status != 200 || !slices.Equal(a.Header["X-Answer"], []string{want}) {
			t.Errorf("answer %v, want 200 with X-Answer %s", a, want)
		}
	}
}

// Echo calls its HTTPErrorHandler once, and the answer is recorded.
func TestIdempotent_CentralErrorHandler(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var calls atomic.Int64
	handleErrors(s.echo, func(c echo.Context, err error) {
		calls.Add(1)
		c.Response().Header().Add("X-Errors", err.Error())
		_, _ = fmt.Fprintf(c.Response(), "error %d", calls.Load())
	})
	s.echo.POST("/", func(echo.Context) error { return errors.New("mine") }, Idempotent(locktest.NewLocks(t), once()))
	for _, replayed := range []string{"", "true"} {
		a := s.PostWithKey("/", "k")
		if a.Status != 200 || a.Body != "error 1" || a.Header.Get("X-Errors") != "mine" || a.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("answer %v", a)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("the error handler ran %d times, want once", calls.Load())
	}
}

// Outer middleware sees the answer in Echo's own response, which is restored.
func TestIdempotent_RestoresResponse(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	quiet(s.echo)
	var seen []string
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			own := response(c)
			writer := writerOf(own)
			err := next(c)
			if c.Response() != own || writerOf(own) != writer {
				t.Errorf("the response is not restored, but a %T, or its writer is a %T", c.Response(), writerOf(own))
			}
			seen = append(seen, fmt.Sprint(own.Status, own.Size, own.Committed))
			return err
		}
	}, middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
	s.echo.POST("/:do", func(c echo.Context) error {
		switch c.Param("do") {
		case "panic":
			panic("before the answer")
		case "half":
			_ = c.String(201, "half")
			panic("after half of the answer")
		}
		return c.String(201, "done")
	}, Idempotent(locktest.NewLocks(t), once()))
	for _, test := range []struct {
		path, body string
		status     int
		seen       string
	}{
		{"/body", "done", 201, "201 4 true"},
		{"/body", "done", 201, "201 4 true"},
		{"/panic", "{\"message\":\"Internal Server Error\"}\n", 500, seenAfterPanic},
		{"/panic", "{\"message\":\"Internal Server Error\"}\n", 500, seenAfterPanic},
		{"/half", "half", 201, "201 4 true"},
	} {
		seen = nil
		if a := s.PostWithKey(test.path, "k"+test.path[1:]); a.Status != test.status || a.Body != test.body {
			t.Errorf("%s: answer %d %q, want %d %q", test.path, a.Status, a.Body, test.status, test.body)
		}
		if len(seen) != 1 || seen[0] != test.seen {
			t.Errorf("%s: outer middleware sees %q, want %q", test.path, seen, test.seen)
		}
	}
}

// Compression around the guard compresses replays as well.
func TestIdempotent_OuterGzip(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.echo.Use(middleware.Gzip())
	text := strings.Repeat("text ", 1000)
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, text) }, Idempotent(locktest.NewLocks(t), once()))
	// The client decodes nothing.
	gzip := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") }
	first, again := s.PostWithKey("/", "k", gzip), s.PostWithKey("/", "k", gzip)
	if first.Header.Get("Content-Encoding") != "gzip" || again.Header.Get("Content-Encoding") != "gzip" || first.Body != again.Body ||
		again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("answers %v and %v, want both compressed, the second a replay", first, again)
	}
}

func TestIdempotent_WithSkipper(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	once := Idempotent(locktest.NewLocks(t), once(), WithSkipper(func(c echo.Context) bool { return c.QueryParam("skip") != "" }))
	var runs atomic.Int64
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, fmt.Sprint(runs.Add(1))) }, once)
	for i, path := range []string{"/?skip=1", "/?skip=1", "/", "/"} {
		if a := s.PostWithKey(path, "k"); a.Body != fmt.Sprint(min(i+1, 3)) {
			t.Errorf("request %d: answer %v, want %d", i, a, min(i+1, 3))
		}
	}
}

func TestIdempotent_WithErrorHandler(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	once := Idempotent(locktest.NewLocks(t), once(), WithErrorHandler(func(c echo.Context, err error) error {
		var refusal *guard.Error
		if !errors.As(err, &refusal) {
			t.Errorf("the error handler gets %v, want a *guard.Error", err)
		}
		return echo.NewHTTPError(refusal.Status+1, refusal.Type)
	}))
	s.echo.POST("/:id", func(c echo.Context) error { return c.String(200, "done") }, once)
	if a := s.PostWithKey("/1", ""); a.Status != 401 || !strings.Contains(a.Body, "key-invalid") {
		t.Errorf("answer %v", a)
	}
	for _, replayed := range []string{"", "true"} { // a replay is no refusal
		if a := s.PostWithKey("/1", "k"); a.Status != 200 || a.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("answer %v", a)
		}
	}
	if a := s.PostWithKey("/2", "k"); a.Status != 423 || !strings.Contains(a.Body, "key-reused") {
		t.Errorf("answer %v", a)
	}
}

// The response inside begins as Echo's own, so a guard knows the status of an answer that was not
// written.
func TestIdempotent_StatusInside(t *testing.T) {
	t.Parallel()
	s, locks := newServer(t), locktest.NewLocks(t)
	outcomes := make(chan guard.Outcome, 1)
	inner := New(locks, Config{
		Key:     func(*http.Request) (string, error) { return "k", nil },
		Observe: func(_ *http.Request, o guard.Outcome) { outcomes <- o },
	})
	s.echo.POST("/", func(echo.Context) error { return nil }, Idempotent(locks, once()), inner)
	if a := s.PostWithKey("/", "k"); a.Status != http.StatusOK {
		t.Errorf("answer %v, want 200", a)
	}
	if o := <-outcomes; !o.Ran || o.Status != http.StatusOK {
		t.Errorf("the outcome inside is %+v, want status 200", o)
	}
}
