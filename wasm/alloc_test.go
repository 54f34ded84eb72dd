//go:build !race

package wasm

import (
	"testing"

	"github.com/reqlock/reqlock/guard"
)

// A call allocates the key and the list of keys, nothing else. The race detector makes pools
// forget, so this test is not for it.
func TestPolicy_Allocations(t *testing.T) {
	r := request("GET", "/orders/42?x=1", "", "acme")
	p := start(t, "key2", Config{})
	n := testing.AllocsPerRun(1000, func() {
		policy := guard.Policy{}
		if err := p.Policy(r, &policy); err != nil {
			t.Fatal(err)
		}
	})
	most := 2.0
	if !compiles {
		most = 3 // the interpreter has one of its own
	}
	if n > most {
		t.Errorf("a call allocates %v times, want at most %v", n, most)
	}
}
