package core

import (
	"context"
	"errors"
	"testing"
	"time"
)

// RunWhileHeld runs one function at a time. It ends with the function's error.
func TestRunWhileHeld(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	failure := errors.New("failed")
	for kind, locker := range map[string]func(c *Client) Locker{
		"lock":  func(c *Client) Locker { return c.Lock("a") },
		"fair":  func(c *Client) Locker { return c.FairLock("b") },
		"multi": func(c *Client) Locker { return MultiLock(c.Lock("c"), c.Lock("d")) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
			running := 0 // guarded by the lock
			inParallel(6, func(i int) {
				c := clients[i%2]
				err := RunWhileHeld(bg, locker(c), func(ctx context.Context) error {
					running++
					if running != 1 {
						t.Errorf("%d run", running)
					}
					again, err := locker(c).Acquire(ctx, AcquireOptions{})
					if err != nil {
						t.Errorf("entering again: %v", err)
					} else {
						mustRelease(t, again)
					}
					running--
					return failure
				})
				if !errors.Is(err, failure) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// runWhileHeld calls RunWhileHeld with a function that sends its context to started. Call i returns
// ends[i] when its context ends. The call after those returns nil at once.
func runWhileHeld(c *Client, ends ...error) (started <-chan context.Context, done <-chan error) {
	contexts, result := make(chan context.Context), make(chan error, 1)
	calls := 0
	go func() {
		result <- RunWhileHeld(bg, c.Lock("a"), func(ctx context.Context) error {
			contexts <- ctx
			if calls == len(ends) {
				return nil
			}
			<-ctx.Done()
			calls++
			return ends[calls-1]
		})
	}()
	return contexts, result
}

// After a loss the function's context ends, and it is called again, whatever it returns.
func TestRunWhileHeld_Lost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	started, done := runWhileHeld(c, nil, errors.New("of the second call"))
	for range 2 {
		ctx := mustReceive(t, "a call", started)
		if forced, err := c.Lock("a").ForceUnlock(bg); !forced || err != nil {
			t.Fatalf("ForceUnlock: %v, %v", forced, err)
		}
		mustReceive(t, "the context to end", ctx.Done())
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLockLost) {
			t.Errorf("the cause is %v", cause)
		}
	}
	mustReceive(t, "the third call", started)
	if err := mustReceive(t, "the end", done); err != nil {
		t.Error(err)
	}
}

// A loss of another lock is the function's own error.
func TestRunWhileHeld_AnotherLockIsLost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	calls := 0
	err := RunWhileHeld(bg, c.Lock("a"), func(context.Context) error {
		calls++
		return ErrLockLost
	})
	if !errors.Is(err, ErrLockLost) || calls != 1 {
		t.Errorf("%d calls, and the error is %v", calls, err)
	}
}

// It waits out an outage of Redis, before it has the lock and after it has lost it.
func TestRunWhileHeld_Outage(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(3*time.Second), commandTimeout(time.Second), pollInterval(time.Second))
	fx.srv.Kill(t)
	started, done := runWhileHeld(c, nil)
	eventually(t, "a waiter that Redis does not answer", func() bool { return c.Stats().Waiting == 1 })
	fx.srv.Restart(t)
	first := mustReceive(t, "the first call", started)
	fx.srv.Kill(t)
	mustReceive(t, "its lease to end", first.Done())
	fx.srv.Restart(t)
	mustReceive(t, "the second call", started)
	if err := mustReceive(t, "the end", done); err != nil {
		t.Error(err)
	}
}

// What waiting cannot fix is returned at once, and so is the end of the context.
func TestRunWhileHeld_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	never := func(context.Context) error {
		t.Error("the function is called")
		return nil
	}
	wantErr(t, "an invalid name", RunWhileHeld(bg, c.Lock(""), never), ErrInvalidName)

	held := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	ctx, cancel := context.WithCancelCause(bg)
	done := make(chan error, 1)
	go func() { done <- RunWhileHeld(ctx, c.Lock("a"), never) }()
	eventuallyWaiting(t, c)
	cause := errors.New("shutting down")
	cancel(cause)
	err := mustReceive(t, "the end", done)
	wantErr(t, "the end", err, context.Canceled)
	wantErr(t, "the end", err, cause)
	mustRelease(t, held)

	loose := newUncheckedLocks(t, fx.connect(t))
	mustClose(t, loose)
	wantErr(t, "a closed client", RunWhileHeld(bg, loose.Lock("a"), never), ErrClosed)
}

// A panic releases the lock.
func TestRunWhileHeld_Panic(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	if !panics(func() { _ = RunWhileHeld(bg, c.Lock("a"), func(context.Context) error { panic("at the disco") }) }) {
		t.Error("no panic")
	}
	fx.wantFree(t, "a")
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
