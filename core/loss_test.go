package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A lease needs an alarm only while no renewal keeps it.
func TestAlarms(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(6*time.Second))
	kept, fixed := mustAcquire(t, bg, c.Lock("kept"), AcquireOptions{}), mustAcquire(t, bg, c.Lock("fixed"), AcquireOptions{LeaseTime: time.Hour})
	wantAlarms := func(what string, want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%[2]d alarms %[1]s", what, want), func() bool { return c.alarms.Len() == want })
	}
	wantAlarms("with a fixed lease", 1)
	mustRelease(t, fixed)
	wantAlarms("after the release", 0)
	trouble := proxy.OnEvery(runsScript(renewScript), redistest.ReplyWith("-ERR trouble\r\n"))
	wantAlarms("while renewals fail", 1)
	trouble.Remove()
	mustBeRenewed(t, kept)
	wantAlarms("after a renewal", 0)
	kept.StopRenewal()
	wantAlarms("after StopRenewal", 1)
	mustRelease(t, kept)
	wantAlarms("after the release", 0)
}

// All leases of a hold end, however the client learns of the loss.
func TestLoss_EndsEveryLease(t *testing.T) {
	t.Parallel()
	const (
		watchdog  = 9 * time.Second
		unhurried = 6 * patience // too long for a renewal during this test
	)
	for name, test := range map[string]struct {
		lose     func(t *testing.T, fx *redisFixture, c *Client, leases []*Lease)
		watchdog time.Duration
		within   time.Duration
	}{
		"renewal answered 0": {
			func(t *testing.T, fx *redisFixture, _ *Client, _ []*Lease) { fx.deleteKeys(t, "a") },
			watchdog, 2 * watchdog / 3,
		},
		"another owner holds it": {
			func(t *testing.T, fx *redisFixture, _ *Client, _ []*Lease) {
				fx.deleteKeys(t, "a")
				fx.rdb.HSet(bg, "a", "stranger:1", 1)
				t.Cleanup(func() { fx.deleteKeys(t, "a") })
			},
			watchdog, 2 * watchdog / 3,
		},
		"deadline passed": {
			func(t *testing.T, fx *redisFixture, _ *Client, _ []*Lease) {
				fx.srv.Freeze(t)
				t.Cleanup(func() { fx.srv.Thaw(t) })
			},
			watchdog, watchdog + patience/4,
		},
		"ForceUnlock": {
			func(t *testing.T, fx *redisFixture, c *Client, _ []*Lease) {
				freed, err := c.Lock("a").ForceUnlock(bg)
				if !freed || err != nil {
					t.Errorf("ForceUnlock = %v, %v, want true", freed, err)
				}
			},
			unhurried, 0,
		},
		"re-entry answered 0": {
			func(t *testing.T, fx *redisFixture, c *Client, leases []*Lease) {
				fx.deleteKeys(t, "a")
				_, err := c.Lock("a").Acquire(WithOwner(context.WithoutCancel(leases[0].Context())), AcquireOptions{})
				wantErr(t, "re-entry", err, ErrLockLost)
			},
			unhurried, 0,
		},
		"extension answered 0": {
			func(t *testing.T, fx *redisFixture, c *Client, leases []*Lease) {
				fx.deleteKeys(t, "a")
				wantErr(t, "Extend", leases[1].Extend(bg, time.Hour), ErrLockLost)
			},
			unhurried, 0,
		},
		"partial release answered 0": {
			func(t *testing.T, fx *redisFixture, c *Client, leases []*Lease) {
				extra := mustAcquire(t, leases[0].Context(), c.Lock("a"), AcquireOptions{})
				fx.deleteKeys(t, "a")
				wantErr(t, "Release", extra.Release(bg), ErrLockLost)
			},
			unhurried, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			var lost atomic.Int32
			c := fx.newLocks(t, watchdogTimeout(test.watchdog), func(o *Options) {
				o.Observer.Lost = func(_ context.Context, e Event) {
					if errors.Is(e.Err, ErrLockLost) {
						lost.Add(1)
					}
				}
			})
			outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			leases := []*Lease{
				outer,
				mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: test.watchdog}),
				mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{}),
			}
			bound, cancel := outer.Bind(context.Background())
			defer cancel()

			begun := time.Now()
			test.lose(t, fx, c, leases)
			for _, l := range leases {
				if test.within == 0 && l.Context().Err() == nil {
					t.Error("the context is still open after the loss was reported")
				}
				wantLost(t, l)
			}
			if took := time.Since(begun); test.within > 0 && took > test.within {
				t.Errorf("loss noticed after %s, want at most %s", took, test.within)
			}
			mustReceive(t, "the bound context to end", bound.Done())
			if cause := context.Cause(bound); !errors.Is(cause, ErrLockLost) {
				t.Errorf("cause of the bound context: %v, want ErrLockLost", cause)
			}
			eventually(t, "a Lost event for each lease", func() bool { return lost.Load() == 3 })
			for _, l := range leases {
				wantErr(t, "Release", l.Release(bg), ErrLockLost)
			}
		})
	}
}

