package core

import (
	"testing"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redistest"
)

// allKinds is every kind of lock, with its scripts.
var allKinds = map[string]struct {
	lock    func(c *Client, name string) *Lock
	acquire *lua.Script
	pass    *lua.Script // nil: no hand-over
	force   *lua.Script
}{
	"plain":  {(*Client).Lock, acquireScript, passScript, forceScript},
	"fenced": {(*Client).FencedLock, fencedAcquireScript, fencedPassScript, forceScript},
	"fair":   {(*Client).FairLock, fairAcquireScript, fairPassScript, fairForceScript},
	"read":   {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Read() }, readAcquireScript, nil, forceScript},
	"write":  {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }, writeAcquireScript, passScript, forceScript},
}

func mustForce(t testing.TB, l *Lock) {
	t.Helper()
	if forced, err := l.ForceUnlock(bg); !forced || err != nil {
		t.Fatalf("ForceUnlock: %v, %v, want true", forced, err)
	}
}

// Redis grants the lock, and ForceUnlock takes it back before the reply arrives. Acquire must not
// return a lease: another client may have the lock by then.
func TestForceUnlock_GrantOnItsWay(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t)
			other := b.client(t)
			held := proxy.OnMatch(1, runs(kind.acquire), redistest.HoldReply)
			result := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{})
			await(t, "Redis to grant the lock", held.Hit())

			mustForce(t, kind.lock(c, "a"))
			lease := mustTake(t, bg, kind.lock(other, "a"), AcquireOptions{})
			held.Release()
			wantErr(t, "the Acquire that was forced", await(t, "Acquire to return", result).err, ErrLockLost)
			wantHeld(t, lease)
			mustRelease(t, lease)
		})
	}
}

// The member of a RedLock tries past the queue. ForceUnlock takes its grant back as well.
func TestForceUnlock_GrantPastTheQueueOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	held := proxy.OnMatch(1, runs(allKinds["plain"].acquire), redistest.HoldReply)
	result := acquireAsync(withoutQueue(bg), c.Lock("a"), AcquireOptions{})
	await(t, "Redis to grant the lock", held.Hit())

	mustForce(t, c.Lock("a"))
	lease := mustTake(t, bg, b.client(t).Lock("a"), AcquireOptions{})
	held.Release()
	wantErr(t, "the Acquire that was forced", await(t, "Acquire to return", result).err, ErrLockLost)
	wantHeld(t, lease)
	mustRelease(t, lease)
}

// Redis hands the lock to a waiter, and ForceUnlock takes it back before the reply arrives. The
// waiter must not get a lease.
func TestForceUnlock_HandOverOnItsWay(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		if kind.pass == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(never))
			other := b.client(t)
			first := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
			waiter := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{WaitTime: patience})
			listened(t, c, "a")

			held := proxy.OnMatch(1, runs(kind.pass), redistest.HoldReply)
			released := make(chan error, 1)
			go func() { released <- first.Release(bg) }()
			await(t, "Redis to hand the lock on", held.Hit())
			mustForce(t, kind.lock(c, "a"))
			lease := mustTake(t, bg, kind.lock(other, "a"), AcquireOptions{})
			held.Release()
			if err := await(t, "Release to return", released); err != nil {
				t.Errorf("Release of a hold that was handed on: %v", err)
			}
			wantErr(t, "the waiter", await(t, "Acquire to return", waiter).err, ErrLockLost)
			wantHeld(t, lease)
			mustRelease(t, lease)
		})
	}
}

// ForceUnlock takes the lock from the owners that it read. A reader that came later keeps its hold.
func TestForceUnlock_LeavesAReaderThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	other := b.client(t)
	old := mustTake(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{})
	held := proxy.OnMatch(1, runs(forceScript), redistest.HoldRequest)
	forced := make(chan error, 1)
	go func() {
		_, err := c.ReadWriteLock("a").Read().ForceUnlock(bg)
		forced <- err
	}()
	await(t, "ForceUnlock to read the holders", held.Hit())
	meanwhile := mustTake(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{})
	held.Release()
	if err := await(t, "ForceUnlock to return", forced); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "the reader that was there", old.Err(), ErrLockLost)
	wantErr(t, "a writer beside the new reader", second(c.ReadWriteLock("a").Write()), ErrNotAcquired)
	wantHeld(t, meanwhile)
	mustRelease(t, meanwhile)
}

// A writer that also reads loses both sides.
func TestForceUnlock_WriterThatReads(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	l, owner := c.ReadWriteLock("a"), WithOwner(bg)
	write := mustTake(t, owner, l.Write(), AcquireOptions{})
	read := mustTake(t, owner, l.Read(), AcquireOptions{})
	mustForce(t, b.client(t).ReadWriteLock("a").Write())
	b.wantFields(t, "a", nil)
	mustForgetAll(t, write, read)
}

// mustForgetAll releases leases that are lost, so that their client forgets them.
func mustForgetAll(t testing.TB, leases ...*Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(bg); err != nil {
			wantErr(t, "Release of a lost lock", err, ErrNotHeld)
		}
	}
}
