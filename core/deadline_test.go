package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// testClock is a clock that the test controls. It adds ahead to the system's clocks, or to stopped
// if that is set.
type testClock struct {
	mu      sync.Mutex
	ahead   clock.Instant
	stopped *clock.Instant
}

func stoppedClock() *testClock {
	now := clock.At(time.Now())
	return &testClock{stopped: &now}
}

func (k *testClock) at(now time.Time) clock.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := clock.At(now)
	if k.stopped != nil {
		i = *k.stopped
	}
	return clock.Instant{Mono: i.Mono + k.ahead.Mono, Wall: i.Wall + k.ahead.Wall}
}

// move sets the clocks forward or back.
func (k *testClock) move(mono, wall time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead.Mono += mono
	k.ahead.Wall += wall
}

// newLocksWithClock returns a client that reads the test's clock; see newLocksOn.
func (fx *redisFixture) newLocksWithClock(t testing.TB, rdb redis.UniversalClient, hands *testClock, opts ...func(*Options)) *Client {
	t.Helper()
	c, err := newClient(rdb, testOptions(opts), hands.at)
	if err != nil {
		t.Fatal(err)
	}
	if !fx.inboxes {
		withoutInbox(c)
	}
	t.Cleanup(func() { checkIdleAndClose(t, c, fx.rdb) })
	return c
}

// wantLost waits for the lease to end and checks that it was lost.
func wantLost(t testing.TB, lease *Lease) {
	t.Helper()
	wantEnded(t, lease, ErrLockLost)
}

func wantEnded(t testing.TB, lease *Lease, cause error) {
	t.Helper()
	mustReceive(t, "the lease's context to end", lease.Context().Done())
	if got := context.Cause(lease.Context()); got != cause {
		t.Errorf("cause of the lease's context: %v, want %v", got, cause)
	}
	mustReceive(t, "the lease to end", lease.Done())
	if err := lease.Err(); err != cause {
		t.Errorf("Err() = %v, want %v", err, cause)
	}
	if left := lease.Remaining(); left != 0 {
		t.Errorf("Remaining() = %s after %v, want 0", left, cause)
	}
}

// deleteKeys deletes the keys of locks without telling their holders.
func (fx *redisFixture) deleteKeys(t testing.TB, keys ...string) {
	t.Helper()
	if err := fx.rdb.Del(bg, keys...).Err(); err != nil {
		t.Fatal(err)
	}
}

