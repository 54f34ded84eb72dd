package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
)

// Cases of Redisson's tests that no other test shows, in terms of this package; the comments name them.

// A holder that Redis no longer hears of keeps the lock for the time of the watchdog, and knows by then that it has lost it.
// Redisson: testAutoExpire.
func TestRedisson_AHolderIsCutOff(t *testing.T) {
	t.Parallel()
	eachLockKind(t, func(t *testing.T, kind lockKind) {
		b := newBundle(t)
		c, proxy := b.proxied(t, watchdogTimeout(4*time.Second))
		other := b.client(t, pollInterval(never))
		lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
		waiter := acquireAsync(bg, kind.rival(other, "a"), AcquireOptions{WaitTime: WaitForever})
		awaitWaiter(t, other)
		proxy.Cut()
		next := mustGet(t, "the lock is free again", waiter)
		wantErr(t, "the holder", lease.Err(), ErrLockLost)
		await(t, "its context has ended", lease.Context().Done())
		mustRelease(t, next)
		proxy.Restore()
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
	eachLockKind(t, func(t *testing.T, kind lockKind) {
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
