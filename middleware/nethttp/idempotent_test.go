package httplock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

func once() idempotency.Config {
	return idempotency.Config{Scope: idempotency.ScopeGlobal}
}

// TestIdempotent_MountedTwice has one pattern in two places: two routes, however they are mounted.
func TestIdempotent_MountedTwice(t *testing.T) {
	t.Parallel()
	for name, mount := range map[string]func(*core.Client, http.Handler) http.Handler{
		"StripPrefix": func(locks *core.Client, pay http.Handler) http.Handler {
			outer := http.NewServeMux()
			for _, prefix := range []string{"/v1", "/v2"} {
				inner := http.NewServeMux()
				inner.Handle("POST /pay", Idempotent(locks, once())(pay))
				outer.Handle(prefix+"/", http.StripPrefix(prefix, inner))
			}
			return outer
		},
		"chi": func(locks *core.Client, pay http.Handler) http.Handler {
			outer := chi.NewRouter()
			for _, prefix := range []string{"/v1", "/v2"} {
				outer.Route(prefix, func(r chi.Router) { r.With(Idempotent(locks, once())).Method("POST", "/pay", pay) })
			}
			return outer
		},
		"around the router": func(locks *core.Client, pay http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/{version}/pay", pay)
			return Idempotent(locks, once())(mux)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			s := locktest.NewServer(t, mount(locktest.NewLocks(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runs.Add(1)) })))
			for i, path := range []string{"/v1/pay", "/v2/pay", "/v1/pay", "/v2/pay"} {
				if a, want := s.PostWithKey(path, "k"), fmt.Sprint(i%2+1); a.Status != 200 || a.Body != want {
					t.Errorf("request %d, to %s: answer %v, want 200 %q", i, path, a, want)
				}
			}
		})
	}
}

// TestIdempotent_PrefixMovesIntoPattern moves a prefix from http.StripPrefix into the patterns of a
// router, which keeps its keys.
func TestIdempotent_PrefixMovesIntoPattern(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	handler := Idempotent(locktest.NewLocks(t), once())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs.Add(1) }))
	inner, stripped, whole := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	inner.Handle("/pay/{id}", handler)
	stripped.Handle("/v1/", http.StripPrefix("/v1", inner))
	whole.Handle("POST /v1/pay/{payment}", handler)
	before, after := locktest.NewServer(t, stripped), locktest.NewServer(t, whole)
	for i, path := range []string{"/v1/pay/1", "/v1/pay/a%2Fb"} {
		for _, s := range []*locktest.Server{before, after, before} {
			if a := s.PostWithKey(path, path); a.Status != 200 || runs.Load() != int64(i+1) {
				t.Errorf("%s: answer %v after %d runs, want 200 after %d", path, a, runs.Load(), i+1)
			}
		}
	}
}

// TestIdempotent_InnerWithoutKey has another middleware inside, for a key that the client did not
// send.
func TestIdempotent_InnerWithoutKey(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	inner := idempotency.Config{Scope: idempotency.ScopeGlobal, Header: "X-Token", Optional: true}
	var runs atomic.Int64
	s := locktest.NewServer(t, Idempotent(locks, once())(Idempotent(locks, inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key, ok := idempotency.KeyFrom(r.Context()); key != "k" || !ok {
			t.Errorf("KeyFrom = %q, %v; want the outer key k", key, ok)
		}
		if idempotency.DownstreamKey(r.Context(), "charge") == "" {
			t.Error("DownstreamKey is empty")
		}
		idempotency.NoStore(r.Context())
		runs.Add(1)
	}))))
	s.PostWithKey("/", "k")
	if s.PostWithKey("/", "k"); runs.Load() != 2 {
		t.Errorf("the handler ran %d times after NoStore, want 2", runs.Load())
	}
}

// TestIdempotent_GuessedType has a handler that deletes the Content-Type of outer middleware:
// net/http guesses one, for repeats as well.
func TestIdempotent_GuessedType(t *testing.T) {
	t.Parallel()
	h := Idempotent(locktest.NewLocks(t), once())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Del("Content-Type")
		_, _ = io.WriteString(w, "<html>")
	}))
	s := locktest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
	}))
	for range 2 {
		if a := s.PostWithKey("/", "k"); a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("answer %v, want text/html", a)
		}
	}
}

