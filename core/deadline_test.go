package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	if got := context.Cause(lease.Context()); !errors.Is(got, cause) {
		t.Errorf("cause of the lease's context: %v, want %v", got, cause)
	}
	mustReceive(t, "the lease to end", lease.Done())
	if err := lease.Err(); !errors.Is(err, cause) {
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
		for range 20 {
			if fx.waitsForConnection(t, lease, delay) {
				return
			}
		}
		t.Error("the client always had a connection of its own")
	})
}

// waitsForConnection checks that a lease counts from before the wait for the only connection of the
// pool. It returns false if there was no wait: the client has dialed one for itself in time.
func (fx *redisFixture) waitsForConnection(t *testing.T, lease, delay time.Duration) bool {
	t.Helper()
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
	eventually(t, "the command to wait for a connection, or not", func() bool {
		return flights.flying.Load() == 2 || len(acquiring) == 1
	})
	waits := len(acquiring) == 0
	begun := time.Now()
	if waits {
		eventually(t, "the delay to pass", func() bool { return time.Since(begun) > delay })
	}
	inspection.Release()
	l := mustReceiveLease(t, "the acquire", acquiring)
	waited := time.Since(begun)
	if got, most := l.Remaining(), lease-clock.Margin(lease)-waited; waits && got > most {
		t.Errorf("%s remain more than %s after the call, want at most %s", got, waited, most)
	}
	if err := <-inspected; err != nil {
		t.Error(err)
	}
	mustRelease(t, l)
	return waits
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
	if err := l.Err(); !errors.Is(err, ErrLockLost) {
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
				if err := l.Err(); !errors.Is(err, ErrLockLost) {
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
