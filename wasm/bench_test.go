package wasm

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/reqlock/reqlock/guard"
)

// BenchmarkPolicy measures one call of each guest: it reads a header, the URI and the method, and
// sets a key, mode and wait. Every call has a deadline.
func BenchmarkPolicy(b *testing.B) {
	r := request("GET", "/orders/42?x=1", "", "acme")
	bench := func(name string, policy guard.PolicyFunc) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := initial
				if err := policy(r, &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	bench("native", nativePolicy)
	for _, guest := range languages {
		bench(guest, start(b, guest, Config{}).Policy)
	}
}

// BenchmarkParallel runs one caller per processor.
func BenchmarkParallel(b *testing.B) {
	for _, guest := range languages {
		p := start(b, guest, Config{})
		b.Run(guest, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				r := request("GET", "/orders/42?x=1", "", "acme")
				for pb.Next() {
					policy := initial
					if err := p.Policy(r, &policy); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkInstance measures the start of one more instance.
func BenchmarkInstance(b *testing.B) {
	for _, guest := range languages {
		p := start(b, guest, Config{})
		b.Run(guest, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				i, err := p.current.instantiate(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				i.close()
			}
		})
	}
}

// BenchmarkNew measures compilation and one start.
func BenchmarkNew(b *testing.B) {
	for _, guest := range languages {
		code := binary(b, guest)
		for name, cfg := range map[string]Config{"cold": {InitTimeout: loading}, "cached": {InitTimeout: loading, CacheDir: filepath.Join(b.TempDir(), "cache")}} {
			b.Run(guest+"/"+name, func(b *testing.B) {
				for b.Loop() {
					p, err := New(context.Background(), code, cfg)
					if err != nil {
						b.Fatal(err)
					}
					closePlugin(b, p)
				}
			})
		}
	}
}
