package httplock

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/config"
	"github.com/reqlock/reqlock/internal/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// configFile returns the path of a new file.
func configFile(t *testing.T, src string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFromFile(t *testing.T) {
	t.Parallel()
	path := configFile(t, `{"routes": [
		{"method": "POST", "pattern": "/orders/{id}", "key": "order:{path.id}"},
		{"method": "POST", "pattern": "/pay", "idempotency": {"scope": "{user}"}},
		{"method": "POST", "pattern": "/both/{id}", "key": "{path.id}", "idempotency": {"scope": "global"}}
	]}`)
	locks, runs := locktest.New(t), 0
	quiet := slog.New(slog.DiscardHandler)
	file, err := FromFile(locks, path, config.Options{Logger: quiet, Sources: map[string]keyfuncs.Func{"user": keyfuncs.Header("X-User")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	handler := file.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		name := "no lock"
		if lease, ok := guard.LeaseFrom(r.Context()); ok {
			name = lease.Name()
		}
		fmt.Fprint(w, name, " ", runs)
	}))
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /orders/{id}", "PUT /orders/{id}", "POST /pay", "POST /both/{id}"} {
		mux.Handle(pattern, handler)
	}
	outside := locktest.Serve(t, file.Wrap(mux))
	s := locktest.Serve(t, mux)

	outside.Want("POST", "/orders/42", 500, "misconfigured")
	locktest.Hold(t, locks, "reqlock:order:1")
	s.Want("POST", "/orders/1", 409, "locked")
	s.Want("PUT", "/orders/1", 200, "no lock 1")
	s.Want("POST", "/orders/42", 200, "reqlock:order:42 2")

	anna := func(r *http.Request) { r.Header.Set("X-User", "anna") }
	first, again := s.Pay("/pay", "k", anna), s.Pay("/pay", "k", anna)
	if first.Status != 200 || again.Body != first.Body || !again.Replayed() {
		t.Errorf("payment %v, then %v, want a replay", first, again)
	}
	if a := s.Pay("/pay", "k"); a.Status != 400 {
		t.Errorf("without a user: %v", a)
	}
	locktest.Hold(t, locks, "reqlock:held")
	if a := s.Pay("/both/held", "k"); a.Status != 409 {
		t.Errorf("lock around idempotency: %v", a)
	}
	first, again = s.Pay("/both/1", "k2"), s.Pay("/both/1", "k2")
	if first.Status != 200 || !again.Replayed() {
		t.Errorf("with both: %v, then %v", first, again)
	}

	if err := errors.Join(file.Check(mux), file.CheckRoutes("POST /orders/{order}", "POST /pay", "/both/{id}")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"routes": [{"pattern": "/order/{id}", "key": "k"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	s.Want("POST", "/orders/1", 200, "no lock")
	for _, err := range []error{file.Check(mux), file.CheckRoutes("POST /orders/{id}")} {
		if err == nil || !strings.Contains(err.Error(), `locks.json:1:13: the program has no route "/order/{id}"`) {
			t.Errorf("a check of a wrong pattern: %v", err)
		}
	}
}

func TestFromFile_Mistake(t *testing.T) {
	t.Parallel()
	path := configFile(t, `{"routes": [{"pattern": "/x", "idempotency": {"scope": "global", "route": "/pay/{id}"}}]}`)
	want := "reqlock: config: " + path + ":1:13: reqlock: idempotency: invalid Config: "
	if _, err := FromFile(locktest.New(t), path, config.Options{}); err == nil || err.Error()[:len(want)] != want {
		t.Errorf("%v, want %s", err, want)
	}
}
