package httplock

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// No middleware takes these handlers.
func TestNew_InvalidHandler(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	for name, middleware := range map[string]func(http.Handler) http.Handler{
		"New":        New(locks, Config{Key: keyfuncs.Const("k")}),
		"Idempotent": Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal}),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.WantPanic(t, "reqlock: httplock: the handler is nil", func() { middleware(nil) })
			locktest.WantPanic(t, "reqlock: httplock: the handler is an http.TimeoutHandler, ", func() {
				middleware(http.TimeoutHandler(http.NotFoundHandler(), time.Second, ""))
			})
		})
	}
}

// Around the router, no route has matched yet. The log says where to mount the guard.
func TestNew_AroundMux(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("id"), Logger: slog.New(slog.NewTextHandler(&text, nil))})
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
func TestNew_AroundMuxByHeader(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		lease, ok := guard.LeaseFrom(r.Context())
		fmt.Fprint(w, ok, lease.Name(), r.PathValue("id"), r.Pattern)
	})
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.Header("X-Tenant")})
	r, w := httptest.NewRequest("GET", "/orders/42", nil), httptest.NewRecorder()
	r.Header.Set("X-Tenant", "acme")
	lock(mux).ServeHTTP(w, r)
	if got, want := w.Body.String(), "truereqlock:acme42GET /orders/{id}"; got != want {
		t.Errorf("the handler sees %q, want %q", got, want)
	}
}

func TestNew_SameWriter(t *testing.T) {
	t.Parallel()
	var given http.ResponseWriter = httptest.NewRecorder()
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k"), BufferBody: 10, MaxHold: 1e9})
	ran := false
	lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = true
		if w != given {
			t.Errorf("the handler gets a %T", w)
		}
	})).ServeHTTP(given, httptest.NewRequest("POST", "/", strings.NewReader("body")))
	if !ran {
		t.Error("the handler did not run")
	}
}

// The guard does not wrap the writer. It knows the status only from a writer with a Status method.
func TestNew_OutcomeStatus(t *testing.T) {
	t.Parallel()
	outcomes := make(chan guard.Outcome, 2)
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k"), Observe: func(_ *http.Request, o guard.Outcome) { outcomes <- o }})
	created := lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	panics := lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		panic(http.ErrAbortHandler)
	}))
	withStatus := func(w http.ResponseWriter) http.ResponseWriter { return middleware.NewWrapResponseWriter(w, 1) }
	for name, test := range map[string]struct {
		handler http.Handler
		writer  func(http.ResponseWriter) http.ResponseWriter
		want    int
	}{
		"a writer with Status":      {created, withStatus, 201},
		"a wrapper of one":          {created, func(w http.ResponseWriter) http.ResponseWriter { return unwraps{withStatus(w)} }, 201},
		"a server's writer":         {created, func(w http.ResponseWriter) http.ResponseWriter { return w }, 0},
		"a wrapper of that":         {created, func(w http.ResponseWriter) http.ResponseWriter { return unwraps{w} }, 0},
		"a handler that panics":     {panics, withStatus, 0},
		"one guard inside another":  {lock(created), withStatus, 201},
		"an inner handler's writer": {lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { created.ServeHTTP(httptest.NewRecorder(), r) })), withStatus, 0},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { test.handler.ServeHTTP(test.writer(w), r) }))
			defer srv.Close()
			if response, err := srv.Client().Get(srv.URL); err == nil {
				response.Body.Close()
			}
			o := <-outcomes
			if strings.Contains(name, "inner") || strings.Contains(name, "inside") {
				o = <-outcomes // of the outer one
			}
			if !o.Ran || o.Status != test.want {
				t.Errorf("observed %+v, want Ran and Status %d", o, test.want)
			}
		})
	}
}

type unwraps struct{ http.ResponseWriter }

func (w unwraps) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// One middleware may guard several routes, and logs for each of them.
func TestNew_MaxHoldLoggedOncePerRoute(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k"), MaxHold: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	mux := http.NewServeMux()
	overdue := lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	mux.Handle("POST /orders/{id}/pay", overdue)
	mux.Handle("POST /orders/{id}/ship", overdue)
	for range 3 {
		for _, path := range []string{"/orders/1/pay", "/orders/2/ship"} {
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, nil))
		}
	}
	for _, pattern := range []string{"POST /orders/{id}/pay", "POST /orders/{id}/ship"} {
		if n := strings.Count(text.String(), fmt.Sprintf("pattern=%q", pattern)); n != 1 {
			t.Errorf("%d lines for %s, want 1:\n%s", n, pattern, &text)
		}
	}
}
