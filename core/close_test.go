package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// closeAsync calls Close on a goroutine and returns once Close has begun.
func closeAsync(t testing.TB, ctx context.Context, c *Client) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- c.Close(ctx) }()
	mustReceive(t, "Close to begin", c.closing)
	return result
}

// wantClosed checks that a closed client has nothing left to do and has left nothing in Redis.
func (fx *redisFixture) wantClosed(t testing.TB, c *Client) {
	t.Helper()
	wantNothingLeft(t, fx, c)
	eventually(t, "the pub/sub connection to be gone", func() bool { return fx.pubSubConnections(t) == 0 })
	wantErr(t, "Acquire after Close", tryAcquire(c.Lock("a")), ErrClosed)
}

// wantNothingLeft fails the test if a closed client has left anything here or in Redis.
func wantNothingLeft(t testing.TB, fx *redisFixture, c *Client) {
	t.Helper()
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("left after Close: %+v", s)
	}
	if keys := fx.rdb.Keys(bg, "*").Val(); len(keys) > 0 {
		t.Errorf("left in Redis: keys %q", keys)
	}
	eventually(t, "the channels to go", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 0 })
}

// Close waits for a release that is under way when its context ends, and does not count that lock
// as held.
func TestClose_ReleaseUnderWayAtTheDeadline(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	reply := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldReply)
	released := releaseAsync(lease)
	mustReceive(t, "the release to be under way", reply.Hit())
	ctx, cancel := context.WithCancel(bg)
	cancel()
	closing := closeAsync(t, ctx, c)
	eventually(t, "the client to be closed but for the release", func() bool { return c.state.Load() == closed })
	reply.Release()
	if err := mustReceive(t, "Close to return", closing); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := mustReceive(t, "Release to return", released); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// A release that first waits for its turn may take twice CommandTimeout. Close waits for it.
func TestClose_ReleaseThatWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(timeout))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	unanswered := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	extended := make(chan error, 1)
	go func() { extended <- lease.Extend(bg, time.Hour) }()
	mustReceive(t, "the extension to be under way", unanswered.Hit())
	reply := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldReply)
	time.Sleep(timeout / 4) // so that the extension gives up before the release does
	released := releaseAsync(lease)
	eventually(t, "the release to wait", func() bool { return c.names.held() == 1 && lease.Err() == ErrReleased })
	ctx, cancel := context.WithCancel(bg)
	cancel()
	begun := time.Now()
	closing := closeAsync(t, ctx, c)
	if err := mustReceive(t, "the extension to give up", extended); err == nil {
		t.Error("the extension succeeded without a reply")
	}
	mustReceive(t, "the release to be under way", reply.Hit())
	time.Sleep(time.Until(begun.Add(timeout + timeout/4)))
	reply.Release()
	if err := mustReceive(t, "Close to return", closing); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := mustReceive(t, "Release to return", released); err != nil {
		t.Errorf("Release: %v", err)
	}
	unanswered.Release()
}

// While Close waits, holders go on as before and nothing new is acquired.
func TestClose_RefusesNewWork(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.Client(t), watchdogTimeout(6*time.Second))
	holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	fixed := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{LeaseTime: time.Minute})
	asked := countCommands(proxy, runsScript(acquireScript))
	closing := closeAsync(t, bg, c)

	for _, opts := range []AcquireOptions{{}, {WaitTime: time.Minute}, {WaitTime: WaitForever}} {
		for _, name := range []string{"a", "new"} {
			begun := time.Now()
			_, err := c.Lock(name).Acquire(bg, opts)
			wantErr(t, "Acquire", err, ErrClosed)
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		}
	}
	inner := mustAcquire(t, holder.Context(), c.Lock("a"), AcquireOptions{})
	fx.wantCount(t, inner, 2)
	if err := fixed.Extend(bg, time.Hour); err != nil {
		t.Errorf("Extend: %v", err)
	}
	for range 2 {
		mustBeRenewed(t, holder)
	}
	select {
	case err := <-closing:
		t.Fatalf("Close has returned %v, while locks are held", err)
	default:
	}
	mustRelease(t, holder)
	mustRelease(t, fixed)
	mustRelease(t, inner)
	if err := mustReceive(t, "Close to return", closing); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n := asked(); n > 0 {
		t.Errorf("Redis was asked for locks %d times after Close had begun", n)
	}
	fx.wantClosed(t, c)
	if _, err := c.Lock("a").IsLocked(bg); !errors.Is(err, ErrClosed) {
		t.Errorf("IsLocked after Close: %v", err)
	}
	if _, err := c.Lock("a").ForceUnlock(bg); !errors.Is(err, ErrClosed) {
		t.Errorf("ForceUnlock after Close: %v", err)
	}
	if _, err := c.Lock("a").Acquire(holder.Context(), AcquireOptions{}); err == nil {
		t.Error("re-entry after Close")
	}
}

