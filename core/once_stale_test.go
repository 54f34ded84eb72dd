package core

import (
	"errors"
	"testing"
	"time"
)

// mustRenew waits until a record is stale, and takes the lock beside it.
func mustRenew(t *testing.T, o *Once) (lease *OnceLease) {
	t.Helper()
	eventually(t, "the record is stale", func() bool {
		r := acquireOnce(bg, o, AcquireOptions{})
		if r.err != nil || r.lease == nil && r.record != "old" {
			t.Fatalf("Acquire: %+v", r)
		}
		lease = r.lease
		return lease != nil
	})
	if !lease.Renews() {
		t.Error("the lease does not renew")
	}
	return lease
}

func mustLeave(t *testing.T, lease *OnceLease, r Record) {
	t.Helper()
	if err := lease.ReleaseRecord(bg, r); err != nil {
		t.Fatalf("ReleaseRecord: %v", err)
	}
}

// One caller of all processes takes the lock beside a stale record. The others get the record without
// waiting, and the new one once it is there.
func TestOnce_Stale(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		defer fx.deleteRecord(t, "report")
		here, there := fx.newLocks(t).Once("report"), fx.newLocks(t).Once("report")
		lease := mustBegin(t, here, AcquireOptions{})
		if lease.Renews() {
			t.Error("the first lease renews something")
		}
		mustLeave(t, lease, Record{Value: []byte("old"), TTL: time.Millisecond, Stale: time.Hour})
		lease = mustRenew(t, there)
		for _, o := range []*Once{here, there, here, there} {
			r := acquireOnce(bg, o, AcquireOptions{WaitTime: WaitForever})
			if r.lease != nil || r.record != "old" || r.err != nil {
				t.Fatalf("beside the renewal: %+v", r)
			}
			if record, err := o.Record(bg); string(record) != "old" || err != nil {
				t.Errorf("Record: %q, %v", record, err)
			}
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		mustLeave(t, mustRenew(t, here), Record{Value: []byte("new"), TTL: time.Hour, Stale: time.Hour})
		wantRecord(t, here, "new")
		wantRecord(t, there, "new")
	})
}

// While no one renews, and after the end of a record, a Once is as without Stale.
func TestOnce_StaleIsOver(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		once := fx.newLocks(t).Once("report")
		mustLeave(t, mustBegin(t, once, AcquireOptions{}), Record{Value: []byte("old"), TTL: time.Millisecond, Stale: time.Millisecond})
		eventually(t, "the record is gone", func() bool { return len(fx.stored(t, "report")) == 0 })
		lease := mustBegin(t, once, AcquireOptions{})
		if lease.Renews() {
			t.Error("the lease renews a record that is gone")
		}
		wantOnceLocked(t, once)
		mustRecord(t, lease, "new", time.Hour)
		wantRecord(t, once, "new")
		fx.deleteRecord(t, "report")
	})
}

// Who could not renew a record puts off the next renewal, and everyone gets the old one.
func TestOnce_Postpone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		defer fx.deleteRecord(t, "report")
		once := fx.newLocks(t).Once("report")
		mustLeave(t, mustBegin(t, once, AcquireOptions{}), Record{Value: []byte("old"), TTL: time.Millisecond, Stale: time.Hour})
		if err := mustRenew(t, once).Postpone(bg, 0); err != nil {
			t.Error(err)
		}
		if err := mustRenew(t, once).Postpone(bg, time.Minute); err != nil {
			t.Error(err)
		}
		wantRecord(t, once, "old")
	})
}

// A record that goes stale does not go with a marker or a binding.
func TestOnce_StaleOptions(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		once := fx.newLocks(t).Once("report")
		for _, test := range []struct {
			of    *Once
			stale time.Duration
		}{{once, -1}, {once.WithMarker([]byte("m"), time.Hour), time.Hour}, {once.WithBinding([]byte("b"), time.Hour), time.Hour}} {
			lease := mustBegin(t, test.of, AcquireOptions{})
			if err := lease.ReleaseRecord(bg, Record{Value: []byte("1"), TTL: time.Hour, Stale: test.stale}); !errors.Is(err, ErrInvalidOptions) {
				t.Errorf("Stale %s: %v", test.stale, err)
			}
			if err := lease.Withdraw(bg); err != nil {
				t.Error(err)
			}
		}
	})
}
