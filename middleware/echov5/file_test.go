package echolock

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/reqlock/reqlock/guard/config"
	"github.com/reqlock/reqlock/internal/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
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
	file, err := FromFile(locks, path, config.Options{Sources: map[string]keyfuncs.Func{"user": Value("user")}}, WithSkipper(func(c *echo.Context) bool { return c.QueryParam("skip") != "" }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	s := newSite(t)
	s.echo.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", "anna")
			return next(c)
		}
	}, file.Middleware())
	s.echo.GET("/orders/:id", answerLock)
	s.echo.PUT("/orders/:id", answerLock)
	runs := 0
	s.echo.POST("/pay/:id", func(c *echo.Context) error {
		runs++
		return c.String(http.StatusCreated, fmt.Sprint("payment ", runs))
	})

	locktest.Hold(t, locks, "reqlock:order:1")
	locktest.Hold(t, locks, "reqlock:pay:1")
	s.Want("GET", "/orders/1", 409, "locked")
	s.Want("GET", "/orders/42", 200, "reqlock:order:42, /orders/:id")
	s.Want("PUT", "/orders/1", 200, "no lock")
	s.Want("GET", "/orders/1?skip=1", 200, "no lock")
	s.Want("GET", "/elsewhere", 404, "")
	if a := s.Pay("/pay/1", "k"); a.Status != 409 || runs != 0 {
		t.Errorf("lock around idempotency: %v after %d runs", a, runs)
	}
	first, again := s.Pay("/pay/2", "k"), s.Pay("/pay/2", "k")
	if first.Body != "payment 1" || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v, want a replay", first, again)
	}
	if err := file.Check(s.echo); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/order/:id", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("GET", "/orders/1", 200, "no lock")
	if err := file.Check(s.echo); err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/:id"`) {
		t.Errorf("Check of a wrong pattern: %v", err)
	}
}
