package locktest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A File is what FromFile of an adapter returns.
type File interface {
	Reload() error
	Close(ctx context.Context) error
}

// A FileTest shows that an adapter serves a file of routes.
type FileTest[F File] struct {
	// Open is FromFile.
	Open func(locks *core.Client, path string, opts routes.Options) (F, error)
	// User reads the user, which is anna in all requests.
	User keyfuncs.Func
	// Serve serves GET and PUT /orders/:id, whose handler writes the name of its lock or "no lock",
	// and POST /pay/:id, which answers 201 with what pay returns. All have the middleware of the file.
	Serve func(file F, pay func() string) *Server
	// Check is File.Check, with the router of Serve.
	Check func(file F) error
	// Also tests more, while the lock reqlock:order:1 is held. It may be nil.
	Also func(s *Server)
}

// Run runs the test.
func (test FileTest[F]) Run(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.json")
	write := func(src string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"routes": [
		{"method": "GET", "pattern": "/orders/{id}", "key": "order:{path.id}"},
		{"method": "POST", "pattern": "/pay/:id", "key": "pay:{path.id}", "idempotency": {"scope": "{user}"}}
	]}`)
	locks := NewLocks(t)
	file, err := test.Open(locks, path, routes.Options{
		Logger: slog.New(slog.DiscardHandler), Sources: map[string]keyfuncs.Func{"user": test.User},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	runs := 0
	s := test.Serve(file, func() string { runs++; return fmt.Sprint("payment ", runs) })

	MustHold(t, locks, "reqlock:order:1")
	MustHold(t, locks, "reqlock:pay:1")
	for range 2 {
		s.Want("GET", "/orders/1", 409, "locked")
		s.Want("GET", "/orders/42", 200, "reqlock:order:42")
		s.Want("PUT", "/orders/1", 200, "no lock")
		s.Want("GET", "/elsewhere", 404, "")
	}
	if test.Also != nil {
		test.Also(s)
	}
	for range 2 {
		if a := s.PostWithKey("/pay/1", "refused"); a.Status != 409 || a.Replayed() || runs != 0 {
			t.Errorf("with the lock held: %v after %d runs, want 409, not recorded", a, runs)
		}
	}
	first := s.PostWithKey("/pay/2", "k")
	MustHold(t, locks, "reqlock:pay:2")
	if again := s.PostWithKey("/pay/2", "k"); first.Body != "payment 1" || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v with the lock held, want a replay", first, again)
	}

	if err := test.Check(file); err != nil {
		t.Error(err)
	}
	write(`{"routes": [{"pattern": "/order/:id", "key": "k"}]}`)
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("GET", "/orders/1", 200, "no lock")
	if err := test.Check(file); err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/:id"`) {
		t.Errorf("Check of a wrong pattern: %v", err)
	}
}
