package guard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A client cannot choose what the route of a lock says: any token is a method.
func TestHolds_RouteOfAnyMethod(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const("k")})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("BREW", "/orders/1", nil)
	r.Pattern = "/orders/{id}"
	var holds []core.Hold
	g.Serve(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) { holds = locks.Holds() })
	if len(holds) != 1 || holds[0].Route != "_OTHER /orders/{id}" {
		t.Errorf("%+v, want the route _OTHER /orders/{id}", holds)
	}
}

// The locks of a guard tell the route of their request.
func TestHolds_Route(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"POST /orders/{id}": "POST /orders/{id}",
		"/orders/{id}":      "POST /orders/{id}",
		"":                  "",
	} {
		locks := locktest.NewLocks(t)
		g, err := guard.New(locks, guard.Config{Key: keyfuncs.Const("k"), BufferBody: 100})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/orders/1", nil)
		r.Pattern = pattern
		var holds []core.Hold
		g.Serve(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) { holds = locks.Holds() })
		if len(holds) != 1 || holds[0].Name != "reqlock:k" || holds[0].Route != want {
			t.Errorf("pattern %q: %+v, want the route %q", pattern, holds, want)
		}
	}
}
