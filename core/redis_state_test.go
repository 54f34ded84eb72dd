package core

import (
	"context"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// What tests see and change of a lock in Redis, and of its lease.

// hash returns the hash of a lock in Redis.
func (fx *redisFixture) hash(t testing.TB, key string) map[string]string {
	t.Helper()
	m, err := fx.rdb.HGetAll(bg, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pttl returns the time to live of a key.
func (fx *redisFixture) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	d, err := fx.rdb.PTTL(bg, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// expire sets the time to live of a key, which must exist.
func (fx *redisFixture) expire(t testing.TB, key string, ttl time.Duration) {
	t.Helper()
	if ok, err := fx.rdb.PExpire(bg, key, ttl).Result(); err != nil || !ok {
		t.Fatalf("PEXPIRE %s: %v, %v", key, ok, err)
	}
}

func (fx *redisFixture) wantFree(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if f := fx.hash(t, name); len(f) > 0 {
			t.Errorf("%s is locked: %v", name, f)
		}
	}
}

func (fx *redisFixture) wantLocked(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if f := fx.hash(t, name); len(f) != 1 {
			t.Errorf("%s is not locked: %v", name, f)
		}
	}
}

func wantHoldCount(t testing.TB, ctx context.Context, l *Lock, want int) {
	t.Helper()
	if n, err := l.HoldCount(ctx); n != want || err != nil {
		t.Errorf("%s is entered %d times (%v), want %d", l.Name(), n, err, want)
	}
}

// eventuallyRenewed waits until the time to live of a lock goes up.
func (fx *redisFixture) eventuallyRenewed(t testing.TB, key string) {
	t.Helper()
	lowest := fx.pttl(t, key)
	eventually(t, "a renewal of "+key, func() bool {
		ttl := fx.pttl(t, key)
		lowest = min(lowest, ttl)
		return ttl > lowest
	})
}

// mustBeRenewed waits for one more renewal of each lease, and fails the test if one is lost.
func mustBeRenewed(t testing.TB, leases ...*Lease) {
	t.Helper()
	renewed := func(l *Lease) clock.Instant {
		l.mu().Lock()
		defer l.mu().Unlock()
		return holdOf(l).renewed
	}
	before := make([]clock.Instant, len(leases))
	for i, l := range leases {
		before[i] = renewed(l)
	}
	for i, l := range leases {
		eventually(t, "a renewal of "+l.Name(), func() bool { return l.Err() != nil || renewed(l) != before[i] })
		wantHeld(t, l)
	}
}

// holdOf returns the hold behind a lease of one lock.
func holdOf(l *Lease) *hold { return l.backend.(*level).hold }

func wantHeld(t testing.TB, lease *Lease) {
	t.Helper()
	if err := lease.Err(); err != nil {
		t.Fatalf("Err() = %v, want the lease held", err)
	}
	if err := lease.Context().Err(); err != nil {
		t.Fatalf("the lease's context ended: %v", context.Cause(lease.Context()))
	}
}
