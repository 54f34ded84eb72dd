package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// The owner is in the context: a derived context enters again, any other does not.
func TestOwner_Contexts(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	one := WithOwner(bg)
	if WithOwner(one) != one {
		t.Error("WithOwner of a context with an owner is another context")
	}
	lease := mustAcquire(t, one, c.Lock("a"), AcquireOptions{})
	enters := func(what string, ctx context.Context, want bool) {
		t.Helper()
		lease, err := c.Lock("a").Acquire(ctx, AcquireOptions{})
		if want != (err == nil) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			mustRelease(t, lease)
		} else {
			wantErr(t, what, err, ErrNotAcquired)
		}
	}
	type key struct{}
	child, cancel := context.WithCancel(context.WithValue(one, key{}, 1))
	defer cancel()
	enters("the owner", one, true)
	enters("a context derived from the owner's", child, true)
	enters("the lease's context", lease.Context(), true)
	enters("without cancel", context.WithoutCancel(child), true)
	enters("no owner", bg, false)
	enters("another owner", WithOwner(bg), false)
	enters("a new owner", WithNewOwner(one), false)
	enters("a new owner of the lease's context", WithNewOwner(lease.Context()), false)
	bound, free := lease.Bind(bg)
	enters("a bound context", bound, true)
	free()
	mustRelease(t, lease)
	// An owner outlives its locks, and each of them ends for itself.
	again := mustAcquire(t, one, c.Lock("a"), AcquireOptions{})
	other := mustAcquire(t, one, c.Lock("b"), AcquireOptions{})
	if holdOf(again) == holdOf(other) || holdOf(again).wire == holdOf(other).wire {
		t.Error("two locks share a hold")
	}
	mustRelease(t, again)
	wantHeld(t, other)
	mustRelease(t, other)
}

// A bound context ends with its parent, when the lease is lost, and when it is freed, but not when
// the lease is released.
func TestBind(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	type key struct{}
	parent, end := context.WithCancelCause(context.WithValue(bg, key{}, "kept"))
	defer end(nil)

	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	bound, free := lease.Bind(parent)
	if bound.Value(key{}) != "kept" {
		t.Error("the values of the context are gone")
	}
	if got, want := fmt.Sprint(bound), fmt.Sprint(parent)+".Bind"; got != want {
		t.Errorf("it is printed as %q, want %q", got, want)
	}
	inner := mustAcquire(t, bound, c.Lock("a"), AcquireOptions{})
	mustRelease(t, inner)

	// Not on release.
	mustRelease(t, lease)
	if err := bound.Err(); err != nil {
		t.Errorf("it has ended with the release: %v", err)
	}
	free()
	wantErr(t, "after the function was called", bound.Err(), context.Canceled)
	free() // a second time does nothing

	// On loss, with the cause, unless it was freed before.
	lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	bound, free = lease.Bind(parent)
	other, freeOther := lease.Bind(bg)
	gone, freeGone := lease.Bind(bg)
	freeGone()
	mustForce(t, c.Lock("a"))
	for _, ctx := range []context.Context{bound, other} {
		mustReceive(t, "it to end", ctx.Done())
		wantErr(t, "its cause", context.Cause(ctx), ErrLockLost)
	}
	wantErr(t, "the cause of the one that was let go", context.Cause(gone), context.Canceled)
	free()
	freeOther()

	// After the end.
	late, freeLate := lease.Bind(parent)
	wantErr(t, "bound to a lost lease", context.Cause(late), ErrLockLost)
	freeLate()
	lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	mustRelease(t, lease)
	late, freeLate = lease.Bind(parent)
	if err := late.Err(); err != nil {
		t.Errorf("bound to a released lease: %v", err)
	}
	// With its parent.
	cause := errors.New("the parent ends")
	end(cause)
	mustReceive(t, "it to end with its parent", late.Done())
	wantErr(t, "its cause", context.Cause(late), cause)
	freeLate()
}

