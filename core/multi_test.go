package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lineage"
)

// newMasters starts several servers that do not know each other.
func newMasters(t testing.TB, n int) []*redisFixture {
	t.Helper()
	all := make([]*redisFixture, n)
	for i := range all {
		all[i] = newRedis(t)
	}
	return all
}

// A MultiLock is acquired as a whole or not at all, and one Release frees it.
// RedissonMultiLockTest: testLockUnlock.
func TestMulti_AllOrNone(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	all := MultiLock(c.Lock("c"), c.Lock("a"), c.Lock("b"))
	for range 3 {
		lease := mustAcquire(t, bg, all, AcquireOptions{})
		fx.wantLocked(t, "a", "b", "c")
		if got := lease.Name(); got != "multi(a, b, c)" || got != all.Name() {
			t.Errorf("Name() = %q", got)
		}
		wantHeld(t, lease)
		for _, name := range []string{"a", "b", "c"} {
			wantErr(t, "another's Acquire of "+name, tryAcquire(other.Lock(name)), ErrNotAcquired)
		}
		mustRelease(t, lease)
		fx.wantFree(t, "a", "b", "c")
		wantEnded(t, lease, ErrReleased)
		wantErr(t, "a second Release", lease.Release(bg), ErrReleased)
	}

	busy := mustAcquire(t, bg, other.Lock("b"), AcquireOptions{LeaseTime: time.Minute})
	_, err := all.Acquire(bg, AcquireOptions{})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.Name != "b" || held.TTL < 30*time.Second {
		t.Errorf("Acquire while b is held: %#v", err)
	}
	fx.wantFree(t, "a", "c")
	mustRelease(t, busy)
}

// Acquire says what is wrong with a MultiLock or RedLock that can never work.
func TestMulti_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	a := c.Lock("a")
	red := RedLock(a, c.Lock("b"), c.Lock("c"))
	var missing *Lock
	for name, test := range map[string]struct {
		lock  Locker
		opts  AcquireOptions
		want  error
		words string
	}{
		"empty":               {MultiLock(), AcquireOptions{}, ErrInvalidOptions, "core.MultiLock has no locks"},
		"nil":                 {MultiLock(a, nil), AcquireOptions{}, ErrInvalidOptions, "lock 2 of the 2 of core.MultiLock is nil"},
		"nil *Lock":           {MultiLock(missing, a), AcquireOptions{}, ErrInvalidOptions, "lock 1 of the 2 of core.MultiLock is nil"},
		"nested nonsense":     {MultiLock(a, MultiLock()), AcquireOptions{}, ErrInvalidOptions, "lock 2 of core.MultiLock: invalid options: core.MultiLock has no locks"},
		"name":                {MultiLock(a, c.Lock("")), AcquireOptions{}, ErrInvalidName, "lock 2 of core.MultiLock: invalid lock name: "},
		"WaitTime":            {MultiLock(a), AcquireOptions{WaitTime: -5}, ErrInvalidOptions, "WaitTime"},
		"LeaseTime":           {MultiLock(a), AcquireOptions{LeaseTime: -5}, ErrInvalidOptions, "LeaseTime"},
		"MaxWaiters":          {MultiLock(a), AcquireOptions{MaxWaiters: -5}, ErrInvalidOptions, "MaxWaiters"},
		"Locker without word": {MultiLock(a, silentLocker{}), AcquireOptions{}, ErrInvalidOptions, "silentLocker returned neither"},
		"red: empty":          {RedLock(), AcquireOptions{}, ErrInvalidOptions, "core.RedLock has no locks"},
		"red: nil":            {RedLock(a, nil, c.Lock("b")), AcquireOptions{}, ErrInvalidOptions, "lock 2 of the 3 of core.RedLock is nil"},
		"red: two":            {RedLock(a, c.Lock("b")), AcquireOptions{}, ErrInvalidOptions, "core.RedLock has 2 locks; use 3 or more"},
		"red: twice the same": {RedLock(a, c.Lock("b"), c.Lock("a")), AcquireOptions{}, ErrInvalidOptions, "locks 1 and 3 of core.RedLock both are, or contain, the lock #"},
		"red: nested":         {RedLock(a, c.Lock("b"), MultiLock()), AcquireOptions{}, ErrInvalidOptions, "lock 3 of core.RedLock: "},
		"red: a red thrice":   {RedLock(red, red, red), AcquireOptions{}, ErrInvalidOptions, "locks 1 and 2 of core.RedLock both are, or contain, the lock #"},
		"red: within another": {RedLock(red, c.Lock("d"), c.Lock("b")), AcquireOptions{}, ErrInvalidOptions, "locks 1 and 3 of core.RedLock both are, or contain, the lock #"},
		"red: in two multis":  {RedLock(MultiLock(a, c.Lock("b")), c.Lock("c"), MultiLock(c.Lock("d"), a)), AcquireOptions{}, ErrInvalidOptions, "locks 1 and 3 of core.RedLock both"},
		"a red twice":         {MultiLock(red, red), AcquireOptions{}, ErrInvalidOptions, "locks 1 and 2 of core.MultiLock both contain the lock #"},
		"a red and a part":    {MultiLock(c.Lock("d"), MultiLock(red), a), AcquireOptions{}, ErrInvalidOptions, "locks 2 and 3 of core.MultiLock both contain the lock #"},
		"red in multi":        {MultiLock(a, RedLock()), AcquireOptions{}, ErrInvalidOptions, "lock 2 of core.MultiLock: invalid options: core.RedLock has no locks"},
	} {
		_, err := test.lock.Acquire(bg, test.opts)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || !strings.HasPrefix(err.Error(), "reqlock: acquire lock #") {
			t.Errorf("%s: %v, want %v with %q", name, err, test.want, test.words)
		}
	}
}

