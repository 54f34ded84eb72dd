package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lineage"
)

// canReenter reports whether Acquire with a context enters a held lock again, and that IsHeld says
// the same.
func canReenter(t testing.TB, ctx context.Context, l *Lock) bool {
	t.Helper()
	held, err := l.IsHeld(ctx)
	if err != nil {
		t.Error(err)
	}
	lease, err := l.Acquire(ctx, AcquireOptions{})
	if err == nil {
		mustRelease(t, lease)
	} else {
		wantErr(t, "Acquire of "+l.Name(), err, ErrNotAcquired)
	}
	if held != (err == nil) {
		t.Errorf("IsHeld of %s is %t, and Acquire returns %v", l.Name(), held, err)
	}
	return err == nil
}

// A context enters a name again only if it comes from a live lease of that name.
func TestReentry_FollowsTheLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	a, other := c.Lock("a"), c.Lock("b")
	type key struct{}

	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	bound, free := outer.Bind(context.WithValue(bg, key{}, 1))
	defer free()
	for what, from := range map[string]context.Context{"Lease.Context": outer.Context(), "Lease.Bind": bound} {
		child, cancel := context.WithCancel(context.WithValue(from, key{}, 2))
		defer cancel()
		inner := mustAcquire(t, child, c.Lock("b"), AcquireOptions{})
		for _, tc := range []struct {
			name string
			ctx  context.Context
			lock *Lock
			want bool
		}{
			{"the lease's own name", child, a, true},
			{"the lease's own name, without cancel", context.WithoutCancel(child), a, true},
			{"another name that the same context has locked", child, other, false},
			{"the inner lease's name", inner.Context(), other, true},
			{"the outer lease's name, from the inner lease", inner.Context(), a, true},
			{"a stranger", bg, other, false},
			{"cut off", WithNewOwner(inner.Context()), other, false},
			{"an owner made below the lease", WithOwner(inner.Context()), a, true},
		} {
			if got := canReenter(t, tc.ctx, tc.lock); got != tc.want {
				t.Errorf("%s: %s: entered again %t, want %t", what, tc.name, got, tc.want)
			}
		}
		mustRelease(t, inner)
	}
	mustRelease(t, outer)
}

// A lease that has ended or was given away does not count. One further out still does.
func TestReentry_OnlyLiveLeasesCount(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, c *Client, ctx context.Context, lease *Lease){
		"released": func(t *testing.T, _ *Client, _ context.Context, lease *Lease) { mustRelease(t, lease) },
		"expired": func(t *testing.T, _ *Client, _ context.Context, lease *Lease) {
			mustReceive(t, "the lease to end", lease.Done())
		},
		"given away": func(t *testing.T, _ *Client, ctx context.Context, _ *Lease) { lineage.From(ctx).Detach() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t)
			short := AcquireOptions{}
			if name == "expired" {
				short.LeaseTime = 3 * time.Second
			}
			// The first lease ends. The second keeps the hold, and only contexts from it count.
			first := mustAcquire(t, bg, c.Lock("a"), short)
			bound, free := first.Bind(bg)
			defer free()
			from := context.WithoutCancel(bound)
			second := mustAcquire(t, from, c.Lock("a"), AcquireOptions{})
			inner := mustAcquire(t, second.Context(), c.Lock("a"), AcquireOptions{})
			end(t, c, bound, first)
			if canReenter(t, from, c.Lock("a")) {
				t.Error("a context of the ended lease enters again")
			}
			innerCtx := context.WithoutCancel(inner.Context())
			mustRelease(t, inner)
			if !canReenter(t, innerCtx, c.Lock("a")) {
				t.Error("the lease further out does not count")
			}
			mustRelease(t, second)
			if name == "given away" {
				mustRelease(t, first)
			}
			fx.wantFree(t, "a")
		})
	}
}

// The lease of several locks stands for each of them, also for those that it acquired later. A lock
// of another client is another lock.
func TestReentry_StandsForAllMembers(t *testing.T) {
	t.Parallel()
	all := newMasters(t, 3)
	var mine, theirs []*Client
	for _, fx := range all {
		mine, theirs = append(mine, fx.newLocks(t)), append(theirs, fx.newLocks(t))
	}
	for name, whole := range map[string]Locker{
		"multi":  MultiLock(mine[0].Lock("a"), mine[1].Lock("b"), MultiLock(mine[2].Lock("c"))),
		"red":    RedLock(mine[0].Lock("a"), mine[1].Lock("b"), mine[2].Lock("c")),
		"single": mine[0].Lock("a"),
	} {
		lease := mustAcquire(t, bg, whole, AcquireOptions{WaitTime: patience})
		eventually(t, "all members to be held", func() bool { return allHeld(lease) })
		bound, free := lease.Bind(bg)
		for i, member := range []string{"a", "b", "c"} {
			if name == "single" && i > 0 {
				break
			}
			for what, ctx := range map[string]context.Context{"Context": lease.Context(), "Bind": bound} {
				if !canReenter(t, ctx, mine[i].Lock(member)) {
					t.Errorf("%s: %s does not enter the member %s again", name, what, member)
				}
			}
			if canReenter(t, bound, theirs[i].Lock(member)) {
				t.Errorf("%s: the lease counts for another client", name)
			}
		}
		// Another name is not a member's, even if the same Acquire could have taken it.
		other := mustAcquire(t, bound, mine[0].Lock("other"), AcquireOptions{})
		if canReenter(t, bound, mine[0].Lock("other")) || canReenter(t, lease.Context(), mine[0].Lock("other")) {
			t.Errorf("%s: its contexts enter another name again", name)
		}
		mustRelease(t, other)
		free()
		mustRelease(t, lease)
	}
}

