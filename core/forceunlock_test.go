package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// allKinds is every kind of lock, with its scripts.
var allKinds = map[string]struct {
	lock    func(c *Client, name string) *Lock
	acquire *lua.Script
	pass    *lua.Script // nil: no hand-over
	force   *lua.Script
}{
	"plain":        {(*Client).Lock, acquireScript, passScript, forceScript},
	"fenced":       {(*Client).FencedLock, fencedAcquireScript, fencedPassScript, forceScript},
	"fair":         {(*Client).FairLock, fairAcquireScript, fairPassScript, fairForceScript},
	"fenced-fair":  {fencedFairLock, fencedFairAcquireScript, fencedFairPassScript, fairForceScript},
	"fenced-write": {fencedWriteSide, fencedWriteAcquireScript, fencedPassScript, forceScript},
	"read":         {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Read() }, readAcquireScript, nil, forceScript},
	"write":        {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }, writeAcquireScript, passScript, forceScript},
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
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			other := fx.newLocks(t)
			held := proxy.OnMatch(1, runsScript(kind.acquire), redistest.HoldReply)
			result := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{})
			mustReceive(t, "Redis to grant the lock", held.Hit())

			mustForce(t, kind.lock(c, "a"))
			lease := mustAcquire(t, bg, kind.lock(other, "a"), AcquireOptions{})
			held.Release()
			wantErr(t, "the Acquire that was forced", mustReceive(t, "Acquire to return", result).err, ErrLockLost)
			wantHeld(t, lease)
			mustRelease(t, lease)
		})
	}
}

// The member of a RedLock tries past the queue. ForceUnlock takes its grant back as well.
func TestForceUnlock_GrantPastTheQueueOnItsWay(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	held := proxy.OnMatch(1, runsScript(allKinds["plain"].acquire), redistest.HoldReply)
	result := acquireAsync(withoutQueue(bg), c.Lock("a"), AcquireOptions{})
	mustReceive(t, "Redis to grant the lock", held.Hit())

	mustForce(t, c.Lock("a"))
	lease := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	held.Release()
	wantErr(t, "the Acquire that was forced", mustReceive(t, "Acquire to return", result).err, ErrLockLost)
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
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			other := fx.newLocks(t)
			first := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
			waiter := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{WaitTime: patience})
			eventuallyAsleep(t, c, "a")

			held := proxy.OnMatch(1, runsScript(kind.pass), redistest.HoldReply)
			released := make(chan error, 1)
			go func() { released <- first.Release(bg) }()
			mustReceive(t, "Redis to hand the lock on", held.Hit())
			mustForce(t, kind.lock(c, "a"))
			lease := mustAcquire(t, bg, kind.lock(other, "a"), AcquireOptions{})
			held.Release()
			if err := mustReceive(t, "Release to return", released); err != nil {
				t.Errorf("Release of a hold that was handed on: %v", err)
			}
			wantErr(t, "the waiter", mustReceive(t, "Acquire to return", waiter).err, ErrLockLost)
			wantHeld(t, lease)
			mustRelease(t, lease)
		})
	}
}

// ForceUnlock takes the lock from the owners that it read. A reader that came later keeps its hold.
func TestForceUnlock_LeavesAReaderThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	other := fx.newLocks(t)
	old := mustAcquire(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{})
	held := proxy.OnMatch(1, runsScript(forceScript), redistest.HoldRequest)
	forced := make(chan error, 1)
	go func() {
		_, err := c.ReadWriteLock("a").Read().ForceUnlock(bg)
		forced <- err
	}()
	mustReceive(t, "ForceUnlock to read the holders", held.Hit())
	meanwhile := mustAcquire(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{})
	held.Release()
	if err := mustReceive(t, "ForceUnlock to return", forced); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "the reader that was there", old.Err(), ErrLockLost)
	wantErr(t, "a writer beside the new reader", tryAcquire(c.ReadWriteLock("a").Write()), ErrNotAcquired)
	wantHeld(t, meanwhile)
	mustRelease(t, meanwhile)
}

// A writer that also reads loses both sides.
func TestForceUnlock_WriterThatReads(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for _, fenced := range []bool{false, true} {
		writing := func(c *Client) *Lock {
			l := c.ReadWriteLock("a").Write()
			if fenced {
				l = l.Fenced()
			}
			return l
		}
		owner := WithOwner(bg)
		write := mustAcquire(t, owner, writing(c), AcquireOptions{})
		read := mustAcquire(t, owner, c.ReadWriteLock("a").Read(), AcquireOptions{})
		mustForce(t, writing(fx.newLocks(t)))
		fx.wantFields(t, "a", nil)
		mustForgetAll(t, write, read)
	}
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

// traders acquire and release a lock all the time, two in each of two clients, and note the wire
// owners that lost it.
type traders struct {
	wg   sync.WaitGroup
	done atomic.Bool

	mu      sync.Mutex
	lost    map[string]bool
	unnamed int // calls of Acquire that lost a grant on its way: their events name no owner
}

func (tr *traders) note(_ context.Context, e Event) {
	if errors.Is(e.Err, ErrLockLost) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if e.Owner == "" {
			tr.unnamed++
		} else {
			tr.lost[e.Owner] = true
		}
	}
}

