//go:build !race

package core

import (
	"testing"
	"time"
)

// A lock that its user keeps as a value is no allocation, and a Once has only those of its texts.
func TestCost_Locks(t *testing.T) {
	c := newRedis(t).newLocks(t)
	binding := []byte("a request")
	var lock Lock
	var once Once
	tests := []struct {
		name string
		most float64
		make func()
	}{
		{"Lock", 0, func() { lock = *c.Lock("a") }},
		{"FairLock", 0, func() { lock = *c.FairLock("a") }},
		{"FencedLock", 0, func() { lock = *c.FencedLock("a") }},
		{"Once", 1, func() { once = *c.Once("a") }},
		{"Once with terms", 2, func() { once = *c.Once("a").WithBinding(binding, time.Hour).WithoutSuccession() }},
	}
	for _, test := range tests {
		if n := testing.AllocsPerRun(100, test.make); n > test.most {
			t.Errorf("%s: %v allocations, want %v at most", test.name, n, test.most)
		}
	}
	if lock.Name() != "a" || once.Name() != "a" {
		t.Errorf("names %q and %q", lock.Name(), once.Name())
	}
}
