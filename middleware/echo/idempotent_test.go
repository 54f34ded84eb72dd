package echolock

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a POST with a key.
func (s *site) post(path, key string, changes ...func(*http.Request)) reply {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader("{}"))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Accept-Encoding", "gzip")
	for _, change := range changes {
		change(r)
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	response.Header.Del("Date")
	return reply{response.StatusCode, response.Header, string(body)}
}

func once() idempotency.Config {
	return idempotency.Config{Scope: idempotency.ScopeGlobal}
}

// Echo has many ways to answer, and an error is one of them.
func TestReplays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.echo.Logger.SetOutput(io.Discard)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var runs atomic.Int64
	lock := Idempotent(newLocks(t), once())
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
		"conflict":   {409, "{\"message\":\"Conflict\"}\n", func(echo.Context) error { return echo.ErrConflict }, false},
		"answered":   {201, "done", func(c echo.Context) error { _ = c.String(201, "done"); return errors.New("too late") }, true},
		"early-hints": {200, "done", func(c echo.Context) error {
			c.Response().WriteHeader(http.StatusEarlyHints)
			return c.String(200, "done")
		}, true},
		"hooks": {200, "done", func(c echo.Context) error {
			c.Response().Before(func() { c.Response().Header().Set("X-Before", "1") })
			c.Response().After(func() { c.Response().Header().Set("X-After", "1") })
			return c.String(200, "done")
		}, true},
	} {
		s.echo.POST("/"+name, test.handle, lock, count)
		runs.Store(0)
		first, again := s.post("/"+name, name), s.post("/"+name, name)
		if first.status != test.status || first.body != test.body || first.header.Get("X-After") != "" {
			t.Errorf("%s: answer %v, want %d %q", name, first, test.status, test.body)
		}
		want := int64(2)
		if test.stored {
			want = 1
			first.header.Set("Idempotent-Replayed", "true")
		}
		if again.status != first.status || again.body != first.body || !maps.EqualFunc(again.header, first.header, slices.Equal) {
			t.Errorf("%s: repeat\n%v, want\n%v", name, again, first)
		}
		if runs.Load() != want {
			t.Errorf("%s: the handler has run %d times, want %d", name, runs.Load(), want)
		}
	}
}

// What middleware further out has Echo call before an answer is its own affair: once for each answer, and not recorded.
func TestHooksOutside(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	answers := 0
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Before(func() {
				answers++
				c.Response().Header().Add("X-Answer", fmt.Sprint(answers))
			})
			return next(c)
		}
	})
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, "done") }, Idempotent(newLocks(t), once()))
	for _, want := range []string{"1", "2", "3"} {
		if a := s.post("/", "k"); a.status != 200 || !slices.Equal(a.header["X-Answer"], []string{want}) {
			t.Errorf("answer %s: %v", want, a)
		}
	}
}

// Hosts of one Echo have routes of their own, of the same paths.
func TestIdempotentHosts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	once := Idempotent(newLocks(t), once())
	hosts := []string{"a.example", "b.example"}
	for _, host := range hosts {
		s.echo.Host(host).POST("/pay", func(c echo.Context) error { return c.String(200, host) }, once)
	}
	for _, replayed := range []string{"", "true"} {
		for _, host := range hosts {
			a := s.post("/pay", "k", func(r *http.Request) { r.Host = host })
			if a.body != host || a.header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: %v", host, a)
			}
		}
	}
}

// A central error handler that does not look whether there is an answer already is called once, and its answer is kept.
func TestCentralErrorHandlerRunsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var calls atomic.Int64
	s.echo.HTTPErrorHandler = func(err error, c echo.Context) {
		calls.Add(1)
		c.Response().Header().Add("X-Errors", err.Error())
		_, _ = fmt.Fprintf(c.Response(), "error %d", calls.Load())
	}
	s.echo.POST("/", func(echo.Context) error { return errors.New("mine") }, Idempotent(newLocks(t), once()))
	for _, replayed := range []string{"", "true"} {
		a := s.post("/", "k")
		if a.status != 200 || a.body != "error 1" || a.header.Get("X-Errors") != "mine" || a.header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("answer %v", a)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("the error handler has run %d times", calls.Load())
	}
}