// Readers do not exclude each other, so a lock may be read by several members.
func TestMulti_RedLockAndItsReaders(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	var readers []Locker
	for _, c := range v.clients {
		readers = append(readers, c.ReadWriteLock("rw").Read())
	}
	red := RedLock(readers...)
	mustRelease(t, mustAcquire(t, bg, MultiLock(red, readers[0], red), AcquireOptions{}))
	v.wantFree(t, "rw")
}

type silentLocker struct{}

func (silentLocker) Name() string { return "silent" }

func (silentLocker) Acquire(context.Context, AcquireOptions) (*Lease, error) { return nil, nil }

// Members are acquired in the order of their names, the write side first. Ties stay as given, and
// nested members are sorted in.
func TestMulti_Order(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	x, y, rw := c.Lock("m"), other.Lock("m"), c.ReadWriteLock("k")
	read, write := rw.Read(), rw.Write()
	first, last := c.Lock("a"), c.Lock("z")
	m := MultiLock(last, x, MultiLock(read, first), y, write).(*multi)
	if want := []Locker{first, write, read, x, y, last}; !slices.Equal(m.locks, want) {
		t.Errorf("order: %v", m.Name())
	}
	if m.Name() != "multi(a, k, m, z)" {
		t.Errorf("Name() = %q", m.Name())
	}
	m = MultiLock(y, x).(*multi)
	if want := []Locker{y, x}; !slices.Equal(m.locks, want) {
		t.Error("ties have changed places")
	}
}

// A MultiLock that waits for its first member holds none of the others.
func TestMulti_WaitsForTheFirst(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	waiting := acquireAsync(bg, MultiLock(c.Lock("b"), c.Lock("a")), forever)
	eventuallyWaiting(t, c)
	eventually(t, "b to be free", func() bool { return len(fx.hash(t, "b")) == 0 })
	mustRelease(t, mustAcquire(t, bg, other.Lock("b"), AcquireOptions{}))
	mustRelease(t, busy)
	lease := mustReceiveLease(t, "the lock to be granted", waiting)
	fx.wantLocked(t, "a", "b")
	mustRelease(t, lease)
}

