package redistest

import "testing"

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := Run()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPing(b *testing.B) {
	s := Start(b)
	p := s.Proxy(b)
	for name, addr := range map[string]string{"direct": s.Addr(), "proxy": p.Addr()} {
		b.Run(name, func(b *testing.B) {
			c := newClient(b, addr, nil)
			for b.Loop() {
				if err := c.Ping(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if p.Count("PING") == 0 {
		b.Error("the proxy was not used")
	}
}
