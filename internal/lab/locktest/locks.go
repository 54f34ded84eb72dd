// Package locktest has the helpers of tests of adapters. These are most of what they need:
//
//	locks := NewLocks(t)                  a lock client on a Redis of the test's own
//	MustHold(t, locks, name)              holds a lock, as another process would
//	s := NewServer(t, handler)            a server, and a client of it
//	s.Want("GET", "/orders/1", 409, text) sends a request and checks the answer
//	s.PostWithKey("/pay", "key")          sends a POST with an idempotency key
//	WantPanic(t, text, f)                 checks what f panics with
//
// FileTest tests the routes in a file, in any adapter.
package locktest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// NewLocks returns a client of the locks on its own Redis. The client must become idle by the end of the
// test.
func NewLocks(t testing.TB, changes ...func(*core.Options)) *core.Client {
	t.Helper()
	opts := core.Options{Logger: slog.New(slog.DiscardHandler)}
	for _, change := range changes {
		change(&opts)
	}
	locks, err := core.New(redistest.Start(t).Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); locks.Stats() != (core.Stats{}); time.Sleep(2 * time.Millisecond) {
			// A handler that hijacked its connection may outlive its server.
			if time.Now().After(end) {
				t.Errorf("timed out waiting until the lock client is idle: %+v", locks.Stats())
				break
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Errorf("close the lock client: %v", err)
		}
	})
	return locks
}

// MustHold holds a lock, as another process would, until the test ends.
func MustHold(t testing.TB, locks *core.Client, name string) {
	t.Helper()
	lease, err := locks.Lock(name).Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Errorf("release %s: %v", name, err)
		}
	})
}