// holdsAndWaits reports whether a client holds one lock and waits for another. Its first attempt,
// which does not subscribe, is over then.
func holdsAndWaits(c *Client) bool {
	s := c.Stats()
	return s.Held == 1 && s.Waiting == 1 && s.Channels == 1
}

// A MultiLock that holds its first member and waits for the second releases the first after a
// while, lets others acquire it, and tries again.
func TestMulti_GivesUpTheFirst(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, other.Lock("b"), AcquireOptions{})
	waiting := acquireAsync(bg, MultiLock(c.Lock("a"), c.Lock("b")), forever)
	eventually(t, "it to hold a and wait for b", func() bool { return holdsAndWaits(c) })
	mustRelease(t, mustAcquire(t, bg, other.Lock("a"), AcquireOptions{WaitTime: patience})) // its holder waits for ever
	eventually(t, "it to hold a and wait for b again", func() bool { return holdsAndWaits(c) })
	mustRelease(t, busy)
	mustRelease(t, mustReceiveLease(t, "the lock to be granted", waiting))
}

// The lease of every member counts from the last one, which had to be waited for.
func TestMulti_LeaseCountsFromTheLast(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, other.Lock("b"), AcquireOptions{})
	waiting := acquireAsync(bg, MultiLock(c.Lock("a"), c.Lock("b")), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Minute})
	eventually(t, "it to hold a and wait for b", func() bool { return holdsAndWaits(c) })
	mustRelease(t, busy)
	lease := mustReceiveLease(t, "the lock to be granted", waiting)
	if a, b := fx.pttl(t, "a"), fx.pttl(t, "b"); a < b {
		t.Errorf("a ends in %s, b in %s", a, b)
	}
	mustRelease(t, lease)
}

// After WaitTime the error names the member that was held. After ctx it is the context's. Nothing
// stays locked.
func TestMulti_GivesUp(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, other.Lock("b"), AcquireOptions{})
	all := MultiLock(c.Lock("a"), c.Lock("b"), c.Lock("c"))

	const wait = 150 * time.Millisecond
	_, err := all.Acquire(bg, AcquireOptions{WaitTime: wait})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.Name != "b" || held.Waited < wait {
		t.Errorf("after WaitTime: %#v", err)
	}
	fx.wantFree(t, "a", "c")

	ctx, cancel := context.WithCancelCause(bg)
	waiting := acquireAsync(ctx, all, forever)
	eventually(t, "it to wait", func() bool { return c.Stats().Waiting == 1 })
	cause := errors.New("no time")
	cancel(cause)
	r := mustReceive(t, "it to give up", waiting)
	wantErr(t, "Acquire", r.err, context.Canceled)
	wantErr(t, "Acquire", r.err, cause)
	eventually(t, "a to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
	_, err = all.Acquire(ctx, AcquireOptions{})
	wantErr(t, "Acquire with a ctx that has ended", err, context.Canceled)

	first := acquireAsync(bg, c.Lock("b"), forever)
	eventually(t, "a waiter for b", func() bool { return c.Stats().Waiting == 1 })
	_, err = all.Acquire(bg, AcquireOptions{WaitTime: WaitForever, MaxWaiters: 1})
	wantErr(t, "one more waiter than allowed", err, ErrTooManyWaiters)
	fx.wantFree(t, "a", "c")
	mustRelease(t, busy)
	mustRelease(t, mustReceiveLease(t, "the waiter for b", first))
}

