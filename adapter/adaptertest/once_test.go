package adaptertest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

// A service that moves from one framework to another keeps its keys.
func TestOnceAcrossFrameworks(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	for i, a := range frameworks {
		router := a.Router(locks, adaptertest.Route{
			Method:  http.MethodPost,
			Pattern: "/pay/{id}/files/{rest...}",
			Once:    []idempotency.Config{{Scope: idempotency.ScopeGlobal}},
			Handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, a.Name) },
		})
		r := httptest.NewRequest(http.MethodPost, "/pay/1/files/a", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		got := fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Idempotent-Replayed"))
		if want := "200 " + frameworks[0].Name + " " + map[bool]string{true: "true"}[i > 0]; got != want {
			t.Errorf("%s: %s, want %s", a.Name, got, want)
		}
	}
}
