package core

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A permitsFixture has three permits named a. wantFree asks for how many are free.
type permitsFixture struct{ *redisFixture }

func newPermitsFixture(t *testing.T) permitsFixture { return permitsFixture{newRedis(t)} }

func (fx permitsFixture) wantFree(t *testing.T, c *Client, want int) {
	t.Helper()
	if n, err := c.Semaphore("a", 3).Available(bg); err != nil || n != want {
		t.Errorf("%d permits are free (%v), want %d", n, err, want)
	}
}

// family returns how many use the permits of a lease.
func (fx permitsFixture) family(lease *Lease) int64 {
	return fx.rdb.ZCard(bg, wire.PermitFamily("a", holdOf(lease).wire)).Val()
}

// Guests of guests use the permits that the first of them took. Those are free when all have left.
func TestGuestOfPermits_Depth(t *testing.T) {
	t.Parallel()
	fx := newPermitsFixture(t)
	first := fx.newLocks(t, service(t, "a"))
	lease, err := first.Semaphore("a", 3).AcquireN(bg, 2, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leases, ctx := []*Lease{lease}, delegated(t, lease, "b")
	for _, name := range []string{"b", "c", "d"} {
		s := fx.newLocks(t, service(t, name)).Semaphore("a", 3)
		_, err := s.AcquireN(ctx, 3, AcquireOptions{})
		wantErr(t, "more permits than the caller has", err, ErrInvalidOptions)
		lease := mustAcquire(t, ctx, s, AcquireOptions{})
		both, err := s.AcquireN(ctx, 2, AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, both)
		fx.wantFree(t, first, 1)
		leases, ctx = append(leases, lease), delegated(t, lease, string(name[0]+1))
	}
	for _, lease := range leases {
		fx.wantFree(t, first, 1)
		late := delegated(t, lease, "e")
		mustRelease(t, lease)
		_, err := fx.newLocks(t, service(t, "e")).Semaphore("a", 3).Acquire(late, AcquireOptions{})
		wantErr(t, "a guest that is late", err, ErrParentLost)
	}
	fx.wantFree(t, first, 3)
}

// A guest keeps the permit when the lease of its host ends, and renews it.
func TestGuestOfPermits_HostLost(t *testing.T) {
	t.Parallel()
	fx := newPermitsFixture(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"), watchdogTimeout(time.Second))
	host := mustAcquire(t, bg, a.Semaphore("a", 3), AcquireOptions{LeaseTime: 500 * time.Millisecond})
	guest := mustAcquire(t, delegated(t, host, "b"), b.Semaphore("a", 3), AcquireOptions{})
	mustReceive(t, "the end of the host's lease", host.Done())
	before := b.Counters().Commands
	eventually(t, "renewals", func() bool { return b.Counters().Commands > before+4 })
	fx.wantFree(t, a, 2)
	if err := guest.Err(); err != nil {
		t.Errorf("the guest: %v", err)
	}
	mustRelease(t, guest)
	fx.wantFree(t, a, 3)
}

// A guest whose lease ends, as if its process had died, does not keep the permit from others.
func TestGuestOfPermits_GuestLost(t *testing.T) {
	t.Parallel()
	fx := newPermitsFixture(t)
	a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Semaphore("a", 3), AcquireOptions{})
	guest := mustAcquire(t, delegated(t, host, "b"), b.Semaphore("a", 3), AcquireOptions{})
	fx.rdb.ZAdd(bg, wire.PermitFamily("a", holdOf(host).wire), redis.Z{Score: 1, Member: holdOf(guest).wire})
	mustRelease(t, host)
	fx.wantFree(t, a, 3)
	wantErr(t, "the guest", guest.Release(bg), ErrLockLost)
}

// Who takes a permit by force ends its guests, and no others.
func TestGuestOfPermits_Forced(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint("permit ", i), func(t *testing.T) {
			t.Parallel()
			fx := permitsFixture{newRedisWithInboxes(t)}
			a, b := fx.newLocks(t, service(t, "a")), fx.newLocks(t, service(t, "b"))
			var hosts, guests []*Lease
			for i := range 2 {
				hosts = append(hosts, mustAcquire(t, bg, a.Semaphore("a", 3), AcquireOptions{}))
				guests = append(guests, mustAcquire(t, delegated(t, hosts[i], "b"), b.Semaphore("a", 3), AcquireOptions{}))
			}
			if forced, err := fx.newLocks(t).Semaphore("a", 3).ForceUnlock(bg, holdOf(hosts[i]).wire); err != nil || !forced {
				t.Fatalf("ForceUnlock: %t, %v", forced, err)
			}
			for _, lease := range []*Lease{hosts[i], guests[i]} {
				mustReceive(t, "the loss", lease.Done())
				wantErr(t, "the loss", lease.Err(), ErrLockLost)
			}
			mustRelease(t, hosts[1-i])
			mustRelease(t, guests[1-i])
			fx.wantFree(t, a, 3)
		})
	}
}

// Commands of a family whose replies are lost are repeated. An entry whose caller has left is undone.
func TestGuestOfPermits_RepliesLost(t *testing.T) {
	t.Parallel()
	fx := newPermitsFixture(t)
	a, toA := fx.newLossyLocks(t, service(t, "a"))
	b, toB := fx.newLossyLocks(t, service(t, "b"))
	host := mustAcquire(t, bg, a.Semaphore("a", 3), AcquireOptions{})
	toB.OnMatch(1, runsScript(permitEnterScript), redistest.CutAfter)
	guest := mustAcquire(t, delegated(t, host, "b"), b.Semaphore("a", 3), AcquireOptions{})
	if n := fx.family(host); n != 2 {
		t.Errorf("%d use the permit, want 2", n)
	}
	toB.OnMatch(1, runsScript(permitLeaveScript), redistest.CutAfter)
	mustRelease(t, guest)

	rule := toB.OnMatch(1, runsScript(permitEnterScript), redistest.HoldRequest)
	ctx, cancel := context.WithCancel(delegated(t, host, "b"))
	left := acquireAsync(ctx, b.Semaphore("a", 3), AcquireOptions{})
	mustReceive(t, "the entry", rule.Hit())
	cancel()
	wantErr(t, "a guest that leaves", mustReceive(t, "its error", left).err, context.Canceled)
	rule.Release()
	eventually(t, "the entry to be undone", func() bool { return fx.family(host) == 0 && b.Stats() == Stats{} })

	toA.OnMatch(1, runsScript(permitLeaveScript), redistest.CutAfter)
	mustRelease(t, host)
	fx.wantFree(t, b, 3)
}
