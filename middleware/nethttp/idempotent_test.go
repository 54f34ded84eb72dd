package httplock

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/reqlock/reqlock/core"
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
				inner.Handle("POST /pay", Idempotent(locks, idempotency.Config{Scope: idempotency.Global})(pay))
				outer.Handle(prefix+"/", http.StripPrefix(prefix, inner))
			}
			return outer
		},
		"chi": func(locks *core.Client) http.Handler {
			outer := chi.NewRouter()
			for _, prefix := range []string{"/v1", "/v2"} {
				outer.Route(prefix, func(r chi.Router) {
					r.With(Idempotent(locks, idempotency.Config{Scope: idempotency.Global})).Method("POST", "/pay", pay)
				})
			}
			return outer
		},
		"around the router": func(locks *core.Client) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/{version}/pay", pay)
			return Idempotent(locks, idempotency.Config{Scope: idempotency.Global})(mux)
		},
	} {
		runs.Store(0)
		handler := mount(newLocks(t))
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

func TestIdempotentPanics(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	for says, f := range map[string]func(){
		"Scope is nil":       func() { Idempotent(locks, idempotency.Config{}) },
		"no *core.Client":    func() { Idempotent(nil, idempotency.Config{Scope: idempotency.Global}) },
		"the handler is nil": func() { Idempotent(locks, idempotency.Config{Scope: idempotency.Global})(nil) },
	} {
		if text := fmt.Sprint(panicOf(f)); !strings.Contains(text, says) || !strings.HasPrefix(text, "reqlock: ") {
			t.Errorf("panics with %q, want %q", text, says)
		}
	}
}
