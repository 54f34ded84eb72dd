package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// taken returns how many permits of a semaphore Redis has given.
func taken(t testing.TB, rdb *redis.Client, name string) int {
	t.Helper()
	n, err := rdb.ZCard(bg, wire.PermitsTaken(name)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func wantPermits(t testing.TB, s *Semaphore, permits, available int) {
	t.Helper()
	n, err := s.Permits(bg)
	if err != nil || n != permits {
		t.Errorf("%s has %d permits (%v), want %d", s.Name(), n, err, permits)
	}
	if n, err = s.Available(bg); err != nil || n != available {
		t.Errorf("%s has %d free permits (%v), want %d", s.Name(), n, err, available)
	}
}

// As many callers are in as there are permits, in any process. Redisson: testAcquire, testRelease,
// testTryAcquire, testAvailablePermits, testAcquiredPermits, testGetPermits, testNotExistent.
func TestSemaphore_AsManyAsThereArePermits(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t).Semaphore("exports", 3), fx.newLocks(t).Semaphore("exports", 3)
	wantPermits(t, a, 3, 3)
	leases := []*Lease{
		mustAcquire(t, bg, a, AcquireOptions{}),
		mustAcquire(t, bg, b, AcquireOptions{}),
		mustAcquire(t, bg, a, AcquireOptions{}),
	}
	wantPermits(t, b, 3, 0)
	err := tryAcquire(b)
	wantErr(t, "a fourth permit", err, ErrNotAcquired)
	if want := "held by the owners of all its permits"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	mustRelease(t, leases[1])
	wantPermits(t, a, 3, 1)
	leases[1] = mustAcquire(t, bg, b, AcquireOptions{})
	for _, l := range leases {
		mustRelease(t, l)
	}
	wantPermits(t, a, 3, 3)
	wantErr(t, "a second release", leases[0].Release(bg), ErrNotHeld)
}

// An Acquire below a lease takes another permit, where a lock would be entered again.
func TestSemaphore_IsNotReentrant(t *testing.T) {
	t.Parallel()
	s := newRedis(t).newLocks(t).Semaphore("a", 2)
	first := mustAcquire(t, bg, s, AcquireOptions{})
	second := mustAcquire(t, first.Context(), s, AcquireOptions{})
	wantPermits(t, s, 2, 0)
	_, err := s.Acquire(second.Context(), AcquireOptions{})
	wantErr(t, "a third", err, ErrNotAcquired)
	if want := "this same request has one"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	owner := WithOwner(bg)
	mustRelease(t, first)
	third := mustAcquire(t, owner, s, AcquireOptions{})
	wantErr(t, "another of the owner", tryWith(owner, s), ErrNotAcquired)
	mustRelease(t, second)
	mustRelease(t, third)
}

func tryWith(ctx context.Context, l Locker) error {
	lease, err := l.Acquire(ctx, AcquireOptions{})
	if err == nil {
		err = lease.Release(bg)
	}
	return err
}

// AcquireN takes all permits or none, and one release gives all back. Redisson:
// testBlockingAcquireMany, testTryAcquireMany.
func TestSemaphore_AcquireN(t *testing.T) {
	t.Parallel()
	s := newRedis(t).newLocks(t).Semaphore("a", 5)
	three, err := s.AcquireN(bg, 3, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantPermits(t, s, 5, 2)
	_, err = s.AcquireN(bg, 3, AcquireOptions{})
	wantErr(t, "three of two", err, ErrNotAcquired)
	wantPermits(t, s, 5, 2)
	waiting := make(chan acquireResult, 1)
	go func() {
		lease, err := s.AcquireN(bg, 4, AcquireOptions{WaitTime: WaitForever, LeaseTime: 10 * time.Second})
		waiting <- acquireResult{lease, err}
	}()
	eventually(t, "the waiter", func() bool { return s.lock.c.Stats().Waiting == 1 })
	mustRelease(t, three)
	r := mustReceive(t, "four permits", waiting)
	if r.err != nil {
		t.Fatal(r.err)
	}
	wantPermits(t, s, 5, 1)
	if err := r.lease.Extend(bg, time.Minute); err != nil {
		t.Error(err)
	}
	mustRelease(t, r.lease)
	wantPermits(t, s, 5, 5)
	for _, n := range []int{-1, 0, 6} {
		_, err := s.AcquireN(bg, n, AcquireOptions{})
		wantErr(t, fmt.Sprint(n, " permits"), err, ErrInvalidOptions)
	}
}

func TestSemaphore_Invalid(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	wantErr(t, "-1 permits", tryAcquire(c.Semaphore("a", -1)), ErrInvalidOptions)
	wantErr(t, "no name", tryAcquire(c.Semaphore("", 1)), ErrInvalidName)
	wantErr(t, "SetPermits(-1)", c.Semaphore("a", 0).SetPermits(bg, -1), ErrInvalidOptions)
	_, err := c.Semaphore("", 1).Available(bg)
	wantErr(t, "Available", err, ErrInvalidName)
	wantErr(t, "a RedLock", tryAcquire(RedLock(c.Semaphore("a", 1), c.Semaphore("b", 1), c.Semaphore("c", 1))), ErrInvalidOptions)
	if err := fx.rdb.Set(bg, "text", "a value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a string of another program", tryAcquire(c.Semaphore("text", 2)), ErrWrongKind)
	lock := mustAcquire(t, bg, c.Lock("hash"), AcquireOptions{})
	wantErr(t, "the name of a lock that is held", tryAcquire(c.Semaphore("hash", 2)), ErrWrongKind)
	mustRelease(t, lock)
	fx.rdb.Del(bg, "text")
}

// However many callers and clients there are, no more than the permits are in at a time, no caller
// starves, and all permits are free in the end. Redisson: testConcurrency_SingleInstance,
// testConcurrencyLoop_MultiInstance.
func TestSemaphore_Crowd(t *testing.T) {
	t.Parallel()
	for _, permits := range []int{1, 3, 8} {
		t.Run(strconv.Itoa(permits), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
			var in, most, runs atomic.Int32
			var callers sync.WaitGroup
			for i := range 32 {
				s := clients[i%2].Semaphore("a", permits)
				callers.Go(func() {
					for range 20 {
						lease, err := s.Acquire(bg, AcquireOptions{WaitTime: WaitForever})
						if err != nil {
							t.Error(err)
							return
						}
						n := in.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						runs.Add(1)
						in.Add(-1)
						if err := lease.Release(bg); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			if most.Load() > int32(permits) || runs.Load() != 640 {
				t.Errorf("%d callers were in at once, and %d in all; want at most %d, and 640", most.Load(), runs.Load(), permits)
			}
			wantPermits(t, clients[0].Semaphore("a", permits), permits, permits)
			if n := taken(t, fx.rdb, "a"); n != 0 {
				t.Errorf("%d permits are left in Redis", n)
			}
		})
	}
}

// Waiters of one process get permits in the order in which they came. One that asks Redis while a
// holder leaves may be overtaken by the next.
func TestSemaphore_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	s := c.Semaphore("a", 2)
	held := []*Lease{mustAcquire(t, bg, s, AcquireOptions{}), mustAcquire(t, bg, s, AcquireOptions{})}
	type served struct {
		waiter int
		acquireResult
	}
	results := make(chan served, 6)
	for i := range cap(results) {
		go func() {
			lease, err := s.Acquire(bg, AcquireOptions{WaitTime: WaitForever})
			results <- served{i, acquireResult{lease, err}}
		}()
		eventually(t, "the waiter", func() bool { return c.Stats().Waiting == i+1 })
	}
	for i := range cap(results) {
		mustRelease(t, held[i%2])
		r := mustReceive(t, fmt.Sprint("the permit of waiter ", i), results)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.waiter < i-1 || r.waiter > i+1 {
			t.Errorf("waiter %d gets permit %d", r.waiter, i)
		}
		held[i%2] = r.lease
	}
	mustRelease(t, held[0])
	mustRelease(t, held[1])
}

// A waiter hears of a permit that another process frees. Redisson: testBlockingAcquire.
func TestSemaphore_WokenByMessage(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	a, b := fx.newLocks(t), fx.newLocks(t, pollInterval(time.Hour))
	lease := mustAcquire(t, bg, a.Semaphore("a", 1), AcquireOptions{})
	waiting := acquireAsync(bg, b.Semaphore("a", 1), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the subscription", func() bool {
		n, err := fx.rdb.PubSubNumSub(bg, "redisson_sc:{a}").Result()
		return err == nil && n["redisson_sc:{a}"] == 1
	})
	mustRelease(t, lease)
	mustRelease(t, mustReceive(t, "the permit", waiting).lease)
}

// The permit of a process that died is free after its lease. Redisson: testExpire,
// testExpireTryAcquire, testExpiration, testReleaseExpired.
func TestSemaphore_Expires(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	s := c.Semaphore("a", 1)
	lease := mustAcquire(t, bg, s, AcquireOptions{LeaseTime: 200 * time.Millisecond})
	mustReceive(t, "the end of the lease", lease.Done())
	mustRelease(t, mustAcquire(t, bg, s, AcquireOptions{WaitTime: patience}))
	wantErr(t, "the release", lease.Release(bg), ErrLockLost)
}

// The watchdog renews permits, and learns that one is gone.
func TestSemaphore_Watchdog(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(2*time.Second))
	s := c.Semaphore("a", 4)
	kept, err := s.AcquireN(bg, 2, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost := mustAcquire(t, bg, s, AcquireOptions{})
	score := func() float64 {
		z, err := fx.rdb.ZRangeWithScores(bg, wire.PermitsTaken("a"), 0, 0).Result()
		if err != nil || len(z) == 0 {
			t.Fatalf("%v, %v", z, err)
		}
		return z[0].Score
	}
	began := score()
	eventually(t, "a renewal", func() bool { return score() > began+300 })
	holds := c.Holds()
	if len(holds) != 2 || holds[0].Kind != "semaphore" || holds[0].Key != "a" {
		t.Fatalf("%+v", holds)
	}
	for _, h := range holds {
		if found, _ := fx.rdb.ZScore(bg, wire.PermitsTaken("a"), h.Owner+":2").Result(); found == 0 {
			fx.rdb.ZRem(bg, wire.PermitsTaken("a"), h.Owner)
		}
	}
	mustReceive(t, "the loss", lost.Done())
	wantErr(t, "the loss", context.Cause(lost.Context()), ErrLockLost)
	if err := kept.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, kept)
}

// A client that is newer decides how many permits there are, and the older one does not undo that.
func TestSemaphore_TheLaterDeploymentWins(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	before := fx.newLocks(t)
	before.made -= clock.Moment(time.Minute)
	five := before.Semaphore("a", 5)
	leases := []*Lease{mustAcquire(t, bg, five, AcquireOptions{}), mustAcquire(t, bg, five, AcquireOptions{})}
	after := fx.newLocks(t)
	leases = append(leases, mustAcquire(t, bg, after.Semaphore("a", 3), AcquireOptions{}))
	for range 3 {
		wantPermits(t, five, 3, 0)
		wantErr(t, "the older version", tryAcquire(five), ErrNotAcquired)
		wantErr(t, "the newer version", tryAcquire(after.Semaphore("a", 3)), ErrNotAcquired)
	}
	mustRelease(t, leases[0])
	leases[0] = mustAcquire(t, bg, five, AcquireOptions{})
	wantPermits(t, five, 3, 0)
	for _, l := range leases {
		mustRelease(t, l)
	}
	wantPermits(t, five, 3, 3)
}

// SetPermits is the latest word, and keys stay from then on. Redisson: testSetPermits.
func TestSemaphore_SetPermits(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	s, open := c.Semaphore("a", 2), c.Semaphore("a", 0)
	wantErr(t, "nobody has set it", tryAcquire(open), ErrNotAcquired)
	waiting := acquireAsync(bg, open, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter", func() bool { return c.Stats().Waiting == 1 })
	if err := open.SetPermits(bg, 1); err != nil {
		t.Fatal(err)
	}
	lease := mustReceive(t, "the permit", waiting).lease
	wantErr(t, "with 2 in code", tryAcquire(s), ErrNotAcquired)
	if err := s.SetPermits(bg, 3); err != nil {
		t.Fatal(err)
	}
	wantPermits(t, s, 3, 2)
	for _, key := range []string{"a", wire.PermitsTaken("a"), wire.PermitsDeclared("a")} {
		if ttl, err := fx.rdb.PTTL(bg, key).Result(); err != nil || ttl >= 0 {
			t.Errorf("%s expires in %v (%v)", key, ttl, err)
		}
	}
	if err := s.SetPermits(bg, 0); err != nil {
		t.Fatal(err)
	}
	wantPermits(t, s, 0, 0)
	mustRelease(t, lease)
	wantErr(t, "without permits", tryAcquire(s), ErrNotAcquired)
	fx.rdb.Del(bg, "a", wire.PermitsDeclared("a"))
}

// SetPermits ends a wait for more permits than there are, so that the callers behind it go on.
func TestSemaphore_TooFew(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	s := c.Semaphore("a", 3)
	lease := mustAcquire(t, bg, s, AcquireOptions{})
	waiting := make(chan acquireResult, 1)
	go func() {
		lease, err := s.AcquireN(bg, 3, AcquireOptions{WaitTime: WaitForever})
		waiting <- acquireResult{lease, err}
	}()
	eventuallyAsleepFor(t, c, "a", true)
	behind := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter behind it", func() bool { return c.Stats().Waiting == 2 })
	if err := fx.newLocks(t).Semaphore("a", 0).SetPermits(bg, 2); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "three of two", mustReceive(t, "the answer", waiting).err, ErrInvalidOptions)
	mustRelease(t, mustReceive(t, "the other permit", behind).lease)
	mustRelease(t, lease)
	fx.rdb.Del(bg, "a", wire.PermitsDeclared("a"))
}

// A caller that wants one permit does not wait beside a free one when the caller before it, that wanted
// two, has got them by a hand-over.
func TestSemaphore_FewerBehindMore(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(time.Hour))
	s := c.Semaphore("a", 3)
	two, err := s.AcquireN(bg, 2, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	more := make(chan acquireResult, 1)
	go func() {
		lease, err := s.AcquireN(bg, 2, AcquireOptions{WaitTime: WaitForever})
		more <- acquireResult{lease, err}
	}()
	eventuallyAsleepFor(t, c, "a", true)
	one := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter behind it", func() bool { return c.Stats().Waiting == 2 })
	mustRelease(t, two)
	leases := []*Lease{mustReceive(t, "two permits", more).lease, mustReceive(t, "the free one", one).lease}
	if n := c.Counters().HandOvers; n != 1 {
		t.Errorf("%d hand-overs, want 1", n)
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
}

// The caller that comes to the front by a hand-over polls from then on: what becomes free without a
// message is found.
func TestSemaphore_PollsAfterAHandOver(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(50*time.Millisecond))
	s := c.Semaphore("a", 1)
	held := mustAcquire(t, bg, s, AcquireOptions{})
	first := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Minute})
	eventually(t, "the waiter", func() bool { return c.Stats().Waiting == 1 })
	second := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter behind it", func() bool { return c.Stats().Waiting == 2 })
	mustRelease(t, held)
	lost := mustReceive(t, "the only permit", first).lease
	fx.rdb.Del(bg, "a", "{a}:timeout")
	mustRelease(t, mustReceive(t, "the permit that is free without a message", second).lease)
	wantErr(t, "the lost one", lost.Release(bg), ErrLockLost)
}