// An error or a missing reply from Redis is not a loss while the lease runs.
func TestLoss_NotByAnError(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var failed atomic.Int32
	const watchdog = 15 * time.Second
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(watchdog), commandTimeout(3*time.Second), func(o *Options) {
		o.Observer.RenewFailed = func(context.Context, Event) { failed.Add(1) }
	})
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	fixed := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{LeaseTime: time.Minute})

	trouble := proxy.OnEvery(runsScript(), redistest.ReplyWith("-ERR trouble\r\n"))
	_, err := c.Lock("a").Acquire(l.Context(), AcquireOptions{})
	if err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("re-entry: %v, want Redis's error", err)
	}
	if err := fixed.Extend(bg, time.Hour); err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("Extend: %v, want Redis's error", err)
	}
	eventually(t, "renewals to fail", func() bool { return failed.Load() >= 2 })
	wantHeld(t, l)
	wantHeld(t, fixed)
	trouble.Remove()
	eventually(t, "a renewal to succeed", func() bool { return l.Remaining() > watchdog*5/6 })

	// Redis does not reply.
	proxy.Cut()
	before := failed.Load()
	_, err = c.Lock("a").Acquire(l.Context(), AcquireOptions{})
	if err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("re-entry: %v, want a network error", err)
	}
	eventually(t, "a renewal to fail", func() bool { return failed.Load() > before })
	wantHeld(t, l)
	wantHeld(t, fixed)
	proxy.Restore()
	eventually(t, "a renewal to succeed", func() bool { return l.Remaining() > watchdog*5/6 })
	wantHeld(t, l)
	mustRelease(t, l)
	mustRelease(t, fixed)
}

// A process that was stopped past its lease notices the loss when it comes to renew, without
// waiting for Redis to reply.
func TestLoss_ProcessWasStopped(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	proxy := fx.srv.Proxy(t)
	var failures atomic.Int64
	c := fx.newLocksWithClock(t, proxy.ClientWith(t, readTimeout(2*patience)), hands, watchdogTimeout(30*time.Second), func(o *Options) {
		o.Observer.RenewFailed = func(context.Context, Event) { failures.Add(1) }
	})
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	held := proxy.On("EVALSHA", 1, redistest.HoldRequest)
	hands.move(time.Hour, time.Hour) // both clocks, so they do not drift apart
	mustReceive(t, "the context to end", l.Context().Done())
	wantLost(t, l)
	if n := failures.Load(); n > 0 {
		t.Error("the lease ended only after the renewal failed")
	}
	held.Release()
}

// The contexts end before Redis receives a command that frees the lock.
func TestLoss_ContextsEndBeforeTheLockIsFreed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose func(c *Client, l *Lease, hands *testClock)
	}{
		"deadline, noticed by a timer": {func(_ *Client, _ *Lease, hands *testClock) { hands.move(0, 29*time.Second) }},
		"deadline, noticed by Err":     {func(_ *Client, l *Lease, hands *testClock) { hands.move(time.Hour, time.Hour); _ = l.Err() }},
		"ForceUnlock":                  {func(c *Client, l *Lease, _ *testClock) { go func() { _, _ = c.Lock(l.Name()).ForceUnlock(bg) }() }},
		"Release":                      {func(_ *Client, l *Lease, _ *testClock) { go l.Release(bg) }},
	} {
		for round := range 5 {
			name := fmt.Sprintf("%s %d", name, round)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				hands := new(testClock)
				proxy := fx.srv.Proxy(t)
				c := fx.newLocksWithClock(t, proxy.Client(t), hands, watchdogTimeout(2*time.Second))
				l := mustAcquire(t, bg, c.Lock(name), AcquireOptions{LeaseTime: 30 * time.Second})
				own := l.Context()
				bound, cancel := l.Bind(bg)
				defer cancel()

				var early atomic.Bool
				held := proxy.OnEvery(func(args []string) bool {
					if runsScript(releaseScript, forceScript)(args) {
						if own.Err() == nil || !strings.HasPrefix(name, "Release") && bound.Err() == nil {
							early.Store(true)
						}
						return true
					}
					return false
				}, redistest.HoldRequest)
				test.lose(c, l, hands)
				mustReceive(t, "a command that frees the lock", held.Hit())
				if early.Load() {
					t.Error("a context was still open when the lock was about to be freed")
				}
				if n := fx.rdb.Exists(bg, name).Val(); n != 1 {
					t.Error("another command freed the lock")
				}
				held.Release()
			})
		}
	}
}
