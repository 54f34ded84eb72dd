package core

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// The head of a queue is connected and never takes the free lock, like a process that is suspended.
// DropWaiter removes it, and the next waiter gets the lock at once.
func TestDropWaiter(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(time.Hour))
	const head = "web-1.4242.k3j9x2ab:7"
	listen(t, fx.rdb, wire.FairChannel("a", head))
	fx.rdb.RPush(bg, wire.FairQueue("a"), head)
	fx.rdb.ZAdd(bg, wire.FairDeadlines("a"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: head})
	behind := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "the waiter to queue up", func() bool { return fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == 2 })

	if dropped, err := c.DropWaiter(bg, "a", "another:1"); dropped || err != nil {
		t.Errorf("a waiter that is not in the queue: %t, %v", dropped, err)
	}
	if n := fx.rdb.LLen(bg, wire.FairQueue("a")).Val(); n != 2 {
		t.Errorf("%d waiters are left, want 2", n)
	}
	if dropped, err := c.DropWaiter(bg, "a", head); !dropped || err != nil {
		t.Errorf("DropWaiter: %t, %v", dropped, err)
	}
	got := mustReceive(t, "the lock", behind)
	if got.err != nil {
		t.Fatal(got.err)
	}
	// Its owner has left the queue: DropWaiter takes no lock from a holder.
	if dropped, err := c.DropWaiter(bg, "a", holdOf(got.lease).wire); dropped || err != nil {
		t.Errorf("the holder: %t, %v", dropped, err)
	}
	if err := got.lease.Err(); err != nil {
		t.Errorf("the holder has lost the lock: %v", err)
	}
	mustRelease(t, got.lease)
}

// listen subscribes to a channel until the test ends.
func listen(t *testing.T, rdb *redis.Client, channel string) {
	t.Helper()
	sub := rdb.Subscribe(bg, channel)
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(bg); err != nil {
		t.Fatal(err)
	}
}

func TestDropWaiter_Refusals(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	_, err := c.DropWaiter(bg, "", "o")
	wantErr(t, "no name", err, ErrInvalidName)
	_, err = c.DropWaiter(bg, "a", "")
	wantErr(t, "no waiter", err, ErrInvalidOptions)
}

// A caller that waits for a fair lock knows its place in Redis by its wire owner.
func TestWaits_Owner(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for name, l := range map[string]*Lock{"fair": c.FairLock("f"), "plain": c.Lock("p")} {
		held := mustAcquire(t, bg, l, AcquireOptions{})
		waiting := acquireAsync(bg, l, AcquireOptions{WaitTime: WaitForever})
		eventually(t, "the waiter", func() bool { return len(c.Waits()) == 1 })
		if name == "fair" {
			eventually(t, "its place", func() bool { return fx.rdb.LLen(bg, wire.FairQueue("f")).Val() == 1 })
			if queue := fx.rdb.LRange(bg, wire.FairQueue("f"), 0, -1).Val(); queue[0] != c.Waits()[0].Owner {
				t.Errorf("the owner is %q, in the queue is %q", c.Waits()[0].Owner, queue)
			}
		} else if owner := c.Waits()[0].Owner; owner != "" {
			t.Errorf("%s: the owner is %q", name, owner)
		}
		mustRelease(t, held)
		mustRelease(t, mustReceive(t, "the lock", waiting).lease)
	}
}