// Waiters in every state leave at once, and what they may have been granted is released.
func TestClose_WakesWaiters(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.ClientWith(t, readTimeout(2*patience)), pollInterval(never), commandTimeout(patience))
	fx.loadScripts(t)
	fx.lockAsStranger(t, 0, "asleep", "subscribing")
	waiters := map[string]<-chan acquireResult{
		"first, asleep": startWaiter(t, bg, c, "asleep", forever),
		"queued":        startWaiter(t, bg, c, "asleep", AcquireOptions{WaitTime: time.Hour}),
	}
	eventuallyAsleep(t, c, "asleep")
	subscribing := proxy.On("SUBSCRIBE", 1, redistest.HoldRequest)
	waiters["subscribing"] = startWaiter(t, bg, c, "subscribing", forever)
	mustReceive(t, "a waiter to subscribe", subscribing.Hit())
	asking := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
	waiters["asking"] = acquireAsync(bg, c.Lock("asking"), AcquireOptions{LeaseTime: time.Hour})
	mustReceive(t, "a grant whose reply is held", asking.Hit())

	begun := time.Now()
	closing := closeAsync(t, bg, c)
	for what, w := range waiters {
		wantErr(t, what, mustReceive(t, what+" to leave", w).err, ErrClosed)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("the last one left after %s", took)
	}
	asking.Release()
	subscribing.Release()
	if err := mustReceive(t, "Close to return", closing); err != nil {
		t.Errorf("Close: %v", err)
	}
	fx.deleteKeys(t, "asleep", "subscribing")
	fx.wantClosed(t, c)
}

// Close ends the leases that are still held when its context ends. The holders know before Redis
// does.
func TestClose_EndsTheRest(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	var lost atomic.Int32
	c := newUncheckedLocks(t, proxy.Client(t), func(o *Options) {
		o.Observer.Lost = func(_ context.Context, e Event) {
			if e.Err == ErrClosed {
				lost.Add(1)
			}
		}
	})
	var leases []*Lease
	for i := range 5 {
		outer := mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{})
		leases = append(leases, outer, mustAcquire(t, outer.Context(), c.Lock(outer.Name()), AcquireOptions{LeaseTime: time.Hour}))
	}
	bound, cancel := leases[0].Bind(bg)
	defer cancel()
	var early atomic.Bool
	proxy.OnEvery(func(args []string) bool {
		if runsScript(releaseScript)(args) {
			for _, l := range leases {
				if l.Name() == args[3] && l.Context().Err() == nil {
					early.Store(true)
				}
			}
		}
		return false
	}, redistest.Delay(1))

	err := c.Close(contextWithTimeout(t, 300*time.Millisecond))
	wantErr(t, "Close", err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "5 locks") {
		t.Errorf("Close: %v, want it to say that there were 5", err)
	}
	if early.Load() {
		t.Error("a lock was freed before its holder knew that it has lost it")
	}
	fx.wantClosed(t, c)
	for _, l := range leases {
		wantEnded(t, l, ErrClosed)
		wantErr(t, "Release", l.Release(bg), ErrClosed)
		wantErr(t, "a second Release", l.Release(bg), ErrNotHeld)
	}
	if cause := context.Cause(bound); cause != ErrClosed {
		t.Errorf("cause of a bound context: %v", cause)
	}
	if n := lost.Load(); n != int32(len(leases)) {
		t.Errorf("%d of %d losses were reported", n, len(leases))
	}
}

