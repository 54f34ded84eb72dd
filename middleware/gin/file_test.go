package ginlock

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
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
	file, err := FromFile(locks, path, config.Options{Sources: map[string]keyfuncs.Func{"user": Value("user")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	s := serve(t)
	s.engine.Use(func(c *gin.Context) { c.Set("user", "anna") }, file.Middleware())
	s.engine.GET("/orders/:id", answerLock)
	s.engine.PUT("/orders/:id", answerLock)
	runs := 0
	s.engine.POST("/pay/:id", func(c *gin.Context) { runs++; c.String(http.StatusCreated, "payment %d", runs) })

	locktest.Hold(t, locks, "reqlock:order:1")
	locktest.Hold(t, locks, "reqlock:pay:1")
	s.Want("GET", "/orders/1", 409, "locked")
	s.Want("GET", "/orders/42", 200, "reqlock:order:42, /orders/:id")
	s.Want("PUT", "/orders/1", 200, "no lock")
	s.Want("GET", "/elsewhere", 404, "")
	if a := s.Pay("/pay/1", "k"); a.Status != 409 || runs != 0 {
		t.Errorf("lock around idempotency: %v after %d runs", a, runs)
	}
	first, again := s.Pay("/pay/2", "k"), s.Pay("/pay/2", "k")
	if first.Body != "payment 1" || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v, want a replay", first, again)
	}
	if err := file.Check(s.engine); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/order/:id", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("GET", "/orders/1", 200, "no lock")
	if err := file.Check(s.engine); err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/:id"`) {
		t.Errorf("Check of a wrong pattern: %v", err)
	}
}
