package fiberlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

func TestFromFile(t *testing.T) {
	t.Parallel()
	var routed *fiber.App
	locktest.FileTest[*fiberlock.File]{
		Open: fiberlock.FromFile,
		User: fiberlock.Value("user"),
		Serve: func(file *fiberlock.File, run func() string) *locktest.Server {
			return newServer(t, func(app *fiber.App) {
				routed = app
				app.Use(func(c fiber.Ctx) error {
					c.Locals("user", "anna")
					return c.Next()
				})
				app.Get("/orders/:id", file.Middleware(), answerLock)
				app.Put("/orders/:id", file.Middleware(), answerLock)
				app.Post("/pay/:id", file.Middleware(), func(c fiber.Ctx) error { return c.Status(201).SendString(run()) })
				app.Get("/reports/:id", file.Middleware(), func(c fiber.Ctx) error { return c.SendString(run()) })
				app.Use("/used", file.Middleware())
				app.Get("/used/orders", answerLock)
				app.Group("/group", file.Middleware()).Get("/orders", answerLock)
			})
		},
		Check: func(file *fiberlock.File) error { return file.Check(routed) },
		Also: func(s *locktest.Server) {
			s.Want("HEAD", "/orders/1", 409, "")
			s.Want("GET", "/used/orders", 500, "misconfigured")
			s.Want("GET", "/group/orders", 500, "misconfigured")
		},
	}.Run(t)
}

// A parameter may be optional and have a constraint.
func TestFromFile_Parameters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(`{"routes": [
		{"pattern": "/optional/:id?", "key": "{path.id}"},
		{"pattern": "/int/:id<int>", "key": "{path.id}"},
		{"pattern": "/code/{id}", "key": "{path.id}"},
		{"pattern": "/flights/:from-:to", "keys": ["{path.from}", "{path.to}"]}
	]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	file, err := fiberlock.FromFile(locktest.NewLocks(t), path, routes.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t, func(app *fiber.App) {
		for _, pattern := range []string{"/optional/:id?", "/int/:id<int>", "/code/:id<regex(^[a-z]{3}$)>", "/flights/:from-:to"} {
			app.Get(pattern, file.Middleware(), answerLock)
		}
	})
	s.Want("GET", "/optional/1", 200, "reqlock:1")
	s.Want("GET", "/optional/", 400, "key-missing")
	s.Want("GET", "/int/2", 200, "reqlock:2")
	s.Want("GET", "/code/abc", 200, "reqlock:abc")
	s.Want("GET", "/flights/ber-cdg", 200, "reqlock:ber")
	if log.Len() > 0 {
		t.Errorf("the log is %s", &log)
	}
}