// What stands around sees the answer in Echo's response, which is in its place again.
func TestResponseIsRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.echo.Logger.SetOutput(io.Discard)
	var seen []string
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			own, writer := c.Response(), c.Response().Writer
			err := next(c)
			if c.Response() != own || own.Writer != writer {
				t.Errorf("the response is another, or its writer a %T", c.Response().Writer)
			}
			seen = append(seen, fmt.Sprint(c.Response().Status, c.Response().Size, c.Response().Committed))
			return err
		}
	}, middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
	s.echo.POST("/:do", func(c echo.Context) error {
		switch c.Param("do") {
		case "panic":
			panic("at the gates")
		case "half":
			_ = c.String(201, "half")
			panic("of it")
		}
		return c.String(201, "done")
	}, Idempotent(newLocks(t), once()))
	for _, test := range []struct {
		path, body string
		status     int
		seen       string
	}{
		{"/body", "done", 201, "201 4 true"},
		{"/body", "done", 201, "201 4 true"},
		{"/panic", "{\"message\":\"Internal Server Error\"}\n", 500, "500 36 true"},
		{"/panic", "{\"message\":\"Internal Server Error\"}\n", 500, "500 36 true"},
		{"/half", "half", 201, "201 4 true"},
	} {
		seen = nil
		if a := s.post(test.path, "k"+test.path[1:]); a.status != test.status || a.body != test.body {
			t.Errorf("%s: answer %d %q, want %d %q", test.path, a.status, a.body, test.status, test.body)
		}
		if len(seen) != 1 || seen[0] != test.seen {
			t.Errorf("%s: outside was seen %q, want %q", test.path, seen, test.seen)
		}
	}
}

// Compression belongs around the guard: then each client gets what it takes.
func TestGzipOutside(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.echo.Use(middleware.Gzip())
	text := strings.Repeat("text ", 1000)
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, text) }, Idempotent(newLocks(t), once()))
	first, again := s.post("/", "k"), s.post("/", "k")
	if first.header.Get("Content-Encoding") != "gzip" || again.header.Get("Content-Encoding") != "gzip" || first.body != again.body ||
		again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("answers %v and %v", first.header, again.header)
	}
}

func TestIdempotentSkipper(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	once := Idempotent(newLocks(t), once(), WithSkipper(func(c echo.Context) bool { return c.QueryParam("skip") != "" }))
	var runs atomic.Int64
	s.echo.POST("/", func(c echo.Context) error { return c.String(200, fmt.Sprint(runs.Add(1))) }, once)
	for i, path := range []string{"/?skip=1", "/?skip=1", "/", "/"} {
		if a := s.post(path, "k"); a.body != fmt.Sprint(min(i+1, 3)) {
			t.Errorf("%d: answer %v", i, a)
		}
	}
}

func TestIdempotentErrorHandler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	once := Idempotent(newLocks(t), once(), WithErrorHandler(func(c echo.Context, err error) error {
		var refusal *guard.Error
		if !errors.As(err, &refusal) {
			t.Errorf("err is %v", err)
		}
		return echo.NewHTTPError(refusal.Status+1, refusal.Type)
	}))
	s.echo.POST("/:id", func(c echo.Context) error { return c.String(200, "done") }, once)
	if a := s.post("/1", ""); a.status != 401 || !strings.Contains(a.body, "key-invalid") {
		t.Errorf("answer %v", a)
	}
	for _, replayed := range []string{"", "true"} { // a replay is no refusal
		if a := s.post("/1", "k"); a.status != 200 || a.header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("answer %v", a)
		}
	}
	if a := s.post("/2", "k"); a.status != 423 || !strings.Contains(a.body, "key-reused") {
		t.Errorf("answer %v", a)
	}
}

func TestIdempotentPanics(t *testing.T) {
	t.Parallel()
	answered := once()
	answered.ErrorHandler = guard.WriteProblem
	own := WithErrorHandler(func(echo.Context, error) error { return nil })
	for says, test := range map[string]struct {
		cfg     idempotency.Config
		options []Option
	}{
		"both WithErrorHandler and the Config's ErrorHandler are set": {answered, []Option{own}},
		"option 1 of 1 is nil": {once(), []Option{nil}},
		"Scope is nil":         {},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, says) {
					t.Errorf("panics with %s, want %s", p, says)
				}
			}()
			Idempotent(nil, test.cfg, test.options...)
		}()
	}
}
