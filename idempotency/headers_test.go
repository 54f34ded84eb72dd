package idempotency_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/idempotency"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// Outer middleware and the handler set the same header to the same value. It is the handler's, so a
// replay has it behind other middleware too. A header that is only outer middleware's is not, in a
// guard inside another one either, and nor are those of CORS when middleware in between copies all.
func TestHeaderSetAgain(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	guard := func(route string) func(http.Handler) http.Handler {
		return httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, Route: route})
	}
	copies := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			maps.Copy(w.Header(), w.Header().Clone())
			next.ServeHTTP(w, r)
		})
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Both", "1")
		h["X-In-Place"][0] = "2"
		h.Set("Access-Control-Allow-Methods", "PUT")
		w.WriteHeader(http.StatusCreated)
		h.Set("X-Outer", "1") // too late
	})
	for name, test := range map[string]struct {
		served http.Handler
		outer  string // what a replay has of X-Outer
	}{
		"one guard":    {guard("one")(handler), ""},
		"two guards":   {guard("two")(guard("inner")(handler)), ""},
		"a copy of it": {guard("copy")(copies(handler)), "1"},
	} {
		ask := func(header http.Header) http.Header {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			maps.Copy(w.Header(), header)
			test.served.ServeHTTP(w, r)
			return w.Result().Header
		}
		ask(http.Header{
			"X-Both": {"1"}, "X-In-Place": {"1"}, "X-Outer": {"1"},
			"Access-Control-Allow-Origin": {"https://a"}, "Access-Control-Allow-Methods": {"POST"},
		})
		again := ask(http.Header{"Access-Control-Allow-Origin": {"https://b"}})
		if again.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("%s: the repeat gets %v, want a replay", name, again)
		}
		for header, want := range map[string]string{
			"X-Both": "1", "X-In-Place": "2", "X-Outer": test.outer,
			"Access-Control-Allow-Origin": "https://b", "Access-Control-Allow-Methods": "PUT",
		} {
			if got := again.Get(header); got != want {
				t.Errorf("%s: the replay has %s: %q, want %q", name, header, got, want)
			}
		}
	}
}