// A clean-up that waits for a stray runs once more, at once.
func TestClose_RunsPendingCleanups(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.Client(t), commandTimeout(time.Minute))
	released := countCommands(proxy, runsScript(releaseScript))
	lost := proxy.OnMatch(1, runsScript(acquireScript), redistest.CutAfter)
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	mustReceive(t, "the first try to be lost", lost.Hit())
	mustRelease(t, l)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups are pending", n)
	}
	before := released()
	begun := time.Now()
	mustClose(t, c)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	if n := released() - before; n != 1 {
		t.Errorf("%d releases were sent, want 1 for the clean-up", n)
	}
	fx.wantClosed(t, c)
}

// Close sends what Redis could not be sent before.
func TestClose_RunsFailedCleanups(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.Client(t), commandTimeout(3*time.Second))
	var leases []*Lease
	for i := range 50 {
		leases = append(leases, mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{}))
	}
	proxy.Cut()
	var wg sync.WaitGroup
	for _, l := range leases {
		wg.Go(func() {
			if err := l.Release(bg); err == nil {
				t.Error("Release without Redis: nil")
			}
		})
	}
	wg.Wait()
	if n := c.Stats().Cleanups; n != 50 {
		t.Errorf("%d clean-ups are pending", n)
	}
	proxy.Restore()
	mustClose(t, c)
	fx.wantClosed(t, c)
}

// Without Redis, Close gives up after a while, and the leases expire.
func TestClose_DropsCleanupsWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*redistest.Proxy){
		"refused": (*redistest.Proxy).Cut,
		"stalled": (*redistest.Proxy).Stall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			proxy := fx.srv.Proxy(t)
			rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
			c := newUncheckedLocks(t, rdb, commandTimeout(2*time.Second), watchdogTimeout(9*time.Second), pollInterval(time.Second))
			fx.lockAsStranger(t, 0, "other")
			waiter := startWaiter(t, bg, c, "other", forever)
			var leases []*Lease
			for i := range 100 {
				leases = append(leases, mustAcquire(t, bg, c.Lock(fmt.Sprint("lock:", i)), AcquireOptions{}))
			}
			trouble(proxy)
			begun := time.Now()
			err := c.Close(contextWithTimeout(t, 100*time.Millisecond))
			took := time.Since(begun)
			wantErr(t, "Close", err, context.DeadlineExceeded)
			if took > patience {
				t.Errorf("Close took %s", took)
			}
			t.Logf("Close took %s", took)
			for _, l := range leases {
				wantEnded(t, l, ErrClosed)
			}
			if got := mustReceive(t, "the waiter to leave", waiter); got.err == nil {
				t.Error("a waiter got the lock")
			}
			proxy.Restore()
			fx.deleteKeys(t, "other")
			eventually(t, "the leases to run out", func() bool { return fx.rdb.DBSize(bg).Val() == 0 })
			fx.wantClosed(t, c)
		})
	}
}

// A release that is in flight when Close's context ends gets the chance to arrive.
func TestClose_WaitsForReleases(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.ClientWith(t, readTimeout(2*time.Second)))
	fx.loadScripts(t)
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	// The proxy holds it for longer than the connection waits.
	first := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldRequest)
	released := releaseAsync(l)
	mustReceive(t, "the release to be on its way", first.Hit())
	_ = c.Close(contextWithTimeout(t, 100*time.Millisecond)) // whether it calls the lock held is a matter of taste
	if err := mustReceive(t, "Release to return", released); err != nil {
		t.Errorf("Release: %v", err)
	}
	fx.wantClosed(t, c)
	first.Release()
}

