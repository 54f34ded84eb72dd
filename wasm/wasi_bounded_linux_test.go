package wasm

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Each function ends within a millisecond or two, whatever its arguments, or is ended by a deadline
// of a millisecond. Otherwise the calls that a guest can pay for between two checks would last for
// seconds.
func TestWASI_Bounded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, ok := processorTime(); !ok {
		t.Fatal("Linux does not tell the time of this thread")
	}
	g := newWASIGuest(t, &logged{})
	d := g.instance.deadline
	values := []uint64{0, 1, 3, 64, maxSubscriptions, 2_000_000, 15 << 20, 1<<32 - 1}
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range wasi {
		if f.name == "proc_exit" {
			continue
		}
		var longest time.Duration
		for range 300 {
			args := make([]uint64, 16)
			for i := range f.params {
				args[i] = values[r.IntN(len(values))]
			}
			shown := slices.Clone(args[:len(f.params)])
			d.over = false
			d.begin(time.Millisecond)
			began, _ := processorTime()
			stopped := ended(func() { f.fn(g.instance, g.memory(f.name), args) })
			now, _ := processorTime()
			longest = max(longest, now-began)
			if now-began > maxLate/2 {
				t.Errorf("%s of %d took %s; stopped: %t", f.name, shown, now-began, stopped)
			}
		}
		t.Logf("%-24s %s", f.name, longest)
	}
}
