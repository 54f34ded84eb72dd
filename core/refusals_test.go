package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/kinds"
)

// A client counts the calls that returned without a lock, by lock and by how they ended. An answer
// from a record is none of them.
func TestRefusals(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, func(o *Options) { o.NameMapper = func(name string) string { return "app:" + name } })
	if len(c.Refusals()) != 0 {
		t.Errorf("a new client: %+v", c.Refusals())
	}
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	acquire := func(ctx context.Context, opts AcquireOptions, want error) {
		t.Helper()
		_, err := c.Lock("a").Acquire(ctx, opts)
		wantErr(t, "a call", err, want)
	}
	for range 3 {
		acquire(bg, AcquireOptions{}, ErrNotAcquired)
	}
	acquire(bg, AcquireOptions{WaitTime: time.Millisecond}, ErrNotAcquired)
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	acquire(ctx, AcquireOptions{WaitTime: patience}, ErrStillHeld)
	ctx, leave := context.WithCancel(bg)
	waiting := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: patience, MaxWaiters: 1})
	eventually(t, "a waiter", func() bool { return len(c.Waits()) == 1 })
	acquire(bg, AcquireOptions{WaitTime: patience, MaxWaiters: 1}, ErrTooManyWaiters)
	leave()
	wantErr(t, "the caller that left", mustReceive(t, "it to leave", waiting).err, context.Canceled)
	mustRelease(t, lease)

	fx.rdb.Set(bg, "app:b", "a string", 0)
	_, err := c.Lock("b").Acquire(bg, AcquireOptions{})
	wantErr(t, "a string", err, ErrWrongKind)
	fx.deleteKeys(t, "app:b")
	once := c.Once("c")
	lease2, _, err := once.Acquire(bg, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease2.ReleaseWith(bg, []byte("record"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, record, err := once.Acquire(bg, AcquireOptions{}); err != nil || string(record) != "record" {
		t.Fatal(record, err)
	}
	fx.deleteKeys(t, KeysOf("app:c").Record)

	all := c.Refusals()
	if len(all) != 2 || all[0].Key != "app:b" || all[1].Key != "app:a" {
		t.Fatalf("%+v", all)
	}
	if b := all[0]; b.Failed != 1 || !errors.Is(b.Err, ErrWrongKind) || b.Refused+b.TimedOut+b.Left > 0 {
		t.Errorf("%+v", b)
	}
	a := all[1]
	if a.Refused != 4 || a.TimedOut != 2 || a.Left != 1 || a.Failed != 0 || a.Err != nil {
		t.Errorf("%+v", a)
	}
	if a.Name != "a" || a.Kind != "lock" || !a.First.Before(a.Last) || time.Since(a.Last) > patience {
		t.Errorf("%+v", a)
	}
}

// The record of refusals has the latest 64 locks of a day, however many names callers choose.
func TestRefusals_Bounds(t *testing.T) {
	t.Parallel()
	var r refusalRecord
	began := time.Now()
	at := func(i int) time.Time { return began.Add(time.Duration(i) * time.Second) }
	refuse := func(key string, now time.Time) {
		w := &waiter{request: request{ctx: bg, name: key, kind: kinds.Plain}}
		w.NoWait = true
		r.add(w, key, ErrNotAcquired, now)
	}
	for i := range 1000 {
		refuse("first", at(i))
		refuse(fmt.Sprint("name ", i), at(i))
		if len(r.all) > mostRefusals {
			t.Fatalf("%d locks are kept", len(r.all))
		}
	}
	list := r.latest(at(999))
	if len(list) != mostRefusals {
		t.Fatalf("%d locks", len(list))
	}
	for i, one := range list {
		switch {
		case one.Key == "first":
			if one.Refused != 1000 || !one.First.Equal(began) {
				t.Errorf("%+v", one)
			}
		case one.Refused != 1 || one.Last.Before(at(1000-mostRefusals)):
			t.Errorf("place %d: %+v", i, one)
		}
	}
	if list := r.latest(at(999).Add(refusalAge + 1)); len(list) != 0 {
		t.Errorf("a day later: %+v", list)
	}
	refuse("first", at(1000).Add(refusalAge))
	if list := r.latest(at(1000).Add(refusalAge)); len(list) != 1 || list[0].Refused != 1 || len(r.all) != 1 {
		t.Errorf("refused again a day later: %+v", list)
	}
}

// A fault of Redis is kept when it is over, with when it began and ended and how much it failed.
func TestFaults(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	memory := func(limit string) {
		t.Helper()
		if err := fx.rdb.ConfigSet(bg, "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := func() Fault {
		t.Helper()
		all := c.Faults()
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if all := c.Faults(); len(all) != 0 {
		t.Fatalf("a new client: %+v", all)
	}
	memory("1")
	for range 2 {
		if tryAcquire(c.Lock("a")) == nil {
			t.Fatal("acquired on a full Redis")
		}
	}
	full := one()
	if full.Class != "out_of_memory" || full.Cause != "Redis is out of memory" || full.Failed != 2 || !full.Ended.IsZero() ||
		full.Last.Before(full.Began) || !strings.Contains(full.Err.Error(), "OOM") || !strings.Contains(full.Change, "maxmemory") {
		t.Errorf("%+v", full)
	}
	memory("0")
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
	if over := one(); over.Ended.Before(full.Last) || over.Failed != 2 || !over.Began.Equal(full.Began) {
		t.Errorf("%+v", over)
	}
	memory("1")
	if tryAcquire(c.Lock("a")) == nil {
		t.Fatal("acquired on a full Redis")
	}
	if again := one(); again.Failed != 1 || !again.Ended.IsZero() || !again.Began.After(full.Last) {
		t.Errorf("%+v", again)
	}
	memory("0")
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
}
