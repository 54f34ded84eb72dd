package core

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redistest"
)

// Tests of commands that reach Redis long after a retry of them was answered.

// The first try of an acquire is held back and its retry granted. The owner enters again for longer; then the first try
// arrives. It must change neither the count nor any time to live.
func TestAcquire_StrayAfterReentry(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		lock   func(c *Client, name string) *Lock
		script *lua.Script
		suffix string // of the field
	}{
		"plain":  {(*Client).Lock, acquireScript, ""},
		"fenced": {(*Client).FencedLock, fencedAcquireScript, ""},
		"fair":   {(*Client).FairLock, fairAcquireScript, ""},
		"read":   {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Read() }, readAcquireScript, ""},
		"write":  {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }, writeAcquireScript, ":write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t)
			other := b.client(t)
			ctx := WithOwner(bg)

			stray := proxy.OnMatch(1, runs(kind.script), redistest.HoldRequest)
			first := mustTake(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: patience + 5*time.Second})
			again := mustTake(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			before := b.timesToLive(t)
			stray.Release()
			await(t, "the stray acquire was executed", stray.Done())

			if count := b.fields(t, "a")[first.hold.field+kind.suffix]; count != "2" {
				t.Errorf("count %q after the stray, want 2", count)
			}
			for key, ttl := range b.timesToLive(t) {
				if ttl < before[key]-patience {
					t.Errorf("%q had %v to live and has %v after the stray", key, before[key], ttl)
				}
			}
			if name == "read" { // a reader that leaves looks at the keys of the others
				mustRelease(t, mustTake(t, bg, kind.lock(other, "a"), AcquireOptions{}))
				wantErr(t, "a writer beside a reader", second(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			}
			wantHeld(t, first)
			wantHeld(t, again)
			mustRelease(t, again)
			if count := b.fields(t, "a")[first.hold.field+kind.suffix]; count != strconv.Itoa(1) {
				t.Errorf("count %q after a release, want 1", count)
			}
			mustRelease(t, first)
		})
	}
}

// timesToLive maps each key to the time it has left.
func (b *bundle) timesToLive(t testing.TB) map[string]time.Duration {
	t.Helper()
	times := make(map[string]time.Duration)
	for _, key := range b.rdb.Keys(context.Background(), "*").Val() {
		if ttl := b.pttl(t, key); ttl > 0 {
			times[key] = ttl
		}
	}
	return times
}
