package core

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

type requestKey struct{}

// Holds and Waits list what the client has and wants, with what only this process knows. Annotate
// is called by them alone.
func TestHolds(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	asked := 0
	c := fx.newLocks(t, func(o *Options) {
		o.ClientID = "web-1"
		o.NameMapper = func(name string) string { return "app:" + name }
		o.Annotate = func(ctx context.Context) Annotation {
			asked++
			id, _ := ctx.Value(requestKey{}).(string)
			return Annotation{RequestID: id, Route: "GET /" + id}
		}
	})
	if len(c.Holds()) != 0 || len(c.Waits()) != 0 {
		t.Fatalf("an idle client has %v and %v", c.Holds(), c.Waits())
	}
	ctx := context.WithValue(WithOwner(bg), requestKey{}, "r1")
	once, _, err := c.Once("once").Acquire(ctx, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rw := c.ReadWriteLock("rw")
	write := mustAcquire(t, ctx, rw.Write(), AcquireOptions{})
	leases := []*Lease{
		mustAcquire(t, ctx, c.FairLock("fair"), AcquireOptions{}),
		mustAcquire(t, ctx, c.FencedLock("fenced"), AcquireOptions{}),
		mustAcquire(t, ctx, c.Lock("plain"), AcquireOptions{LeaseTime: time.Hour}),
		mustAcquire(t, ctx, c.Lock("plain"), AcquireOptions{LeaseTime: time.Minute}),
		mustAcquire(t, ctx, c.ReadWriteLock("read").Read(), AcquireOptions{}),
		once.Lease,
		mustAcquire(t, ctx, rw.Read(), AcquireOptions{}),
	}
	if asked != 0 {
		t.Errorf("Acquire asked for %d annotations", asked)
	}
	wants := []struct {
		name, kind string
		count      int
	}{{"fair", "fair", 1}, {"fenced", "fenced", 1}, {"once", "once", 1}, {"plain", "lock", 2}, {"read", "read", 1}, {"rw", "write", 2}}
	holds := c.Holds()
	if len(holds) != len(wants) {
		t.Fatalf("%d holds: %+v", len(holds), holds)
	}
	for i, want := range wants {
		h := holds[i]
		if h.Name != want.name || h.Key != "app:"+want.name || h.Kind != want.kind || h.Count != want.count {
			t.Errorf("hold %d: %+v, want %+v", i, h, want)
		}
		if h.RequestID != "r1" || h.Route != "GET /r1" || h.Held <= 0 || h.Held > patience {
			t.Errorf("%s: %+v", h.Name, h)
		}
		if client, _, ok := strings.Cut(h.Owner, ":"); !ok || client != c.ID() || !strings.HasPrefix(client, "web-1.") {
			t.Errorf("%s: owner %s, and the client is %s", h.Name, h.Owner, c.ID())
		}
		if left := h.Remaining; left <= 0 || (left > time.Minute) != (h.Name == "plain") {
			t.Errorf("%s: %s left", h.Name, left)
		}
		if (h.Token == 1) != (h.Name == "fenced") {
			t.Errorf("%s: token %d", h.Name, h.Token)
		}
	}

	mustRelease(t, write)
	if h := c.Holds()[5]; h.Kind != "read" || h.Count != 1 {
		t.Errorf("a writer that became a reader: %+v", h)
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	if holds := c.Holds(); len(holds) != 0 {
		t.Errorf("after all releases: %+v", holds)
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, func(o *Options) {
		o.Annotate = func(ctx context.Context) Annotation {
			id, _ := ctx.Value(requestKey{}).(string)
			return Annotation{TraceID: id}
		}
	})
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	ctx, leave := context.WithCancel(context.WithValue(bg, requestKey{}, "second"))
	first := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "one waiter", func() bool { return len(c.Waits()) == 1 })
	second := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: time.Hour})
	eventually(t, "two waiters", func() bool { return len(c.Waits()) == 2 })
	waits := c.Waits()
	for i, want := range []Wait{{Place: 1, Left: WaitForever}, {Place: 2, Annotation: Annotation{TraceID: "second"}}} {
		w := waits[i]
		if w.Name != "a" || w.Key != "a" || w.Kind != "lock" || w.Place != want.Place || w.TraceID != want.TraceID || w.Waited <= 0 {
			t.Errorf("waiter %d: %+v", i, w)
		}
		if want.Left == WaitForever && w.Left != WaitForever || want.Left == 0 && (w.Left <= 0 || w.Left > time.Hour) {
			t.Errorf("waiter %d has %s left", i, w.Left)
		}
	}
	leave()
	wantErr(t, "the second", mustReceive(t, "it to leave", second).err, context.Canceled)
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the first", first))
}