func (tr *traders) trade(l *Lock) {
	for range 2 {
		tr.wg.Go(func() {
			for !tr.done.Load() {
				lease, err := l.Acquire(bg, AcquireOptions{WaitTime: patience})
				if err == nil {
					_ = lease.Release(bg) // perhaps ErrLockLost
				}
			}
		})
	}
}

func (tr *traders) stop() {
	tr.done.Store(true)
	tr.wg.Wait()
}

// While a lock changes hands all the time, ForceUnlockOwners takes it only from the owners
// that it was given, and says from which.
func TestForceUnlockOwners_AmidHandOvers(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedisWithInboxes(t)
			tr := &traders{lost: make(map[string]bool)}
			observe := func(o *Options) {
				o.Observer = Observer{NotAcquired: tr.note, Released: tr.note, Lost: tr.note}
			}
			first := fx.newLocks(t, observe)
			tr.trade(kind.lock(first, "a"))
			tr.trade(kind.lock(fx.newLocks(t, observe), "a"))
			t.Cleanup(tr.stop)
			operator, reader := fx.newLocks(t), kind.lock(first, "a")

			freed, spared := make(map[string]bool), 0
			for i := 0; len(freed) < 20 || spared < 20; i++ {
				shown, err := reader.holders(bg)
				if err != nil {
					t.Fatal(err)
				}
				if len(shown) == 0 {
					continue
				}
				// Sometimes the holder's own client frees it.
				by := []*Client{operator, first}[i%2]
				if i%3 > 0 {
					time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
				}
				forced, err := by.ForceUnlockOwners(bg, "a", reader.kind.Name, shown)
				if err != nil {
					t.Fatal(err)
				}
				if len(forced.Owners) == 0 {
					spared++
				}
				for _, owner := range forced.Owners {
					if !slices.Contains(shown, owner) {
						t.Fatalf("it has taken the lock from %s, and was told to take it from %q", owner, shown)
					}
					freed[wire.OwnerOf(owner)] = true
				}
			}
			tr.stop()
			tr.mu.Lock() // a message may still be read
			defer tr.mu.Unlock()
			unheard := 0
			for owner := range freed {
				if !tr.lost[owner] {
					unheard++
				}
				delete(tr.lost, owner)
			}
			for owner := range tr.lost {
				t.Errorf("%s has lost the lock, and nobody says that it was taken from it", owner)
			}
			if n := tr.unnamed; n < unheard || n > len(freed) {
				t.Errorf("%d calls of Acquire have lost a grant on its way; %d owners have lost the lock, %d of them unheard of", n, len(freed), unheard)
			}
		})
	}
}

// If a reply is lost, ForceUnlockOwners does not know who lost the lock, and says so.
func TestForceUnlockOwners_ReplyLost(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	lease := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	owner := holdOf(lease).wire
	c, proxy := fx.newLossyLocks(t)
	proxy.OnMatch(1, runsScript(forceScript), redistest.DropReply)
	forced, err := c.ForceUnlockOwners(bg, "a", "lock", []string{owner})
	if err == nil || !strings.Contains(err.Error(), owner) || !strings.Contains(err.Error(), "was lost") || len(forced.Owners) > 0 {
		t.Errorf("%+v, %v", forced, err)
	}
	mustReceive(t, "the lease to end", lease.Done())
	mustForgetAll(t, lease)
}

// ForceUnlockOwners leaves the other readers their lock, and says how many there are.
func TestForceUnlockOwners_SomeReaders(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	read := fx.newLocks(t).ReadWriteLock("a").Read()
	first, second := mustAcquire(t, bg, read, AcquireOptions{}), mustAcquire(t, bg, read, AcquireOptions{})
	owner := holdOf(first).wire
	forced, err := fx.newLocks(t).ForceUnlockOwners(bg, "a", "read", []string{owner})
	if err != nil || !slices.Equal(forced.Owners, []string{owner}) || forced.Left != 1 {
		t.Errorf("%+v, %v", forced, err)
	}
	mustReceive(t, "the lease to end", first.Done())
	wantHeld(t, second)
	mustForgetAll(t, first)
	mustRelease(t, second)
}