// A context that ended because another lock was lost or refused ends Acquire as any other does: it
// does not retry, and its error is about the lock that was asked for.
func TestMulti_EndedContext(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	single := c.Lock("a")
	multi := MultiLock(single, c.Lock("b"))
	red := RedLock(single, c.Lock("b"), c.Lock("c"))
	want := func(what string, l Locker, err, cause error) {
		t.Helper()
		wantErr(t, what, err, context.Canceled)
		wantErr(t, what, err, cause)
		if prefix := "reqlock: acquire lock " + hashed(l.Name()) + ": "; !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%s: %v, want it to begin with %q", what, err, prefix)
		}
	}
	for _, cause := range []error{ErrLockLost, &NotAcquiredError{Name: "elsewhere"}} {
		ctx, cancel := context.WithCancelCause(bg)
		cancel(cause)
		for _, l := range []Locker{single, multi, red} {
			for _, opts := range []AcquireOptions{{}, {WaitTime: patience}, forever} {
				r := mustReceive(t, "Acquire of "+l.Name()+" to return", acquireAsync(ctx, l, opts))
				want(fmt.Sprintf("%s before, %+v", l.Name(), opts), l, r.err, cause)
			}
		}

		for _, l := range []Locker{single, multi} {
			busy := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{WaitTime: patience})
			ctx, cancel := context.WithCancelCause(bg)
			waiting := acquireAsync(ctx, l, forever)
			eventuallyWaiting(t, c)
			cancel(cause)
			r := mustReceive(t, "Acquire of "+l.Name()+" to return", waiting)
			want(l.Name()+" while it waits", l, r.err, cause)
			mustRelease(t, busy)
		}
	}
}

// When one member is lost all are: the contexts end before another owner gets the rest.
func TestMulti_LosesAllWithOne(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("LeaseTime ", lease), func(t *testing.T) {
			t.Parallel()
			all := newMasters(t, 2)
			x, y := all[0].newLocks(t), all[1].newLocks(t)
			other := all[0].newLocks(t)
			whole := mustAcquire(t, bg, MultiLock(x.Lock("a"), y.Lock("b"), x.Lock("c")), AcquireOptions{LeaseTime: lease})
			bound, unbind := whole.Bind(context.WithValue(bg, lineage.Key{}, nil))
			defer unbind()
			next := acquireAsync(bg, other.Lock("a"), forever)
			eventually(t, "a waiter for a", func() bool { return other.Stats().Waiting == 1 })

			mustForce(t, y.Lock("b"))
			taken := mustReceiveLease(t, "the next holder of a", next)
			if cause := context.Cause(whole.Context()); !errors.Is(cause, ErrLockLost) {
				t.Errorf("another owner has a, and the cause of the whole's context is %v", cause)
			}
			if cause := context.Cause(bound); !errors.Is(cause, ErrLockLost) {
				t.Errorf("cause of a bound context: %v", cause)
			}
			wantLost(t, whole)
			wantErr(t, "Release", whole.Release(bg), ErrLockLost)
			wantErr(t, "Extend", whole.Extend(bg, time.Minute), ErrLockLost)
			eventually(t, "c to be released", func() bool { return len(all[0].hash(t, "c")) == 0 })
			mustRelease(t, taken)
		})
	}
}

// A MultiLock ends with the first of its members, without a timer.
func TestMulti_EndsWithTheFirst(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	hands := stoppedClock()
	c, slow := fx.newLocks(t), fx.newLocksWithClock(t, fx.srv.Client(t), hands)
	const lease = time.Minute
	whole := mustAcquire(t, bg, MultiLock(c.Lock("a"), slow.Lock("b")), AcquireOptions{LeaseTime: lease})
	if got, most := whole.Remaining(), lease-clock.Margin(lease); got <= 0 || got > most {
		t.Errorf("Remaining() = %s, want up to %s", got, most)
	}
	hands.move(30*time.Second, 30*time.Second)
	if got := whole.Remaining(); got != 30*time.Second-clock.Margin(lease) {
		t.Errorf("Remaining() = %s, want what b has left", got)
	}
	if err := whole.Extend(bg, lease); err != nil {
		t.Fatal(err)
	}
	if got := whole.Remaining(); got < 40*time.Second {
		t.Errorf("Remaining() = %s after Extend", got)
	}
	hands.move(lease, lease)
	wantErr(t, "Err", whole.Err(), ErrLockLost) // without waiting for any timer
	wantLost(t, whole)
	eventually(t, "both to be free", func() bool { return len(fx.hash(t, "a"))+len(fx.hash(t, "b")) == 0 })
}

