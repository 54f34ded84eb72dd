package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redistest"
)

// family is every kind of lock that is held alone. What holds for one holds for all.
var family = map[string]func(c *Client, name string) *Lock{
	"lock":   (*Client).Lock,
	"fenced": (*Client).FencedLock,
	"fair":   (*Client).FairLock,
	"write":  func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() },
}

// each runs a test for every kind that is held alone.
func eachKind(t *testing.T, test func(t *testing.T, lock func(c *Client, name string) *Lock)) {
	for name, lock := range family {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lock)
		})
	}
}

func mustTake(t testing.TB, ctx context.Context, l Locker, opts AcquireOptions) *Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, opts)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lease
}

func TestFencingTokensRise(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t)}
	var mu sync.Mutex
	var tokens []uint64
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 10 {
				lease, err := clients[i%2].FencedLock("a").Acquire(bg, AcquireOptions{WaitTime: patience})
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				again, err := clients[i%2].FencedLock("a").Acquire(lease.Context(), AcquireOptions{})
				if err != nil {
					t.Errorf("re-entry: %v", err)
					return
				}
				token, ok := lease.Token()
				if same, _ := again.Token(); !ok || same != token {
					t.Errorf("the token is %d, %v; in the re-entry %d", token, ok, same)
				}
				mu.Lock()
				tokens = append(tokens, token)
				mu.Unlock()
				if err := errors.Join(again.Release(bg), lease.Release(bg)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(tokens) != 60 || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 60 {
		t.Errorf("the tokens do not rise: %v", tokens)
	}
	plain := mustAcquire(t, clients[0], "b", AcquireOptions{})
	if token, ok := plain.Token(); ok || token != 0 {
		t.Errorf("a plain lock has token %d", token)
	}
	mustRelease(t, plain)
}

// The token is that of the reply that was read: a repeat after a lost reply draws another, and none is given twice.
func TestFencingTokenAfterALostReply(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t)
	first := mustTake(t, bg, c.FencedLock("a"), AcquireOptions{})
	before, _ := first.Token()
	mustRelease(t, first)
	proxy.OnMatch(1, runs(fencedAcquireScript), redistest.DropReply)
	lease := mustTake(t, bg, c.FencedLock("a"), AcquireOptions{})
	token, _ := lease.Token()
	if counter := b.rdb.Get(bg, wire.TokenCounter("a")).Val(); token <= before || counter != strconv.FormatUint(token, 10) {
		t.Errorf("token %d after %d, with the counter at %s", token, before, counter)
	}
	wantErr(t, "somebody else", second(b.client(t).FencedLock("a")), ErrNotAcquired)
	mustRelease(t, lease)
}

func second(l Locker) error {
	lease, err := l.Acquire(bg, AcquireOptions{})
	if err == nil {
		return errors.Join(errors.New("acquired"), lease.Release(bg))
	}
	return err
}

