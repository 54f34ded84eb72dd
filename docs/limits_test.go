package docs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// docs/limits.md
func TestSemaphore(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	ctx := t.Context()
	inside, leave := make(chan struct{}), make(chan struct{})
	call := func(ctx context.Context) error {
		inside <- struct{}{}
		<-leave
		return ctx.Err()
	}
	run := func() error {
		partner := locks.Semaphore("partner:calls", 20)
		err := core.Do(ctx, partner, core.AcquireOptions{WaitTime: 2 * time.Second}, func(ctx context.Context) error {
			return call(ctx) // ctx ends if the permit is lost
		})
		return err
	}
	results := make(chan error)
	for range 20 {
		go func() { results <- run() }()
	}
	for range 20 {
		<-inside
	}
	if err := core.Do(ctx, locks.Semaphore("partner:calls", 20), core.AcquireOptions{}, call); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("a call beyond the limit: %v", err)
	}
	close(leave)
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// docs/limits.md
func TestSemaphoreOfRedis(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	call := func(ctx context.Context) error { return ctx.Err() }
	run := func(ctx context.Context) error {
		partner := locks.Semaphore("partner:shared", 0)     // as many as Redis has
		if err := partner.SetPermits(ctx, 20); err != nil { // once, as trySetPermits(20) of a JVM
			return err
		}
		lease, err := partner.Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: all 20 were taken
		}
		defer lease.Release(ctx)
		return call(lease.Context())
	}
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := locks.Semaphore("partner:shared", 0).Available(t.Context()); n != 20 || err != nil {
		t.Errorf("%d permits are free, %v; want 20", n, err)
	}
}

// docs/migrating.md
func TestSemaphoreInPlaceOfOneByHand(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	exports := 0
	export := func(context.Context) error {
		exports++
		return nil
	}
	run := func(ctx context.Context) error {
		lease, err := locks.Semaphore("exports", 5).Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: five others are at it
		}
		defer lease.Release(ctx)
		return export(lease.Context())
	}
	if err := run(t.Context()); err != nil || exports != 1 {
		t.Errorf("%v, %d exports", err, exports)
	}
}