// A lease that is not extended ends by itself, and so does one whose renewal was stopped.
func TestMulti_Expires(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(6*time.Second))
	fixed := mustAcquire(t, bg, MultiLock(c.Lock("a"), c.Lock("b")), AcquireOptions{LeaseTime: 3 * time.Second, WaitTime: patience})
	fixed.StopRenewal() // does nothing
	wantLost(t, fixed)
	watched := mustAcquire(t, bg, MultiLock(c.Lock("a"), c.Lock("b")), AcquireOptions{WaitTime: patience})
	wantErr(t, "Extend", watched.Extend(bg, time.Minute), ErrInvalidOptions)
	fx.eventuallyRenewed(t, "a")
	fx.eventuallyRenewed(t, "b")
	wantHeld(t, watched)
	watched.StopRenewal()
	wantLost(t, watched)
}

// The members share an owner: a member that is named twice is entered twice, and the lease's
// context re-enters.
func TestMulti_Reentry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	a, bb := c.Lock("a"), c.Lock("b")
	for _, wait := range []time.Duration{0, patience} {
		opts := AcquireOptions{WaitTime: wait}
		lease := mustAcquire(t, bg, MultiLock(a, bb, MultiLock(bb, a), a), opts)
		ctx := lease.Context()
		wantHoldCount(t, ctx, a, 3)
		wantHoldCount(t, ctx, bb, 2)
		inner := mustAcquire(t, ctx, MultiLock(bb, a), opts)
		bound, unbind := inner.Bind(bg)
		one := mustAcquire(t, bound, a, opts)
		wantHoldCount(t, ctx, a, 5)
		mustRelease(t, one)
		unbind()
		mustRelease(t, inner)
		wantHoldCount(t, ctx, a, 3)
		mustRelease(t, lease)
		fx.wantFree(t, "a", "b")
	}
}

// Locks of all kinds can be members, also those whose queue is in Redis.
func TestMulti_EveryKind(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]func(c *Client) Locker{
		"multi": func(c *Client) Locker {
			rw := c.ReadWriteLock("rw")
			return MultiLock(rw.Read(), c.FairLock("fair"), c.FencedLock("fenced"), rw.Write())
		},
		"red": func(c *Client) Locker {
			return RedLock(c.FairLock("fair"), c.FencedLock("fenced"), c.ReadWriteLock("rw").Write())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, other := fx.newLocks(t), fx.newLocks(t)
			lease := acquireAllMembers(t, whole(c), AcquireOptions{WaitTime: patience})
			others := []*Lock{other.FairLock("fair"), other.FencedLock("fenced"), other.ReadWriteLock("rw").Read()}
			for _, l := range others {
				wantErr(t, "another's "+l.Name(), tryAcquire(l), ErrNotAcquired)
			}
			if token, ok := lease.Token(); ok {
				t.Errorf("it has token %d", token)
			}
			wantHeld(t, lease)
			waiting := make([]<-chan acquireResult, len(others))
			for i, l := range others {
				waiting[i] = acquireAsync(bg, l, forever)
			}
			eventually(t, "the callers to wait", func() bool { return other.Stats().Waiting == len(others) })
			mustRelease(t, lease)
			var leases []*Lease
			for i, l := range others {
				leases = append(leases, mustReceiveLease(t, l.Name()+" to be granted", waiting[i]))
			}
			_, err := whole(c).Acquire(bg, AcquireOptions{WaitTime: time.Millisecond})
			wantErr(t, "Acquire", err, ErrNotAcquired)
			for _, lease := range leases {
				mustRelease(t, lease)
			}
			mustRelease(t, mustAcquire(t, bg, whole(c), AcquireOptions{WaitTime: patience}))
		})
	}
}

