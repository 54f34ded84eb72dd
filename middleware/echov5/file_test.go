// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

func TestFromFile(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	locktest.FileTest[*File]{
		Open: func(locks *core.Client, path string, opts routes.Options) (*File, error) {
			return FromFile(locks, path, opts, WithSkipper(func(c *echo.Context) bool { return c.QueryParam("skip") != "" }))
		},
		User: Value("user"),
		Serve: func(file *File, run func() string) *locktest.Server {
			s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					c.Set("user", "anna")
					return next(c)
				}
			}, file.Middleware())
			s.echo.GET("/orders/:id", answerLock)
			s.echo.PUT("/orders/:id", answerLock)
			s.echo.POST("/pay/:id", func(c *echo.Context) error { return c.String(http.StatusCreated, run()) })
			s.echo.GET("/reports/:id", func(c *echo.Context) error { return c.String(http.StatusOK, run()) })
			return s.Server
		},
		Check: func(file *File) error { return file.Check(s.echo) },
		Also:  func(s *locktest.Server) { s.Want("GET", "/orders/1?skip=1", 200, "no lock") },
	}.Run(t)
}

// In Pre, the route that will answer is not known.
func TestFromFile_Pre(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/orders/:id", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := FromFile(locktest.NewLocks(t), path, routes.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t)
	s.echo.Pre(file.Middleware())
	s.echo.GET("/orders/:id", answerLock)
	s.Want("GET", "/orders/1", 500, "misconfigured")
	s.Want("GET", "/elsewhere", 404, "")
}

// A refusal of the lock that WithErrorHandler leaves to Echo is the answer of the idempotent run.
func TestFromFile_RefusalLeftToEcho(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/pay", "key": "k", "idempotency": {"scope": "global"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	locks := locktest.NewLocks(t)
	file, err := FromFile(locks, path, routes.Options{Logger: slog.New(slog.DiscardHandler)}, WithErrorHandler(func(*echo.Context, error) error {
		return echo.NewHTTPError(http.StatusConflict, "busy")
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t)
	s.echo.POST("/pay", func(*echo.Context) error { return nil }, file.Middleware())
	locktest.MustHold(t, locks, "reqlock:k")
	for range 2 {
		if a := s.PostWithKey("/pay", "1"); a.Status != http.StatusConflict || !strings.Contains(a.Body, "busy") || a.Replayed() {
			t.Errorf("%v, want 409, not recorded", a)
		}
	}
}
