package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// Every order has one message, and they are sent in their order.
func TestOutbox(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	var want string
	for i, item := range []string{"tea", "milk", "sugar", "tea"} {
		if a := p.Ask(t, "POST", "/orders/"+item, ""); a.Status != 201 {
			t.Fatalf("answer %+v", a)
		}
		want += fmt.Sprintf("%d ordered %s\n", i+1, item)
	}
	demotest.Await(t, "a message missing", func(context.Context) bool {
		got := p.Ask(t, "GET", "/messages", "").Body
		if !strings.HasPrefix(want, got) {
			t.Fatalf("messages:\n%s\nwant:\n%s", got, want)
		}
		return got == want
	})
	p.Signal(t, syscall.SIGTERM)
	p.End(t, 0)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