// Lockers of other packages may hide the same lock, so they are acquired one after another.
func TestMulti_OtherLockers(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for range 20 {
		lease := mustAcquire(t, bg, MultiLock(c.Lock("a"), wrapped{c.Lock("a")}, wrapped{MultiLock(c.Lock("b"), c.Lock("a"))}), AcquireOptions{})
		wantHoldCount(t, lease.Context(), c.Lock("a"), 3)
		mustRelease(t, lease)
	}
	func() {
		defer func() {
			if r := recover(); r != "not today" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = MultiLock(c.Lock("a"), panicLocker{}).Acquire(bg, AcquireOptions{})
	}()
	fx.wantFree(t, "a")
}

type wrapped struct{ Locker }

type panicLocker struct{ silentLocker }

func (panicLocker) Acquire(context.Context, AcquireOptions) (*Lease, error) { panic("not today") }

// Release tries every member and joins their errors.
func TestMulti_ReleaseJoinsErrors(t *testing.T) {
	t.Parallel()
	all := newMasters(t, 3)
	var clients []*Client
	for i, fx := range all {
		if i == 1 {
			clients = append(clients, fx.newLocks(t))
		} else {
			clients = append(clients, newUncheckedLocks(t, fx.srv.Client(t), commandTimeout(3*time.Second)))
		}
	}
	lease := mustAcquire(t, bg, MultiLock(clients[0].Lock("a"), clients[1].Lock("b"), clients[2].Lock("c")), AcquireOptions{LeaseTime: time.Minute})
	all[0].srv.Kill(t)
	all[2].srv.Kill(t)
	err := lease.Release(bg)
	if err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("Release: %v", err)
	}
	text := err.Error()
	if !strings.Contains(text, hashed("a")) || !strings.Contains(text, hashed("c")) || strings.Contains(text, hashed("b")) {
		t.Errorf("Release: %v", err)
	}
	all[1].wantFree(t, "b")
	wantEnded(t, lease, ErrReleased)
	_ = clients[0].Close(bg)
	_ = clients[2].Close(bg)
}

// The errors of several locks show names if all their clients do.
func TestMulti_LogNames(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	shows, hides := fx.newLocks(t, func(o *Options) { o.LogNames = true }), newRedis(t).newLocks(t)
	for _, one := range []struct {
		other *Client
		shown bool
	}{{shows, true}, {hides, false}} {
		for _, l := range []Locker{
			MultiLock(shows.Lock("a"), one.other.Lock("b")),
			RedLock(shows.Lock("a"), one.other.Lock("b"), shows.Lock("c")),
			MultiLock(MultiLock(shows.Lock("a"), one.other.Lock("b")), shows.Lock("c")),
		} {
			lease := mustAcquire(t, bg, l, AcquireOptions{LeaseTime: time.Minute, WaitTime: patience}) // the rest of a RedLock goes in the background
			if err := lease.Release(bg); err != nil {
				t.Fatal(err)
			}
			_, invalid := l.Acquire(bg, AcquireOptions{WaitTime: -5})
			for _, err := range []error{invalid, lease.Release(bg), lease.Extend(bg, time.Minute)} {
				if err == nil || strings.Contains(err.Error(), l.Name()) != one.shown || strings.Contains(err.Error(), hashed(l.Name())) == one.shown {
					t.Errorf("%s, shown %t: %v", l.Name(), one.shown, err)
				}
			}
		}
	}
}