// Redisson: testMultiRead.
func TestReadersShareAndWritersExclude(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, other := b.client(t), b.client(t)
	var readers []*Lease
	for i := range 10 {
		client := c
		if i%2 == 1 {
			client = other
		}
		readers = append(readers, mustTake(t, bg, client.ReadWriteLock("a").Read(), AcquireOptions{}))
	}
	wantErr(t, "a writer among readers", second(c.ReadWriteLock("a").Write()), ErrNotAcquired)
	writer := acquireAsync(bg, other.ReadWriteLock("a").Write(), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the writer waits", func() bool { return other.Stats().Waiting == 1 && other.Stats().Channels == 1 })
	for _, r := range readers {
		mustRelease(t, r)
	}
	got := await(t, "the writer", writer)
	if got.err != nil {
		t.Fatal(got.err)
	}
	wantErr(t, "a reader beside a writer", second(c.ReadWriteLock("a").Read()), ErrNotAcquired)

	// Readers that waited come in together: none of them releases before all are in. Redisson: testWriteRead.
	var waiting []<-chan acquired
	for i := range 20 {
		client := c
		if i%2 == 1 {
			client = other
		}
		waiting = append(waiting, acquireAsync(bg, client.ReadWriteLock("a").Read(), AcquireOptions{WaitTime: WaitForever}))
	}
	eventually(t, "all wait", func() bool { return c.Stats().Waiting == 10 && other.Stats().Waiting == 10 && c.Stats().Channels == 1 })
	mustRelease(t, got.lease)
	readers = readers[:0]
	for _, w := range waiting {
		got := await(t, "a reader", w)
		if got.err != nil {
			t.Fatal(got.err)
		}
		readers = append(readers, got.lease)
	}
	for _, r := range readers {
		mustRelease(t, r)
	}
}

// Redisson: testWriteReadReentrancy.
func TestDowngradeAndUpgrade(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, other := b.client(t), b.client(t, pollInterval(time.Hour))
	l := c.ReadWriteLock("a")
	owner := WithOwner(bg)
	write := mustTake(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
	read := mustTake(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
	again := mustTake(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
	mustRelease(t, write)
	wantErr(t, "a reader beside a writer", second(other.ReadWriteLock("a").Read()), ErrNotAcquired)

	reader := acquireAsync(bg, other.ReadWriteLock("a").Read(), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "a reader waits", func() bool { return other.Stats().Waiting == 1 && other.Stats().Channels == 1 })
	mustRelease(t, again) // and the reader is told, though the lock is not free
	got := await(t, "the downgrade lets readers in", reader)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if fields := b.fields(t, "a"); fields["mode"] != "read" || len(fields) != 3 {
		t.Errorf("after the downgrade: %v", fields)
	}
	_, err := l.Write().Acquire(owner, AcquireOptions{WaitTime: WaitForever})
	wantErr(t, "an upgrade", err, ErrUpgrade)
	wantHeld(t, read)
	mustRelease(t, got.lease)
	_, err = l.Write().Acquire(owner, AcquireOptions{})
	wantErr(t, "an upgrade of the only reader", err, ErrUpgrade)
	mustRelease(t, read)
	mustRelease(t, mustTake(t, owner, l.Write(), AcquireOptions{}))
}

// A change of the write side that was not answered comes to Redis when its owner reads as well, or only reads: it says nothing of the
// read side, and must not free it. On the way from a writer to a reader there is nothing else that keeps writers out.
func TestAStrayOfAWriterLeavesTheReader(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before the downgrade": true, "after the downgrade": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t, commandTimeout(time.Second))
			other := b.client(t)
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustTake(t, owner, l.Write(), AcquireOptions{LeaseTime: time.Hour})
			mustRelease(t, mustTake(t, owner, l.Read(), AcquireOptions{})) // the stray knows of a level
			stray := proxy.OnMatch(1, runs(readWriteUpdateScript), redistest.HoldRequest)
			if err := write.Extend(bg, 2*time.Hour); err == nil {
				t.Error("it was answered, and was not to be")
			}
			read := mustTake(t, owner, l.Read(), AcquireOptions{})
			arrives := func() {
				stray.Release()
				await(t, "the stray was executed", stray.Done())
			}
			if early {
				arrives()
			}
			mustRelease(t, write)
			if !early {
				arrives()
			}
			levels := b.rdb.Keys(bg, "{a}:*").Val()
			if len(levels) != 1 || b.pttl(t, levels[0]) < time.Second {
				t.Errorf("the reader has the time-out keys %q", levels)
			}
			mustRelease(t, mustTake(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{})) // who leaves looks who is alive
			wantErr(t, "a writer beside a reader", second(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// A downgrade that Redis could not be told of when it was due is told as soon as it can be: its owner may read on for hours, and no
// other reader would come in.
func TestAFailedDowngradeIsToldAgain(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"release": time.Hour, "lease over": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t, commandTimeout(time.Second))
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustTake(t, owner, l.Write(), AcquireOptions{LeaseTime: lease})
			read := mustTake(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
			down := proxy.OnEvery(runs(readWriteUpdateScript), redistest.CutBefore)
			if lease == time.Hour {
				if err := write.Release(bg); err == nil {
					t.Error("the release was told, and was not to be")
				}
			}
			await(t, "the write side has ended", write.Done())
			tries := proxy.Count("EVALSHA")
			eventually(t, "it is told more often than within CommandTimeout", func() bool { return proxy.Count("EVALSHA") > tries+25 })
			down.Remove()
			got := await(t, "another reader", acquireAsync(bg, b.client(t).ReadWriteLock("a").Read(), AcquireOptions{WaitTime: patience}))
			if got.err != nil {
				t.Fatal(got.err)
			}
			mustRelease(t, got.lease)
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// A renewal that was sent when its owner wrote, and comes to Redis when it only reads, finds no writer. That is no loss.
func TestARenewalComesAfterTheDowngrade(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write, read := mustTake(t, owner, l.Write(), AcquireOptions{}), mustTake(t, owner, l.Read(), AcquireOptions{})
	late := proxy.OnMatch(1, runs(renewScript), redistest.HoldRequest)
	c.dog.RenewAll()
	await(t, "a renewal is on its way", late.Hit())
	mustRelease(t, write)
	late.Release()
	awaitRenewals(t, read)
	mustRelease(t, mustTake(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{}))
	mustRelease(t, read)
}

// And one that comes when Redis has the downgrade, and nobody has heard of that yet, asks for no writer any more.
func TestARenewalDuringTheDowngrade(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write, read := mustTake(t, owner, l.Write(), AcquireOptions{}), mustTake(t, owner, l.Read(), AcquireOptions{})
	down := proxy.OnMatch(1, runs(readWriteUpdateScript), redistest.HoldReply)
	defer down.Release()
	released := make(chan error, 1)
	go func() { released <- write.Release(bg) }()
	await(t, "the downgrade is done", down.Hit())
	c.dog.RenewAll()
	awaitRenewals(t, read)
	down.Release()
	if err := await(t, "the writer has released it", released); err != nil {
		t.Error(err)
	}
	mustRelease(t, read)
}

// A stream of readers in one process does not keep a writer of that process out.
func TestWriterDoesNotStarve(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	l := c.ReadWriteLock("a")
	ctx, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				one, err := l.Read().Acquire(bg, AcquireOptions{WaitTime: patience})
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if err := one.Release(bg); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	for range 20 {
		mustRelease(t, mustTake(t, bg, l.Write(), AcquireOptions{WaitTime: patience}))
	}
	stop()
	wg.Wait()
}

// A reader that has died is kept in the hash by those that live, and let go of with the last of them.
func TestDeadReaderHoldsNoWriter(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustTake(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{LeaseTime: time.Hour})
	if err := b.rdb.HSet(bg, "a", "dead:1", 2).Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a writer", second(c.ReadWriteLock("a").Write()), ErrNotAcquired)
	mustRelease(t, lease)
	mustRelease(t, mustTake(t, bg, c.ReadWriteLock("a").Write(), AcquireOptions{}))
}

// When the reader with the longest lease leaves, the hash lives no longer than the others do. Redisson: testReadLockLeaseTimeout.
func TestReadersKeepTheHashForTheLongest(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	read := c.ReadWriteLock("a").Read()
	long := mustTake(t, bg, read, AcquireOptions{LeaseTime: time.Hour})
	short := mustTake(t, bg, read, AcquireOptions{LeaseTime: time.Minute})
	if ttl := b.pttl(t, "a"); ttl < 59*time.Minute {
		t.Errorf("the shorter lease has shortened the lock to %s", ttl)
	}
	mustRelease(t, long)
	if ttl := b.pttl(t, "a"); ttl > time.Minute || ttl < time.Second {
		t.Errorf("with a lease of a minute left the lock lives for %s", ttl)
	}
	mustRelease(t, short)
}

// Every change of a read hold gives all its levels the longest lease there is, and drops the keys of those given up.
func TestLevelsOfAReader(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	read := c.ReadWriteLock("a").Read()
	owner := WithOwner(bg)
	one := mustTake(t, owner, read, AcquireOptions{LeaseTime: time.Minute})
	two := mustTake(t, owner, read, AcquireOptions{LeaseTime: time.Hour})
	three := mustTake(t, owner, read, AcquireOptions{LeaseTime: time.Minute})
	key := func(n int) string { return wire.ReadTimeout("a", one.hold.field, n) }
	want := func(levels int) {
		t.Helper()
		for n := 1; n <= 3; n++ {
			ttl := b.pttl(t, key(n))
			if n <= levels && ttl < 59*time.Minute || n > levels && ttl > 0 {
				t.Errorf("with %d levels, key %d lives for %s", levels, n, ttl)
			}
		}
		if got := b.fields(t, "a")[one.hold.field]; got != strconv.Itoa(levels) {
			t.Errorf("the count is %s, want %d", got, levels)
		}
	}
	want(3)
	mustRelease(t, two)
	want(2)
	mustRelease(t, three)
	want(1)
	mustRelease(t, one)
}

// Own readers are renewed, and nobody else's. Redisson: testReadLockExpirationRenewal, testMultiInstanceReadLockZombieCleanup.
func TestReadersAreRenewed(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const timeout, short = 12 * time.Second, 8 * time.Second
	c := b.client(t, watchdogTimeout(timeout))
	read := c.ReadWriteLock("a").Read()
	leases := []*Lease{mustTake(t, bg, read, AcquireOptions{}), mustTake(t, bg, read, AcquireOptions{})}
	foreign := wire.ReadTimeout("a", "dead:1", 1)
	if err := errors.Join(b.rdb.HSet(bg, "a", "dead:1", 1).Err(), b.rdb.Set(bg, foreign, 1, short).Err()); err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", wire.ReadTimeout("a", leases[0].hold.field, 1), wire.ReadTimeout("a", leases[1].hold.field, 1)}
	for _, key := range keys {
		b.expire(t, key, short)
	}
	for _, key := range keys {
		eventually(t, key+" is renewed", func() bool { return b.pttl(t, key) > short })
	}
	if ttl := b.pttl(t, foreign); ttl > short {
		t.Errorf("somebody else's reader was renewed to %s", ttl)
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	b.free(t, "a", foreign)
}

// Redisson: testForceUnlock, testReadLockIsLocked.
func TestForceUnlockOfOneSide(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	l := c.ReadWriteLock("a")
	force := func(what string, side *Lock, want bool) {
		t.Helper()
		if freed, err := side.ForceUnlock(bg); freed != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", what, freed, err, want)
		}
	}
	locked := func(side *Lock) bool {
		t.Helper()
		is, err := side.IsLocked(bg)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	readers := []*Lease{mustTake(t, bg, l.Read(), AcquireOptions{}), mustTake(t, bg, l.Read(), AcquireOptions{})}
	if !locked(l.Read()) || locked(l.Write()) {
		t.Error("read: one side is locked, the other not")
	}
	force("the write side of readers", l.Write(), false)
	force("the read side of readers", l.Read(), true)
	for _, r := range readers {
		wantErr(t, "the reader", r.Err(), ErrLockLost)
	}
	write := mustTake(t, bg, l.Write(), AcquireOptions{})
	if locked(l.Read()) || !locked(l.Write()) {
		t.Error("written: one side is locked, the other not")
	}
	both := mustTake(t, write.Context(), l.Read(), AcquireOptions{})
	if !locked(l.Read()) {
		t.Error("the writer reads as well")
	}
	force("the read side of a writer", l.Read(), false)
	force("the write side", l.Write(), true)
	wantErr(t, "the writer", write.Err(), ErrLockLost)
	wantErr(t, "the writer's read side", both.Err(), ErrLockLost)
}

// Fair is the order of arrival, across processes. Redisson: testConcurrency_MultiInstance_Ordering.
func TestFairOrder(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t), b.client(t)}
	lease := mustTake(t, bg, clients[0].FairLock("a"), AcquireOptions{})
	const n = 12
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := clients[i%3].FairLock("a").Acquire(bg, AcquireOptions{WaitTime: patience})
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := got.Release(bg); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it stands in the queue", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == int64(i+1) })
	}
	mustRelease(t, lease)
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("granted in the order %v", order)
	}
}

// A waiter that leaves takes its place in the queue with it, also when its context has ended.
func TestFairWaiterLeaves(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	ctx, cancel := context.WithCancel(bg)
	leaving := acquireAsync(ctx, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "it stands in the queue", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1 })
	behind := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "another does", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 2 })
	cancel()
	wantErr(t, "the one who leaves", await(t, "it leaves", leaving).err, context.Canceled)
	eventually(t, "its place is gone", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1 })
	if n := b.rdb.ZCard(bg, wire.FairDeadlines("a")).Val(); n != 1 {
		t.Errorf("%d deadlines for one waiter", n)
	}
	wantErr(t, "one that does not wait", second(c.FairLock("a")), ErrNotAcquired)
	if n := b.rdb.LLen(bg, wire.FairQueue("a")).Val(); n != 1 {
		t.Errorf("one that does not wait has left %d in the queue", n)
	}
	mustRelease(t, lease)
	got := await(t, "the one behind", behind)
	if got.err != nil {
		t.Fatal(got.err)
	}
	mustRelease(t, got.lease)
}

// A place in the queue outlives the lease that its waiter wanted: it is given back even if Redis was away for longer than that.
func TestFairWaiterLeavesWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(100*time.Millisecond))
	lease := mustTake(t, bg, b.client(t).FairLock("a"), AcquireOptions{})
	ctx, cancel := context.WithCancel(bg)
	leaving := acquireAsync(ctx, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Millisecond})
	eventually(t, "it stands in the queue", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1 })
	proxy.Cut()
	cancel()
	wantErr(t, "the one who leaves", await(t, "it leaves", leaving).err, context.Canceled)
	eventually(t, "its place cannot be given back", func() bool {
		c.cleaner.mu.Lock()
		defer c.cleaner.mu.Unlock()
		for u := range c.cleaner.pending {
			return u.failures >= 3
		}
		return true // it was given up
	})
	proxy.Restore()
	eventually(t, "its place is gone", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 0 })
	mustRelease(t, lease)
}

