package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Of twenty waiters only the first sends attempts. They get the lock in the order they came.
func TestQueue_OnlyTheFirstAsks(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	asked := countCommands(proxy, runsScript(acquireScript))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})

	const n = 20
	waiters := make([]<-chan acquireResult, n)
	for i := range waiters {
		waiters[i] = startWaiter(t, bg, c, "a", forever)
	}
	eventuallyAsleep(t, c, "a")
	if got := waitUntilStable(asked); got != 2 {
		t.Errorf("%d acquire scripts for %d waiters, want one before the subscription and one after it", got, n)
	}

	mustRelease(t, holder)
	for i, waiter := range waiters {
		lease := mustReceiveLease(t, fmt.Sprintf("the lease of waiter %d", i), waiter)
		for j := i + 1; j < n; j++ {
			select {
			case got := <-waiters[j]:
				t.Fatalf("waiter %d returned before waiter %d: %+v", j, i, got)
			default:
			}
		}
		mustRelease(t, lease)
	}
	if got := asked(); got > 2+3*n {
		t.Errorf("%d acquire scripts in all for %d waiters, want at most 3 each", got, n)
	}
}

// A waiter for one name does not hold up other names.
func TestQueue_OnePerName(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(never))
	fx.lockAsStranger(t, 0, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	for i := range 100 { // enough names to share its shard
		mustRelease(t, mustAcquire(t, bg, c.Lock(fmt.Sprint("b:", i)), AcquireOptions{}))
	}
	eventuallyAsleep(t, c, "a")
	fx.deleteKeys(t, "a")
	fx.publishRelease(t, "a")
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// A holder re-enters ahead of the queue. Behind the waiters it would deadlock: they wait for it.
func TestQueue_HoldersPassIt(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	var waiters []<-chan acquireResult
	for range 5 {
		waiters = append(waiters, startWaiter(t, bg, c, "a", forever))
	}
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{MaxWaiters: 1})
	fx.wantCount(t, inner, 2)
	mustRelease(t, outer)
	mustRelease(t, inner)
	for _, w := range waiters {
		mustRelease(t, mustReceiveLease(t, "a waiter's lease", w))
	}
}

// Once one waiter of an owner gets the lock, the owner's other waiters re-enter. They pass a waiter
// of another owner in between: it waits for their owner, so waiting behind it would deadlock.
func TestQueue_OtherCallsOfTheOwnerReenter(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(never))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	mine := WithOwner(bg)
	first := startWaiter(t, mine, c, "a", forever)
	stranger := startWaiter(t, bg, c, "a", forever)
	second := startWaiter(t, mine, c, "a", AcquireOptions{WaitTime: patience})
	third := startWaiter(t, mine, c, "a", forever)
	eventuallyAsleep(t, c, "a")
	mustRelease(t, holder)

	leases := []*Lease{mustReceiveLease(t, "the first lease", first), mustReceiveLease(t, "the second lease", second), mustReceiveLease(t, "the third lease", third)}
	fx.wantCount(t, leases[0], 3)
	select {
	case got := <-stranger:
		t.Fatalf("the other owner got %+v", got)
	default:
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	mustRelease(t, mustReceiveLease(t, "the other owner's lease", stranger))
}

// Readers of one owner send their attempts at the same time. They still share one hold, whichever
// reply comes first.
func TestQueue_TwoReadersOfOneOwner(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	l, owner := c.ReadWriteLock("a").Read(), WithOwner(bg)
	var answers []*redistest.Rule
	var readers []<-chan acquireResult
	for n := 1; n <= 2; n++ {
		answers = append(answers, proxy.OnMatch(n, runsScript(readAcquireScript), redistest.HoldReply))
	}
	for range 2 {
		readers = append(readers, acquireAsync(owner, l, AcquireOptions{WaitTime: patience}))
	}
	for _, a := range answers {
		mustReceive(t, "the reply to an attempt", a.Hit())
	}
	for _, a := range answers {
		a.Release()
	}
	var leases []*Lease
	for _, r := range readers {
		got := mustReceive(t, "a reader's lease", r)
		if got.err != nil {
			t.Fatal(got.err)
		}
		leases = append(leases, got.lease)
	}
	if n, err := l.HoldCount(owner); n != 2 || err != nil {
		t.Errorf("hold count %d (%v), want 2", n, err)
	}
	// Two fields stay: the mode and one reader.
	eventually(t, "the other grant to be undone", func() bool { return len(fx.hash(t, "a")) == 2 })
	for _, lease := range leases {
		mustRelease(t, lease)
	}
}