// A server that is down is an error, and is not waited for.
func TestMulti_DeadServer(t *testing.T) {
	t.Parallel()
	all := newMasters(t, 2)
	x, y := all[0].newLocks(t), newUncheckedLocks(t, all[1].srv.Client(t), commandTimeout(time.Second))
	all[1].srv.Kill(t)
	for _, wait := range []time.Duration{0, time.Hour} {
		_, err := MultiLock(x.Lock("a"), y.Lock("b")).Acquire(bg, AcquireOptions{WaitTime: wait})
		if err == nil || errors.Is(err, ErrNotAcquired) {
			t.Errorf("WaitTime %s: %v", wait, err)
		}
		all[0].wantFree(t, "a")
	}
	mustClose(t, y)
}

// A client that closes ends the whole, and the other members are released. A closed client cannot
// take part.
func TestMulti_ClosedClient(t *testing.T) {
	t.Parallel()
	all := newMasters(t, 2)
	x, y := all[0].newLocks(t), newUncheckedLocks(t, all[1].srv.Client(t))
	m := MultiLock(y.Lock("b"), x.Lock("a"))
	lease := mustAcquire(t, bg, m, AcquireOptions{})
	gone, cancel := context.WithCancel(bg)
	cancel()
	if err := y.Close(gone); err == nil {
		t.Error("Close did not mind a lock that was held")
	}
	wantEnded(t, lease, ErrClosed)
	wantErr(t, "Release", lease.Release(bg), ErrClosed)
	eventually(t, "a to be released", func() bool { return len(all[0].hash(t, "a")) == 0 })
	all[1].wantFree(t, "b")
	for _, wait := range []time.Duration{0, WaitForever} {
		_, err := m.Acquire(bg, AcquireOptions{WaitTime: wait})
		wantErr(t, "Acquire", err, ErrClosed)
	}
	all[0].wantFree(t, "a")
}

