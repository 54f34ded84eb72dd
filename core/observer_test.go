package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// An observer hears of every step, with the caller's context.
func TestObserver(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var log eventLog
	c, proxy := fx.newProxiedLocks(t, log.observe, watchdogTimeout(6*time.Second), commandTimeout(3*time.Second))
	ctx := context.WithValue(bg, spyKey{}, "the caller's")
	acquire := func(ctx context.Context, opts AcquireOptions) *Lease {
		t.Helper()
		return mustAcquire(t, ctx, c.Lock("a"), opts)
	}

	lease := acquire(ctx, AcquireOptions{})
	inner := acquire(lease.Context(), AcquireOptions{LeaseTime: time.Minute})
	if _, err := c.Lock("a").Acquire(ctx, AcquireOptions{}); err == nil {
		t.Fatal("two holders")
	}
	result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: patience})
	events := log.next(t, "acquired", "acquired", "not acquired", "waiting")
	for i, e := range events {
		owner, want := holdOf(lease).wire, time.Duration(0)
		if i >= 2 {
			owner = ""
		}
		if i == 1 {
			want = time.Minute
		}
		if e.Name != "a" || e.Kind != "lock" || e.Owner != owner || e.Lease != want || e.Held != 0 || e.Waited < 0 || e.Waited > patience {
			t.Errorf("event %d: %+v", i, e)
		}
		if (e.Err != nil) != (i == 2) || i == 2 && !errors.Is(e.Err, ErrNotAcquired) {
			t.Errorf("event %d: error %v", i, e.Err)
		}
		wait := time.Duration(0)
		if i == 3 {
			wait = patience
		}
		if i == 3 && (e.Holder != holdOf(lease).wire || e.HolderContext.Value(spyKey{}) != "the caller's") {
			t.Errorf("event %d: the caller waits for %q", i, e.Holder)
		}
		if e.Blocked != (i == 3) || e.WaitTime.Round(time.Millisecond) != wait {
			t.Errorf("event %d: %+v", i, e)
		}
	}

	for _, l := range []*Lease{inner, lease} {
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
	}
	r := mustReceive(t, "the waiter to get it", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	log.waitInOrder(t, 3, "acquired")
	events = log.next(t, "released", "released", "acquired")
	if e := events[0]; e.Owner != holdOf(lease).wire || e.Lease != time.Minute || e.Err != nil {
		t.Errorf("released: %+v", e)
	}
	if e := events[1]; e.Owner != holdOf(lease).wire || e.Lease != 0 || e.Held <= 0 || e.Err != nil {
		t.Errorf("released: %+v", e)
	}
	if e := events[2]; e.Owner != holdOf(r.lease).wire || e.Waited <= 0 || !e.Blocked || e.Holder != holdOf(lease).wire {
		t.Errorf("acquired: %+v", e)
	}

	// A renewal that fails, then a loss, and a release that tells of it no more.
	refuse := proxy.OnEvery(runsScript(renewScript), redistest.ReplyWith("-ERR not today\r\n"))
	events = log.next(t, "renew failed")
	if e := events[0]; e.Owner != holdOf(r.lease).wire || e.Err == nil || !strings.Contains(e.Err.Error(), "not today") {
		t.Errorf("renew failed: %+v", e)
	}
	mustForce(t, c.Lock("a"))
	refuse.Remove()
	eventually(t, "the loss to be told", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		for len(log.kinds) > 1 && log.kinds[0] == "renew failed" {
			log.kinds, log.events, log.ctxs = log.kinds[1:], log.events[1:], log.ctxs[1:]
		}
		return len(log.kinds) > 0 && log.kinds[0] == "lost"
	})
	events = log.next(t, "lost")
	if e := events[0]; e.Owner != holdOf(r.lease).wire || !errors.Is(e.Err, ErrLockLost) || e.Held <= 0 {
		t.Errorf("lost: %+v", e)
	}
	wantErr(t, "Release", r.lease.Release(bg), ErrLockLost)

	// A release that finds the lock gone, and one that does not get through.
	lease = acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	fx.rdb.Del(bg, "a")
	wantErr(t, "Release", lease.Release(ctx), ErrLockLost)
	events = log.next(t, "acquired", "released")
	wantErr(t, "the event's error", events[1].Err, ErrLockLost)
	lease = acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	proxy.Cut()
	if err := lease.Release(ctx); err == nil {
		t.Error("released over a connection that is cut")
	}
	events = log.next(t, "acquired", "released")
	if err := events[1].Err; err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("the event's error: %v", err)
	}
	proxy.Restore()
}

