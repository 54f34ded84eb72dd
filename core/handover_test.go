package core

import (
	"context"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redistest"
)

// Redis does not execute a hand-over, as in a slot whose move has torn the keys of a lock apart. The
// release is a plain one then: it succeeds at once, and the waiter gets the lock by asking for it.
func TestRelease_HandOverThatCannotBeDone(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "-CLUSTERDOWN The cluster is down\r\n"} {
		for name, kind := range allKinds {
			if kind.pass == nil {
				continue
			}
			t.Run(name+" "+reply[1:5], func(t *testing.T) {
				t.Parallel()
				b := newBundle(t)
				c, proxy := b.proxied(t)
				lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
				waiter := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{WaitTime: patience})
				eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
				tries := counter(proxy, runs(kind.pass))
				proxy.OnEvery(runs(kind.pass), redistest.ReplyWith(reply))
				mustRelease(t, lease)
				mustRelease(t, mustGet(t, "the waiter", waiter))
				if n := tries(); n != 1 {
					t.Errorf("%d tries of a hand-over that cannot be done", n)
				}
			})
		}
	}
}

// fill has Redis refuse every command that may need memory, until the test ends.
func (b *bundle) fill(t testing.TB) {
	t.Helper()
	b.loadScripts(t)
	set := func(maxmemory string) {
		if err := b.rdb.ConfigSet(bg, "maxmemory", maxmemory).Err(); err != nil {
			t.Error(err)
		}
	}
	set("1")
	t.Cleanup(func() { set("0") })
}

// What a holder does works on a Redis whose memory is full: handing the lock on, extending it,
// releasing one level, and being renewed.
func TestHold_OnAFullRedis(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, watchdogTimeout(3*time.Second))
			lock := kind.lock(c, "a")
			outer := mustTake(t, bg, lock, AcquireOptions{})
			inner := mustTake(t, outer.Context(), lock, AcquireOptions{LeaseTime: time.Minute})
			var waiter <-chan acquired
			if kind.pass != nil {
				waiter = acquireAsync(bg, lock, AcquireOptions{WaitTime: patience})
				eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
			}
			b.fill(t)
			if err := inner.Extend(bg, time.Hour); err != nil {
				t.Errorf("Extend: %v", err)
			}
			b.wantPTTL(t, "a", time.Hour)
			mustRelease(t, inner)
			if name == "read" { // a time-out key that was evicted is put back
				timeout := wire.ReadTimeout("a", outer.hold.field, 1)
				b.rdb.Del(bg, timeout)
				eventually(t, "it is put back", func() bool { return b.pttl(t, timeout) > 0 })
			} else {
				awaitRenewals(t, outer)
			}
			mustRelease(t, outer)
			if waiter != nil {
				mustRelease(t, mustGet(t, "the waiter", waiter))
			}
		})
	}
}

// A waiter leaves the queue of a fair lock on a full Redis, with others behind it.
func TestFair_LeavesTheQueueOfAFullRedis(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	holder := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	ctx, leave := context.WithCancel(bg)
	leaving := b.inLineWith(t, ctx, c)[0]
	results := b.inLine(t, c, c)
	b.fill(t)
	leave()
	wantErr(t, "the one that leaves", await(t, "it leaves", leaving).err, ErrStillHeld)
	b.awaitQueued(t, "a", 2)
	if n := b.rdb.ZCard(bg, wire.FairDeadlines("a")).Val(); n != 2 {
		t.Errorf("%d deadlines for two waiters", n)
	}
	mustRelease(t, holder)
	for _, r := range results {
		mustRelease(t, mustGet(t, "one behind it", r))
	}
}
