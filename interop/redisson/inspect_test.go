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

// lease is long enough for the slowest machine; it is not renewed, so that what is left of it can only become less.
const lease = 10 * time.Minute

// inspectable is a lock of ours that can be looked into.
func inspectable(t *testing.T, k kind, cs clients, name string) *core.Lock {
	t.Helper()
	lock, ok := k.lock(cs, name).(*core.Lock)
	if !ok {
		t.Fatalf("a %s of ours is no *core.Lock", k.name)
	}
	return lock
}

// everyKind runs a test for each kind with one lock behind it.
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

// testHeldByJVM: what the JVM holds, both sides see alike.
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
			if !errors.As(err, &refused) || refused.TTL <= 0 || refused.TTL > 2*lease { // write locks add up their leases
				t.Errorf("Acquire of what the JVM holds: %v", err)
			}
		}
		held, err := lock.IsHeld(core.WithOwner(t.Context()))
		if held || err != nil {
			t.Errorf("IsHeld of what the JVM holds: %v, %v", held, err)
		}

		topo.peer.ask(t, holder, "unlock", k.name, name)
		topo.wantCount(t, k, name, 1)
		topo.peer.ask(t, holder, "unlock", k.name, name)
		topo.wantFree(t, k, lock, other)
	})
}

// testHeldByGo: what we hold, both sides see alike.
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

// testForced: a lock that one side forces open is free for both, and the holder is told when it lets go.
func (topo *topology) testForced(t *testing.T) {
	topo.everyKind(t, func(t *testing.T, k kind) {
		name, thread := newName("forced"), newName("thread")
		lock := inspectable(t, k, topo.clients(t), name)

		lost := mustAcquire(t, t.Context(), lock)
		topo.peer.want(t, true, thread, "forceUnlock", k.name, name)
		if err := lost.Release(t.Context()); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("Release after the JVM has forced the lock: %v, want ErrLockLost", err)
		}
		topo.wantFree(t, k, lock, thread)
		topo.peer.want(t, false, thread, "forceUnlock", k.name, name)

		topo.peer.ask(t, thread, "lock", k.name, name, lease.Milliseconds())
		if forced, err := lock.ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock of what the JVM holds: %v, %v", forced, err)
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

// wantLocked asks both sides whether a lock is held and for how long, the JVM before and after us.
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

// wantFree asks both sides whether a lock is free.
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

// wantNotTheirs has a thread unlock what it does not hold.
func (topo *topology) wantNotTheirs(t *testing.T, k kind, name, thread string) {
	t.Helper()
	_, err := topo.peer.result(t, topo.peer.send(t, thread, "unlock", k.name, name))
	told := err != nil && strings.Contains(err.Error(), "IllegalMonitorState")
	if locked := topo.rdbs[k.master].Exists(t.Context(), name).Val() == 1; !told && (locked || !topo.version.before(k.strict)) {
		t.Errorf("the JVM unlocks what it does not hold: %v", err)
	}
}

// wantCount looks into Redis: there is one holder, who has entered so often.
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