// Counters count what the client did, and an Observer hears which hold a waiter waited for and got.
func TestCounters(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var log eventLog
	c := fx.newLocks(t, log.observe, pollInterval(never))
	if n := c.Counters(); n.Commands != 0 || n.Batches() != 0 || n.Errors != nil {
		t.Errorf("a new client: %+v", n)
	}
	holder := context.WithValue(bg, requestKey{}, "the holder's")
	lease := mustAcquire(t, holder, c.Lock("a"), AcquireOptions{})
	owner := holdOf(lease).wire
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventuallyAsleep(t, c, "a")
	mustRelease(t, lease)
	next := mustReceiveLease(t, "the waiter", result)
	if n := c.Counters(); n.HandOvers != 1 || n.Polls != 0 || n.Lost != 0 {
		t.Errorf("after a hand-over: %+v", n)
	}
	eventually(t, "four events", func() bool { return len(log.list()) == 4 })
	for _, e := range log.list() {
		switch {
		case e.Holder == "" && e.HolderContext == nil && e.HandOver == 0:
			if e.Owner != owner { // the first Acquire, and Release
				t.Errorf("%+v has no holder", e)
			}
		case e.Holder != owner || e.HolderContext.Value(requestKey{}) != "the holder's":
			t.Errorf("%+v: not the holder", e)
		case (e.HandOver > 0) != (e.Owner == holdOf(next).wire):
			t.Errorf("%+v: took %s", e, e.HandOver)
		}
	}

	if err := fx.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "Release of a lost lock", next.Release(bg), ErrLockLost)
	lost := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	mustForce(t, c.Lock("a"))
	wantErr(t, "the forced lease", lost.Err(), ErrLockLost)
	if err := fx.rdb.Set(bg, "a", "a string", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a string", tryAcquire(c.Lock("a")), ErrWrongKind)
	if n := c.Counters(); n.Lost != 2 || len(n.Errors) != 0 || n.Commands < n.Batches() || n.BatchSizes[0] == 0 {
		t.Errorf("at the end: %+v", n)
	}
	if err := fx.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
}

// A waiter that nothing wakes polls.
func TestCounters_Polls(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(5*time.Millisecond))
	lease := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	ctx, leave := context.WithCancel(bg)
	result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "polls", func() bool { return c.Counters().Polls > 1 })
	leave()
	wantErr(t, "the waiter", mustReceive(t, "it to leave", result).err, context.Canceled)
	mustRelease(t, lease)
}

// Operations that Redis failed are counted by class.
func TestCounters_Errors(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	if err := fx.rdb.ConfigSet(bg, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tryAcquire(c.Lock("a")); err == nil {
			t.Fatal("acquired on a full Redis")
		}
	}
	if n := c.Counters(); len(n.Errors) != 1 || n.Errors["out_of_memory"] != 2 {
		t.Errorf("%+v", n)
	}
	if err := fx.rdb.ConfigSet(bg, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
}

// A lock is found by its key and its owner and freed, and the client remembers what it lost, newest
// first.
func TestForceUnlockOwners(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	mapped := func(o *Options) { o.NameMapper = func(name string) string { return "app:" + name } }
	c, other := fx.newLocks(t, mapped, func(o *Options) {
		o.Annotate = func(context.Context) Annotation { return Annotation{RequestID: "r1"} }
	}), fx.newLocks(t, mapped)
	for _, l := range []*Lock{c.Lock("lock"), c.FairLock("fair"), c.FencedLock("fenced"), c.ReadWriteLock("read").Read(), c.ReadWriteLock("write").Write()} {
		lease := mustAcquire(t, bg, l, AcquireOptions{LeaseTime: time.Hour})
		eventuallyListening(t, fx.rdb, c)
		owner := l.kind.Field(holdOf(lease).wire)
		forced, err := other.ForceUnlockOwners(bg, "app:"+l.name, l.kind.Name, []string{"nobody:1", owner, owner})
		if err != nil || !slices.Equal(forced.Owners, []string{owner}) || forced.Left != 0 {
			t.Errorf("%s: %+v, %v", l.name, forced, err)
		}
		mustReceive(t, "the lease to end", lease.Done())
		eventually(t, "the loss", func() bool {
			lost := c.Losses()
			return len(lost) > 0 && lost[0].Name == l.name && lost[0].Key == l.key && lost[0].Kind == l.kind.Name &&
				lost[0].Owner == holdOf(lease).wire && lost[0].RequestID == "r1" && lost[0].Held > 0 && time.Since(lost[0].At) < patience
		})
	}
	_, err := c.ForceUnlockOwners(bg, "a", "mutex", []string{"a"})
	wantErr(t, "an unknown kind", err, ErrInvalidOptions)
	_, err = c.ForceUnlockOwners(bg, "a", "lock", nil)
	wantErr(t, "no owners", err, ErrInvalidOptions)
	_, err = c.ForceUnlockOwners(bg, "", "lock", []string{"a"})
	wantErr(t, "no key", err, ErrInvalidName)
	if n := len(c.Losses()); n != 5 {
		t.Errorf("%d losses", n)
	}
	for range mostLosses {
		c.losses.add(Loss{Name: "more"})
	}
	if list := c.Losses(); len(list) != mostLosses || list[mostLosses-1].Name != "more" {
		t.Errorf("%d losses after many: %+v", len(list), list)
	}
}