// A re-entry that is answered after Close does not revive the hold.
func TestClose_ReentryUnderWay(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.Client(t))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	entering := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	ctx := l.Context()
	inner := acquireAsync(WithOwner(context.WithoutCancel(ctx)), c.Lock("a"), AcquireOptions{})
	mustReceive(t, "the re-entry to be on its way", entering.Hit())
	released := releaseAsync(l) // waits for its turn
	mustReceive(t, "the outer lease to end", l.Done())

	closing := closeAsync(t, contextWithTimeout(t, 100*time.Millisecond), c)
	eventually(t, "Close's time to be over", func() bool { return c.state.Load() == closed })
	time.Sleep(50 * time.Millisecond)
	entering.Release()
	got := mustReceive(t, "the re-entry to return", inner)
	if got.err == nil {
		t.Errorf("a lease of a client that is closed: %v", got.lease.Err())
	}
	_ = mustReceive(t, "Close to return", closing)
	if err := mustReceive(t, "Release to return", released); err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("Release: %v", err)
	}
	fx.wantClosed(t, c)
}

// Close under load ends every goroutine, leaves nothing, and never lets two owners in.
func TestClose_UnderLoad(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			clients := []*Client{newUncheckedLocks(t, fx.srv.Client(t)), newUncheckedLocks(t, fx.srv.Client(t))}
			// Every second client is given no time at all to wait for its holders.
			hasty := func(client int) bool { return (round+client)%2 == 1 }
			var inside [4]atomic.Pointer[Lease]
			var cycles atomic.Int32
			var wg sync.WaitGroup
			for g := range 48 {
				wg.Go(func() {
					c, i := clients[g%2], g%len(inside)
					bad := func(err error) bool { return err != nil && !(hasty(g%2) && errors.Is(err, ErrClosed)) }
					lock := c.Lock(fmt.Sprint("lock:", i))
					for {
						wait := []time.Duration{WaitForever, time.Minute, 0}[g%3]
						l, err := lock.Acquire(bg, AcquireOptions{WaitTime: wait})
						if errors.Is(err, ErrClosed) {
							return
						}
						if errors.Is(err, ErrNotAcquired) && wait == 0 {
							time.Sleep(time.Millisecond)
							continue
						}
						if err != nil {
							t.Errorf("Acquire: %v", err)
							return
						}
						if other := inside[i].Swap(l); other != nil && other.Err() == nil && l.Err() == nil {
							t.Error("two inside")
						}
						inner, err := lock.Acquire(l.Context(), AcquireOptions{})
						if err == nil {
							err = inner.Release(bg)
						}
						if bad(err) {
							t.Errorf("re-entry: %v", err)
						}
						inside[i].CompareAndSwap(l, nil)
						if err := l.Release(bg); bad(err) {
							t.Errorf("Release: %v", err)
						}
						cycles.Add(1)
					}
				})
			}
			eventually(t, "50 cycles", func() bool { return cycles.Load() > 50 })
			var closings []<-chan error
			for i, c := range clients {
				ctx := contextWithTimeout(t, patience)
				if hasty(i) {
					ctx = contextWithTimeout(t, time.Millisecond)
				}
				closings = append(closings, closeAsync(t, ctx, c))
			}
			for i, closing := range closings {
				if err := mustReceive(t, "Close to return", closing); err != nil && !(hasty(i) && errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("Close: %v", err)
				}
			}
			wg.Wait()
			for _, c := range clients {
				fx.wantClosed(t, c)
			}
		})
	}
}

