package httplock

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

func TestWithRoute(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := guard.LeaseFrom(r.Context())
		fmt.Fprintf(w, "%s %s %s", lease.Name(), r.Pattern, r.PathValue("id"))
	})
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("id")})
	match := func(r *http.Request) (string, map[string]string) {
		if r.URL.Path == "/elsewhere" {
			return "", nil
		}
		return "/orders/{id}", map[string]string{"id": r.URL.Path[len("/orders/"):]}
	}
	mux := http.NewServeMux() // an outer router that has matched another pattern
	mux.Handle("GET /{path...}", WithRoute(match)(lock(handler)))
	s := locktest.NewServer(t, mux)
	s.Want("GET", "/orders/42", 200, "reqlock:42 /orders/{id} 42")
	s.Want("GET", "/elsewhere", 500, "misconfigured")
	locktest.WantPanic(t, "WithRoute(nil): want a function", func() { WithRoute(nil) })
}
