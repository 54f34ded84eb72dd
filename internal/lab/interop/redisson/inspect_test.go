//go:build interop

package redisson

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// lease is long enough for the slowest machine. It is not renewed, so the rest of it can only
// shrink.
const lease = 10 * time.Minute

// inspectable returns a lock of ours with its query methods.
func inspectable(t *testing.T, k kind, cs clients, name string) *core.Lock {
	t.Helper()
	lock, ok := k.lock(cs, name).(*core.Lock)
	if !ok {
		t.Fatalf("our %s is not a *core.Lock", k.name)
	}
	return lock
}

// everyKind runs a test for each kind that consists of one lock.
func (topo *topology) everyKind(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range one {
		if topo.without(k) != "" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// testHeldByJVM: both sides report a lock held by the JVM alike.
func (topo *topology) testHeldByJVM(t *testing.T) {
	topo.everyKind(t, func(t *testing.T, k kind) {
		name, holder, other := newName("held"), newName("holder"), newName("other")
		lock := inspectable(t, k, topo.clients(t), name)
		topo.peer.ask(t, holder, "lock", k.name, name, lease.Milliseconds())
		topo.peer.ask(t, holder, "lock", k.name, name, lease.Milliseconds())
		topo.peer.want(t, 2, holder, "holdCount", k.name, name)
		topo.wantCount(t, k, name, 2)
		topo.wantLocked(t, k, lock, other)

		if !k.shared {
			_, err := lock.Acquire(t.Context(), core.AcquireOptions{})
			var refused *core.NotAcquiredError
			// Redisson adds up the leases of write locks.
			if !errors.As(err, &refused) || refused.TTL <= 0 || refused.TTL > 2*lease {
				t.Errorf("Acquire of the JVM's lock: %v", err)
			}
		}
		held, err := lock.IsHeld(core.WithOwner(t.Context()))
		if held || err != nil {
			t.Errorf("IsHeld of the JVM's lock: %v, %v", held, err)
		}

		topo.peer.ask(t, holder, "unlock", k.name, name)
		topo.wantCount(t, k, name, 1)
		topo.peer.ask(t, holder, "unlock", k.name, name)
		topo.wantFree(t, k, lock, other)
	})
}

// testHeldByGo: both sides report a lock held by us alike.
func (topo *topology) testHeldByGo(t *testing.T) {
	topo.everyKind(t, func(t *testing.T, k kind) {
		name, other := newName("held"), newName("other")
		lock := inspectable(t, k, topo.clients(t), name)
		ctx := core.WithOwner(t.Context())
		first := mustAcquire(t, ctx, lock)
		second := mustAcquire(t, ctx, lock)
		if n, err := lock.HoldCount(ctx); n != 2 || err != nil {
			t.Errorf("HoldCount: %d, %v; want 2", n, err)
		}
		topo.wantCount(t, k, name, 2)
		topo.wantLocked(t, k, lock, other)

		topo.peer.want(t, false, other, "isHeld", k.name, name)
		topo.peer.want(t, 0, other, "holdCount", k.name, name)
		if !k.shared {
			topo.peer.want(t, false, other, "tryLock", k.name, name, 0, -1)
		}
		topo.wantNotTheirs(t, k, name, other)

		mustRelease(t, second)
		topo.wantCount(t, k, name, 1)
		mustRelease(t, first)
		topo.wantFree(t, k, lock, other)
	})
}

// testForced: a lock that one side forces open is free for both, and its holder learns of it on
// release.
func (topo *topology) testForced(t *testing.T) {
	topo.everyKind(t, func(t *testing.T, k kind) {
		name, thread := newName("forced"), newName("thread")
		lock := inspectable(t, k, topo.clients(t), name)

		lost := mustAcquire(t, t.Context(), lock)
		topo.peer.want(t, true, thread, "forceUnlock", k.name, name)
		if err := lost.Release(t.Context()); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("Release after the JVM forced the lock: %v, want ErrLockLost", err)
		}
		topo.wantFree(t, k, lock, thread)
		topo.peer.want(t, false, thread, "forceUnlock", k.name, name)

		topo.peer.ask(t, thread, "lock", k.name, name, lease.Milliseconds())
		if forced, err := lock.ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock of the JVM's lock: %v, %v", forced, err)
		}
		topo.wantNotTheirs(t, k, name, thread)
		topo.wantFree(t, k, lock, thread)
	})
}

func mustAcquire(t *testing.T, ctx context.Context, lock core.Locker) *core.Lease {
	t.Helper()
	l, err := lock.Acquire(ctx, core.AcquireOptions{LeaseTime: lease, WaitTime: patience})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustRelease(t *testing.T, l *core.Lease) {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// wantLocked checks on both sides that a lock is held and for how long, on the JVM before and after
// us.
func (topo *topology) wantLocked(t *testing.T, k kind, lock *core.Lock, thread string) {
	t.Helper()
	topo.peer.want(t, true, thread, "isLocked", k.name, lock.Name())
	if locked, err := lock.IsLocked(t.Context()); !locked || err != nil {
		t.Errorf("IsLocked: %v, %v; want true", locked, err)
	}
	before := topo.peer.milliseconds(t, thread, "ttl", k.name, lock.Name())
	ours, err := lock.RemainingTTL(t.Context())
	if err != nil {
		t.Error(err)
	}
	after := topo.peer.milliseconds(t, thread, "ttl", k.name, lock.Name())
	if before < ours || ours < after || after <= 0 {
		t.Errorf("time to live: %v for the JVM, then %v for us, then %v for the JVM", before, ours, after)
	}
}

// wantFree checks on both sides that a lock is free.
func (topo *topology) wantFree(t *testing.T, k kind, lock *core.Lock, thread string) {
	t.Helper()
	topo.peer.want(t, false, thread, "isLocked", k.name, lock.Name())
	if locked, err := lock.IsLocked(t.Context()); locked || err != nil {
		t.Errorf("IsLocked: %v, %v; want false", locked, err)
	}
	topo.peer.want(t, -2, thread, "ttl", k.name, lock.Name())
	if ttl, err := lock.RemainingTTL(t.Context()); ttl != 0 || err != nil {
		t.Errorf("RemainingTTL: %v, %v; want 0", ttl, err)
	}
}

// wantNotTheirs makes a thread unlock a lock that it does not hold.
func (topo *topology) wantNotTheirs(t *testing.T, k kind, name, thread string) {
	t.Helper()
	_, err := topo.peer.result(t, topo.peer.send(t, thread, "unlock", k.name, name))
	refused := err != nil && strings.Contains(err.Error(), "IllegalMonitorState")
	if locked := topo.rdbs[k.master].Exists(t.Context(), name).Val() == 1; !refused && (locked || !topo.version.before(k.strict)) {
		t.Errorf("the JVM unlocked a lock that it does not hold: %v", err)
	}
}

// wantCount checks in Redis that there is one holder with this hold count.
func (topo *topology) wantCount(t *testing.T, k kind, name string, want int) {
	t.Helper()
	fields, err := topo.rdbs[k.master].HGetAll(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "mode") // of a read/write lock
	if len(fields) != 1 {
		t.Errorf("holders in Redis: %v, want one", fields)
	}
	for owner, count := range fields {
		if count != strconv.Itoa(want) {
			t.Errorf("hold count of %s in Redis: %s, want %d", owner, count, want)
		}
	}
}
