package core

import (
	"context"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The key of a held lock vanishes, and another owner of the same client is granted the lock. The
// first lease has ended when Acquire returns the second one.
func TestAcquire_EndsAnOtherHoldOfTheName(t *testing.T) {
	t.Parallel()
	eachExclusiveKind(t, func(t *testing.T, lock func(c *Client, name string) *Lock) {
		fx := newRedis(t)
		c := fx.newLocks(t)
		old := mustAcquire(t, bg, lock(c, "a"), AcquireOptions{})
		fixed := mustAcquire(t, old.Context(), lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
		if err := fx.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
		lease := mustAcquire(t, bg, lock(c, "a"), AcquireOptions{})
		for _, l := range []*Lease{old, fixed} {
			wantErr(t, "the lease of the hold that vanished", l.Err(), ErrLockLost)
			wantErr(t, "the cause of its context's end", context.Cause(l.Context()), ErrLockLost)
		}
		wantHeld(t, lease)
		mustRelease(t, lease)
	})
}

// The grant of a reader proves that the writer is gone, and the grant of a writer that all readers
// are. The grant of a reader says nothing about other readers.
func TestAcquire_EndsTheOtherSide(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	l := c.ReadWriteLock("a")
	vanish := func() {
		t.Helper()
		if err := fx.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
	}
	write := mustAcquire(t, bg, l.Write(), AcquireOptions{})
	vanish()
	read := mustAcquire(t, bg, l.Read(), AcquireOptions{})
	wantErr(t, "the writer", write.Err(), ErrLockLost)

	other := mustAcquire(t, bg, l.Read(), AcquireOptions{})
	wantHeld(t, read)

	vanish()
	write = mustAcquire(t, bg, l.Write(), AcquireOptions{})
	wantErr(t, "a reader", read.Err(), ErrLockLost)
	wantErr(t, "the other reader", other.Err(), ErrLockLost)
	wantHeld(t, write)
	mustRelease(t, write)
}

// The reply to an acquire arrives after another owner of the client was granted the lock. Which of
// the two Redis has now cannot be known: both have lost it.
func TestAcquire_ReplyOutrunByAnotherGrant(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	other := fx.newLocks(t)
	blocker := mustAcquire(t, bg, other.FairLock("a"), AcquireOptions{})
	late := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
	fx.eventuallyQueued(t, "a", 1)
	held := proxy.OnMatch(1, runsScript(fairAcquireScript), redistest.HoldReply)
	mustRelease(t, blocker) // wakes late
	mustReceive(t, "Redis to grant the lock", held.Hit())
	if err := fx.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	faster := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	held.Release()
	r := mustReceive(t, "the late Acquire to return", late)
	wantErr(t, "the late Acquire", r.err, ErrLockLost)
	wantErr(t, "the lease that was there", faster.Err(), ErrLockLost)
}

// Redis frees a hold instead of handing it to a waiter, because another waiter is first in its
// queue. That one is granted and releases before the first reply is read. The waiter is not offered
// this second hold too: it gets the lock once.
func TestRelease_WaiterIsHeirOfOneHoldAtATime(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	l := c.FairLock("a")
	first := mustAcquire(t, bg, l, AcquireOptions{})

	// The heir is the first waiter of the process, but the second in Redis's queue.
	enqueues := proxy.OnMatch(2, runsScript(fairAcquireScript), redistest.HoldRequest)
	heir := acquireAsync(bg, l, AcquireOptions{WaitTime: patience})
	mustReceive(t, "the heir to be about to queue up", enqueues.Hit())
	ahead := acquireAsync(bg, l, AcquireOptions{WaitTime: patience})
	fx.eventuallyQueued(t, "a", 1)
	enqueues.Release()
	fx.eventuallyQueued(t, "a", 2)
	eventuallyAsleep(t, c, "a")
	eventually(t, "both to sleep", func() bool { return sleepingWaiters(c, "a") == 2 })

	passed := proxy.OnMatch(1, runsScript(fairPassScript), redistest.HoldReply)
	released := make(chan error, 1)
	go func() { released <- first.Release(bg) }()
	mustReceive(t, "the hand-over to be on its way", passed.Hit())
	r := mustReceive(t, "the first waiter to get the lock", ahead)
	if r.err != nil {
		t.Fatal(r.err)
	}
	passedAgain := proxy.OnMatch(1, runsScript(fairPassScript), redistest.HoldReply)
	releasedAgain := make(chan error, 1)
	go func() { releasedAgain <- r.lease.Release(bg) }()
	select {
	case <-passedAgain.Hit(): // the fault: it is offered this one as well
	case err := <-releasedAgain:
		if err != nil {
			t.Error(err)
		}
		releasedAgain <- nil
	case <-time.After(patience):
		t.Fatal("timed out waiting for the second release")
	}
	passed.Release()
	if err := mustReceive(t, "the first release", released); err != nil {
		t.Error(err)
	}
	got := mustReceive(t, "the heir gets the lock", heir)
	if got.err != nil {
		t.Fatal(got.err)
	}
	passedAgain.Release()
	if err := mustReceive(t, "the second release", releasedAgain); err != nil {
		t.Error(err)
	}
	if n := c.Stats().Held; n != 1 {
		t.Errorf("%d holds for one lease", n)
	}
	wantHeld(t, got.lease)
	mustRelease(t, got.lease)
}

// eventuallyQueued waits until so many stand in the queue of a fair lock.
func (fx *redisFixture) eventuallyQueued(t testing.TB, name string, n int64) {
	t.Helper()
	eventually(t, "the queue of the fair lock has its length", func() bool {
		return fx.rdb.LLen(bg, wire.FairQueue(name)).Val() == n
	})
}

// sleepingWaiters returns how many waiters for a name were refused and sleep, those for a fair lock
// in its queue. The confirmation of a subscription may still wake them; see eventuallyAsleep.
func sleepingWaiters(c *Client, name string) (n int) {
	c.names.each(func(e *entry) {
		for _, w := range e.queue.Waiters() {
			if e.key == name && w.State() == claim.Asleep && (w.Item.fairPlace() == nil || w.Item.fairPlace().leftovers.There) {
				n++
			}
		}
	})
	return n
}