// The lease counts from the call, not from the reply or the moment a connection is free.
func TestDeadline_CountsFromBeforeTheCommand(t *testing.T) {
	t.Parallel()
	const lease, delay = 20 * time.Second, 600 * time.Millisecond
	ctx := WithOwner(bg)

	t.Run("reply delayed", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t)
		check := func(what string, l *Lease) {
			t.Helper()
			if got := l.Remaining(); got > lease-clock.Margin(lease)-delay {
				t.Errorf("%s: %s remain after a reply delayed by %s", what, got, delay)
			}
			ttl := fx.pttl(t, "a") // ask Redis first: Remaining only shrinks afterwards
			if left := l.Remaining(); left > ttl {
				t.Errorf("%s: %s remain in the client, %s in Redis", what, left, ttl)
			}
		}
		proxy.OnMatch(1, runsScript(acquireScript), redistest.Delay(delay))
		outer := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: lease})
		check("acquire", outer)
		proxy.OnMatch(1, runsScript(updateScript), redistest.Delay(delay))
		inner := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: lease})
		check("re-entry", inner)
		proxy.OnMatch(1, runsScript(updateScript), redistest.Delay(delay))
		if err := inner.Extend(bg, lease); err != nil {
			t.Fatal(err)
		}
		check("extend", inner)
		mustRelease(t, inner)
		mustRelease(t, outer)
	})

	t.Run("renewal delayed", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		const watchdog = 12 * time.Second
		c, proxy := fx.newProxiedLocks(t, watchdogTimeout(watchdog))
		renewal := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldReply)
		next := proxy.OnMatch(2, runsScript(renewScript), redistest.HoldRequest) // keep it from counting
		l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		mustReceive(t, "a renewal", renewal.Hit())
		begun := time.Now()
		eventually(t, "the delay to pass", func() bool { return time.Since(begun) > delay })
		before := l.Remaining()
		renewal.Release()
		eventually(t, "the renewal to count", func() bool { return l.Remaining() > before })
		took := time.Since(begun)
		if got, most := l.Remaining(), watchdog-clock.Margin(watchdog)-took; got > most {
			t.Errorf("%s remain after a renewal sent %s ago, want at most %s", got, took, most)
		}
		next.Release()
		mustRelease(t, l)
	})

	t.Run("no connection free", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		fx.loadScripts(t)
		proxy := fx.srv.Proxy(t)
		rdb := proxy.ClientWith(t, func(o *redis.Options) { o.PoolSize, o.ReadTimeout = 1, 2*patience })
		flights := new(flightCounter)
		rdb.AddHook(flights)
		c := fx.newLocksOn(t, rdb)
		mustRelease(t, mustAcquire(t, bg, c.Lock("first"), AcquireOptions{})) // it asks the server for its slots
		inspection := proxy.OnMatch(1, runsScript(inspectScript), redistest.HoldReply)
		inspected := make(chan error, 1)
		go func() {
			_, err := c.Lock("b").IsLocked(bg)
			inspected <- err
		}()
		mustReceive(t, "the only connection to be in use", inspection.Hit())
		acquiring := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: lease})
		eventually(t, "the command to wait for a connection", func() bool { return flights.flying.Load() == 2 })
		begun := time.Now()
		eventually(t, "the delay to pass", func() bool { return time.Since(begun) > delay })
		inspection.Release()
		l := mustReceiveLease(t, "the acquire", acquiring)
		waited := time.Since(begun)
		if got, most := l.Remaining(), lease-clock.Margin(lease)-waited; got > most {
			t.Errorf("%s remain more than %s after the call, want at most %s", got, waited, most)
		}
		if err := <-inspected; err != nil {
			t.Error(err)
		}
		mustRelease(t, l)
	})
}

// The lease ends in the client a moment before Redis can grant the lock to another owner.
func TestDeadline_Margin(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	c := fx.newLocksWithClock(t, fx.srv.Client(t), hands)
	const lease = 100 * time.Second
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: lease})
	if got, want := l.Remaining(), lease-1002*time.Millisecond; got != want {
		t.Errorf("%s remain after acquire, want %s", got, want)
	}
	hands.move(lease-1003*time.Millisecond, lease-1003*time.Millisecond)
	wantHeld(t, l)
	hands.move(time.Millisecond, time.Millisecond)
	if err := l.Err(); err != ErrLockLost {
		t.Errorf("Err() = %v a second before the lease expires in Redis, want ErrLockLost", err)
	}
}

// Either clock ends the lease. The monotonic clock stops while the machine sleeps, and the wall
// clock can be set back.
func TestDeadline_EitherClockEndsTheLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mono, wall time.Duration
		lost       bool
	}{
		"asleep past the lease":   {0, 2 * time.Minute, true},
		"asleep within the lease": {0, 50 * time.Second, false},
		"wall clock set back":     {50 * time.Second, -time.Hour, false},
		"set back, lease over":    {time.Minute, -time.Hour, true},
		"both clocks forward":     {time.Minute, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			hands := stoppedClock()
			c := fx.newLocksWithClock(t, fx.srv.Client(t), hands)
			l := mustAcquire(t, bg, c.Lock(name), AcquireOptions{LeaseTime: time.Minute})
			hands.move(test.mono, test.wall)
			if test.lost {
				if err := l.Err(); err != ErrLockLost {
					t.Errorf("Err() = %v, want ErrLockLost", err)
				}
				wantLost(t, l)
				return
			}
			wantHeld(t, l)
			if left, most := l.Remaining(), time.Minute-max(test.mono, test.wall); left > most {
				t.Errorf("%s remain, want at most %s", left, most)
			}
			mustRelease(t, l)
		})
	}
}

