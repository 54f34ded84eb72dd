// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

// TestCoalesce_Shares has each of the ways in which Echo answers; an error is one of them. The second
// request comes while the answer to the first is kept.
func TestCoalesce_Shares(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	quiet(s.echo)
	var runs atomic.Int64
	one := Coalesce(locktest.NewLocks(t), coalesce.Config{})
	count := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			runs.Add(1)
			return next(c)
		}
	}
	for name, test := range map[string]struct {
		status int
		body   string
		handle echo.HandlerFunc
		alone  bool
	}{
		"nothing":    {200, "", func(*echo.Context) error { return nil }, false},
		"no-content": {204, "", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, false},
		"json":       {201, "{\"id\":1}\n", func(c *echo.Context) error { return c.JSON(http.StatusCreated, map[string]int{"id": 1}) }, false},
		"read":       {200, "copied", func(c *echo.Context) error { return c.Stream(200, "text/plain", strings.NewReader("copied")) }, false},
		"redirect":   {303, "", func(c *echo.Context) error { return c.Redirect(http.StatusSeeOther, "/done") }, false},
		"an-error":   {404, "{\"message\":\"no such order\"}\n", func(*echo.Context) error { return echo.NewHTTPError(404, "no such order") }, false},
		"ours":       {500, "{\"message\":\"Internal Server Error\"}\n", func(*echo.Context) error { return errors.New("broken") }, false},
		"conflict":   {409, "{\"message\":\"Conflict\"}\n", func(*echo.Context) error { return echo.NewHTTPError(409, "Conflict") }, true},
		"flushed": {200, "ab", func(c *echo.Context) error {
			_ = c.String(200, "a")
			response(c).Flush()
			_, err := c.Response().Write([]byte("b"))
			return err
		}, true},
		"hooks": {200, "done", func(c *echo.Context) error {
			response(c).Before(func() { c.Response().Header().Set("X-Before", "1") })
			return c.String(200, "done")
		}, false},
	} {
		s.echo.GET("/"+name, test.handle, one, count)
		s.WantTwice(s.Shared("/"+name, &runs), test.status, test.body, !test.alone)
	}
}

// If Echo's HTTPErrorHandler writes nothing, there is nothing to share.
func TestCoalesce_NoAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var runs atomic.Int64
	handleErrors(s.echo, func(*echo.Context, error) {})
	s.echo.GET("/x", func(*echo.Context) error {
		runs.Add(1)
		return errors.New("broken")
	}, Coalesce(locktest.NewLocks(t), coalesce.Config{}))
	for range 2 {
		s.Do(s.NewRequest(http.MethodGet, "/x", ""))
	}
	if runs.Load() != 2 {
		t.Errorf("the handler ran %d times, want 2", runs.Load())
	}
}

func TestCoalesce_Refuses(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.WantPanic(t, "Keep is -1ns", func() { Coalesce(locks, coalesce.Config{Keep: -1}) })
}
