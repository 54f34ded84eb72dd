// Package locktest has the helpers of tests that lock: a client of the locks, a site to send
// requests to, and the answers.
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

// New returns a client of the locks on its own Redis. The client must become idle by the end of the
// test.
func New(t testing.TB, changes ...func(*core.Options)) *core.Client {
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

// Hold holds a lock, as another process would, until the test ends.
func Hold(t testing.TB, locks *core.Client, name string) {
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
