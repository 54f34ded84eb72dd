package wasm

import (
	"testing"

	"github.com/reqlock/reqlock/guard"
)

// BenchmarkOneKey measures a guest that makes a key of one header.
func BenchmarkOneKey(b *testing.B) {
	r := request("GET", "/orders/42?x=1", "", "acme")
	p := start(b, "key2", Config{})
	b.ReportAllocs()
	for b.Loop() {
		policy := guard.Policy{}
		if err := p.Policy(r, &policy); err != nil {
			b.Fatal(err)
		}
	}
}
