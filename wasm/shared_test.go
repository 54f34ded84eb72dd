package wasm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// newTestShared returns a memory with a clock that the test moves.
func newTestShared(entries int, bytes int64) (s *shared, now *time.Time) {
	now = new(time.Time)
	*now = time.Now()
	s = newShared(entries, bytes)
	s.clock = func() time.Time { return *now }
	return s, now
}

func (s *shared) text(key string) string {
	dst := make([]byte, 100)
	n, ok := s.get([]byte(key), dst)
	if !ok {
		return "none"
	}
	return string(dst[:n])
}

func TestShared_Expires(t *testing.T) {
	t.Parallel()
	s, now := newTestShared(10, 10_000)
	s.set([]byte("a"), []byte("1"), time.Second)
	s.set([]byte("b"), []byte("2"), 2*time.Second)
	*now = now.Add(time.Second - 1)
	if s.text("a") != "1" || s.text("c") != "none" {
		t.Errorf("a is %s, c is %s", s.text("a"), s.text("c"))
	}
	*now = now.Add(1)
	if s.text("a") != "none" || s.text("b") != "2" {
		t.Errorf("a is %s, b is %s", s.text("a"), s.text("b"))
	}
	s.set([]byte("b"), []byte("3"), time.Hour) // replaces value and time
	*now = now.Add(time.Minute)
	if s.text("b") != "3" {
		t.Errorf("b is %s", s.text("b"))
	}
	s.delete([]byte("b"))
	s.delete([]byte("b"))
	if n, bytes := s.size(); s.text("b") != "none" || n != 0 || bytes != 0 {
		t.Errorf("b is %s; %d entries, %d bytes", s.text("b"), n, bytes)
	}
}

// A full memory refuses new entries until others expire. It evicts none.
func TestShared_Full(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]struct {
		entries int
		bytes   int64
	}{"entries": {3, 1 << 20}, "bytes": {100, 3 * (sharedEntryOf + 2)}} {
		s, now := newTestShared(bounds.entries, bounds.bytes)
		for i := range 3 {
			if !s.set([]byte{'a' + byte(i)}, []byte("v"), time.Duration(i+1)*time.Second) {
				t.Errorf("%s: no room for entry %d", name, i)
			}
		}
		if _, ok := s.incr([]byte("n"), 1, time.Hour); ok || s.set([]byte("d"), []byte("v"), time.Hour) {
			t.Errorf("%s: room for a fourth entry", name)
		}
		if !s.set([]byte("b"), []byte("w"), time.Hour) || s.text("a") != "v" || s.text("c") != "v" {
			t.Errorf("%s: replacing a value failed, or evicted another", name)
		}
		*now = now.Add(time.Second) // a expires
		if !s.set([]byte("d"), []byte("v"), time.Hour) || s.set([]byte("e"), []byte("v"), time.Hour) {
			t.Errorf("%s: after an entry expired, want room for one", name)
		}
	}
}

func TestShared_Incr(t *testing.T) {
	t.Parallel()
	s, now := newTestShared(10, 10_000)
	for _, step := range []struct{ delta, want int64 }{
		{5, 5}, {-7, -2}, {math.MaxInt64, math.MaxInt64 - 2}, {9, math.MaxInt64}, {0, math.MaxInt64},
		{math.MinInt64, -1}, {math.MinInt64, math.MinInt64 + 1}, {-1, math.MinInt64 + 1},
	} {
		if got, ok := s.incr([]byte("n"), step.delta, time.Second); !ok || got != step.want {
			t.Errorf("after %d the counter is %d, want %d", step.delta, got, step.want)
		}
		*now = now.Add(time.Second / 10) // later calls do not extend its life
	}
	*now = now.Add(time.Second / 5)
	if got, ok := s.incr([]byte("n"), 1, time.Second); !ok || got != 1 {
		t.Errorf("a counter that expired is %d, %v", got, ok)
	}
	s.set([]byte("text"), []byte("no counter"), time.Second)
	if _, ok := s.incr([]byte("text"), 1, time.Second); ok || s.text("text") != "no counter" {
		t.Errorf("incr of a text: %v, %s", ok, s.text("text"))
	}
	if n, ok := s.incr([]byte("m"), math.MinInt64, time.Second); !ok || n == math.MinInt64 {
		t.Errorf("a new counter is %d, which means an error", n)
	}
}

// The bounds hold, and entries agree with a plain map, whatever calls come.
func TestShared_Random(t *testing.T) {
	t.Parallel()
	s, now := newTestShared(20, 5000)
	type entry struct {
		value   string
		expires time.Time
	}
	want := make(map[string]entry)
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		key := fmt.Sprint("key", random.IntN(40))
		*now = now.Add(time.Duration(random.IntN(100)) * time.Millisecond)
		switch random.IntN(4) {
		case 0:
			s.delete([]byte(key))
			delete(want, key)
		case 1:
			value, ttl := fmt.Sprint(random.IntN(1000), "x"), time.Duration(1+random.IntN(3000))*time.Millisecond
			delete(want, key) // set frees it even if there is no room then
			if s.set([]byte(key), []byte(value), ttl) {
				want[key] = entry{value, now.Add(ttl)}
			}
		default:
			e, ok := want[key]
			if !ok || !e.expires.After(*now) {
				e.value = "none"
			}
			if got := s.text(key); got != e.value {
				t.Fatalf("%s is %s, want %s", key, got, e.value)
			}
		}
		if n, bytes := s.size(); n > 20 || bytes > 5000 || bytes < 0 || n != len(s.expiry) {
			t.Fatalf("%d entries, %d bytes, %d in the heap", n, bytes, len(s.expiry))
		}
	}
}

// All instances count in one memory.
func TestShared_BetweenInstances(t *testing.T) {
	t.Parallel()
	p := start(t, "c2", Config{MaxInstances: 4, SharedEntries: 1})
	var all sync.WaitGroup
	for range 9 {
		all.Go(func() { ask(t, p.Policy, commanded("i")) })
	}
	all.Wait()
	p.shared.mu.Lock()
	n := load64(p.shared.entries["calls"].value, 0)
	p.shared.mu.Unlock()
	if s := p.Stats(); n != 9 || s.SharedEntries != 1 || s.SharedBytes != sharedEntryOf+5+8 {
		t.Errorf("%d calls, %+v", n, s)
	}
	if v := ask(t, p.Policy, commanded("s")); v.Policy.Keys[0] != "0" {
		t.Errorf("a full memory stored a value: %q", v.Policy.Keys)
	}
}

func TestShared_ThroughGuest(t *testing.T) {
	t.Parallel()
	p := start(t, "c2", Config{})
	for _, step := range []struct{ command, want string }{
		{"g", "none"}, {"s", "1"}, {"g", "/orders/1?x=%20"}, {"d", "k"}, {"g", "none"},
	} {
		if v := ask(t, p.Policy, commanded(step.command)); len(v.Policy.Keys) != 1 || v.Policy.Keys[0] != step.want {
			t.Errorf("%s: keys %q, want %s", step.command, v.Policy.Keys, step.want)
		}
	}
	for command, want := range map[string]string{
		"t": "kv_incr: ttl_ms is 0; use a number from 1 to 86400000",
		"l": "kv_incr: a key of 257 bytes; use 1 to 256",
	} {
		wantBadGuest(t, p, commanded(command), want)
	}
}

func BenchmarkShared(b *testing.B) {
	s := newShared(1024, 1<<20)
	key := []byte("tenant:acme")
	b.ReportAllocs()
	for b.Loop() {
		s.incr(key, 1, time.Minute)
	}
}
