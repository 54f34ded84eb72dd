package idempotency_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// compressing declares an encoding before the handler runs, and does not take a length away, as
// much middleware written by hand.
func compressing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		out := gzip.NewWriter(w)
		defer out.Close()
		next.ServeHTTP(compressed{w, out}, r)
	})
}

type compressed struct {
	http.ResponseWriter
	out io.Writer
}

func (c compressed) Write(b []byte) (int, error) { return c.out.Write(b) }

// pay sends a request with a key, and returns the status and the body.
func pay(t *testing.T, srv *httptest.Server, key, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, srv.URL+"/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("key %q: the answer is cut off: %v", key, err)
	}
	return res.StatusCode, string(read)
}

func newLocks(t *testing.T) *core.Client {
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// The first answer, the replay and a refusal come whole through middleware that encodes them.
func TestEncoder(t *testing.T) {
	t.Parallel()
	once := httplock.Idempotent(newLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal})
	text := strings.Repeat("paid ", 1000)
	srv := httptest.NewServer(compressing(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text)
	}))))
	defer srv.Close()
	for what, test := range map[string]struct {
		key, body string
		status    int
		want      string
	}{
		"first": {"a", "x", 200, text}, "no key": {"", "x", 400, "key-missing"},
	} {
		if status, got := pay(t, srv, test.key, test.body); status != test.status || !strings.Contains(got, test.want) {
			t.Errorf("%s: %d %.60s", what, status, got)
		}
	}
	if status, got := pay(t, srv, "a", "x"); status != 200 || got != text {
		t.Errorf("the replay: %d %.60s", status, got)
	}
	if status, got := pay(t, srv, "a", "y"); status != 422 || !strings.Contains(got, "key-reused") {
		t.Errorf("the refusal: %d %.60s", status, got)
	}
}