// One of many callers acquires it, and one only. RedissonMultiLockTest: testWaitAndLeaseTimeouts.
func TestMulti_OneOfManyWins(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, MultiLock(c.Lock("a"), c.Lock("b"), c.Lock("c")), AcquireOptions{})
	var got atomic.Pointer[Lease]
	try := func(want int32, opts AcquireOptions) {
		t.Helper()
		var wins atomic.Int32
		var all sync.WaitGroup
		for i := range 10 {
			l := []*Client{c, other}[i%2]
			all.Go(func() {
				lease, err := MultiLock(l.Lock("a"), l.Lock("b"), l.Lock("c")).Acquire(bg, opts)
				if err == nil {
					wins.Add(1)
					got.Store(lease)
				} else if !errors.Is(err, ErrNotAcquired) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if wins.Load() != want {
			t.Errorf("%d of 10 have got it, want %d", wins.Load(), want)
		}
	}
	try(0, AcquireOptions{})
	mustRelease(t, busy)
	try(1, AcquireOptions{WaitTime: 5 * time.Second, LeaseTime: time.Minute})
	mustRelease(t, got.Load())
}

// A MultiLock waits for the lease of a member to end. RedissonMultiLockTest: testMultiThreads.
func TestMulti_WaitsForALeaseToEnd(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	busy := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{LeaseTime: 3 * time.Second})
	lease := mustAcquire(t, bg, MultiLock(c.Lock("a"), c.Lock("b"), c.Lock("c")), forever)
	wantErr(t, "the lease before", busy.Err(), ErrLockLost)
	mustRelease(t, lease)
}

// Members in any order, of any client and several servers: never two holders, and no deadlock.
// RedissonMultiLockTest: test.
func TestMulti_Load(t *testing.T) {
	t.Parallel()
	all := newMasters(t, 3)
	var clients [2][3]*Client
	for i := range clients {
		for j, fx := range all {
			clients[i][j] = fx.newLocks(t)
		}
	}
	const workers, rounds = 3, 8
	var inside [3]atomic.Int32
	var work sync.WaitGroup
	for i, servers := range clients {
		for w := range workers {
			locks := []Locker{servers[0].Lock("a"), servers[1].Lock("b"), servers[2].Lock("c")}
			spare := (w + i) % 3 // two of three, in either order
			mine := []int{(spare + 1) % 3, (spare + 2) % 3}
			if w%2 == 1 {
				slices.Reverse(mine)
			}
			m := MultiLock(locks[mine[0]], locks[mine[1]])
			work.Go(func() {
				for range rounds {
					err := Do(bg, m, forever, func(ctx context.Context) error {
						for _, k := range mine {
							if inside[k].Add(1) != 1 {
								t.Errorf("two hold %d", k)
							}
						}
						for _, k := range mine {
							inside[k].Add(-1)
						}
						return ctx.Err()
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
}

// Processes that know the servers of one lock by different addresses cannot agree on an order, so
// each holds what the next one waits for. All get the lock all the same, and soon.
func TestMulti_OneNameOnSeveralServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		orders          [][]int // of the servers, by process
		callers, rounds int     // of each process
	}{
		"two callers": {[][]int{{0, 1}, {1, 0}}, 1, 40},
		"two crowds":  {[][]int{{0, 1}, {1, 0}}, 6, 8},
		"in a ring":   {[][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}}, 2, 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := newMasters(t, len(test.orders[0]))
			var inside atomic.Int32
			var mu sync.Mutex
			var waits []time.Duration
			var work sync.WaitGroup
			for _, order := range test.orders {
				var locks []Locker
				for place, server := range order {
					fx := servers[server]
					rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprint("server-", place, ":6379"), Dialer: dialInstead(fx.srv.Addr())})
					t.Cleanup(func() { _ = rdb.Close() })
					locks = append(locks, fx.newLocksOn(t, rdb).Lock("n"))
				}
				whole := MultiLock(locks...)
				pass := func() error {
					began := time.Now()
					lease, err := whole.Acquire(bg, AcquireOptions{WaitTime: patience})
					if err != nil {
						return err
					}
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d have it", n)
					}
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					return lease.Release(bg)
				}
				for range test.callers {
					work.Go(func() {
						for range test.rounds {
							if err := pass(); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			work.Wait()
			slices.Sort(waits)
			if len(waits) > 0 && waits[len(waits)/2] > patience/5 {
				t.Errorf("half of the callers have waited for %v or more", waits[len(waits)/2])
			}
		})
	}
}

// Locks of one name on several servers are sorted by address. Names are compared as they are in
// Redis.
func TestMulti_OrderOfEqualNames(t *testing.T) {
	t.Parallel()
	at := func(rdb redis.UniversalClient, opts ...func(*Options)) *Client {
		t.Cleanup(func() { _ = rdb.Close() })
		c := newUncheckedLocks(t, rdb, opts...)
		t.Cleanup(func() { _ = c.Close(bg) })
		return c
	}
	prefixed := func(o *Options) { o.NameMapper = func(name string) string { return "m:" + name } }
	first := at(redis.NewClient(&redis.Options{Addr: "a:1"}))
	second := at(redis.NewClient(&redis.Options{Addr: "a:1", DB: 1}))
	third := at(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"z:1", "b:1"}}))
	fourth := at(redis.NewClient(&redis.Options{Addr: "c:1"}), prefixed)
	fifth := at(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"d:1", "c:2"}}))
	want := []Locker{first.Lock("a"), first.Lock("m:x"), second.Lock("m:x"), third.Lock("m:x"), fourth.Lock("x"), fifth.ReadWriteLock("m:x").Write(), fifth.ReadWriteLock("m:x").Read(), first.Lock("x")}
	for range 20 {
		given := slices.Clone(want)
		rand.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
		m := MultiLock(given...).(*multi)
		if !slices.Equal(m.locks, want) {
			t.Fatalf("given %v, taken %v", given, m.locks)
		}
		var tied []bool
		for i := range m.locks {
			tied = append(tied, m.tied(i))
		}
		if want := []bool{false, false, true, true, true, true, true, false}; !slices.Equal(tied, want) {
			t.Fatalf("tied %v, want %v", tied, want)
		}
	}
}
