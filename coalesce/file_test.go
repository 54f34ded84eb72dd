package coalesce

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

const everyOption = `{"key": "{header.Q}", "user": "{header.U}", "vary": ["Origin"], "unsafe": "a query", "wait": "2s", "lease": "1m", "max_waiters": 3,
	"keep": "1h", "stale": "1h", "error_for": "1h", "max_answer": 9, "limit": 1, "unmarked": true, "fail_open": true}`

// parsed returns the Shared of a row with a coalesce object.
func parsed(t *testing.T, object string) routes.Shared {
	t.Helper()
	rows, err := routes.Parse("locks.json", []byte(`{"routes": [{"pattern": "/x", "coalesce": `+object+`}]}`), routes.Options{
		ErrorHandler: guard.WriteProblem, Logger: slog.New(slog.DiscardHandler), Observe: func(*http.Request, guard.Outcome) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *rows[0].Shared
}

// A row can set each field of a Config but the Codec, which has a secret. Policy comes from a plugin.
func TestConfigOf(t *testing.T) {
	t.Parallel()
	shared := parsed(t, everyOption)
	shared.Policy = func(*http.Request, *guard.Policy) error { return nil }
	all := reflect.ValueOf(configOf(shared))
	for i := range all.NumField() {
		if name := all.Type().Field(i).Name; all.Field(i).IsZero() != (name == "Codec") {
			t.Errorf("%s is %v", name, all.Field(i))
		}
	}
	plain := configOf(parsed(t, `{"error_for": -1}`))
	everyone := configOf(parsed(t, `{"user": "everyone"}`))
	if plain.Key != nil || plain.User != nil || plain.ErrorFor >= 0 || reflect.ValueOf(everyone.User).Pointer() != reflect.ValueOf(Everyone).Pointer() {
		t.Errorf("%+v, %+v", plain, everyone)
	}
}

// What a file may say, a Config may have: the bounds are the same.
func TestConfigOf_Bounds(t *testing.T) {
	t.Parallel()
	for _, object := range []string{
		everyOption, `{}`, `{"keep": "1ms", "error_for": "1ms", "wait": "1ms", "lease": "1ms"}`,
		`{"keep": 0, "error_for": 0, "wait": 0, "lease": 0, "max_answer": 0, "limit": 0, "max_waiters": 0}`, `{"error_for": -1, "max_waiters": -1}`,
	} {
		if err := configOf(parsed(t, object)).Validate(); err != nil {
			t.Errorf("%s: %v", object, err)
		}
	}
}

// Open builds the guards of each row, and so does a Reload. A mistake changes nothing.
func TestOpen(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	path := filepath.Join(t.TempDir(), "locks.json")
	write := func(rows string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(`{"routes": [`+rows+`]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"pattern": "/a", "key": "k"}, {"pattern": "/b", "idempotency": {"scope": "global"}}, {"pattern": "/c", "key": "k", "coalesce": {"keep": "1s"}}`)
	table, err := Open(locks, path, routes.Options{Sources: map[string]keyfuncs.Func{"user": Everyone}})
	if err != nil {
		t.Fatal(err)
	}
	file := table.File()
	defer func() {
		if err := file.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	want := func(pattern string, lock, once bool, keep string) {
		t.Helper()
		found := table.Serve(&http.Request{Pattern: pattern, Method: "GET"}, func(g idempotency.Guards) {
			kept := ""
			if shared, ok := g.Shared.(*Guard); ok {
				kept = shared.cfg.Keep.String()
			}
			if (g.Lock != nil) != lock || (g.Once != nil) != once || kept != keep {
				t.Errorf("%s has %+v", pattern, g)
			}
		})
		if !found {
			t.Errorf("%s has no row", pattern)
		}
	}
	want("/a", true, false, "")
	want("/b", false, true, "")
	want("/c", true, false, "1s")
	write(`{"pattern": "/c", "coalesce": {"keep": "5s"}}`)
	if err := file.Reload(); err != nil {
		t.Fatal(err)
	}
	want("/c", false, false, "5s")
	write(`{"pattern": "/c", "coalesce": {"keep": "5"}}`)
	var mistake *routes.Error
	if err := file.Reload(); !errors.As(err, &mistake) || !strings.HasSuffix(err.Error(), `locks.json:1:52: keep is "5"; want a duration from 1ms to 1h, or 0 for 2s`) {
		t.Errorf("a mistake: %v", err)
	}
	want("/c", false, false, "5s")
}

// An adapter that does not know coalesce refuses a file that has it, and says where.
func TestOpen_WithoutCoalesce(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	path := filepath.Join(t.TempDir(), "locks.json")
	if err := os.WriteFile(path, []byte("{\"routes\": [\n  {\"pattern\": \"/c\", \"coalesce\": {}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := idempotency.Open(locks, path, routes.Options{})
	if err == nil || !strings.HasSuffix(err.Error(), "locks.json:2:3: the route has coalesce, which the adapter of this program does not know; leave it out") {
		t.Errorf("idempotency.Open: %v", err)
	}
}
