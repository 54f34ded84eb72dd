package docs_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var mu sync.Mutex

func rebuildHere(ctx context.Context) error { // one goroutine of this process at a time
	mu.Lock()
	defer mu.Unlock()
	return write(ctx)
}

func rebuildAnywhere(ctx context.Context, locks *core.Client) error { // one of all processes at a time
	return core.Do(ctx, locks.Lock("report:daily"), core.AcquireOptions{WaitTime: time.Minute}, write)
}

var writing, writes atomic.Int32

// write fails if another call of it is under way.
func write(context.Context) error {
	defer writing.Add(-1)
	if writing.Add(1) > 1 {
		return errors.New("two write at once")
	}
	writes.Add(1)
	for range 100 {
		runtime.Gosched() // lets another one begin, if nothing keeps it out
	}
	return nil
}

// docs/start/mutexes.md: a mutex keeps out the goroutines of a process, a lock those of others too.
func TestMutexAndLock(t *testing.T) {
	t.Parallel()
	writes.Store(0)
	redisServer := redistest.Start(t)
	var rebuilds []func() error
	for range 2 { // clients, as of two processes
		locks, err := core.New(redisServer.Client(t), core.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.Background())
		rebuilds = append(rebuilds, func() error { return rebuildAnywhere(t.Context(), locks) })
	}
	here := func() error { return rebuildHere(t.Context()) }
	for _, callers := range [][]func() error{{here, here}, rebuilds} {
		failed := make(chan error)
		for i := range 20 {
			go func() { failed <- callers[i%2]() }()
		}
		for range 20 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	}
	if got := writes.Load(); got != 40 {
		t.Errorf("%d reports were written, want 40", got)
	}
}

var errBusy = errors.New("busy")

// docs/start/mutexes.md: of two sellers of the last piece, one finds it sold.
func TestStock(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	var left atomic.Int32
	left.Store(1)
	sold := 0
	readStock := func(context.Context, string) (int32, error) { return left.Load(), nil }
	writeStock := func(_ context.Context, _ string, n int32) error {
		left.Store(n)
		sold++
		return nil
	}
	sell := func(ctx context.Context, product string) error {
		err := core.Do(ctx, locks.Lock("stock:"+product), core.AcquireOptions{WaitTime: 2 * time.Second}, func(ctx context.Context) error {
			left, err := readStock(ctx, product) // after the acquire, not before
			if err != nil || left == 0 {
				return err
			}
			return writeStock(ctx, product, left-1) // ctx ends if the lock is lost
		})
		if errors.Is(err, core.ErrNotAcquired) {
			return errBusy // another holder was not done in time: say so, or try later
		}
		return err
	}
	failed := make(chan error)
	for range 2 {
		go func() { failed <- sell(t.Context(), "lamp") }()
	}
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if sold != 1 || left.Load() != 0 {
		t.Errorf("%d sold, %d left; want one and none", sold, left.Load())
	}
}
