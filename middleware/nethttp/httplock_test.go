package httplock

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// panicOf is what f panics with.
func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	key := keyfuncs.Const("k")
	for name, test := range map[string]struct {
		make func()
		says []string
	}{
		"nothing set": {func() { New(newLocks(t), Config{}) }, []string{"reqlock: guard: invalid Config", "Key, Keys and Policy"}},
		"everything wrong": {
			func() { New(newLocks(t), Config{Key: key, WaitTime: core.WaitForever, MaxHold: -1}) },
			[]string{"WaitTime is WaitForever", "MaxHold is -1ns"},
		},
		"no client":  {func() { New(nil, Config{Key: key}) }, []string{"neither a *core.Client nor a Locker"}},
		"no handler": {func() { New(newLocks(t), Config{Key: key})(nil) }, []string{"reqlock: httplock: the handler is nil"}},
		"a TimeoutHandler": {
			func() {
				New(newLocks(t), Config{Key: key})(http.TimeoutHandler(http.NotFoundHandler(), time.Second, ""))
			},
			[]string{"reqlock: httplock: the handler is an http.TimeoutHandler", "want http.TimeoutHandler(lock(handler), ...)"},
		},
	} {
		text := fmt.Sprint(panicOf(test.make))
		for _, says := range test.says {
			if !strings.Contains(text, says) {
				t.Errorf("%s: panics with %q, want %q in it", name, text, says)
			}
		}
	}
}

// newLocks is a client of the locks of a Redis of its own.
func newLocks(t *testing.T) *core.Client {
	t.Helper()
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := locks.Close(closing); err != nil { // a server waits for no handler that has hijacked its connection
			t.Error(err)
		}
		if stats := locks.Stats(); stats != (core.Stats{}) {
			t.Errorf("the lock client is not idle: %+v", stats)
		}
	})
	return locks
}

// Around the router there is no route yet: the mistake that the documentation warns of.
func TestAroundTheMux(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
	lock := New(newLocks(t), Config{Key: keyfuncs.PathValue("id"), Logger: slog.New(slog.NewTextHandler(&text, nil))})
	w := httptest.NewRecorder()
	lock(mux).ServeHTTP(w, httptest.NewRequest("GET", "/orders/42", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "urn:reqlock:problem:misconfigured") || strings.Contains(w.Body.String(), "mux") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	if lines := strings.Count(text.String(), "\n"); lines != 1 || !strings.Contains(text.String(), "mux.Handle(pattern, guard(handler))") {
		t.Errorf("the log does not say in one line where to mount the guard: %s", &text)
	}
}

// Keys that need no route work around the router.
func TestAroundTheMuxByHeader(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.LeaseFrom(r.Context())
		fmt.Fprint(w, ok, lease.Name(), r.PathValue("id"), r.Pattern)
	})
	lock := New(newLocks(t), Config{Key: keyfuncs.Header("X-Tenant")})
	r, w := httptest.NewRequest("GET", "/orders/42", nil), httptest.NewRecorder()
	r.Header.Set("X-Tenant", "acme")
	lock(mux).ServeHTTP(w, r)
	if got, want := w.Body.String(), "truereqlock:acme42GET /orders/{id}"; got != want {
		t.Errorf("the handler sees %q, want %q", got, want)
	}
}

func TestWriterIsTheSame(t *testing.T) {
	t.Parallel()
	var given http.ResponseWriter = httptest.NewRecorder()
	lock := New(newLocks(t), Config{Key: keyfuncs.Const("k"), BufferBody: 10, MaxHold: 1e9})
	ran := false
	lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = true
		if w != given {
			t.Errorf("the handler gets a %T", w)
		}
	})).ServeHTTP(given, httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if !ran {
		t.Error("the handler has not run")
	}
}