// If the clocks drift apart, renewals are late by an unknown time, so the client renews at once.
func TestClocks_DriftRenewsAtOnce(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := new(testClock)
	proxy := fx.srv.Proxy(t)
	const watchdog = 6 * patience // too long for a regular renewal during this test
	c := fx.newLocksWithClock(t, proxy.Client(t), hands, watchdogTimeout(watchdog))
	renewals := countCommands(proxy, runsScript(renewScript))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})

	begun := time.Now()
	hands.move(0, 200*time.Millisecond) // within the margin
	eventually(t, "the client to compare the clocks", func() bool { return time.Since(begun) > 2500*time.Millisecond })
	if n := renewals(); n != 0 {
		t.Errorf("%d renewals within %s of the acquire, want none for drift within the margin", n, time.Since(begun))
	}

	for _, jump := range []time.Duration{20 * time.Second, -20 * time.Second} {
		before := renewals()
		hands.move(0, jump)
		eventually(t, "a renewal", func() bool { return renewals() > before })
		eventually(t, "the renewal to count", func() bool { return l.Remaining() > watchdog-10*time.Second })
		wantHeld(t, l)
	}

	hands.move(0, watchdog+time.Second)
	wantLost(t, l)
}

// If the clock jumps, a fixed lease ends on time, not when a timer set before the jump fires.
func TestClocks_DriftEndsTheLeaseOnTime(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := new(testClock)
	c := fx.newLocksWithClock(t, fx.srv.Client(t), hands, watchdogTimeout(2*time.Second))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	hands.move(0, 58*time.Second) // 2s before the end
	wantLost(t, l)
}

// Every method reports the loss at once, without a timer: a stopped process has stopped timers.
func TestDeadline_NeedsNoTimer(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{0, 20 * time.Second} {
		for name, ask := range map[string]func(*Lease) error{
			"Err":     (*Lease).Err,
			"Extend":  func(l *Lease) error { return l.Extend(bg, time.Hour) },
			"Release": func(l *Lease) error { return l.Release(bg) },
			"Remaining": func(l *Lease) error {
				if left := l.Remaining(); left != 0 {
					return fmt.Errorf("%s remain", left)
				}
				return ErrLockLost
			},
		} {
			if lease == 0 && name == "Extend" {
				continue
			}
			name := fmt.Sprintf("%s, LeaseTime %s", name, lease)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				hands := stoppedClock()
				proxy := fx.srv.Proxy(t)
				c := fx.newLocksWithClock(t, proxy.Client(t), hands)
				updates := countCommands(proxy, runsScript(updateScript))
				l := mustAcquire(t, bg, c.Lock(name), AcquireOptions{LeaseTime: lease})
				hands.move(time.Minute, time.Minute)
				if err := ask(l); !errors.Is(err, ErrLockLost) {
					t.Errorf("%v, want ErrLockLost", err)
				}
				if l.Context().Err() == nil {
					t.Error("the context is still open after the loss was reported")
				}
				wantLost(t, l)
				if n := updates(); n != 0 {
					t.Errorf("%d updates sent for a lease that was over, want none", n)
				}
			})
		}
	}
}

func TestDeadline_LateGrantIsReleased(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	proxy := fx.srv.Proxy(t)
	c := fx.newLocksWithClock(t, proxy.ClientWith(t, readTimeout(2*patience)), hands)

	held := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
	late := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	mustReceive(t, "Redis to grant the lock", held.Hit())
	behind := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "a second waiter", func() bool { return c.Stats().Waiting == 2 })
	hands.move(time.Minute, time.Minute)
	held.Release()
	if got := mustReceive(t, "Acquire to return", late); got.lease != nil || !errors.Is(got.err, ErrLockLost) {
		t.Fatalf("lease %v, error %v; want no lease and ErrLockLost", got.lease, got.err)
	}
	got := mustReceive(t, "the second waiter to get the lock", behind) // without waiting for the minute to pass
	if got.err != nil {
		t.Fatal(got.err)
	}
	mustRelease(t, got.lease)
}

