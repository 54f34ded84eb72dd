package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
)

// Cases of Redisson's tests that no other test shows, in terms of this package; the comments name them.

// eachRivalry runs a test for every kind of lock, the read side included, with a kind that cannot be held beside it.
func eachRivalry(t *testing.T, test func(t *testing.T, kind topologyKind)) {
	for name, kind := range topologyKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// waitsAsleep waits until one caller of a client sleeps until it is told, or until its time is over.
func waitsAsleep(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, "somebody waits", func() bool { return c.Stats().Waiting == 1 && c.Stats().Channels == 1 })
}

// A holder that Redis no longer hears of keeps the lock for the time of the watchdog, and knows by then that it has lost it.
// Redisson: testAutoExpire.
func TestRedisson_AHolderIsCutOff(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		b := newBundle(t)
		c, proxy := b.proxied(t, watchdogTimeout(4*time.Second))
		other := b.client(t, pollInterval(never))
		lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
		waiter := acquireAsync(bg, kind.rival(other, "a"), AcquireOptions{WaitTime: WaitForever})
		waitsAsleep(t, other)
		proxy.Cut()
		next := mustGet(t, "the lock is free again", waiter)
		wantErr(t, "the holder", lease.Err(), ErrLockLost)
		await(t, "its context has ended", lease.Context().Done())
		mustRelease(t, next)
		proxy.Restore()
	})
}

// A lease that nobody renews ends, a waiter gets in without a message, and a release that comes too late is told so and leaves
// alone who holds it now. Redisson: testExpire, testExpireRead, testExpireWrite, testUnlockFail.
func TestRedisson_ALeaseRunsOut(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		b := newBundle(t)
		c, other := b.client(t), b.client(t, pollInterval(never))
		lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{LeaseTime: 3 * time.Second})
		owner := WithOwner(bg)
		waiter := acquireAsync(owner, kind.rival(other, "a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Minute})
		next := mustGet(t, "the lease is over", waiter)
		for range 2 {
			wantErr(t, "the late release", lease.Release(bg), ErrLockLost)
		}
		wantHeld(t, next)
		wantCount(t, owner, kind.rival(other, "a"), 1)
		mustRelease(t, next)
	})
}

// Of several leases of one hold, the one that ends first takes the lock from nobody. Redisson: testWriteLockExpiration.
func TestRedisson_AnInnerLeaseRunsOut(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		b := newBundle(t)
		c, other := b.client(t), b.client(t)
		outer := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
		inner := mustTake(t, outer.Context(), kind.lock(c, "a"), AcquireOptions{LeaseTime: 3 * time.Second})
		await(t, "the inner lease is over", inner.Done())
		wantErr(t, "somebody else", second(kind.rival(other, "a")), ErrNotAcquired)
		wantHeld(t, outer)
		wantErr(t, "the release of the inner lease", inner.Release(bg), ErrLockLost)
		mustRelease(t, outer)
		mustRelease(t, mustTake(t, bg, kind.rival(other, "a"), AcquireOptions{}))
	})
}

// The time to live is that of the lease and not a sum of several; counts go up and down with them.
// Redisson: testRemainTimeToLive2, testHoldCount.
func TestRedisson_ThreeLevels(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		b := newBundle(t)
		lock := kind.lock(b.client(t), "a")
		owner := WithOwner(bg)
		want := func(count int, ttl time.Duration) {
			t.Helper()
			wantCount(t, owner, lock, count)
			if got, err := lock.RemainingTTL(bg); err != nil || got > ttl || got < ttl-patience {
				t.Errorf("entered %d times: %v to live (%v), want %v", count, got, err, ttl)
			}
		}
		want(0, 0)
		var leases []*Lease
		for n := range 3 {
			leases = append(leases, mustTake(t, owner, lock, AcquireOptions{LeaseTime: time.Minute}))
			want(n+1, time.Minute)
		}
		for n, lease := range leases[:2] {
			mustRelease(t, lease)
			want(2-n, time.Minute)
		}
		mustRelease(t, leases[2])
		want(0, 0)
	})
}

