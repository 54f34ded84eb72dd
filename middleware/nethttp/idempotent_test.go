package httplock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/locktest"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

// The same pattern in two places is two routes, however they are mounted.
func TestIdempotentMounted(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, runs.Add(1)) })
	for name, mount := range map[string]func(*core.Client) http.Handler{
		"StripPrefix": func(locks *core.Client) http.Handler {
			outer := http.NewServeMux()
			for _, prefix := range []string{"/v1", "/v2"} {
				inner := http.NewServeMux()
				inner.Handle("POST /pay", Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})(pay))
				outer.Handle(prefix+"/", http.StripPrefix(prefix, inner))
			}
			return outer
		},
		"chi": func(locks *core.Client) http.Handler {
			outer := chi.NewRouter()
			for _, prefix := range []string{"/v1", "/v2"} {
				outer.Route(prefix, func(r chi.Router) {
					r.With(Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})).Method("POST", "/pay", pay)
				})
			}
			return outer
		},
		"around the router": func(locks *core.Client) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/{version}/pay", pay)
			return Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})(mux)
		},
	} {
		runs.Store(0)
		handler := mount(locktest.New(t))
		for i, path := range []string{"/v1/pay", "/v2/pay", "/v1/pay", "/v2/pay"} {
			r := httptest.NewRequest("POST", path, strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			body, _ := io.ReadAll(w.Result().Body)
			if want := fmt.Sprint(i%2 + 1); w.Code != 200 || string(body) != want {
				t.Errorf("%s: answer %d to %s: %d %q, want %s", name, i, path, w.Code, body, want)
			}
		}
	}
}

// A router keeps its keys when its prefix moves from http.StripPrefix into its patterns.
func TestIdempotentWithoutStripPrefix(t *testing.T) {
	t.Parallel()
	once := Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal})
	runs := 0
	handler := once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
	inner, stripped, whole := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	inner.Handle("/pay/{id}", handler)
	stripped.Handle("/v1/", http.StripPrefix("/v1", inner))
	whole.Handle("POST /v1/pay/{payment}", handler)
	for i, path := range []string{"/v1/pay/1", "/v1/pay/a%2Fb"} {
		for _, mux := range []http.Handler{stripped, whole, stripped} {
			r := httptest.NewRequest("POST", path, nil)
			r.Header.Set("Idempotency-Key", path)
			w := httptest.NewRecorder()
			if mux.ServeHTTP(w, r); w.Code != 200 || runs != i+1 {
				t.Errorf("%s: answer %d %s, %d runs", path, w.Code, w.Body, runs)
			}
		}
	}
}

// pay sends a POST with the key k and returns the answer.
func pay(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/pay", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A guard further in, for a key that did not come, changes nothing for the one around it.
func TestIdempotentWithoutKeyInside(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t)
	outer := idempotency.Config{Scope: idempotency.ScopeGlobal}
	inner := idempotency.Config{Scope: idempotency.ScopeGlobal, Header: "X-Token", Optional: true}
	runs := 0
	h := Idempotent(locks, outer)(Idempotent(locks, inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key, ok := idempotency.KeyFrom(r.Context()); key != "k" || !ok {
			t.Errorf("the key is %q, %v", key, ok)
		}
		if idempotency.DownstreamKey(r.Context(), "charge") == "" {
			t.Error("there is no key for others")
		}
		idempotency.NoStore(r.Context())
		runs++
	})))
	pay(h)
	if pay(h); runs != 2 {
		t.Errorf("the handler has run %d times, want 2, as nothing was to be stored", runs)
	}
}

// A handler that takes away the type that was set around it leaves it to net/http to guess, also in repeats.
func TestIdempotentGuessedType(t *testing.T) {
	t.Parallel()
	h := Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("Content-Type")
		_, _ = io.WriteString(w, "<html>")
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	for range 2 {
		if a := send(t, srv); a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("the answer has %v", a.Header)
		}
	}
}

// send sends a POST with the key k over a connection.
func send(t *testing.T, srv *httptest.Server) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	a, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	a.Body = io.NopCloser(bytes.NewReader(body))
	return a
}

// Store is given a header that it may write to, also where the connection was hijacked, by a writer that can do so itself or by what it
// unwraps.
func TestIdempotentStoreOfHijacked(t *testing.T) {
	t.Parallel()
	for name, outer := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"itself":  func(w http.ResponseWriter) http.ResponseWriter { return w },
		"unwraps": func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeOfHijacked(t, outer)
		})
	}
}

type unwrapping struct{ http.ResponseWriter }

func (w unwrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func storeOfHijacked(t *testing.T, outer func(http.ResponseWriter) http.ResponseWriter) {
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal, Store: func(_ int, header http.Header) bool {
		header.Set("X-Mine", "1")
		return true
	}}
	once := Idempotent(locktest.New(t), cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { once.ServeHTTP(outer(w), r) }))
	defer srv.Close()
	if a := send(t, srv); a.StatusCode != http.StatusNoContent {
		t.Errorf("answer %s", a.Status)
	}
	for {
		a := send(t, srv)
		text, _ := io.ReadAll(a.Body)
		if strings.Contains(string(text), "problem:locked") {
			continue // the handler has answered, and not returned
		}
		if a.StatusCode != http.StatusConflict || !strings.Contains(string(text), "not-replayable") {
			t.Errorf("repeat: %s %s", a.Status, text)
		}
		break
	}
}

// HTTP/3 ends the context of a request with the cause that the connection is closed, where the others name none.
func TestIdempotentHangUpWithCause(t *testing.T) {
	t.Parallel()
	once := Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal})
	mine := errors.New("mine")
	for range 20 { // it is noticed on another goroutine, which may be late
		for _, cause := range []error{fmt.Errorf("closed by the client: %w", net.ErrClosed), mine} {
			ctx, cancel := context.WithCancelCause(t.Context())
			noticed := make(chan struct{})
			h := once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				idempotency.NoStore(r.Context())
				context.AfterFunc(ctx, func() { close(noticed) })
				cancel(cause)
				<-noticed
				if cause == mine {
					<-r.Context().Done()
				}
				if got := context.Cause(r.Context()); got != nil && got != mine {
					t.Errorf("the handler's context has ended: %v", got)
				}
			}))
			pay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.WithContext(ctx)) }))
		}
	}
}

// net/http's Transport sends a POST again by itself if it has an Idempotency-Key and its connection breaks before the answer; see
// docs/idempotency.md. The handler runs once, and the client does not even notice.
func TestIdempotentGoClientResends(t *testing.T) {
	t.Parallel()
	var came, runs atomic.Int64
	once := Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal, Optional: true})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, runs.Add(1))
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		once.ServeHTTP(w, r)
		if came.Add(1) == 1 {
			panic(http.ErrAbortHandler) // the answer is lost with the connection
		}
	}))
	defer srv.Close()
	post := func(key string) (body string, err error) {
		came.Store(0)
		warm, err := srv.Client().Get(srv.URL) // only on a connection that has been of use before is anything sent again
		if err != nil {
			return "", err
		}
		_, _ = io.Copy(io.Discard, warm.Body)
		_ = warm.Body.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		response, err := srv.Client().Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return string(answer) + " " + response.Header.Get("Idempotent-Replayed"), err
	}
	if answer, err := post("k"); answer != "1 true" || err != nil || came.Load() != 2 {
		t.Errorf("with a key: answer %q (%v) to %d requests, want the replay to the second", answer, err, came.Load())
	}
	if answer, err := post(""); err == nil || came.Load() != 1 {
		t.Errorf("without a key: answer %q to %d requests, want an error after one", answer, came.Load())
	}
}