// An observer may use the lock that it hears of: core holds no mutex.
func TestObserver_MayCallBack(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var c *Client
	calls := make(chan string, 100)
	look := func(kind string) func(context.Context, Event) {
		return func(ctx context.Context, e Event) {
			_ = c.Stats()
			if _, err := c.Lock(e.Name).HoldCount(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", kind, err)
			}
			calls <- kind
		}
	}
	c = fx.newLocks(t, func(o *Options) {
		o.Observer = Observer{
			Waiting: look("waiting"), Acquired: look("acquired"), NotAcquired: look("not acquired"),
			Released: look("released"), Lost: look("lost"),
		}
	})
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: 3 * time.Second})
	wantErr(t, "Acquire", err, ErrNotAcquired)
	mustRelease(t, lease)
	lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: 3 * time.Second})
	mustReceive(t, "the lease to be lost", lease.Done())
	for _, want := range []string{"acquired", "waiting", "not acquired", "released", "acquired", "lost"} {
		if got := mustReceive(t, want, calls); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// If an observer panics, the caller has no lease, even if it recovers, and no waiter is left.
func TestObserver_Panics(t *testing.T) {
	t.Parallel()
	lock := func(c *Client) Locker { return c.Lock("a") }
	several := func(c *Client) []Locker { return []Locker{c.Lock("a"), c.Lock("b"), c.Lock("c")} }
	for name, tc := range map[string]struct {
		lock   func(c *Client) Locker
		member string // whose event it is
		waits  bool
	}{
		"acquired":           {lock, "a", false},
		"waiting":            {lock, "a", true},
		"waiting, fair":      {func(c *Client) Locker { return c.FairLock("a") }, "a", true},
		"a member's":         {func(c *Client) Locker { return MultiLock(several(c)...) }, "a", false},
		"the last member's":  {func(c *Client) Locker { return MultiLock(several(c)...) }, "c", false},
		"a member's, of red": {func(c *Client) Locker { return RedLock(several(c)...) }, "b", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			thrown := errors.New("thrown")
			begun := make(chan struct{})
			var over atomic.Bool
			observe := func(_ context.Context, e Event) {
				switch {
				case over.Load():
				case e.Name == tc.member:
					close(begun)
					panic(thrown)
				default: // the others are granted while it panics
					<-begun
					if !within(patience, func() bool { return fx.rdb.Exists(bg, tc.member).Val() == 0 }) {
						t.Error("what was granted to the member whose callback panics is not given back")
					}
				}
			}
			c := fx.newLocks(t, func(o *Options) { o.Observer.Acquired, o.Observer.Waiting = observe, observe })

			free, opts := func() {}, AcquireOptions{}
			if tc.waits {
				lease := mustAcquire(t, bg, tc.lock(fx.newLocks(t)), AcquireOptions{})
				free, opts = func() { mustRelease(t, lease) }, forever
			}
			func() {
				defer func() {
					if r := recover(); r != thrown {
						t.Errorf("recovered %v, want what was thrown", r)
					}
				}()
				_, err := tc.lock(c).Acquire(bg, opts)
				t.Errorf("Acquire has returned: %v", err)
			}()
			over.Store(true)
			free()
			mustRelease(t, mustAcquire(t, bg, tc.lock(c), AcquireOptions{WaitTime: patience}))
		})
	}

	t.Run("of a re-entry", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		calls := 0
		c := fx.newLocks(t, func(o *Options) {
			o.Observer.Acquired = func(context.Context, Event) {
				if calls++; calls > 1 {
					panic("thrown")
				}
			}
		})
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		func() {
			defer func() {
				if r := recover(); r != "thrown" {
					t.Errorf("recovered %v, want what was thrown", r)
				}
			}()
			_, err := c.Lock("a").Acquire(lease.Context(), AcquireOptions{})
			t.Errorf("Acquire has returned: %v", err)
		}()
		eventually(t, "a hold count of 1", func() bool { return fx.hash(t, "a")[holdOf(lease).wire] == "1" })
		wantHeld(t, lease)
		mustRelease(t, lease)
	})
}

// An eventLog is an Observer that records every event.
type eventLog struct {
	mu     sync.Mutex
	events []Event
	kinds  []string
	ctxs   []context.Context
}

func (l *eventLog) observe(o *Options) {
	note := func(kind string) func(context.Context, Event) {
		return func(ctx context.Context, e Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.kinds, l.events, l.ctxs = append(l.kinds, kind), append(l.events, e), append(l.ctxs, ctx)
		}
	}
	o.Observer = Observer{
		Waiting: note("waiting"), Acquired: note("acquired"), NotAcquired: note("not acquired"),
		Released: note("released"), Lost: note("lost"), RenewFailed: note("renew failed"),
	}
}

func (l *eventLog) list() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// waitInOrder waits for n events and puts the last two in order: the next holder may report before
// the one that released.
func (l *eventLog) waitInOrder(t *testing.T, n int, last string) {
	t.Helper()
	eventually(t, "events", func() bool { return len(l.list()) >= n })
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := n - 2; l.kinds[i] == last {
		l.kinds[i], l.kinds[i+1] = l.kinds[i+1], l.kinds[i]
		l.events[i], l.events[i+1] = l.events[i+1], l.events[i]
		l.ctxs[i], l.ctxs[i+1] = l.ctxs[i+1], l.ctxs[i]
	}
}

// next waits for events and removes the first of them, which must be of these kinds.
func (l *eventLog) next(t *testing.T, kinds ...string) []Event {
	t.Helper()
	eventually(t, fmt.Sprint("events ", kinds), func() bool { return len(l.list()) >= len(kinds) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.kinds[:len(kinds)], kinds) {
		t.Fatalf("events %q, want %q", l.kinds, kinds)
	}
	taken := l.events[:len(kinds)]
	for i, ctx := range l.ctxs[:len(kinds)] {
		if ctx.Value(spyKey{}) != "the caller's" {
			t.Errorf("event %s has not the caller's context", kinds[i])
		}
	}
	l.kinds, l.events, l.ctxs = l.kinds[len(kinds):], l.events[len(kinds):], l.ctxs[len(kinds):]
	return taken
}