// The lease does not know of a bound context until the context is asked for its end, or has an
// error. A late question gets the same answer.
func TestBind_AskedLate(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	cause := errors.New("the parent ends")
	ends := []struct {
		name string
		do   func(lease *Lease, parent context.CancelCauseFunc, free func())
		want error
	}{
		{"lost", func(l *Lease, _ context.CancelCauseFunc, _ func()) { holdOf(l).lose(ErrLockLost) }, ErrLockLost},
		{"lost, and let go", func(l *Lease, _ context.CancelCauseFunc, free func()) { holdOf(l).lose(ErrLockLost); free() }, ErrLockLost},
		{"let go", func(_ *Lease, _ context.CancelCauseFunc, free func()) { free() }, context.Canceled},
		{"let go, and lost", func(l *Lease, _ context.CancelCauseFunc, free func()) { free(); holdOf(l).lose(ErrLockLost) }, context.Canceled},
		{"the parent's end", func(_ *Lease, parent context.CancelCauseFunc, _ func()) { parent(cause) }, cause},
		{"the parent's, and let go", func(_ *Lease, parent context.CancelCauseFunc, free func()) { parent(cause); free() }, cause},
	}
	asks := map[string]func(t *testing.T, ctx context.Context, want error){
		"Done": func(t *testing.T, ctx context.Context, want error) {
			mustReceive(t, "the end", ctx.Done())
			wantErr(t, "its cause", context.Cause(ctx), want)
		},
		"Err": func(t *testing.T, ctx context.Context, want error) {
			wantErr(t, "the error", ctx.Err(), context.Canceled)
			wantErr(t, "its cause", context.Cause(ctx), want)
		},
		"Cause": func(t *testing.T, ctx context.Context, want error) {
			wantErr(t, "the cause", context.Cause(ctx), want)
		},
		"child": func(t *testing.T, ctx context.Context, want error) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			wantErr(t, "the error of a child", child.Err(), context.Canceled)
			wantErr(t, "its cause", context.Cause(child), want)
		},
	}
	for _, end := range ends {
		for name, ask := range asks {
			t.Run(end.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				parent, endParent := context.WithCancelCause(bg)
				defer endParent(nil)
				lease := mustAcquire(t, bg, c.Lock(t.Name()), AcquireOptions{})
				bound, free := lease.Bind(parent)
				defer free()
				wantErr(t, "the error before the end", bound.Err(), nil)
				lease.mu().Lock()
				if lease.watchers != nil {
					t.Error("the lease knows of it before anybody has asked")
				}
				lease.mu().Unlock()
				end.do(lease, endParent, free)
				ask(t, bound, end.want)
				if lease.Err() == nil {
					mustRelease(t, lease)
				}
			})
		}
	}
}

// A child of a bound context ends at the same moment, without a goroutine.
func TestBind_Children(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	bound, free := lease.Bind(bg)
	defer free()
	child, cancel := context.WithTimeout(bound, time.Hour)
	defer cancel()
	holdOf(lease).lose(ErrLockLost)
	wantErr(t, "the child, at once", child.Err(), context.Canceled)
	wantErr(t, "its cause", context.Cause(child), ErrLockLost)
}

// The context of a lease has the values and the end of the context of Acquire. Its end does not end
// the lease.
func TestLeaseContext(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(bg, key{}, "kept"))
	lease := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	if lease.Context().Value(key{}) != "kept" {
		t.Error("the values of Acquire's context are gone")
	}
	cause := errors.New("the caller ends")
	cancel(cause)
	mustReceive(t, "it to end with the caller's", lease.Context().Done())
	wantErr(t, "its cause", context.Cause(lease.Context()), cause)
	if err := lease.Err(); err != nil {
		t.Errorf("the end of the caller's context has ended the lease: %v", err)
	}
	select {
	case <-lease.Done():
		t.Error("Done is closed")
	default:
	}
	fx.wantCount(t, lease, 1)
	if err := lease.Release(ctx); err != nil {
		t.Errorf("release with a context that has ended: %v", err)
	}
	fx.wantFields(t, "a", nil)
	wantErr(t, "Err", lease.Err(), ErrReleased)
	mustReceive(t, "Done to be closed", lease.Done())
}

// The first call of Context makes the context. All calls return the same one, which ends with the
// lease.
func TestLeaseContext_OnDemand(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	ends := map[error]func(*Lease){
		ErrReleased: func(l *Lease) { mustRelease(t, l) },
		ErrLockLost: func(l *Lease) { holdOf(l).lose(ErrLockLost) },
	}
	for want, end := range ends {
		for range 20 {
			lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			contexts := make(chan context.Context, 4)
			for range cap(contexts) {
				go func() { contexts <- lease.Context() }()
			}
			end(lease)
			for range cap(contexts) {
				ctx := <-contexts
				mustReceive(t, "the end of a context", ctx.Done())
				wantErr(t, "its cause", context.Cause(ctx), want)
				if ctx != lease.Context() {
					t.Error("a lease has two contexts")
				}
			}
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
		}
	}

	ctx, cancel := context.WithCancel(bg)
	lease := mustAcquire(t, ctx, c.Lock("both"), AcquireOptions{})
	cancel()
	mustRelease(t, lease)
	wantErr(t, "the cause, where the caller's context has ended as well", context.Cause(lease.Context()), ErrReleased)
}

// Of several releases of a lease one succeeds, and the others get ErrReleased.
func TestRelease_Twice(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for range 20 {
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		var mu sync.Mutex
		var errs []error
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				err := lease.Release(bg)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		wg.Wait()
		nils := 0
		for _, err := range errs {
			if err == nil {
				nils++
			} else {
				wantErr(t, "Release", err, ErrReleased)
			}
		}
		if nils != 1 {
			t.Errorf("%d of 4 releases succeeded: %v", nils, errs)
		}
	}
}