// A first in the queue that has died is passed over when its time is over, and nobody spins until then.
func TestFairDeadHead(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	dead := time.Now().Add(4 * time.Second).UnixMilli()
	if err := errors.Join(
		b.rdb.RPush(bg, wire.FairQueue("a"), "dead:1").Err(),
		b.rdb.Do(bg, "ZADD", wire.FairDeadlines("a"), dead, "dead:1").Err(),
	); err != nil {
		t.Fatal(err)
	}
	commands := counter(proxy, runs(fairAcquireScript))
	wantErr(t, "one that does not wait", second(c.FairLock("a")), ErrNotAcquired)
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
	if now := time.Now().UnixMilli(); now < dead {
		t.Errorf("passed over %d ms too early", dead-now)
	}
	if n := commands(); n > 8 {
		t.Errorf("%d questions while the dead one had its time", n)
	}
	mustRelease(t, lease)
}

// A place that was asked for long ago is not given: nobody would take it.
func TestFairStrayDoesNotQueueUp(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	late := time.Now().Add(-time.Second).UnixMilli()
	x := c.ops.Op(fairLock.acquire(c, try{key: "a", field: "stray:1", lease: time.Minute, notAfter: late}), patience)
	answer, err := x.Run(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if told, err := readGrant(x, answer, err); told.Granted || told.Queued || err != nil {
		t.Errorf("%+v, %v", told, err)
	}
	if n := b.rdb.Exists(bg, wire.FairQueue("a"), wire.FairDeadlines("a")).Val(); n != 0 {
		t.Errorf("%d keys of a queue", n)
	}
	mustRelease(t, lease)
}

// A reply that is lost while a waiter queues up costs it neither its place nor, when it leaves, leaves it one.
func TestFairLostReplies(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 3; nth++ {
		t.Run(fmt.Sprint("question ", nth), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t)
			lease := mustTake(t, bg, b.client(t).FairLock("a"), AcquireOptions{})
			rule := proxy.OnMatch(nth, runs(fairAcquireScript), redistest.DropReply)
			waiter := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
			await(t, "the reply is lost", rule.Hit())
			eventually(t, "it stands in the queue once", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1 })
			mustRelease(t, lease)
			got := await(t, "the waiter", waiter)
			if got.err != nil {
				t.Fatal(got.err)
			}
			mustRelease(t, got.lease)
		})
	}
}