// Whichever key is lost, no more permits are given than there are.
func TestSemaphore_TornKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "{a}:permits", "{a}:timeout"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t)
			s := c.Semaphore("a", 2)
			leases := []*Lease{mustAcquire(t, bg, s, AcquireOptions{}), mustAcquire(t, bg, s, AcquireOptions{})}
			fx.rdb.Del(bg, key)
			if key == "{a}:timeout" { // the permits are lost
				again := []*Lease{mustAcquire(t, bg, s, AcquireOptions{}), mustAcquire(t, bg, s, AcquireOptions{})}
				wantErr(t, "a third", tryAcquire(s), ErrNotAcquired)
				for i, l := range leases {
					wantErr(t, "the lost one", l.Release(bg), ErrLockLost)
					mustRelease(t, again[i])
				}
			} else {
				wantErr(t, "a third", tryAcquire(s), ErrNotAcquired)
				for _, l := range leases {
					mustRelease(t, l)
				}
			}
			wantPermits(t, s, 2, 2)
			fx.rdb.Del(bg, "a")
		})
	}
}

// Keys live for a day after their last use.
func TestSemaphore_KeysExpire(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	s := fx.newLocks(t).Semaphore("a", 2)
	lease := mustAcquire(t, bg, s, AcquireOptions{})
	check := func() {
		t.Helper()
		for _, key := range []string{"a", wire.PermitsTaken("a"), wire.PermitsDeclared("a")} {
			if ttl, err := fx.rdb.PTTL(bg, key).Result(); err != nil || ttl < 12*time.Hour || ttl > 24*time.Hour {
				t.Errorf("%s expires in %v (%v)", key, ttl, err)
			}
		}
	}
	check()
	fx.rdb.PExpire(bg, "a", time.Hour)
	other := mustAcquire(t, bg, s, AcquireOptions{})
	check()
	mustRelease(t, lease)
	mustRelease(t, other)
}