func TestDeadline_LateReentryIsTakenBack(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	proxy := fx.srv.Proxy(t)
	c := fx.newLocksWithClock(t, proxy.ClientWith(t, readTimeout(2*patience)), hands, commandTimeout(3*patience))

	ctx := WithOwner(bg)
	outer := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	held := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	late := acquireAsync(ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	mustReceive(t, "Redis to grant the lock", held.Hit())
	hands.move(time.Minute, time.Minute)
	lowers := func(args []string) bool { return runsScript(updateScript)(args) && args[5] == "1" }
	takenBack := proxy.OnMatch(1, lowers, redistest.HoldRequest)
	held.Release()
	mustReceive(t, "the level to be taken back", takenBack.Hit())
	// Acquire does not wait for the reply, since the caller's ctx may end.
	if got := mustReceive(t, "Acquire to return", late); got.lease != nil || !errors.Is(got.err, ErrLockLost) {
		t.Fatalf("lease %v, error %v; want no lease and ErrLockLost", got.lease, got.err)
	}
	wantHeld(t, outer)
	fx.wantCount(t, outer, 2)
	takenBack.Release()
	fx.eventuallyHoldCount(t, outer, 1)
	mustRelease(t, outer)
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
					if e.Err == ErrLockLost {
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
			if cause := context.Cause(bound); cause != ErrLockLost {
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

func TestWatchdog_ArmedBeforeAcquireReturns(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var atReturn atomic.Int64
	var c *Client
	c = fx.newLocks(t, func(o *Options) {
		o.Observer.Acquired = func(context.Context, Event) { atReturn.Store(int64(c.Stats().Renewals)) }
	})
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	if n := atReturn.Load(); n != 1 {
		t.Errorf("%d locks renewed at the Acquired event, want 1", n)
	}
	fixed := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{LeaseTime: time.Minute})
	if n := c.Stats().Renewals; n != 1 {
		t.Errorf("%d locks renewed, want 1: a LeaseTime turns renewals off", n)
	}
	inner := mustAcquire(t, l.Context(), c.Lock("a"), AcquireOptions{})
	mustRelease(t, inner)
	if n := c.Stats().Renewals; n != 1 {
		t.Errorf("%d locks renewed after a partial release, want 1", n)
	}
	mustRelease(t, l)
	mustRelease(t, fixed)
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d locks renewed after the release, want 0", n)
	}
}

// The watchdog renews a hold exactly while one of its leases needs it.
func TestWatchdog_WhileAnyLevelNeedsIt(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	fixed := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	watched := mustAcquire(t, fixed.Context(), c.Lock("a"), AcquireOptions{})
	if n := c.Stats().Renewals; n != 1 {
		t.Errorf("Renewals = %d with a watchdog lease, want 1", n)
	}
	mustRelease(t, watched)
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("Renewals = %d without a watchdog lease, want 0", n)
	}
	second := mustAcquire(t, fixed.Context(), c.Lock("a"), AcquireOptions{})
	second.StopRenewal()
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("Renewals = %d after StopRenewal, want 0", n)
	}
	mustRelease(t, second)
	mustRelease(t, fixed)
}

// Many goroutines of one owner acquire and release. No renewal remains at the end.
func TestWatchdog_ConcurrentArmAndCancel(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var lost atomic.Int32
	c := fx.newLocks(t, watchdogTimeout(6*time.Second), func(o *Options) {
		o.Observer.Lost = func(context.Context, Event) { lost.Add(1) }
	})
	ctx := WithOwner(bg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				l, err := c.Lock("a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(bg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.Renewals != 0 || s.Held != 0 {
		t.Errorf("%+v after all releases, want nothing held or renewed", s)
	}
	if n := lost.Load(); n != 0 {
		t.Errorf("%d locks lost, want none", n)
	}
}

// A renewal that reaches Redis after the release finds nothing. That is no loss, neither for the
// released lease nor for the owner's next one.
func TestWatchdog_ZeroAfterRelease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var lost atomic.Int32
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.Lost = func(context.Context, Event) { lost.Add(1) }
	})
	ctx := WithOwner(bg)
	l := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	held := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldRequest)
	mustReceive(t, "a renewal to be sent", held.Hit())
	mustRelease(t, l)
	next := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	held.Release()
	mustReceive(t, "the reply to the renewal", held.Done())

	// The next renewal shows that the new hold is intact.
	again := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldReply)
	mustReceive(t, "another renewal", again.Hit())
	again.Release()
	wantHeld(t, next)
	if err := l.Err(); err != ErrReleased {
		t.Errorf("Err() of the released lease: %v, want ErrReleased", err)
	}
	mustRelease(t, next)
	if n := lost.Load(); n != 0 {
		t.Errorf("%d losses reported, want none", n)
	}
}

