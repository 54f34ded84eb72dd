package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A quota counts the names that were granted, until their time is over.
func TestOnce_Quota(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	once := func(n int, d time.Duration) *Once { return c.Once(fmt.Sprint("a", n)).WithQuota("anna", 3, d) }
	take := func(n int) { mustRelease(t, mustBegin(t, once(n, time.Hour), AcquireOptions{}).Lease) }
	for n := range 3 {
		take(n)
		take(n) // counts once
	}
	wantErr(t, "the fourth name", acquireOnce(bg, once(3, time.Hour), AcquireOptions{}).err, ErrQuota)
	if n := fx.rdb.Exists(bg, "a3", "{a3}:record").Val(); n != 0 {
		t.Errorf("a refused name has left %d keys", n)
	}
	take(0) // still allowed
	mustRelease(t, mustBegin(t, c.Once("b").WithQuota("bert", 3, time.Hour), AcquireOptions{}).Lease)

	mustRecord(t, mustBegin(t, once(1, time.Hour), AcquireOptions{}), "done", time.Hour)
	fx.forgetMember(t)
	wantRecord(t, once(1, time.Hour), "done") // a record needs no quota
	mustRelease(t, mustBegin(t, once(3, time.Millisecond), AcquireOptions{}).Lease)
	eventually(t, "the short one to stop counting", func() bool {
		r := acquireOnce(bg, once(4, time.Hour), AcquireOptions{})
		if r.lease != nil {
			mustRelease(t, r.lease.Lease)
		}
		return r.lease != nil
	})
	for _, key := range []string{"{anna}:counted", "{bert}:counted"} {
		if left := fx.pttl(t, key); left <= 0 || left > time.Hour {
			t.Errorf("%s lives for %v", key, left)
		}
		fx.rdb.Del(bg, key)
	}
	fx.deleteRecord(t, "a1")
}

// forgetMember takes one name from the quota of anna.
func (fx *redisFixture) forgetMember(t *testing.T) {
	t.Helper()
	if n := fx.rdb.ZPopMin(bg, "{anna}:counted").Val(); len(n) != 1 {
		t.Fatal("nothing counts")
	}
}

// If Redis does not answer about the quota, the lock is free again, and the caller is told.
func TestOnce_QuotaUnknown(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	rule := proxy.OnMatch(1, runsScript(onceCountScript), redistest.ReplyWith("-ERR not now\r\n"))
	r := acquireOnce(bg, c.Once("a").WithMarker(running, time.Hour).WithQuota("anna", 3, time.Hour), AcquireOptions{})
	mustReceive(t, "Redis to be asked", rule.Hit())
	if r.err == nil || r.lease != nil {
		t.Errorf("Acquire: %+v, want an error", r)
	}
	eventually(t, "nothing to be left", func() bool { return fx.rdb.Exists(bg, "a", "{a}:record").Val() == 0 })
}

func TestOnce_QuotaRefused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for name, o := range map[string]*Once{
		"empty":    c.Once("a").WithQuota("", 1, time.Hour),
		"none":     c.Once("a").WithQuota("anna", 0, time.Hour),
		"too fast": c.Once("a").WithQuota("anna", 1, 0),
	} {
		want := ErrInvalidOptions
		if name == "empty" {
			want = ErrInvalidName
		}
		wantErr(t, name, acquireOnce(bg, o, AcquireOptions{}).err, want)
	}
}

// Record finds what Acquire would return, and takes no lock.
func TestOnce_Record(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	defer fx.deleteRecord(t, "a")
	once := c.Once("a").WithBinding([]byte("a 50"), time.Hour)
	want := func(o *Once, record string, is error) {
		t.Helper()
		got, err := o.Record(bg)
		if string(got) != record || (got == nil) != (record == "") {
			t.Errorf("Record: %q, want %q", got, record)
		}
		wantErr(t, "Record", err, is)
	}
	want(once, "", nil)
	lease := mustBegin(t, once.WithMarker(running, time.Hour), AcquireOptions{})
	want(once, "", nil) // a record is not final while the lock is held
	mustRecord(t, lease, "done", time.Hour)
	want(once, "done", nil)
	want(c.Once("a").WithBinding([]byte("a 70"), time.Hour), "", ErrBound)
	want(c.Once(""), "", ErrInvalidName)
	fx.wantFields(t, "a", nil)
	rule := proxy.OnMatch(1, runsScript(onceLookScript), redistest.ReplyWith("-ERR not now\r\n"))
	if _, err := once.Record(bg); err == nil {
		t.Error("Record hides an error of Redis")
	}
	mustReceive(t, "Redis to be asked", rule.Hit())
}