func TestSemaphore_ForceUnlock(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	a, b := fx.newLocks(t), fx.newLocks(t)
	s := a.Semaphore("a", 3)
	lease, err := s.AcquireN(bg, 2, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept := mustAcquire(t, bg, s, AcquireOptions{})
	var owner string
	for _, h := range a.Holds() {
		if found, _ := fx.rdb.ZScore(bg, wire.PermitsTaken("a"), h.Owner+":2").Result(); found != 0 {
			owner = h.Owner
		}
	}
	if was, err := b.Semaphore("a", 3).ForceUnlock(bg, owner); err != nil || !was {
		t.Fatalf("%v, %v", was, err)
	}
	mustReceive(t, "the loss", lease.Done())
	wantPermits(t, s, 3, 2)
	if was, err := b.Semaphore("a", 3).ForceUnlock(bg, owner); err != nil || was {
		t.Errorf("a second time: %v, %v", was, err)
	}
	if err := kept.Err(); err != nil {
		t.Error(err)
	}
	forced, err := b.ForceUnlockOwners(bg, "a", "semaphore", []string{a.Holds()[0].Owner})
	if err != nil || len(forced.Owners) != 1 || forced.Left != 0 {
		t.Errorf("%+v, %v", forced, err)
	}
	mustReceive(t, "the loss", kept.Done())
}

// A MultiLock takes a permit of each semaphore, or none.
func TestSemaphore_MultiLock(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	a, b := c.Semaphore("a", 2), c.Semaphore("b", 1)
	both := MultiLock(b, a, c.Lock("c"))
	lease := mustAcquire(t, bg, both, AcquireOptions{})
	wantErr(t, "b is taken", tryAcquire(both), ErrNotAcquired)
	wantPermits(t, a, 2, 1)
	waiting := acquireAsync(bg, both, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter", func() bool { return c.Stats().Waiting == 1 })
	mustRelease(t, lease)
	mustRelease(t, mustReceive(t, "all three", waiting).lease)
	wantPermits(t, a, 2, 2)
	wantPermits(t, b, 1, 1)
}

// A lock and a semaphore of one name are two things.
func TestSemaphore_BesideALock(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	permit := mustAcquire(t, bg, c.Semaphore("{a}", 1), AcquireOptions{})
	lock := mustAcquire(t, permit.Context(), c.Lock("a"), AcquireOptions{})
	wantErr(t, "the lock", tryAcquire(c.Lock("a")), ErrNotAcquired)
	mustRelease(t, lock)
	mustRelease(t, permit)
}

// A reply that is lost costs no permit.
func TestSemaphore_LostReplies(t *testing.T) {
	t.Parallel()
	for _, script := range []*lua.Script{permitAcquireScript, permitReleaseScript, permitPassScript} {
		t.Run(script.Name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t)
			s := c.Semaphore("a", 2)
			first := mustAcquire(t, bg, s, AcquireOptions{})
			proxy.OnMatch(1, runsScript(script), redistest.DropReply)
			second := mustAcquire(t, bg, s, AcquireOptions{WaitTime: WaitForever})
			waiting := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever})
			eventually(t, "the waiter", func() bool { return c.Stats().Waiting == 1 })
			mustRelease(t, first)
			mustRelease(t, mustReceive(t, "the permit", waiting).lease)
			mustRelease(t, second)
			eventually(t, "all permits to be free", func() bool { return taken(t, fx.rdb, "a") == 0 })
			wantPermits(t, s, 2, 2)
		})
	}
}

