package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/embedded"
)

// servers are the two that core promises the same on: a real Redis, as in production, and the
// embedded one, for examples and users' tests.
var servers = map[string]func(t testing.TB) *redisFixture{"redis": newRedis, "embedded": newEmbeddedRedis}

// eachServer runs a test on both servers.
func eachServer(t *testing.T, test func(t *testing.T, fx *redisFixture)) {
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// TestContract tests what every kind of lock promises, on both servers. Under -short the slow part
// is left to plain locks.
func TestContract(t *testing.T) {
	t.Parallel()
	for promise, p := range map[string]struct {
		test func(t *testing.T, fx *redisFixture, kind lockKind)
		slow bool
	}{
		"state":             {contractState, false},
		"refusal":           {contractRefusal, false},
		"wake-up":           {contractWakeUp, false},
		"exclusion":         {contractExclusion, true},
		"extend":            {contractExtend, false},
		"force unlock":      {contractForceUnlock, true},
		"watchdog":          {contractWatchdog, true},
		"lost":              {contractLost, false},
		"expiry":            {contractExpiry, true},
		"expiry of a level": {contractExpiryOfALevel, true},
	} {
		for kindName, kind := range excludingKinds {
			if kindName == "semaphore" && !slices.Contains([]string{"refusal", "wake-up", "exclusion"}, promise) {
				continue // it is not reentrant, and has its own tests
			}
			if testing.Short() && p.slow && kindName != "lock" {
				continue
			}
			for server, start := range servers {
				t.Run(promise+"/"+kindName+"/"+server, func(t *testing.T) {
					t.Parallel()
					p.test(t, start(t), kind)
				})
			}
		}
	}
}

// The queries follow the levels of the owner, and no other owner enters until the last one is
// released. Redisson: testLockUnlock, testReentrancy, testGetHoldCount, testHoldCount,
// testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
// testIsHeldByCurrentThreadOtherThread, testRemainTimeToLive, testRemainTimeToLive2.
func contractState(t *testing.T, fx *redisFixture, kind lockKind) {
	c, other := fx.newLocks(t), fx.newLocks(t)
	lock, owner := kind.lock(c, "a"), WithOwner(bg)
	want := func(state string, locked bool, count int, ttl time.Duration) {
		t.Helper()
		for asker, q := range map[string]struct {
			c     *Client
			ctx   context.Context
			count int
		}{
			"the owner":                   {c, owner, count},
			"another owner":               {c, WithOwner(bg), 0},
			"no owner":                    {c, bg, 0},
			"the owner in another client": {other, owner, 0},
		} {
			lock := kind.lock(q.c, "a")
			if got, err := lock.IsLocked(q.ctx); got != locked || err != nil {
				t.Errorf("%s, %s: IsLocked %v, %v", state, asker, got, err)
			}
			if got, err := lock.IsHeld(q.ctx); got != (q.count > 0) || err != nil {
				t.Errorf("%s, %s: IsHeld %v, %v", state, asker, got, err)
			}
			if got, err := lock.HoldCount(q.ctx); got != q.count || err != nil {
				t.Errorf("%s, %s: HoldCount %d, %v; want %d", state, asker, got, err, q.count)
			}
			if got, err := lock.RemainingTTL(q.ctx); got > ttl || got < max(0, ttl-patience) || err != nil {
				t.Errorf("%s, %s: RemainingTTL %v, %v; want %v", state, asker, got, err, ttl)
			}
		}
		if locked {
			wantErr(t, state+": a rival", tryAcquire(kind.rival(other, "a")), ErrNotAcquired)
		}
	}
	want("free", false, 0, 0)
	outer := mustAcquire(t, owner, lock, AcquireOptions{LeaseTime: time.Minute})
	want("held", true, 1, time.Minute)
	again := mustAcquire(t, owner, lock, AcquireOptions{LeaseTime: time.Minute})
	want("entered twice", true, 2, time.Minute)
	inner := mustAcquire(t, outer.Context(), lock, AcquireOptions{LeaseTime: time.Hour})
	want("entered three times", true, 3, time.Hour)
	mustRelease(t, outer)
	want("outer level released", true, 2, time.Hour)
	mustRelease(t, again)
	want("two levels released", true, 1, time.Hour)
	mustRelease(t, inner)
	want("released", false, 0, 0)
	wantErr(t, "a second Release", inner.Release(bg), ErrReleased)
	mustRelease(t, mustAcquire(t, bg, kind.rival(other, "a"), AcquireOptions{}))
}

// A refusal tells who holds what for how long, after WaitTime; WaitForever is never refused.
// Redisson: testTryLockWait.
func contractRefusal(t *testing.T, fx *redisFixture, kind lockKind) {
	holder := fx.newLocks(t, pollInterval(100*time.Millisecond))
	for place, c := range map[string]*Client{"same client": holder, "other client": fx.newLocks(t, pollInterval(100*time.Millisecond))} {
		lease := mustAcquire(t, bg, kind.lock(holder, "a"), AcquireOptions{LeaseTime: time.Minute})
		want := func(place string, wait time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := kind.rival(c, "a").Acquire(bg, AcquireOptions{WaitTime: wait})
			took := time.Since(began)
			var refused *NotAcquiredError
			if !errors.As(err, &refused) || !errors.Is(err, ErrNotAcquired) {
				t.Fatalf("%s, WaitTime %v: %v, want a NotAcquiredError", place, wait, err)
			}
			if refused.Name != "a" || refused.TTL > time.Minute || refused.TTL <= time.Minute-patience || refused.Waited < wait || refused.Waited > took {
				t.Errorf("%s, WaitTime %v: %+v after %v", place, wait, refused, took)
			}
		}
		for _, wait := range []time.Duration{0, time.Millisecond, 350 * time.Millisecond} {
			want(place, wait)
		}
		waiter := acquireAsync(bg, kind.rival(c, "a"), forever)
		eventually(t, "the waiter to be refused", func() bool { return sleepingWaiters(c, "a") == 1 })
		want(place+", behind a waiter", 0)
		began := time.Now()
		eventually(t, "several polls", func() bool { return time.Since(began) > 500*time.Millisecond })
		select {
		case got := <-waiter:
			t.Fatalf("%s: WaitForever ended: %v", place, got.err)
		default:
		}
		mustRelease(t, lease)
		mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
	}
}

// A release wakes a waiter of another client by message, at once unless the machine is busy.
func contractWakeUp(t *testing.T, fx *redisFixture, kind lockKind) {
	holder, waiter := fx.newLocks(t, pollInterval(never)), fx.newLocks(t, pollInterval(never))
	var took []time.Duration
	for range 11 {
		lease := mustAcquire(t, bg, kind.lock(holder, "a"), AcquireOptions{LeaseTime: time.Hour})
		result := acquireAsync(bg, kind.rival(waiter, "a"), forever)
		eventually(t, "the waiter to sleep", func() bool {
			return sleepingWaiters(waiter, "a") == 1 && len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 1
		})
		released := time.Now()
		mustRelease(t, lease)
		next := mustReceiveLease(t, "the waiter", result)
		took = append(took, time.Since(released))
		mustRelease(t, next)
	}
	if slices.Min(took) > 100*time.Millisecond {
		t.Errorf("the waiter got the lock after %v", took)
	}
}

// No step of a counter is lost that is read and written under the lock. Redisson:
// testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance, testConcurrency_MultiInstance,
// lockUnlockRLock.
func contractExclusion(t *testing.T, fx *redisFixture, kind lockKind) {
	const goroutines = 64
	rounds := 10
	if fx.srv == nil { // under the race detector, the Lua of the embedded server is slow
		rounds = 3
	}
	clients := make([]*Client, 8)
	for i := range clients {
		clients[i] = fx.newLocks(t, commandTimeout(patience))
	}
	var local int // guarded by the lock alone
	inParallel(goroutines, func(i int) {
		opts := forever
		if i%2 == 0 {
			opts.LeaseTime = time.Hour
		}
		for range rounds {
			err := Do(bg, kind.rival(clients[i%len(clients)], "a"), opts, func(ctx context.Context) error {
				seen := local
				n, err := fx.rdb.Get(ctx, "count").Int()
				if err != nil && err != redis.Nil {
					return err
				}
				runtime.Gosched()
				local = seen + 1
				return fx.rdb.Set(ctx, "count", n+1, 0).Err()
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	if n, err := fx.rdb.Get(bg, "count").Int(); n != goroutines*rounds || local != n {
		t.Errorf("counted %d in Redis (%v) and %d here, want %d", n, err, local, goroutines*rounds)
	}
	fx.deleteKeys(t, "count")
}

// Extend counts from now on, in Redis and here.
func contractExtend(t *testing.T, fx *redisFixture, kind lockKind) {
	lease := mustAcquire(t, bg, kind.lock(fx.newLocks(t), "a"), AcquireOptions{LeaseTime: time.Minute})
	if err := lease.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	fx.wantPTTL(t, "a", time.Hour)
	if left := lease.Remaining(); left > time.Hour || left < 59*time.Minute-patience {
		t.Errorf("%v remaining", left)
	}
	mustRelease(t, lease)
}

// ForceUnlock reports whether the lock was held, ends every lease, and wakes waiters. Redisson:
// testForceUnlock.
func contractForceUnlock(t *testing.T, fx *redisFixture, kind lockKind) {
	c, other := fx.newLocks(t, pollInterval(never), watchdogTimeout(6*time.Second)), fx.newLocks(t, pollInterval(never))
	force := func(c *Client, want bool) {
		t.Helper()
		if freed, err := kind.lock(c, "a").ForceUnlock(bg); freed != want || err != nil {
			t.Fatalf("ForceUnlock: %v, %v; want %v", freed, err, want)
		}
	}
	force(c, false)
	for range 30 { // a holder of this client knows before Redis does
		outer := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		inner := mustAcquire(t, outer.Context(), kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Minute})
		force(c, true)
		for _, lease := range []*Lease{outer, inner} {
			wantErr(t, "Err", lease.Err(), ErrLockLost)
			wantErr(t, "the cause of its context", context.Cause(lease.Context()), ErrLockLost)
		}
		fx.wantFields(t, "a", nil)
	}
	for range 3 { // another client's holder finds out when it releases
		lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		force(other, true)
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	}
	for _, waiter := range []*Client{c, other} { // or from the watchdog
		lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		result := acquireAsync(bg, kind.rival(waiter, "a"), forever)
		eventuallyWaiting(t, waiter)
		force(other, true)
		mustRelease(t, mustReceiveLease(t, "the waiter", result))
		wantLost(t, lease)
	}
	force(c, false)
}

// The watchdog renews a lock for longer than its first lease, and no lock with a LeaseTime.
// Redisson: testReadWriteTTL, testLockReentrantRenew.
func contractWatchdog(t *testing.T, fx *redisFixture, kind lockKind) {
	if testing.Short() {
		t.Skip("outlives a lease of 6 seconds")
	}
	const timeout = 6 * time.Second
	c, other := fx.newLocks(t, watchdogTimeout(timeout)), fx.newLocks(t)
	owner := WithOwner(bg)
	watched := mustAcquire(t, owner, kind.lock(c, "watched"), AcquireOptions{})
	fixed := mustAcquire(t, bg, kind.lock(c, "fixed"), AcquireOptions{LeaseTime: timeout})
	if ttl := fx.pttl(t, "watched"); ttl > timeout {
		t.Errorf("%v to live, more than the watchdog's time-out", ttl)
	}
	began := time.Now()
	wantLost(t, fixed)
	eventually(t, "more than a lease to pass", func() bool { return time.Since(began) > timeout*5/4 })
	wantHeld(t, watched)
	wantHoldCount(t, owner, kind.lock(c, "watched"), 1)
	wantErr(t, "a rival", tryAcquire(kind.rival(other, "watched")), ErrNotAcquired)
	eventually(t, "the fixed lease to end in Redis", func() bool { return len(fx.hash(t, "fixed")) == 0 })
	mustRelease(t, watched)
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("the watchdog renews %d locks, and none is held", n)
	}
}

// The watchdog finds out that a lock is gone.
func contractLost(t *testing.T, fx *redisFixture, kind lockKind) {
	c := fx.newLocks(t, watchdogTimeout(6*time.Second))
	lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
	fx.deleteKeys(t, "a")
	wantLost(t, lease)
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	mustRelease(t, mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{}))
}

// A lease that is not renewed ends, a waiter gets the lock without a message, and a late release
// leaves it alone. Redisson: testExpire, testExpireRead, testExpireWrite, testUnlockFail.
func contractExpiry(t *testing.T, fx *redisFixture, kind lockKind) {
	c, other := fx.newLocks(t), fx.newLocks(t, pollInterval(never))
	lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{LeaseTime: 3 * time.Second})
	owner := WithOwner(bg)
	waiter := acquireAsync(owner, kind.rival(other, "a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Minute})
	next := mustReceiveLease(t, "the lease to end", waiter)
	if err := lease.Err(); !errors.Is(err, ErrLockLost) {
		t.Errorf("another owner has the lock, and Err is %v", err)
	}
	wantLost(t, lease)
	for range 2 {
		wantErr(t, "a late Release", lease.Release(bg), ErrLockLost)
	}
	wantHeld(t, next)
	wantHoldCount(t, owner, kind.rival(other, "a"), 1)
	mustRelease(t, next)
}

// A level that expires does not end the others. Redisson: testWriteLockExpiration.
func contractExpiryOfALevel(t *testing.T, fx *redisFixture, kind lockKind) {
	c, other := fx.newLocks(t), fx.newLocks(t)
	outer := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
	inner := mustAcquire(t, outer.Context(), kind.lock(c, "a"), AcquireOptions{LeaseTime: 3 * time.Second})
	mustReceive(t, "the inner lease to end", inner.Done())
	wantErr(t, "a rival", tryAcquire(kind.rival(other, "a")), ErrNotAcquired)
	wantHeld(t, outer)
	wantErr(t, "Release of the inner lease", inner.Release(bg), ErrLockLost)
	mustRelease(t, outer)
	mustRelease(t, mustAcquire(t, bg, kind.rival(other, "a"), AcquireOptions{}))
}

// TestContract_Client tests what a client promises, whatever the kind of lock, on both servers.
func TestContract_Client(t *testing.T) {
	t.Parallel()
	for promise, test := range map[string]func(t *testing.T, fx *redisFixture){
		"wrong type of key":  contractWrongKind,
		"kinds on one name":  contractKinds,
		"kinds of one owner": contractReentryKinds,
		"kinds and force":    contractForceKinds,
		"close":              contractClose,
		"record":             contractRecord,
		"marker":             contractMarker,
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			eachServer(t, test)
		})
	}
}

// A key that is not a lock gives ErrWrongKind, and stays as it is.
func contractWrongKind(t *testing.T, fx *redisFixture) {
	c := fx.newLocks(t)
	for kind, key := range map[string]struct{ put, read []any }{
		"string": {[]any{"SET", "a", "precious"}, []any{"GET", "a"}},
		"list":   {[]any{"RPUSH", "a", "precious"}, []any{"LRANGE", "a", 0, -1}},
		"set":    {[]any{"SADD", "a", "precious"}, []any{"SMEMBERS", "a"}},
		"zset":   {[]any{"ZADD", "a", 1, "precious"}, []any{"ZRANGE", "a", 0, -1, "WITHSCORES"}},
		"stream": {[]any{"XADD", "a", "*", "f", "precious"}, []any{"XRANGE", "a", "-", "+"}},
	} {
		for _, held := range []bool{false, true} {
			what := fmt.Sprintf("%s, held %v: ", kind, held)
			var lease *Lease
			if held {
				lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
				fx.deleteKeys(t, "a")
			}
			if err := fx.rdb.Do(bg, key.put...).Err(); err != nil {
				t.Fatal(err)
			}
			before := fmt.Sprint(fx.rdb.Do(bg, key.read...).Val())

			lock := c.Lock("a")
			if held { // the type proves that the lock is lost
				err := lease.Extend(bg, time.Hour)
				wantErr(t, what+"Extend", err, ErrWrongKind)
				wantErr(t, what+"Extend", err, ErrLockLost)
				wantErr(t, what+"Err", lease.Err(), ErrLockLost)
				wantErr(t, what+"the cause", context.Cause(lease.Context()), ErrWrongKind)
				wantErr(t, what+"Release", lease.Release(bg), ErrLockLost)
			}
			_, err := lock.Acquire(bg, AcquireOptions{})
			wantErr(t, what+"Acquire", err, ErrWrongKind)
			_, err = lock.Acquire(bg, AcquireOptions{WaitTime: time.Minute})
			wantErr(t, what+"Acquire and wait", err, ErrWrongKind)
			_, err = lock.IsLocked(bg)
			wantErr(t, what+"IsLocked", err, ErrWrongKind)
			_, err = lock.RemainingTTL(bg)
			wantErr(t, what+"RemainingTTL", err, ErrWrongKind)
			_, err = lock.ForceUnlock(bg)
			wantErr(t, what+"ForceUnlock", err, ErrWrongKind)

			eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
			if after := fmt.Sprint(fx.rdb.Do(bg, key.read...).Val()); after != before || !strings.Contains(after, "precious") {
				t.Errorf("%sthe key was %s, and is %s", what, before, after)
			}
			if ttl := fx.pttl(t, "a"); ttl != -1 {
				t.Errorf("%sthe key has %v to live", what, ttl)
			}
			fx.deleteKeys(t, "a")
		}
	}
}

// Redis can tell a read/write lock from the other kinds, which are all alike to it;
// docs/guides/redisson.md has this table. Redisson grants a read/write lock on the name of a plain
// one. Here that must not lead to two holders.
func contractKinds(t *testing.T, fx *redisFixture) {
	holder, asker := fx.newLocks(t), fx.newLocks(t)
	kinds := map[string]func(c *Client) Locker{
		"once": func(c *Client) Locker { return onceLocker{c.Once("a")} },
	}
	for name, kind := range lockKinds {
		kinds[name] = func(c *Client) Locker { return kind.lock(c, "a") }
	}
	for held, hold := range kinds {
		for asked, ask := range kinds {
			lease := mustAcquire(t, bg, hold(holder), AcquireOptions{})
			want := ErrNotAcquired
			switch {
			case hasSides(held) != hasSides(asked):
				want = ErrWrongKind
			case held == "read" && asked == "read":
				want = nil
			}
			for _, c := range []*Client{holder, asker} {
				l := ask(c)
				got, err := l.Acquire(bg, AcquireOptions{})
				if !errors.Is(err, want) {
					t.Errorf("%s on a held %s: %v, want %v", asked, held, err, want)
				}
				if err == nil {
					mustRelease(t, got)
				}
				if want == ErrWrongKind { // nor is it waited for
					if _, err := l.Acquire(bg, AcquireOptions{WaitTime: time.Second}); !errors.Is(err, ErrWrongKind) {
						t.Errorf("%s on a held %s, with WaitTime: %v, want %v", asked, held, err, ErrWrongKind)
					}
				}
			}
			mustRelease(t, lease)
		}
	}
}

// hasSides reports whether one of lockKinds is a side of a read/write lock.
func hasSides(kind string) bool { return kind == "read" || strings.HasSuffix(kind, "write") }

// isFenced reports whether one of lockKinds has fencing tokens.
func isFenced(kind string) bool { return strings.HasPrefix(kind, "fenced") }

// The owner of a lock enters it as another kind only if the hold is good for that kind.
func contractReentryKinds(t *testing.T, fx *redisFixture) {
	c := fx.newLocks(t)
	for held, hold := range lockKinds {
		for asked, ask := range lockKinds {
			lease := mustAcquire(t, bg, hold.lock(c, "a"), AcquireOptions{})
			var want error
			switch {
			case hasSides(held) != hasSides(asked) || isFenced(asked) && !isFenced(held) && held != "read":
				want = ErrWrongKind
			case held == "read" && asked != "read":
				want = ErrUpgrade
			}
			again, err := ask.lock(c, "a").Acquire(lease.Context(), forever)
			if !errors.Is(err, want) {
				t.Errorf("%s by the owner of a %s: %v, want %v", asked, held, err, want)
			}
			if err == nil {
				before, _ := lease.Token()
				if token, ok := again.Token(); token != before || ok != isFenced(held) {
					t.Errorf("%s by the owner of a %s has token %d, %v, and its hold %d", asked, held, token, ok, before)
				}
				mustRelease(t, again)
			}
			mustRelease(t, lease)
		}
	}
}

// ForceUnlock of another kind of lock, which Redis can tell apart, frees nothing.
func contractForceKinds(t *testing.T, fx *redisFixture) {
	holder, other := fx.newLocks(t), fx.newLocks(t)
	for held, hold := range lockKinds {
		for forced, force := range lockKinds {
			if hasSides(held) == hasSides(forced) {
				continue
			}
			lease := mustAcquire(t, bg, hold.lock(holder, "a"), AcquireOptions{})
			for _, c := range []*Client{holder, other} {
				if freed, err := force.lock(c, "a").ForceUnlock(bg); freed || !errors.Is(err, ErrWrongKind) {
					t.Errorf("ForceUnlock of a %s as %s: %v, %v; want %v", held, forced, freed, err, ErrWrongKind)
				}
			}
			mustRelease(t, lease)
		}
	}
}

// A onceLocker is a Once that has no record.
type onceLocker struct{ once *Once }

func (l onceLocker) Name() string { return l.once.Name() }

func (l onceLocker) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	lease, _, err := l.once.Acquire(ctx, opts)
	if err != nil {
		return nil, err
	}
	return lease.Lease, nil
}

// Close says what was still held, ends it, and lets waiters go.
func contractClose(t *testing.T, fx *redisFixture) {
	c := newUncheckedLocks(t, fx.rdb)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), forever)
	eventually(t, "a waiter", func() bool { return c.Stats().Waiting == 1 })
	closing, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if err := c.Close(closing); err == nil || !strings.Contains(err.Error(), "1 locks were still held") {
		t.Errorf("Close: %v", err)
	}
	wantErr(t, "the waiter", mustReceive(t, "the waiter to leave", waiter).err, ErrClosed)
	wantEnded(t, lease, ErrClosed)
	wantNothingLeft(t, fx, c)
}