// StopRenewal leaves a lease that ends by itself, and does not touch other leases of the hold.
func TestStopRenewal(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const watchdog = 6 * time.Second
	c := fx.newLocks(t, watchdogTimeout(watchdog))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	lease.StopRenewal()
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d locks are renewed", n)
	}
	if d := lease.Remaining(); d <= 0 || d > watchdog {
		t.Errorf("%v remaining", d)
	}
	if err := lease.Extend(bg, watchdog*3/2); err != nil { // by hand, from now on
		t.Fatal(err)
	}
	if d := lease.Remaining(); d <= watchdog {
		t.Errorf("%v remaining after an extension", d)
	}
	mustReceive(t, "it to end", lease.Done())
	wantErr(t, "Err", lease.Err(), ErrLockLost)

	// Another lease of the same hold goes on being renewed.
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{WaitTime: patience}) // our clock is ahead of Redis's, by the margin
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	inner.StopRenewal()
	mustReceive(t, "the one lease to end", inner.Done())
	if err := outer.Err(); err != nil {
		t.Errorf("and the other: %v", err)
	}
	mustRelease(t, outer)
}

// MaxWaiters does not refuse a re-entry, which does not wait, and does not count waiters of other
// names.
func TestMaxWaiters_Reentry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	opts := AcquireOptions{WaitTime: patience, MaxWaiters: 1}
	holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), opts)
	eventuallyWaiting(t, c)
	_, err := c.Lock("a").Acquire(bg, opts)
	wantErr(t, "one waiter too many", err, ErrTooManyWaiters)
	mustRelease(t, mustAcquire(t, holder.Context(), c.Lock("a"), opts))
	mustRelease(t, mustAcquire(t, bg, c.Lock("b"), opts))
	mustRelease(t, holder)
	mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
}

// Do holds the lock while fn runs, and joins the errors of fn and of the lease.
func TestDo(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lock := c.Lock("a")
	failure := errors.New("the work failed")

	err := Do(bg, lock, AcquireOptions{}, func(ctx context.Context) error {
		wantHeldByOther(t, c, "a")
		return Do(ctx, lock, AcquireOptions{}, func(ctx context.Context) error { // enters again
			n, err := lock.HoldCount(ctx)
			if n != 2 {
				t.Errorf("HoldCount %d, want 2", n)
			}
			return err
		})
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
	fx.wantFields(t, "a", nil)

	if err := Do(bg, lock, AcquireOptions{}, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("Do: %v, want fn's error", err)
	}
	fx.wantFields(t, "a", nil)

	// Lost on the way: fn's context ends, and the error says so even if fn does not.
	for _, fnErr := range []error{nil, failure} {
		err = Do(bg, lock, AcquireOptions{}, func(ctx context.Context) error {
			mustForce(t, lock)
			mustReceive(t, "fn's context to end", ctx.Done())
			wantErr(t, "its cause", context.Cause(ctx), ErrLockLost)
			return fnErr
		})
		if !errors.Is(err, ErrLockLost) || fnErr != nil && !errors.Is(err, fnErr) {
			t.Errorf("Do: %v, want ErrLockLost and %v", err, fnErr)
		}
	}

	held := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	err = Do(bg, lock, AcquireOptions{}, func(context.Context) error { t.Error("fn ran without the lock"); return nil })
	wantErr(t, "Do", err, ErrNotAcquired)
	mustRelease(t, held)

	// A caller whose context ends while fn runs: the lock is released all the same.
	ctx, cancel := context.WithCancel(bg)
	err = Do(ctx, lock, AcquireOptions{}, func(ctx context.Context) error {
		cancel()
		mustReceive(t, "fn's context to end", ctx.Done())
		return ctx.Err()
	})
	wantErr(t, "Do", err, context.Canceled)
	if errors.Is(err, ErrNotHeld) {
		t.Errorf("Do: %v", err)
	}
	fx.wantFields(t, "a", nil)
}

// Do releases the lock when fn panics or calls Goexit.
func TestDo_PanicAndGoexit(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lock := c.Lock("a")

	thrown := fmt.Errorf("thrown")
	func() {
		defer func() {
			if r := recover(); r != thrown {
				t.Errorf("recovered %v, want what was thrown", r)
			}
			fx.wantFields(t, "a", nil)
		}()
		_ = Do(bg, lock, AcquireOptions{}, func(context.Context) error { panic(thrown) })
	}()

	var wg sync.WaitGroup
	wg.Go(func() {
		_ = Do(bg, lock, AcquireOptions{}, func(context.Context) error { runtime.Goexit(); return nil })
		t.Error("Do has returned")
	})
	wg.Wait()
	fx.wantFields(t, "a", nil)
}