// Many that hardly wait: one at a time gets in, whoever is in is looked after by the watchdog, and nothing of that stays.
// Redisson: tryLockUnlockRLock, testConcurrencyTryLockUnLock.
func TestRedisson_ManyTry(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, lock func(*Client, string) *Lock) {
		b := newBundle(t)
		clients := []*Client{b.client(t), b.client(t)}
		const goroutines, rounds = 16, 8
		var inside, passages atomic.Int64
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				c := clients[i%2]
				opts := AcquireOptions{}
				for done := 0; done < rounds; {
					lease, err := lock(c, "a").Acquire(bg, opts)
					if errors.Is(err, ErrNotAcquired) {
						opts.WaitTime = time.Millisecond // whoever is refused at once asks at once, and leaves nobody else the processor
						continue
					}
					opts.WaitTime = 0
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d are inside", n)
					}
					// One that is handed on is armed before, also if it then goes to somebody else; but not for long.
					if !within(patience, func() bool { return c.Stats().Renewals == 1 }) {
						t.Errorf("the watchdog keeps %d locks, want 1", c.Stats().Renewals)
					}
					inside.Add(-1)
					passages.Add(1)
					done++
					if err := lease.Release(bg); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if n := passages.Load(); n != goroutines*rounds {
			t.Errorf("%d passages, want %d", n, goroutines*rounds)
		}
	})
}

// Whoever holds a lock when Redis comes back without it is told, and what it takes then is renewed as ever.
// Redisson: testLockAfterTimeout, testReadLockAfterTimeout, testWriteLockAfterTimeout.
func TestRedisson_RedisForgets(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		b := newBundle(t)
		c := b.client(t, watchdogTimeout(9*time.Second))
		lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
		b.srv.Restart(t)
		await(t, "the holder is told", lease.Done())
		wantErr(t, "the cause of its context", context.Cause(lease.Context()), ErrLockLost)
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
		next := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
		b.eventuallyRenewed(t, "a")
		wantHeld(t, next)
		mustRelease(t, next)
	})
}

// With several names and many who wait a short time, there is one connection to listen on for each client, nothing but
// refusals fails, and no channel is left. Redisson: testSubscriptionsPerConnection, testSinglePubSub.
func TestRedisson_OneConnectionListens(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, lock func(*Client, string) *Lock) {
		b := newBundle(t)
		clients := []*Client{b.client(t), b.client(t)}
		const goroutines, rounds = 32, 8
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for n := range rounds {
					lease, err := lock(clients[i%2], fmt.Sprint("a", (i+n)%5)).Acquire(bg, AcquireOptions{WaitTime: 100 * time.Millisecond})
					switch {
					case err == nil:
						if err := lease.Release(bg); err != nil {
							t.Errorf("Release: %v", err)
						}
					case !errors.Is(err, ErrNotAcquired):
						t.Errorf("Acquire: %v", err)
					}
					if i == 0 {
						if n := b.pubSubConnections(t); n > len(clients) {
							t.Errorf("%d connections listen, for %d clients", n, len(clients))
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

// Every key and every channel of a lock follows the mapper, and the hash tag of the name.
// Redisson: testNameMapper, testName.
func TestRedisson_NamesOfKeys(t *testing.T) {
	t.Parallel()
	eachRivalry(t, func(t *testing.T, kind topologyKind) {
		for name, key := range map[string]string{"a": "shop:a", "{tag}:a:b": "shop:{tag}:a:b"} {
			b := newBundle(t)
			mapped := func(o *Options) { o.NameMapper = func(name string) string { return "shop:" + name } }
			c, other := b.client(t, mapped), b.client(t, mapped)
			lease := mustTake(t, bg, kind.lock(c, name), AcquireOptions{})
			waiter := acquireAsync(bg, kind.rival(other, name), AcquireOptions{WaitTime: WaitForever})
			waitsAsleep(t, other)
			var channels []string
			eventually(t, "it listens", func() bool {
				channels = b.rdb.PubSubChannels(bg, "*").Val()
				return len(channels) > 0
			})
			keys := b.rdb.Keys(bg, "*").Val()
			if !slices.Contains(keys, key) {
				t.Errorf("keys %q", keys)
			}
			for _, got := range slices.Concat(keys, channels) {
				if !strings.Contains(got, key) || wire.Slot(got) != wire.Slot(key) || strings.Count(got, "{") > 1 {
					t.Errorf("%q is not beside %q", got, key)
				}
			}
			mustRelease(t, lease)
			mustRelease(t, mustGet(t, "the waiter is told", waiter))
		}
	})
}

// A writer enters as it likes, and others are kept out until it has left as often. Redisson: testWR, testWriteLock.
func TestRedisson_AWriterOnBothSides(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	l, other := b.client(t).ReadWriteLock("a"), b.client(t).ReadWriteLock("a")
	owner := WithOwner(bg)
	wantKeptOut := func(what string, writers int) {
		t.Helper()
		wantErr(t, what+": a reader", second(other.Read()), ErrNotAcquired)
		wantErr(t, what+": a writer", second(other.Write()), ErrNotAcquired)
		wantCount(t, owner, l.Write(), writers)
		wantCount(t, WithOwner(bg), l.Write(), 0)
	}
	write := mustTake(t, owner, l.Write(), AcquireOptions{})
	wantKeptOut("written", 1)
	read := mustTake(t, owner, l.Read(), AcquireOptions{})
	wantKeptOut("read as well", 1)
	mustRelease(t, read)
	wantKeptOut("read no more", 1)
	again := mustTake(t, owner, l.Write(), AcquireOptions{})
	wantKeptOut("written twice", 2)
	mustRelease(t, again)
	read = mustTake(t, owner, l.Read(), AcquireOptions{})
	wantKeptOut("read again", 1)
	mustRelease(t, write)
	mustRelease(t, mustTake(t, bg, other.Read(), AcquireOptions{})) // readers among themselves
	wantErr(t, "a writer beside a reader", second(other.Write()), ErrNotAcquired)
	mustRelease(t, read)
	mustRelease(t, mustTake(t, bg, other.Write(), AcquireOptions{}))
}

// Each acquisition draws the next number, whether it waits or not, and whichever client it is. Redisson: testTokenIncrease.
func TestRedisson_TokensCount(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t)}
	options := []AcquireOptions{{}, {WaitTime: WaitForever}, {WaitTime: patience}, {LeaseTime: 10 * time.Second}, {}}
	for i, opts := range options {
		lease := mustTake(t, bg, clients[i%2].FencedLock("a"), opts)
		if token, ok := lease.Token(); token != uint64(i+1) || !ok {
			t.Errorf("token %d, %v; want %d", token, ok, i+1)
		}
		wantErr(t, "somebody else", second(clients[i%2].FencedLock("a")), ErrNotAcquired) // draws none
		mustRelease(t, lease)
	}
}

// Holders that never release come in order as well, each when the lease before it is over. Redisson: testLeaseTimeout.
func TestRedisson_FairOrderOfLeases(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t, pollInterval(never)), b.client(t, pollInterval(never))}
	first := mustTake(t, bg, clients[0].FairLock("a"), AcquireOptions{LeaseTime: time.Hour})
	const n = 5
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lease, err := clients[i%2].FairLock("a").Acquire(bg, AcquireOptions{WaitTime: 2 * patience, LeaseTime: 3 * time.Second})
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			await(t, "the lease is over", lease.Done())
		})
		b.awaitQueue(t, i+1)
	}
	mustRelease(t, first)
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("granted in the order %v", order)
	}
}

