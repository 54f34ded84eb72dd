package core

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
)

// A key that another program has overwritten proves that the lock is lost. The first renewal, the
// release, and a message on the client's channel find it out, for each kind of lock.
func TestOverwritten_IsALoss(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(c *Client, name string) Locker{
		"once": func(c *Client, name string) Locker { return onceLocker{c.Once(name)} },
	}
	for name, k := range lockKinds {
		kinds[name] = func(c *Client, name string) Locker { return k.lock(c, name) }
	}
	for name, lock := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			overwrite := func() {
				if err := fx.rdb.Set(bg, "a", "x", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			var out lockedBuffer
			c := fx.newLocks(t, watchdogTimeout(9*time.Second), logTo(&out))
			lease := mustAcquire(t, bg, lock(c, "a"), AcquireOptions{})
			beside := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{})
			overwrite()
			mustReceive(t, "the renewal to end the lease", lease.Done())
			for what, err := range map[string]error{"Err": lease.Err(), "the cause": context.Cause(lease.Context()), "Release": lease.Release(bg)} {
				wantErr(t, what, err, ErrLockLost)
				wantErr(t, what, err, ErrWrongKind)
			}
			eventually(t, "the loss in the log", func() bool { return strings.Contains(out.String(), "lock lost") })
			if strings.Contains(out.String(), "renewal failed") {
				t.Errorf("a loss is logged as a failed renewal: %s", out.String())
			}
			wantLines(t, &out, "lock lost while it was held", 1)
			if err := beside.Err(); err != nil {
				t.Errorf("the lock renewed beside it: %v", err)
			}
			mustRelease(t, beside)
			fx.rdb.Del(bg, "a")

			lease = mustAcquire(t, bg, lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			overwrite()
			err := lease.Release(bg)
			wantErr(t, "Release", err, ErrLockLost)
			wantErr(t, "Release", err, ErrWrongKind)
			fx.rdb.Del(bg, "a")

			lease = mustAcquire(t, bg, lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			overwrite()
			c.names.verify("a", errForced)
			mustReceive(t, "the hint to end the lease", lease.Done())
			wantErr(t, "Err", lease.Err(), ErrWrongKind)
			if v := fx.rdb.Get(bg, "a").Val(); v != "x" {
				t.Errorf("the key of the other program is %q now", v)
			}
			eventually(t, "the client to be idle", func() bool { return c.Stats().Cleanups == 0 })
			fx.rdb.Del(bg, "a")
			fx.deleteRecord(t, "a")
			for _, key := range fx.rdb.Keys(bg, "{a}:*:rwlock_timeout:*").Val() { // expires with its lease
				fx.rdb.Del(bg, key)
			}
		})
	}
}

// A key beside the lock's proves nothing: the lock stays held, is renewed, and is freed in the end.
func TestOverwritten_CompanionKeys(t *testing.T) {
	t.Parallel()
	fair := func(c *Client, name string) Locker { return c.FairLock(name) }
	fenced := func(c *Client, name string) Locker { return c.FencedLock(name) }
	once := func(c *Client, name string) Locker { return onceLocker{c.Once(name)} }
	read := func(c *Client, name string) Locker { return readSide(c, name) }
	for name, test := range map[string]struct {
		lock func(c *Client, name string) Locker
		key  string
	}{
		"the queue of a fair lock":        {fair, wire.FairQueue("a")},
		"the deadlines of a fair lock":    {fair, wire.FairDeadlines("a")},
		"the counter of a fenced lock":    {fenced, wire.TokenCounter("a")},
		"the record of a Once":            {once, wire.RecordKey("a")},
		"the time-out key of a read lock": {read, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, watchdogTimeout(3*time.Second))
			lease := mustAcquire(t, bg, test.lock(c, "a"), AcquireOptions{})
			key := test.key
			if key == "" {
				key = fx.rdb.Keys(bg, "{a}:*").Val()[0]
			}
			fx.rdb.Del(bg, key)
			if err := fx.rdb.SAdd(bg, key, "x").Err(); err != nil {
				t.Fatal(err)
			}
			mustBeRenewed(t, lease)
			if err := lease.Err(); err != nil {
				t.Fatalf("the lock is lost because of %s: %v", key, err)
			}
			if err := lease.Release(bg); err != nil {
				wantErr(t, "Release", err, ErrWrongKind)
			}
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
			fx.rdb.Del(bg, key)
		})
	}
}
