package wasm

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

// A plugin decides which requests share an answer: those of one tenant and path.
// What it denies is refused, and what it skips runs.
func TestCoalesce(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	g, err := coalesce.New(locks, coalesce.Config{Policy: start(t, "c2", Config{}).Policy})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, test := range []struct {
		tenant, path string
		status, runs int
	}{
		{"acme", "/report", 200, 1},
		{"acme", "/report", 200, 1},
		{"other", "/report", 200, 2},
		{"acme", "/health", 200, 3},
		{"acme", "/health", 200, 4},
		{"", "/report", 400, 4},
	} {
		w := httptest.NewRecorder()
		r := request(http.MethodGet, test.path, "", test.tenant)
		r.Body = http.NoBody // With a body, it would not share.
		g.Serve(w, r, func(_ *http.Request, rec *coalesce.Recorder) {
			runs++
			rec.Wrap(w).WriteHeader(http.StatusOK)
		})
		if w.Code != test.status || runs != test.runs {
			t.Errorf("%s of %q: %d after %d runs, want %d after %d", test.path, test.tenant, w.Code, runs, test.status, test.runs)
		}
	}
}