// A renewal that finds nothing is no loss while the reply to the release is pending.
func TestWatchdog_ZeroDuringRelease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var lost atomic.Int32
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.Lost = func(context.Context, Event) { lost.Add(1) }
	})
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	renewal := proxy.OnMatch(1, runsScript(renewScript), redistest.HoldRequest)
	mustReceive(t, "a renewal to be sent", renewal.Hit())
	zero := countCommands(proxy, runsScript(renewScript))
	release := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldReply)
	released := make(chan error, 1)
	go func() { released <- l.Release(bg) }()
	mustReceive(t, "Redis to free the lock", release.Hit())
	renewal.Release()
	mustReceive(t, "the reply to the renewal", renewal.Done())
	time.Sleep(100 * time.Millisecond) // the client reads the reply, and nothing shows that it has
	release.Release()
	if err := mustReceive(t, "Release to return", released); err != nil {
		t.Errorf("Release: %v", err)
	}
	if n, m := lost.Load(), zero(); n != 0 || m != 0 {
		t.Errorf("%d losses and %d renewals after the release, want none", n, m)
	}
}

// A late grant is renewed at once, because it may expire before the next regular renewal.
func TestWatchdog_LateGrantIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	proxy := fx.srv.Proxy(t)
	const watchdog = 12 * patience // too long for a regular renewal during this test
	c := fx.newLocksWithClock(t, proxy.ClientWith(t, readTimeout(2*patience)), hands, watchdogTimeout(watchdog))
	held := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
	late := acquireAsync(bg, c.Lock("a"), AcquireOptions{})
	mustReceive(t, "Redis to grant the lock", held.Hit())
	gone := watchdog - clock.Margin(watchdog) - 2*time.Second
	hands.move(gone, gone)
	held.Release()
	got := mustReceive(t, "Acquire to return", late)
	if got.err != nil {
		t.Fatal(got.err)
	}
	eventually(t, "a renewal", func() bool { return got.lease.Remaining() > watchdog/2 })
	mustRelease(t, got.lease)
}