// awaitQueue waits until so many stand in the queue of the fair lock "a".
func (b *bundle) awaitQueue(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " stand in the queue"), func() bool {
		return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == int64(n) && b.rdb.ZCard(bg, wire.FairDeadlines("a")).Val() == int64(n)
	})
}

// Hundreds in one queue all get their turn. Redisson: testMultipleLocks.
func TestRedisson_ALongFairQueue(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	first := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	const n = 500
	var inside, passages atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			lease, err := c.FairLock("a").Acquire(bg, AcquireOptions{WaitTime: 5 * patience})
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two holders")
			}
			passages.Add(1)
			inside.Add(-1)
			if err := lease.Release(bg); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	b.awaitQueue(t, n)
	mustRelease(t, first)
	wg.Wait()
	if got := passages.Load(); got != n {
		t.Errorf("%d passages, want %d", got, n)
	}
}

// One that has waited in vain does not stand in the way of those that come later. Redisson: testTryLockNonDelayed.
func TestRedisson_AFairWaiterGaveUp(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, other := b.client(t), b.client(t)
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	_, err := other.FairLock("a").Acquire(bg, AcquireOptions{WaitTime: 200 * time.Millisecond})
	wantErr(t, "one that waits for a while", err, ErrNotAcquired)
	b.awaitQueue(t, 0)
	mustRelease(t, lease)
	mustRelease(t, mustTake(t, bg, c.FairLock("a"), AcquireOptions{}))
}

// A waiter that fails because Redis does not answer is taken out of the queue when it does again.
// Redisson: testAcquireFailedNotCalledOnRedisTimeout.
func TestRedisson_FairWaitersWhileRedisPauses(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(50*time.Millisecond), commandTimeout(3*time.Second))
	lease := mustTake(t, bg, b.client(t).FairLock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.FairLock("a"), long)
	b.awaitQueue(t, 1)
	b.srv.PauseClients(t, 8*time.Second)
	if got := await(t, "the waiter is told", waiter); got.err == nil || errors.Is(got.err, ErrNotAcquired) {
		t.Errorf("the waiter: %v", got.err)
	}
	b.awaitQueue(t, 0)
	mustRelease(t, lease)
	mustRelease(t, mustTake(t, bg, c.FairLock("a"), AcquireOptions{WaitTime: patience}))
}