// However long PollInterval is: who waits asks early enough not to be taken for dead.
func TestFairWaiterIsHeardOf(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(never))
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{LeaseTime: 10 * time.Hour})
	waiter := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	var pause time.Duration
	eventually(t, "it stands in the queue, and sleeps", func() bool {
		e := c.lock("a")
		defer e.unlock()
		if len(e.queue) == 0 || e.queue[0].asking || !e.queue[0].place.taken {
			return false
		}
		pause = e.queue[0].pollAt.Since(clock.Now())
		return true
	})
	if pause > fairPoll {
		t.Errorf("it asks again in %v", pause)
	}
	mustRelease(t, lease)
	mustRelease(t, mustGet(t, "the waiter", waiter))
}

// A lock that is held for long does not cost those who wait their place.
func TestFairPlaceIsKeptAlive(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(50*time.Millisecond))
	lease := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
	queue, deadlines := wire.FairQueue("a"), wire.FairDeadlines("a")
	eventually(t, "it stands in the queue", func() bool { return b.rdb.LLen(bg, queue).Val() == 1 })
	owner := b.rdb.LIndex(bg, queue, 0).Val()
	soon := float64(time.Now().Add(time.Minute).UnixMilli())
	if err := b.rdb.Do(bg, "ZADD", deadlines, soon, owner).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its deadline is put off", func() bool { return b.rdb.ZScore(bg, deadlines, owner).Val() > soon+60_000 })
	mustRelease(t, lease)
	got := await(t, "the waiter", waiter)
	if got.err != nil {
		t.Fatal(got.err)
	}
	mustRelease(t, got.lease)
}