// A call without a WaitTime fails without a command if others already wait.
func TestQueue_NoWaitTimeBehindOthers(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	fx.lockAsStranger(t, time.Minute, "a")
	leave, cancel := context.WithCancel(bg)
	waiter := startWaiter(t, leave, c, "a", forever)
	eventuallyAsleep(t, c, "a")
	before := proxy.Count("")
	for range 10 {
		_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
		var held *NotAcquiredError
		if !errors.As(err, &held) {
			t.Fatalf("Acquire: %v, want a NotAcquiredError", err)
		}
		if held.TTL <= time.Minute-patience || held.TTL > time.Minute {
			t.Errorf("TTL %s, want a little less than a minute", held.TTL)
		}
	}
	if n := proxy.Count("") - before; n != 0 {
		t.Errorf("%d commands, want none", n)
	}
	cancel()
	wantErr(t, "the waiter", mustReceive(t, "the waiter to leave", waiter).err, context.Canceled)
	fx.deleteKeys(t, "a")
}

// MaxWaiters does not apply to a call without a WaitTime: it fails because the lock is held. This
// holds for every kind of lock.
func TestMaxWaiters_WithoutWaitTime(t *testing.T) {
	t.Parallel()
	for name, sides := range map[string]func(c *Client) (held, asked *Lock){
		"plain": func(c *Client) (*Lock, *Lock) { return c.Lock("a"), c.Lock("a") },
		"fair":  func(c *Client) (*Lock, *Lock) { return c.FairLock("a"), c.FairLock("a") },
		"read":  func(c *Client) (*Lock, *Lock) { rw := c.ReadWriteLock("a"); return rw.Write(), rw.Read() },
		"write": func(c *Client) (*Lock, *Lock) { rw := c.ReadWriteLock("a"); return rw.Read(), rw.Write() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t)
			held, asked := sides(c)
			lease, err := held.Acquire(bg, AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			waiting := acquireAsync(bg, asked, AcquireOptions{WaitTime: patience})
			eventually(t, "a waiter", func() bool { return c.Stats().Channels == 1 })
			_, err = asked.Acquire(bg, AcquireOptions{WaitTime: patience, MaxWaiters: 1})
			wantErr(t, "a call that would wait", err, ErrTooManyWaiters)
			_, err = asked.Acquire(bg, AcquireOptions{MaxWaiters: 1})
			wantErr(t, "a call that would not wait", err, ErrNotAcquired)
			mustRelease(t, lease)
			mustRelease(t, mustReceive(t, "the waiter's lease", waiting).lease)
			checkIdleAndClose(t, c, fx.rdb)
		})
	}
}

// MaxWaiters has a default. A negative value means no limit.
func TestMaxWaiters_Default(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int32{0: 1024, -1: math.MaxInt32, 7: 7, math.MaxInt: math.MaxInt32} {
		if got := (AcquireOptions{MaxWaiters: given}).waiters(); got != want {
			t.Errorf("MaxWaiters %d allows %d waiters, want %d", given, got, want)
		}
	}
}

// MaxWaiters is exact, even if all callers come at once: that many wait, and the rest are refused.
func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	holder := fx.newLocks(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, holder.Lock("order"), AcquireOptions{LeaseTime: time.Hour})
	const room, callers = 4, 12
	results := make(chan acquireResult, callers)
	for range callers {
		go func() {
			lease, err := c.Lock("order").Acquire(context.Background(), AcquireOptions{WaitTime: WaitForever, MaxWaiters: room})
			results <- acquireResult{lease, err}
		}()
	}
	for range callers - room {
		wantErr(t, "one too many", mustReceive(t, "a refusal", results).err, ErrTooManyWaiters)
	}
	if n := c.Stats().Waiting; n != room {
		t.Errorf("%d waiters, want %d", n, room)
	}
	mustRelease(t, lease)
	for range room {
		got := mustReceive(t, "a waiter's lease", results)
		if got.err != nil {
			t.Fatal(got.err)
		}
		mustRelease(t, got.lease)
	}
}