// A Once leaves a record in place of its lock.
func contractRecord(t *testing.T, fx *redisFixture) {
	c, other := fx.newLocks(t), fx.newLocks(t)
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a"), AcquireOptions{})
	if lease.Name() != "a" || c.Once("a").Name() != "a" {
		t.Errorf("names %q, %q", lease.Name(), c.Once("a").Name())
	}
	wantOnceLocked(t, other.Once("a"))
	mustRelease(t, lease)
	lease = mustBegin(t, other.Once("a"), AcquireOptions{LeaseTime: time.Minute})
	mustRecord(t, lease, "done\x00\xff", time.Hour)
	fx.wantStored(t, "a", "done\x00\xff", time.Hour)
	wantRecord(t, c.Once("a"), "done\x00\xff")
	wantRecord(t, other.Once("a").WithMarker([]byte("running"), time.Hour), "done\x00\xff")
	fx.wantStored(t, "a", "done\x00\xff", time.Hour)
	wantErr(t, "a second release", lease.ReleaseWith(bg, []byte("again"), time.Hour), ErrReleased)

	fx.deleteRecord(t, "a")
	lease = mustBegin(t, c.Once("a"), AcquireOptions{})
	mustRecord(t, lease, "short", time.Millisecond)
	eventually(t, "the record to expire", func() bool {
		r := acquireOnce(bg, c.Once("a"), AcquireOptions{})
		if r.lease != nil {
			mustRelease(t, r.lease)
		}
		return r.lease != nil
	})
}

