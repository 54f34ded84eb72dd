package core

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

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
