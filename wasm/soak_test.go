package wasm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// soakCalls lets make wasm-soak send a million calls.
var soakCalls = flag.Int("soak", 20_000, "`number` of calls in TestMixed")

// Honest plugins answer each call right beside hostile ones and while new versions are loaded,
// good ones and bad ones. In the end nothing is left.
func TestMixed(t *testing.T) {
	if testing.Short() {
		t.Skip("sends thousands of calls")
	}
	before := allocated()
	checks := mix(t, *soakCalls)
	t.Logf("%s", checks)
	if checks.honest.Load() == 0 || checks.hostile.Load() == 0 || checks.reloads.Load() == 0 {
		t.Error("a part did not run")
	}
	for range 10 { // finalizers run between collections
		runtime.GC()
	}
	if after := allocated(); after > before+64<<20 {
		t.Errorf("%d MiB of the heap are in use, before %d", after>>20, before>>20)
	}
}

func allocated() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

type mixed struct{ honest, hostile, reloads atomic.Int64 }

func (m *mixed) String() string {
	return fmt.Sprintf("%d honest, %d hostile, %d reloads", m.honest.Load(), m.hostile.Load(), m.reloads.Load())
}

// mix sends calls: honest ones to plugins in C and Go and to one that is replaced, and each 50th to
// a hostile one.
func mix(t *testing.T, calls int) *mixed {
	t.Helper()
	var counts mixed
	quiet := slog.New(slog.DiscardHandler)
	honest := []*Plugin{start(t, "c", Config{MaxQueue: 10_000}), start(t, "go", Config{MaxQueue: 10_000})}
	var bad []*Plugin
	for _, name := range []string{"recursion", "fill", "random", "deep", "trap", "table-fill", "memory-touch"} {
		code, err := os.ReadFile(filepath.Join("testdata/hostile", name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(context.Background(), code, Config{Timeout: 5 * time.Millisecond, InitTimeout: loading, Logger: quiet, BreakAfter: -1, MaxQueue: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		defer closePlugin(t, p)
		bad = append(bad, p)
	}

	path := filepath.Join(t.TempDir(), "plugin.wasm")
	replace := func(code []byte) {
		if err := errors.Join(os.WriteFile(path+".new", code, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Error(err)
		}
	}
	replace(keyed(t, "a"))
	replaced, err := open(context.Background(), path, Config{Watch: true, Timeout: patience, InitTimeout: loading, MaxQueue: 10_000, Logger: quiet, CacheDir: compiled,
		Observer: Observer{Reloaded: func(ReloadEvent) { counts.reloads.Add(1) }}}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer closePlugin(t, replaced)

	stop := make(chan struct{})
	var reloads sync.WaitGroup
	reloads.Go(func() {
		start := binary(t, "c")
		versions := [][]byte{keyed(t, "b"), slow(), start[:100], keyed(t, "a")}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				replace(versions[n%len(versions)])
			}
		}
	})

	// A busy machine may answer all calls before it has compiled a version.
	begun := time.Now()
	enough := func(n int64) bool {
		return n > int64(calls) && (counts.reloads.Load() > 0 || time.Since(begun) > loading)
	}
	want := ask(t, nativePolicy, request("GET", "/orders/42", "", "acme"))
	var senders sync.WaitGroup
	var sent atomic.Int64
	for range 8 {
		senders.Go(func() {
			for n := sent.Add(1); !enough(n) && !t.Failed(); n = sent.Add(1) {
				switch {
				case n%50 == 0:
					err := bad[int(n/50)%len(bad)].Policy(request("GET", "/", ""), new(guard.Policy))
					if !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrTrap) {
						t.Errorf("hostile call %d: %v", n, err)
					}
					counts.hostile.Add(1)
				case n%3 == 0:
					policy := initial
					err := replaced.Policy(request("GET", "/", ""), &policy)
					if err != nil || len(policy.Keys) != 1 || policy.Keys[0] != "key-a" && policy.Keys[0] != "key-b" {
						t.Errorf("call %d while versions are loaded: %v, %v", n, policy.Keys, err)
					}
					counts.honest.Add(1)
				default:
					if got := ask(t, honest[n%2].Policy, request("GET", "/orders/42", "", "acme")); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("honest call %d: %+v; want %+v", n, got, want)
					}
					counts.honest.Add(1)
				}
			}
		})
	}
	senders.Wait()
	close(stop)
	reloads.Wait()
	return &counts
}
