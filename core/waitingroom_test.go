package core

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// MaxWaiting bounds the callers of a client that wait, of all names and kinds together. Each place
// is given back, however the wait ends.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(c *Client, i int) Locker{
		"plain":  func(c *Client, i int) Locker { return c.Lock(fmt.Sprint("a", i)) },
		"one":    func(c *Client, _ int) Locker { return c.Lock("a0") },
		"fair":   func(c *Client, i int) Locker { return c.FairLock(fmt.Sprint("a", i)) },
		"fenced": func(c *Client, i int) Locker { return c.FencedLock(fmt.Sprint("a", i)) },
		"multi":  func(c *Client, i int) Locker { return MultiLock(c.Lock("free"), c.Lock(fmt.Sprint("a", i))) },
		"red": func(c *Client, i int) Locker {
			return RedLock(c.Lock(fmt.Sprint("a", i)), c.Lock(fmt.Sprint("a", 3-i)), c.Lock(fmt.Sprint("b", i)))
		},
		"once": func(c *Client, i int) Locker { return c.Once(fmt.Sprint("a", i)).asLock() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, func(o *Options) { o.MaxWaiting = 2 })
			names := []string{"a0", "a1", "a2", "a3"}
			fx.lockAsStranger(t, 0, names...)
			ctx, leave := context.WithCancel(bg)
			defer leave()
			first := acquireAsync(ctx, lock(c, 0), forever)
			eventually(t, "the first to wait", func() bool { return c.room.inside.Load() == 1 })
			next := acquireAsync(bg, lock(c, 1), forever)
			eventually(t, "the second to wait", func() bool { return c.room.inside.Load() == 2 || name == "red" })

			if name == "red" { // its callers wait only between attempts
				c.room.inside.Add(2)
			}
			_, err := lock(c, 2).Acquire(bg, AcquireOptions{WaitTime: patience})
			wantErr(t, "one too many", err, ErrTooManyWaiters)
			if text := err.Error(); !strings.Contains(text, "2 callers of this client") || !strings.Contains(text, "core.Options.MaxWaiting") {
				t.Errorf("the error does not say which bound was reached: %v", err)
			}
			wantErr(t, "one that does not wait", tryAcquire(lock(c, 2)), ErrNotAcquired)
			mustRelease(t, mustAcquire(t, bg, c.Lock("other"), AcquireOptions{WaitTime: patience})) // it need not wait
			if name == "red" {
				mustReceive(t, "the first to be refused", first)
				mustReceive(t, "the second to be refused", next)
				c.room.inside.Add(-2)
				fx.deleteKeys(t, names...)
				return
			}

			leave()
			wantErr(t, "the first", mustReceive(t, "the first to leave", first).err, context.Canceled)
			_, err = lock(c, 2).Acquire(bg, AcquireOptions{WaitTime: 50 * time.Millisecond})
			wantErr(t, "one in its place", err, ErrNotAcquired)
			fx.deleteKeys(t, names...)
			for _, key := range names {
				fx.publishRelease(t, key)
			}
			c.names.wake("a1")
			c.names.wake("a0")
			mustRelease(t, mustReceiveLease(t, "the second", next))
			if n := c.room.inside.Load(); n != 0 {
				t.Errorf("%d places are still taken", n)
			}
		})
	}
}

// The texts of both bounds name the option to raise.
func TestMaxWaiters_SaysWhichBound(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	fx.lockAsStranger(t, 0, "a")
	ctx, leave := context.WithCancel(bg)
	waiter := startWaiter(t, ctx, c, "a", forever)
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: patience, MaxWaiters: 1})
	wantErr(t, "one too many", err, ErrTooManyWaiters)
	if !strings.Contains(err.Error(), "1 callers of this process wait for the name already, as core.AcquireOptions.MaxWaiters allows") {
		t.Error(err)
	}
	leave()
	mustReceive(t, "the waiter to leave", waiter)
	fx.deleteKeys(t, "a")
}

func TestMaxWaiting_Values(t *testing.T) {
	t.Parallel()
	for value, want := range map[int]int64{0: 8192, -1: math.MaxInt, 7: 7} {
		opts, err := Options{MaxWaiting: value}.withDefaults()
		if err != nil || newWaitingRoom(opts.MaxWaiting).size != want {
			t.Errorf("%d: %d (%v), want %d", value, opts.MaxWaiting, err, want)
		}
	}
	if _, err := (Options{MaxWaiting: -2}).withDefaults(); err == nil || !strings.Contains(err.Error(), "core.Options.MaxWaiting is -2; use 0 for 8192") {
		t.Errorf("-2: %v", err)
	}
}
