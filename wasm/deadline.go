package wasm

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/reqlock/reqlock/wasm/internal/meter"
)

// A deadline is the context of an instance's calls, one after another, and counts their time.
// Guests are metered: they call check about every 10 µs, and host functions that work long call it
// too.
//
// Between two checks at most maxSlice counts, which only a guest that misses the cache all the time
// needs. A longer slice means that the machine was busy elsewhere, which is not the guest's fault.
// Lest a guest runs too long all the same, maxStretch times its limit of wall time end it too.
//
// It is not derived from the request's context, because a client must not be able to end an
// instance.
type deadline struct {
	owner *instance
	limit time.Duration
	// began counts from the start of the process, as last and yielded do.
	began time.Duration
	// last is when the last check was.
	last    time.Duration
	yielded time.Duration
	spent   time.Duration
	// calls counts calls of host functions.
	calls uint
	// over stays true, as the state of a guest that was stopped is unknown.
	over bool
	// stopped is set by another goroutine.
	stopped atomic.Bool
	// never is never closed.
	never chan struct{}
}

const (
	maxSlice   = 2 * time.Millisecond
	maxStretch = 10
	// yieldEvery is how long a guest may run while other goroutines wait for a processor.
	yieldEvery = time.Millisecond
)

var processBegan = time.Now()

func newDeadline(owner *instance) *deadline { return &deadline{owner: owner} }

// begin starts to count for a call.
func (d *deadline) begin(limit time.Duration) {
	now := time.Since(processBegan)
	d.limit, d.began, d.last, d.yielded, d.spent = limit, now, now, now, 0
}

// look counts the time since the last look, and reports whether the guest may go on.
func (d *deadline) look() bool {
	now := time.Since(processBegan)
	d.spent += min(now-d.last, maxSlice)
	d.last = now
	if d.spent > d.limit || (now-d.began)/maxStretch > d.limit || d.stopped.Load() {
		d.over = true
	}
	return !d.over
}

// check ends the guest if its time is over. Otherwise it lets other goroutines run.
func (d *deadline) check() {
	if !d.look() {
		panic(abort{d.timeout()})
	}
	if d.last-d.yielded > yieldEvery {
		runtime.Gosched()
		d.last = time.Since(processBegan)
		d.yielded = d.last
	}
}

// end reports whether the call was in time.
func (d *deadline) end() bool { return d.look() }

func (d *deadline) timeout() error { return fmt.Errorf("%w: more than %s", ErrTimeout, d.limit) }

// stop ends the guest from another goroutine.
func (d *deadline) stop() { d.stopped.Store(true) }

// hostCalled is called for each call of a host function. A guest pays for them, so that it cannot
// call many between two of its own checks, but some take much longer than others.
func (d *deadline) hostCalled() {
	if d.calls++; d.calls%16 == 0 {
		d.check()
	}
}

// Deadline, Done, Err and Value make it a context.Context. It never ends: guests check it.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }
func (d *deadline) Done() <-chan struct{}       { return d.never }
func (d *deadline) Err() error                  { return nil }

type instanceKey struct{}

func (d *deadline) Value(key any) any {
	if key == (instanceKey{}) {
		return d.owner
	}
	return nil
}

// instantiateMeter provides the function that metered guests call.
func instantiateMeter(ctx context.Context, r wazero.Runtime) error {
	check := func(ctx context.Context, stack []uint64) {
		if int64(stack[1]) < 0 {
			panic(abort{trapped("stack overflow: calls of the guest in each other need more than %d MiB", meter.StackSize>>20)})
		}
		ctx.Value(instanceKey{}).(*instance).deadline.check()
		stack[0] = meter.Slice
	}
	_, err := r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(check), types(i64, i64), types(i64)).Export(meter.Check).Instantiate(ctx)
	return err
}