// A second Close waits for the first one, until its own context ends.
func TestClose_SecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	first := closeAsync(t, bg, c)
	second := closeAsync(t, bg, c)
	wantErr(t, "a Close whose time is over", c.Close(contextWithTimeout(t, 50*time.Millisecond)), context.DeadlineExceeded)
	wantHeld(t, l) // that was not the first one's time
	select {
	case err := <-first:
		t.Fatalf("the first returned %v", err)
	case err := <-second:
		t.Fatalf("the second returned %v", err)
	default:
	}
	mustRelease(t, l)
	for _, closing := range []<-chan error{first, second} {
		if err := mustReceive(t, "Close to return", closing); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := c.Close(contextWithTimeout(t, patience)); err != nil {
		t.Errorf("Close of a closed client: %v", err)
	}
	fx.wantClosed(t, c)
}

// An ended context means: close at once. That is no error if nothing is held.
func TestClose_EndedContext(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	gone, cancel := context.WithCancel(bg)
	cancel()
	unused := newUncheckedLocks(t, fx.srv.Client(t))
	if err := unused.Close(gone); err != nil {
		t.Errorf("Close of an unused client: %v", err)
	}
	c := newUncheckedLocks(t, fx.srv.Client(t))
	l := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	wantErr(t, "Close", c.Close(gone), context.Canceled)
	for range 20 {
		if err := c.Close(gone); err != nil {
			t.Fatalf("Close of a closed client: %v", err)
		}
	}
	wantEnded(t, l, ErrClosed)
	fx.wantClosed(t, c)
}

// Close announces the locks that it releases.
func TestClose_AnnouncesReleases(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t))
	mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	other := fx.newLocks(t, pollInterval(never))
	waiter := startWaiter(t, bg, other, "a", forever)
	eventuallyAsleep(t, other, "a")
	if n := fx.rdb.PubSubNumSub(bg, wire.LockChannel("a")).Val()[wire.LockChannel("a")]; n != 1 {
		t.Errorf("%d subscribers", n)
	}
	wantErr(t, "Close", c.Close(contextWithTimeout(t, time.Millisecond)), context.DeadlineExceeded)
	mustRelease(t, mustReceiveLease(t, "a waiter of another client", waiter))
}

// When Close returns, no goroutine of the client is left. This test is not parallel: it looks at
// all goroutines.
func TestClose_LeavesNoGoroutine(t *testing.T) {
	fx := newRedis(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	const grace = 4 * time.Second // goroutines may take a moment to end; stuck ones take longer
	rdb := proxy.ClientWith(t, readTimeout(grace+2*time.Second))
	for round, trouble := range []func(){func() {}, proxy.Stall, proxy.Cut} {
		c := newUncheckedLocks(t, rdb, commandTimeout(2*time.Second), watchdogTimeout(9*time.Second), pollInterval(never))
		fx.lockAsStranger(t, 0, "b")
		waiter := startWaiter(t, bg, c, "b", forever)
		eventuallyAsleep(t, c, "b")
		mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		leaving, leave := context.WithCancel(bg)
		held := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
		leaver := acquireAsync(leaving, c.Lock("c"), AcquireOptions{})
		mustReceive(t, "an attempt in flight", held.Hit())
		leave()
		wantErr(t, "one who has left", mustReceive(t, "it to leave", leaver).err, context.Canceled)
		trouble()
		_ = c.Close(contextWithTimeout(t, 50*time.Millisecond)) // the lock is held
		var left []string
		if !within(grace, func() bool { left = goroutinesOfClients(); return len(left) == 0 }) {
			t.Errorf("round %d: goroutines are left:\n%s", round, strings.Join(left, "\n\n"))
		}
		mustReceive(t, "the waiter to leave", waiter)
		held.Release()
		proxy.Restore()
		fx.rdb.FlushAll(bg)
	}
}

// goroutinesOfClients returns the stacks of the goroutines that core has started.
func goroutinesOfClients() (list []string) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "created by github.com/reqlock/reqlock/core") && !strings.Contains(stack, "core.acquireAsync") {
			list = append(list, stack)
		}
	}
	return list
}

// releaseAsync calls Release on a goroutine. The channel gives its error.
func releaseAsync(lease interface{ Release(context.Context) error }) <-chan error {
	released := make(chan error, 1)
	go func() { released <- lease.Release(bg) }()
	return released
}