// Close ends leases of permits and their waiters.
func TestSemaphore_Close(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.connect(t))
	s := c.Semaphore("a", 1)
	lease := mustAcquire(t, bg, s, AcquireOptions{})
	waiting := acquireAsync(bg, s, AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter", func() bool { return c.Stats().Waiting == 1 })
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := c.Close(ctx); err == nil {
		t.Error("Close does not report the lock that was held")
	}
	wantErr(t, "the waiter", mustReceive(t, "the waiter", waiting).err, ErrClosed)
	wantErr(t, "the lease", lease.Err(), ErrClosed)
	eventually(t, "the permit to be free", func() bool { return taken(t, fx.rdb, "a") == 0 })
}

// While a semaphore is full and callers wait, a release hands its permit on in one command.
func TestSemaphore_OneCommandAnAcquisition(t *testing.T) {
	t.Parallel()
	const permits, callers, each = 8, 64, 30
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	count := countCommands(proxy, runsScript())
	s := c.Semaphore("a", permits)
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for range each {
				lease, err := s.Acquire(bg, AcquireOptions{WaitTime: WaitForever})
				if err == nil {
					err = lease.Release(bg)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if n := count(); float64(n) > 1.2*callers*each {
		t.Errorf("%d commands for %d acquisitions", n, callers*each)
	}
}

// With ReplicaAcks, a permit counts once a replica has it. One that no replica confirms is given back.
func TestSemaphore_ReplicaAcks(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	srv, replica := fx.replica(t)
	c := fx.newLocks(t, replicaAcks(1))
	s := c.Semaphore("a", 2)
	lease := eventuallyAcquireOf(t, s, AcquireOptions{WaitTime: patience})
	eventually(t, "the replica to have the permit, and no other", func() bool { return taken(t, replica, "a") == 1 })
	srv.Freeze(t)
	wantErr(t, "a permit that no replica confirms", tryAcquire(s), ErrNotReplicated)
	eventually(t, "that permit to be free", func() bool { return taken(t, fx.rdb, "a") == 1 })
	mustRelease(t, lease)
}
