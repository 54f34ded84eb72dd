package core

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
)

// RunWhileHeld runs fn in one process at a time. It is for leaders, schedulers and consumers of one
// queue. It waits for the lock until ctx ends, also through outages of Redis, calls fn with the
// lease's context, and releases the lock when fn returns or panics.
//
// If the lock is lost, fn's context ends with cause [ErrLockLost]. Once fn has returned,
// RunWhileHeld acquires the lock and calls fn again, whatever fn returned. The watchdog renews the
// lock, so a loss is rare. Repeated losses are followed by growing pauses of up to 10 seconds.
//
// RunWhileHeld returns when a call of fn ends while the lock is held. The error is fn's, joined
// with that of the release. It returns earlier with the error of an Acquire that waiting cannot
// fix, such as [ErrInvalidName], [ErrClosed] or a missing permission, and with ctx's error and
// cause if ctx ends while it does not run fn. Code that fn calls with its context enters the lock
// again. Goroutines that share that context exclude each other on other names.
func RunWhileHeld(ctx context.Context, l Locker, fn func(ctx context.Context) error) error {
	for losses := 0; ; losses++ {
		began := time.Now()
		lost, err := runOnce(ctx, l, fn)
		if !lost {
			return err
		}
		if time.Since(began) > longestPause {
			losses = 0
		}
		select {
		case <-time.After(backoff.Scattered(backoff.Doubled(100*time.Millisecond, longestPause, losses))):
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// runOnce acquires the lock and calls fn. It reports whether the lock was lost, by fn's lease or
// before there was one.
func runOnce(ctx context.Context, l Locker, fn func(ctx context.Context) error) (lost bool, err error) {
	lease, err := l.Acquire(ctx, AcquireOptions{WaitTime: WaitForever, MaxWaiters: -1})
	if err != nil {
		return errors.Is(err, ErrLockLost) || errors.Is(err, ErrNotReplicated), err
	}
	defer func() {
		released := lease.Release(ctx)
		lost, err = errors.Is(released, ErrLockLost), joinErrors(err, released)
	}()
	return false, fn(lease.Context())
}

// longestPause is the longest pause after a loss. A lock that was held for longer is no sign of
// repeated losses.
const longestPause = 10 * time.Second
