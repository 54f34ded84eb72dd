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
	// POST /pay/:id, which answers 201 with what run returns, and GET /reports/:id, which answers 200
	// with that. All have the middleware of the file.
	Serve func(file F, run func() string) *Server
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
	s := test.Serve(file, func() string { runs++; return fmt.Sprint("run ", runs) })

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
	if again := s.PostWithKey("/pay/2", "k"); first.Body != "run 1" || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v with the lock held, want a replay", first, again)
	}

	for range 2 {
		s.Want("GET", "/reports/2", 200, "run ")
	}
	if runs != 3 {
		t.Errorf("%d runs, want 3: nothing is shared yet", runs)
	}
	write(`{"routes": [
		{"method": "GET", "pattern": "/orders/{id}", "coalesce": {}},
		{"method": "POST", "pattern": "/pay/{id}", "key": "pay:{path.id}"},
		{"pattern": "/reports/:id", "key": "report:{path.id}", "coalesce": {"key": "{path.id}", "user": "{user}", "vary": ["Accept-Language"], "keep": "1h"}}
	]}`)
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	test.shares(t, s, locks)

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

// shares tests a row with coalesce. The run has the lock of the row, and a shared answer takes none.
func (test FileTest[F]) shares(t *testing.T, s *Server, locks *core.Client) {
	t.Helper()
	report := func(id, language string) Answer {
		r := s.NewRequest("GET", "/reports/"+id, "")
		r.Header.Set("Accept-Language", language)
		return s.Do(r)
	}
	shared := func(a Answer) bool { return a.Header.Get("Reqlock-Shared") == "1" }
	first := report("2", "en")
	MustHold(t, locks, "reqlock:report:2")
	if again := report("2", "en"); first.Status != 200 || shared(first) || again.Status != 200 || again.Body != first.Body || !shared(again) {
		t.Errorf("report %v, then %v with the lock held, want the shared answer", first, again)
	}
	if other := report("2", "de"); other.Status != 409 || shared(other) {
		t.Errorf("in another language with the lock held: %v, want 409", other)
	}
	if other := report("3", "en"); other.Status != 200 || other.Body == first.Body || shared(other) {
		t.Errorf("another report: %v, want a run", other)
	}
	first, again := s.Do(s.NewRequest("GET", "/orders/7", "")), s.Do(s.NewRequest("GET", "/orders/7", ""))
	if first.Status != 200 || shared(first) || again.Body != first.Body || !shared(again) {
		t.Errorf("without a lock: %v, then %v, want the shared answer", first, again)
	}
}