// Goroutines that share a context exclude each other on every name but its lease's.
func TestReentry_GoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	work := func(what string, ctx context.Context, most int) {
		var inside, top atomic.Int32
		all := make(chan struct{})
		inParallel(4, func(int) {
			err := Do(ctx, c.Lock("stock"), AcquireOptions{WaitTime: patience}, func(context.Context) error {
				n := inside.Add(1)
				for old := top.Load(); n > old && !top.CompareAndSwap(old, n); old = top.Load() {
				}
				if most > 1 { // all are inside at once
					if n == int32(most) {
						close(all)
					}
					<-all
				}
				runtime.Gosched()
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		if got := top.Load(); got != int32(most) {
			t.Errorf("%s: %d inside at once, want %d", what, got, most)
		}
	}
	err := RunWhileHeld(bg, c.Lock("leader"), func(ctx context.Context) error {
		work("RunWhileHeld", ctx, 1)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = Do(bg, c.Lock("order"), AcquireOptions{}, func(ctx context.Context) error {
		work("Do", ctx, 1)
		work("a shared owner", WithOwner(ctx), 4)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = Do(bg, MultiLock(c.Lock("x"), c.Lock("y")), AcquireOptions{}, func(ctx context.Context) error {
		work("MultiLock", ctx, 1)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

const ownRefusal = "held by this same request; pass lease.Context()"

// Who locks a name twice with the context of one lease is told what to change, by the error and in
// the log. What the error matches does not depend on it.
func TestReentry_RefusalByItself(t *testing.T) {
	t.Parallel()
	lockers := map[string]func(c *Client) Locker{
		"lock":   func(c *Client) Locker { return c.Lock("a") },
		"fair":   func(c *Client) Locker { return c.FairLock("b") },
		"write":  func(c *Client) Locker { return c.ReadWriteLock("c").Write() },
		"once":   func(c *Client) Locker { return onceLocker{c.Once("d")} },
		"multi":  func(c *Client) Locker { return MultiLock(c.Lock("e"), c.Lock("f")) },
		"fenced": func(c *Client) Locker { return c.FencedLock("g") },
	}
	for kind, locker := range lockers {
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(kind, ", WaitTime ", wait), func(t *testing.T) {
				t.Parallel()
				var log lockedBuffer
				c := newEmbeddedRedis(t).newLocks(t, logTo(&log))
				outer := mustAcquire(t, bg, c.Lock("of the request"), AcquireOptions{})
				inner := mustAcquire(t, outer.Context(), locker(c), AcquireOptions{})
				for range 3 {
					_, err := locker(c).Acquire(outer.Context(), AcquireOptions{WaitTime: wait})
					wantErr(t, "the second Acquire", err, ErrNotAcquired)
					if refusal := (*NotAcquiredError)(nil); !errors.As(err, &refusal) || !strings.Contains(err.Error(), ownRefusal) {
						t.Errorf("the error is %v, want %q", err, ownRefusal)
					}
				}
				if line := wantLines(t, &log, ownRefusal, 1); !strings.Contains(line, "WARN") {
					t.Errorf("it is logged as %q, want a warning", line)
				}
				again := mustAcquire(t, inner.Context(), locker(c), AcquireOptions{})
				mustRelease(t, again)
				// Another caller gets neither the text nor the line.
				_, err := locker(c).Acquire(bg, AcquireOptions{WaitTime: wait})
				if err == nil || strings.Contains(err.Error(), "same request") || !strings.Contains(err.Error(), "held by another owner") {
					t.Errorf("another caller's error is %v", err)
				}
				ctx, cancel := context.WithTimeout(outer.Context(), 100*time.Millisecond)
				defer cancel()
				_, err = locker(c).Acquire(ctx, forever)
				wantErr(t, "Acquire until a deadline", err, context.DeadlineExceeded)
				wantErr(t, "Acquire until a deadline", err, ErrStillHeld)
				if !strings.Contains(err.Error(), ownRefusal) {
					t.Errorf("the error at a deadline is %v, want %q", err, ownRefusal)
				}
				mustRelease(t, inner)
				mustRelease(t, outer)
			})
		}
	}
}

// Readers do not keep each other out, so a reader is never told that its request does.
func TestReentry_ReadersOfOneRequest(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	c := newRedis(t).newLocks(t, logTo(&log))
	outer := mustAcquire(t, bg, c.Lock("of the request"), AcquireOptions{})
	l := c.ReadWriteLock("a")
	first := mustAcquire(t, outer.Context(), l.Read(), AcquireOptions{})
	second := mustAcquire(t, outer.Context(), l.Read(), AcquireOptions{})
	if holdOf(first) == holdOf(second) {
		t.Error("the second reader has entered the first one's hold")
	}
	_, err := l.Write().Acquire(outer.Context(), AcquireOptions{})
	if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), ownRefusal) {
		t.Errorf("a writer beside its request's readers: %v", err)
	}
	_, err = l.Write().Acquire(first.Context(), AcquireOptions{})
	wantErr(t, "a reader as writer", err, ErrUpgrade)
	for _, lease := range []*Lease{second, first, outer} {
		mustRelease(t, lease)
	}
}

// A caller that waits for ever for a lock of its own request finds that in the log, once.
func TestReentry_WaitsForItself(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	c := newRedis(t).newLocks(t, logTo(&log))
	outer := mustAcquire(t, bg, c.Lock("of the request"), AcquireOptions{})
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	waiting := []<-chan acquireResult{acquireAsync(bg, c.Lock("a"), forever)}
	for range 2 {
		waiting = append(waiting, acquireAsync(outer.Context(), c.Lock("a"), forever))
	}
	eventually(t, "the line", func() bool { return strings.Contains(log.String(), ownRefusal) })
	mustRelease(t, inner)
	all := merge(waiting...)
	for range waiting {
		mustRelease(t, mustReceiveLease(t, "the lock", all))
	}
	mustRelease(t, outer)
	wantLines(t, &log, "same request", 1)
}

// A lookupCounter counts the lookups that reach it.
type lookupCounter struct {
	context.Context
	lookups int
}

func (c *lookupCounter) Value(key any) any {
	c.lookups++
	return c.Context.Value(key)
}

// A lookup through contexts that are bound inside each other asks each of them once, whatever has
// become of them. With two questions each, 26 of them took seconds.
func TestBind_LooksUpOnce(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	type key struct{}
	for name, use := range map[string]func(ctx context.Context, lease *Lease, free context.CancelFunc){
		"new":             func(context.Context, *Lease, context.CancelFunc) {},
		"asked":           func(ctx context.Context, _ *Lease, _ context.CancelFunc) { _ = ctx.Err() },
		"freed":           func(_ context.Context, _ *Lease, free context.CancelFunc) { free() },
		"asked and freed": func(ctx context.Context, _ *Lease, free context.CancelFunc) { _ = ctx.Err(); free() },
		"lost":            func(_ context.Context, lease *Lease, _ context.CancelFunc) { holdOf(lease).lose(ErrLockLost) },
		"lost and freed": func(_ context.Context, lease *Lease, free context.CancelFunc) {
			holdOf(lease).lose(ErrLockLost)
			free()
		},
	} {
		root := &lookupCounter{Context: bg}
		var ctx context.Context = root
		var frees []func()
		for range 40 {
			lease := mustAcquire(t, context.WithoutCancel(ctx), c.Lock("a"), AcquireOptions{WaitTime: patience})
			bound, free := lease.Bind(ctx)
			frees = append(frees, free, func() { _ = lease.Release(bg) })
			ctx = bound
			use(ctx, lease, free)
		}
		root.lookups = 0
		ctx.Value(key{})
		if root.lookups != 1 {
			t.Errorf("%s: one lookup asks the innermost context %d times", name, root.lookups)
		}
		child, cancel := context.WithCancel(ctx)
		root.lookups = 0
		child.Value(key{})
		_ = context.Cause(child)
		if root.lookups > 2 {
			t.Errorf("%s: a lookup and a cause in a child ask the innermost context %d times", name, root.lookups)
		}
		cancel()
		for _, free := range frees {
			free()
		}
		eventually(t, "the lock to be free", func() bool { return c.Stats().Held == 0 })
	}
}

// Acquire walks the lineage of its context for a name only if the name is held, and looks the
// context up once.
func TestReentry_LooksUpOnce(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	root := &lookupCounter{Context: bg}
	var ctx context.Context = root
	for i := range 50 {
		lease := mustAcquire(t, ctx, c.Lock(fmt.Sprint(i%10)), AcquireOptions{})
		defer mustRelease(t, lease)
		ctx = lease.Context()
	}
	root.lookups = 0
	mustRelease(t, mustAcquire(t, ctx, c.Lock("another"), AcquireOptions{}))
	mustRelease(t, mustAcquire(t, ctx, c.Lock("3"), AcquireOptions{}))
	if root.lookups != 0 {
		t.Errorf("Acquire asks the outermost context %d times, want the innermost lease's only", root.lookups)
	}
}