// A Once with a marker leaves the marker if its holder is lost.
func contractMarker(t *testing.T, fx *redisFixture) {
	c, other := fx.newLocks(t), fx.newLocks(t)
	defer fx.deleteRecord(t, "a")
	once := c.Once("a").WithMarker([]byte("running"), time.Hour)

	lease := mustBegin(t, once, AcquireOptions{})
	wantOnceLocked(t, other.Once("a"))
	wantOnceLocked(t, once)
	mustRelease(t, lease)
	fx.wantStored(t, "a", "", 0)

	lease = mustBegin(t, once, AcquireOptions{})
	mustRecord(t, lease, "done", time.Minute)
	fx.wantStored(t, "a", "done", time.Minute)
	wantRecord(t, other.Once("a"), "done")
	fx.deleteRecord(t, "a")

	lease = mustBegin(t, once, AcquireOptions{LeaseTime: 3 * time.Second})
	r := acquireOnce(bg, other.Once("a"), AcquireOptions{WaitTime: patience})
	if r.record != "running" || r.err != nil {
		t.Errorf("after a loss: %+v, want the marker", r)
	}
	wantErr(t, "a result that comes too late", lease.ReleaseWith(bg, []byte("done"), time.Hour), ErrLockLost)
	fx.wantStored(t, "a", "running", time.Hour)
}

// newEmbeddedRedis starts the Redis that runs inside the process.
func newEmbeddedRedis(t testing.TB) *redisFixture {
	t.Helper()
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return &redisFixture{rdb: srv.Client(), connect: func(testing.TB) *redis.Client { return srv.Client() }}
}

// checkExclusion has goroutines acquire a lock in rounds, and fails the test if two of them hold it
// at once.
func checkExclusion(t *testing.T, goroutines, rounds int, opts AcquireOptions, lock func(i int) Locker) {
	t.Helper()
	var inside atomic.Int32
	inParallel(goroutines, func(i int) {
		for range rounds {
			err := Do(bg, lock(i), opts, func(ctx context.Context) error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
