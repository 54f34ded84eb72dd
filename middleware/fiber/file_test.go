package fiberlock_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard/config"
	"github.com/reqlock/reqlock/internal/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

func TestFromFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(`{"routes": [
		{"method": "GET", "pattern": "/orders/{id}", "key": "order:{path.id}"},
		{"method": "POST", "pattern": "/pay/:id", "key": "pay:{path.id}", "idempotency": {"scope": "{user}"}}
	]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	locks := locktest.New(t)
	file, err := fiberlock.FromFile(locks, path, config.Options{
		Logger: slog.New(slog.DiscardHandler), Sources: map[string]keyfuncs.Func{"user": fiberlock.Value("user")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	runs := 0
	var routed *fiber.App
	s := serve(t, func(app *fiber.App) {
		routed = app
		app.Use(func(c fiber.Ctx) error {
			c.Locals("user", "anna")
			return c.Next()
		})
		app.Get("/orders/:id", file.Middleware(), answerLock)
		app.Put("/orders/:id", file.Middleware(), answerLock)
		app.Post("/pay/:id", file.Middleware(), func(c fiber.Ctx) error {
			runs++
			return c.Status(201).SendString(fmt.Sprint("payment ", runs))
		})
		app.Use("/used", file.Middleware())
		app.Get("/used/orders", answerLock)
		app.Group("/group", file.Middleware()).Get("/orders", answerLock)
	})
	locktest.Hold(t, locks, "reqlock:order:1")
	locktest.Hold(t, locks, "reqlock:pay:1")
	for range 2 {
		s.Want("GET", "/orders/1", 409, "locked")
		s.Want("HEAD", "/orders/1", 409, "")
		s.Want("GET", "/orders/42", 200, "reqlock:order:42")
		s.Want("PUT", "/orders/1", 200, "no lock")
		s.Want("GET", "/used/orders", 500, "misconfigured")
		s.Want("GET", "/group/orders", 500, "misconfigured")
		s.Want("GET", "/elsewhere", 404, "")
	}
	if a := s.Pay("/pay/1", "k"); a.Status != 409 || runs != 0 {
		t.Errorf("lock around idempotency: %v after %d runs", a, runs)
	}
	first, again := s.Pay("/pay/2", "k"), s.Pay("/pay/2", "k")
	if first.Body != "payment 1" || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v, want a replay", first, again)
	}
	if err := file.Check(routed); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/order/:id", "key": "k"}, {"pattern": "/used", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("GET", "/orders/1", 200, "no lock")
	if err := file.Check(routed); err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/:id"`) || !strings.Contains(err.Error(), `"/used"`) {
		t.Errorf("Check of wrong patterns: %v", err)
	}
}