// TestIdempotent_StoreOfHijacked has a Store that changes the header it gets. The connection is
// hijacked from a writer that can do so itself, or from the one that it unwraps to.
func TestIdempotent_StoreOfHijacked(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"hijacks": func(w http.ResponseWriter) http.ResponseWriter { return w },
		"unwraps": func(w http.ResponseWriter) http.ResponseWriter { return unwraps{w} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 2)
			cfg := once()
			cfg.Store = func(_ int, header http.Header) bool { header.Set("X-Mine", "1"); return true }
			h := Idempotent(locktest.NewLocks(t), cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("Hijack: %v", err)
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				_ = conn.Close()
			}))
			s := locktest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(wrap(w), r)
				ended <- struct{}{}
			}))
			if a := s.PostWithKey("/", "k"); a.Status != http.StatusNoContent {
				t.Errorf("answer %v, want 204", a)
			}
			<-ended // the handler has answered before it returns
			if a := s.PostWithKey("/", "k"); a.Status != http.StatusConflict || !strings.Contains(a.Body, "not-replayable") {
				t.Errorf("repeat: answer %v, want 409 not-replayable", a)
			}
		})
	}
}

// TestIdempotent_HangUpWithCause ends the context of a request as HTTP/3 does, with a cause:
// net.ErrClosed is a client that hung up, anything else ends the handler's context as well.
func TestIdempotent_HangUpWithCause(t *testing.T) {
	t.Parallel()
	middleware := Idempotent(locktest.NewLocks(t), once())
	other := errors.New("other")
	for range 20 { // another goroutine notices the end, maybe late
		for _, cause := range []error{fmt.Errorf("closed by the client: %w", net.ErrClosed), other} {
			ctx, cancel := context.WithCancelCause(t.Context())
			noticed := make(chan struct{})
			h := middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				idempotency.NoStore(r.Context())
				context.AfterFunc(ctx, func() { close(noticed) })
				cancel(cause)
				<-noticed
				if cause == other {
					<-r.Context().Done()
				}
				if got := context.Cause(r.Context()); got != nil && got != other {
					t.Errorf("the handler's context ended: %v", got)
				}
			}))
			r := httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx)
			r.Header.Set("Idempotency-Key", "k")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}

// TestIdempotent_GoClientResends shows what docs/guides/idempotency.md says of net/http's
// Transport: it sends a POST with an Idempotency-Key again if the connection breaks before the
// answer. The handler runs once.
func TestIdempotent_GoClientResends(t *testing.T) {
	t.Parallel()
	var requests, runs atomic.Int64
	cfg := once()
	cfg.Optional = true
	h := Idempotent(locktest.NewLocks(t), cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runs.Add(1)) }))
	s := locktest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		h.ServeHTTP(w, r)
		if requests.Add(1) == 1 {
			panic(http.ErrAbortHandler) // the answer is lost with the connection
		}
	}))
	s.Want("GET", "/", 200, "") // the Transport resends only on a connection that was used before
	if a := s.PostWithKey("/", "k"); a.Body != "1" || !a.Replayed() || requests.Load() != 2 {
		t.Errorf("with a key: answer %v to %d requests, want the replay to the second", a, requests.Load())
	}
	requests.Store(0)
	s.Want("GET", "/", 200, "")
	if response, err := s.Client.Do(s.NewRequest("POST", "/", "{}")); err == nil || requests.Load() != 1 {
		t.Errorf("without a key: answer %v to %d requests, want an error after one", response, requests.Load())
	}
}

// TestIdempotent_LockAroundRouter has a lock that is meant for all routes, such as one that
// maintenance takes, and one that a batch takes for its items: neither is a mistake to log.
func TestIdempotent_LockAroundRouter(t *testing.T) {
	t.Parallel()
	locks, log := locktest.NewLocks(t), new(bytes.Buffer)
	cfg := once()
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	lock := New(locks, Config{Key: keyfuncs.Const("all"), Mode: guard.ModeRead})
	mux := http.NewServeMux()
	mux.Handle("POST /pay", Idempotent(locks, cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })))
	mux.Handle("POST /batch", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := r.Clone(r.Context())
		item.URL.Path = "/pay"
		mux.ServeHTTP(w, item)
	})))
	s := locktest.NewServer(t, lock(mux))
	for i, path := range []string{"/pay", "/pay", "/batch"} {
		if a := s.PostWithKey(path, "k"); a.Body != "paid" || a.Replayed() != (i > 0) {
			t.Errorf("request %d: %v", i, a)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", log)
	}
}