// A few scripts renew 300 locks, and none is lost.
func TestWatchdog_Batches(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var lost atomic.Int32
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.Lost = func(context.Context, Event) { lost.Add(1) }
	})
	const n, rounds = 300, 2
	leases := make([]*Lease, n)
	for i := range leases {
		leases[i] = mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{})
	}
	scripts := countCommands(proxy, runsScript(renewScript))
	for range rounds {
		mustBeRenewed(t, leases...)
	}
	if got := scripts(); got < rounds*n/100 || got > rounds*n/4 {
		t.Errorf("%d scripts renewed %d locks %d times, want batches", got, n, rounds)
	}
	var wg sync.WaitGroup
	for _, l := range leases {
		wg.Go(func() {
			if err := l.Release(bg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := lost.Load(); n != 0 {
		t.Errorf("%d locks lost, want none", n)
	}
}

// One key has the wrong type. The script must go on to the keys after it, or they expire.
func TestWatchdog_WrongTypeAmongMany(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var mu sync.Mutex
	failed, lost := make(map[string]int), make(map[string]int)
	count := func(m map[string]int) func(context.Context, Event) {
		return func(_ context.Context, e Event) {
			mu.Lock()
			defer mu.Unlock()
			m[e.Name]++
		}
	}
	c := fx.newLocks(t, watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.RenewFailed, o.Observer.Lost = count(failed), count(lost)
	})
	leases := make(map[string]*Lease)
	for i := range 40 {
		name := fmt.Sprint("lock:", i)
		leases[name] = mustAcquire(t, bg, c.Lock(name), AcquireOptions{})
	}
	const bad = "lock:7"
	if err := fx.rdb.Set(bg, bad, "not a lock", 0).Err(); err != nil {
		t.Fatal(err)
	}
	mustReceive(t, "the renewal to find the loss", leases[bad].Done())
	wantErr(t, "Err", leases[bad].Err(), ErrLockLost)
	wantErr(t, "Err", leases[bad].Err(), ErrWrongKind)
	for name, l := range leases {
		if name != bad {
			wantHeld(t, l)
			mustRelease(t, l)
		}
	}
	fx.deleteKeys(t, bad)
	mu.Lock()
	defer mu.Unlock()
	if len(failed) != 0 {
		t.Errorf("renewals failed for %v, want none", failed)
	}
	if lost[bad] != 1 || len(lost) != 1 {
		t.Errorf("lost: %v, want only %s", lost, bad)
	}
}

// If Redis refuses a batch, the client renews each of its keys alone, at once.
func TestWatchdog_FailedBatchIsSplit(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var failed atomic.Int32
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second), func(o *Options) {
		o.Observer.RenewFailed = func(context.Context, Event) { failed.Add(1) }
	})
	refused := proxy.OnEvery(func(args []string) bool {
		return runsScript(renewScript)(args) && args[2] != "1"
	}, redistest.ReplyWith("-ERR too much at once\r\n"))
	alone := countCommands(proxy, func(args []string) bool { return runsScript(renewScript)(args) && args[2] == "1" })
	leases := make([]*Lease, 30)
	for i := range leases {
		leases[i] = mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{})
	}
	mustReceive(t, "a refused batch", refused.Hit())
	for range 2 {
		mustBeRenewed(t, leases...)
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	if n := alone(); n < 2*len(leases) {
		t.Errorf("%d renewals of single keys, want one per lock and round", n)
	}
	if n := failed.Load(); n != 0 {
		t.Errorf("%d failures reported, want none", n)
	}
}

// Redis is down for a while. When it is back, the client renews many locks before their leases end.
func TestWatchdog_ManyLocksOverARestart(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const n = 150
	failed := make(chan struct{}, 100*n)
	c := fx.newLocks(t, watchdogTimeout(18*time.Second), func(o *Options) {
		o.Observer.RenewFailed = func(context.Context, Event) { failed <- struct{}{} }
	})
	leases := make([]*Lease, n)
	for i := range leases {
		leases[i] = mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{})
	}
	fx.srv.Save(t)
	fx.srv.Kill(t)
	for range n { // some locks fail more than once
		mustReceive(t, "a renewal to fail", failed)
	}
	fx.srv.Restart(t)
	mustBeRenewed(t, leases...)
	for _, l := range leases {
		mustRelease(t, l)
	}
}

// The client retries a renewal, with pauses, until the deadline.
func TestWatchdog_RetriesUntilTheDeadline(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second))
	proxy.OnEvery(runsScript(renewScript), redistest.ReplyWith("-ERR trouble\r\n"))
	tries := countCommands(proxy, runsScript(renewScript))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	left, begun := l.Remaining(), time.Now()
	wantLost(t, l)
	if took := time.Since(begun); took < left || took > left+patience/4 {
		t.Errorf("lost after %s, want about %s", took, left)
	}
	if n := tries(); n < 8 || n > 60 {
		t.Errorf("%d tries in two thirds of a lease, want 8 to 60", n)
	}
	eventually(t, "renewals to stop", func() bool { return c.Stats().Renewals == 0 })
	n, over := tries(), time.Now()
	eventually(t, "the time for another retry", func() bool { return time.Since(over) > time.Second })
	if more := tries() - n; more > 1 { // one may be in flight
		t.Errorf("%d renewals after the loss, want at most 1", more)
	}
}
