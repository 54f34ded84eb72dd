package main

import (
	"syscall"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// A request with a smaller token than that of the row changes nothing, and gets 409.
func TestFencing(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	pay := func(order string, status int, body string) {
		t.Helper()
		if a := p.Ask(t, "POST", "/orders/"+order+"/pay", ""); a.Status != status || a.Body != body {
			t.Errorf("answer %+v, want %d %s", a, status, body)
		}
	}
	pay("42", 200, "order 42 is paid, with token 1\n")
	pay("42", 200, "order 42 is paid, with token 2\n")
	// The next request gets the token that the first had, as if it had been late.
	if err := p.Redis(t).Set(t.Context(), core.KeysOf("reqlock:order:42").Tokens, 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	pay("42", 409, "there is no order 42, or a later request has written it\n")
	pay("43", 200, "order 43 is paid, with token 1\n")
	p.Signal(t, syscall.SIGTERM)
	p.End(t, 0)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
