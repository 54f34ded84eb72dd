package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Each error matches itself, and ErrNotHeld matches all ways to lose a lease.
func TestErrors_Is(t *testing.T) {
	t.Parallel()
	all := map[string]error{
		"ErrNotAcquired": ErrNotAcquired, "ErrNotHeld": ErrNotHeld, "ErrLockLost": ErrLockLost, "ErrReleased": ErrReleased,
		"ErrClosed": ErrClosed, "ErrTooManyWaiters": ErrTooManyWaiters, "ErrInvalidName": ErrInvalidName,
		"ErrInvalidOptions": ErrInvalidOptions, "ErrWrongKind": ErrWrongKind,
	}
	for name, err := range all {
		if !strings.HasPrefix(err.Error(), "reqlock: ") {
			t.Errorf("%s says %q, want it to begin with reqlock:", name, err)
		}
		for other, target := range all {
			family := other == "ErrNotHeld" && (name == "ErrLockLost" || name == "ErrReleased" || name == "ErrClosed")
			want := name == other || family
			for _, e := range []error{err, opErr("release", label{name: "a"}, err), fmt.Errorf("around: %w", opErr("release", label{name: "a"}, err))} {
				if got := errors.Is(e, target); got != want {
					t.Errorf("errors.Is(%s as %q, %s) = %v, want %v", name, e, other, got, want)
				}
			}
		}
	}
	err := fmt.Errorf("around: %w", &NotAcquiredError{Name: "a", TTL: time.Second, Waited: time.Minute})
	var held *NotAcquiredError
	if !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrNotHeld) || !errors.As(err, &held) || held.TTL != time.Second {
		t.Errorf("NotAcquiredError: %v, %+v", err, held)
	}
}

// A lease that has ended says why, in every method.
func TestErrors_EndedLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	released := mustAcquire(t, bg, c.Lock("released"), AcquireOptions{LeaseTime: time.Minute})
	mustRelease(t, released)
	lost := mustAcquire(t, bg, c.Lock("lost"), AcquireOptions{LeaseTime: time.Minute})
	mustForce(t, c.Lock("lost"))
	closing := newUncheckedLocks(t, fx.srv.Client(t))
	ended := mustAcquire(t, bg, closing.Lock("closed"), AcquireOptions{LeaseTime: time.Minute})
	over, cancel := context.WithCancel(bg)
	cancel()
	if err := closing.Close(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("Close: %v", err)
	}
	for lease, want := range map[*Lease]error{released: ErrReleased, lost: ErrLockLost, ended: ErrClosed} {
		if err := lease.Err(); !errors.Is(err, want) { // at once
			t.Errorf("%s: Err is %v, want %v", lease.Name(), err, want)
		}
		wantEnded(t, lease, want)
		for what, err := range map[string]error{"release": lease.Release(bg), "extend": lease.Extend(bg, time.Minute)} {
			if !errors.Is(err, want) || !errors.Is(err, ErrNotHeld) {
				t.Errorf("%s: %s: %v, want %v", lease.Name(), what, err, want)
			}
		}
		lease.StopRenewal() // does nothing
	}
}

// When the caller's context ends, the error is the context's, with its cause.
func TestErrors_Context(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	cause := errors.New("the client hung up")
	for name, tc := range map[string]struct {
		make  func() (context.Context, context.CancelFunc)
		err   error
		cause error
	}{
		"cancelled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			return ctx, cancel
		}, context.Canceled, nil},
		"cancelled with a cause": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(bg)
			cancel(cause)
			return ctx, func() {}
		}, context.Canceled, cause},
		"deadline": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(bg, 50*time.Millisecond) }, context.DeadlineExceeded, nil},
		"deadline with a cause": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(bg, 50*time.Millisecond, cause)
		}, context.DeadlineExceeded, cause},
	} {
		ctx, cancel := tc.make()
		lease, err := c.Lock("a").Acquire(ctx, forever)
		if lease != nil || !errors.Is(err, tc.err) || tc.cause != nil && !errors.Is(err, tc.cause) || errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s, while waiting: %v", name, err)
		}
		// It has ended by now.
		_, err = c.Lock("free").Acquire(ctx, AcquireOptions{})
		if !errors.Is(err, tc.err) || tc.cause != nil && !errors.Is(err, tc.cause) {
			t.Errorf("%s, before: %v", name, err)
		}
		_, err = c.Lock("a").IsLocked(ctx)
		if !errors.Is(err, tc.err) || tc.cause != nil && !errors.Is(err, tc.cause) {
			t.Errorf("%s, a query: %v", name, err)
		}
		_, err = c.Lock("a").ForceUnlock(ctx)
		if !errors.Is(err, tc.err) || tc.cause != nil && !errors.Is(err, tc.cause) {
			t.Errorf("%s, ForceUnlock: %v", name, err)
		}
		err = Do(ctx, c.Lock("free"), AcquireOptions{}, func(context.Context) error { t.Error("it ran"); return nil })
		if !errors.Is(err, tc.err) {
			t.Errorf("%s, Do: %v", name, err)
		}
		cancel()
	}
	if err := holder.Err(); err != nil {
		t.Errorf("a ForceUnlock that was not sent has ended the lease: %v", err)
	}
	fx.wantCount(t, holder, 1)
	mustRelease(t, holder)
}

// A caller whose context ends stops waiting at once, with the context's error and cause, and leaves
// no lock behind. Redisson: testLockIsNotRenewedAfterInterruptedTryLock.
func TestErrors_ContextWhileWaiting(t *testing.T) {
	t.Parallel()
	for moment, test := range map[string]struct {
		waiters      int // of one client
		isSubscribed bool
	}{
		"first in the queue":  {1, true},
		"behind others":       {3, true},
		"while it subscribes": {1, false},
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			other := fx.newLocks(t)
			held := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
			awaitMoment := func() { fx.eventuallySubscribed(t, "a") }
			if !test.isSubscribed {
				subscribe := proxy.On("SUBSCRIBE", 1, redistest.HoldRequest)
				defer subscribe.Release()
				awaitMoment = func() { mustReceive(t, "the subscription to be sent", subscribe.Hit()) }
			}
			ctx, hangUp := context.WithCancelCause(bg)
			var waiters []<-chan acquireResult
			for range test.waiters {
				waiters = append(waiters, startWaiter(t, ctx, c, "a", forever))
			}
			awaitMoment()
			cause := errors.New("the user has closed the window")
			hangUp(cause)
			for _, waiter := range waiters {
				err := mustReceive(t, "the caller to be let go", waiter).err
				wantErr(t, "Acquire", err, context.Canceled)
				wantErr(t, "Acquire", err, cause)
			}
			if n := c.Stats().Waiting; n != 0 {
				t.Errorf("%d wait", n)
			}
			mustRelease(t, held)
			mustRelease(t, mustAcquire(t, bg, other.Lock("a"), AcquireOptions{WaitTime: patience}))
		})
	}
}

// The error of a caller that gives up tells whether another owner held the lock or Redis had not
// answered. Neither is a refusal, which a MultiLock or RedLock would retry.
func TestErrors_StillHeld(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	waiting := make(chan struct{}, 10)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience), func(o *Options) {
		o.Observer.Waiting = func(context.Context, Event) { waiting <- struct{}{} }
	})
	gone := errors.New("the client hung up")
	leave := func(what string, l Locker, wait bool, when <-chan struct{}) error {
		t.Helper()
		ctx, cancel := context.WithCancelCause(bg)
		defer cancel(nil)
		opts := forever
		if !wait {
			opts.WaitTime = 0
		}
		for len(waiting) > 0 { // mustAcquire may have waited
			<-waiting
		}
		result := acquireAsync(ctx, l, opts)
		mustReceive(t, what+" to wait", when)
		cancel(gone)
		err := mustReceive(t, what+" to leave", result).err
		wantErr(t, what, err, context.Canceled)
		wantErr(t, what, err, gone)
		if errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v; want no refusal", what, err)
		}
		return err
	}

	ours := mustAcquire(t, bg, c.Lock("ours"), AcquireOptions{})
	fx.lockAsStranger(t, time.Hour, "theirs")
	fx.lockAsStranger(t, 0, "endless")
	for _, name := range []string{"ours", "theirs", "endless"} {
		wantErr(t, name, leave(name, c.Lock(name), true, waiting), ErrStillHeld)
		wantErr(t, name+" of several", leave(name, MultiLock(c.Lock("free"), c.Lock(name)), true, waiting), ErrStillHeld)
	}
	mustRelease(t, ours)
	fx.deleteKeys(t, "theirs")
	fx.deleteKeys(t, "endless")

	// Match by the name: the attempt may share a script with commands for the locks before it.
	asksFor := func(name string) func([]string) bool {
		return func(args []string) bool { return strings.HasPrefix(args[0], "EVAL") && slices.Contains(args, name) }
	}
	silent := func(what string, l Locker, name string, wait bool) {
		t.Helper()
		reply := proxy.OnMatch(1, asksFor(name), redistest.HoldReply)
		defer reply.Release()
		if err := leave(what, l, wait, reply.Hit()); errors.Is(err, ErrStillHeld) {
			t.Errorf("%s: %v; no owner holds it", what, err)
		}
	}
	silent("silence", c.Lock("a"), "a", true)
	silent("silence, without waiting", c.Lock("b"), "b", false)
	silent("silence of several", MultiLock(c.Lock("c"), c.Lock("d")), "c", true)

	// Readers only block writers.
	rw := c.ReadWriteLock("read")
	read := mustAcquire(t, bg, rw.Read(), AcquireOptions{})
	for _, wait := range []bool{true, false} {
		reply := proxy.OnMatch(1, runsScript(readAcquireScript), redistest.HoldReply)
		if err := leave("a second reader", rw.Read(), wait, reply.Hit()); errors.Is(err, ErrStillHeld) {
			t.Errorf("a second reader: %v; only the first one holds it", err)
		}
		reply.Release()
	}
	wantErr(t, "a writer", leave("a writer", rw.Write(), true, waiting), ErrStillHeld)
	mustRelease(t, read)
	// The second readers that left may have been granted it: what they left behind goes first.
	write := mustAcquire(t, bg, rw.Write(), AcquireOptions{WaitTime: patience})
	wantErr(t, "a reader", leave("a reader", rw.Read(), true, waiting), ErrStillHeld)
	mustRelease(t, write)

	// The cause of the context may be the refusal of another lock.
	ctx, cancel := context.WithCancelCause(bg)
	reply := proxy.OnMatch(1, asksFor("e"), redistest.HoldReply)
	defer reply.Release()
	result := acquireAsync(ctx, MultiLock(c.Lock("e"), c.Lock("f")), forever)
	mustReceive(t, "it to ask", reply.Hit())
	cancel(&NotAcquiredError{Name: "another"})
	err := mustReceive(t, "it to leave", result).err
	wantErr(t, "with another lock's error", err, ErrNotAcquired)
	if errors.Is(err, ErrStillHeld) {
		t.Errorf("with another lock's error: %v; no owner holds this one", err)
	}
}

// CommandTimeout does not look like the end of the caller's context.
func TestErrors_CommandTimeout(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(2*time.Second))
	lease := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{LeaseTime: time.Minute})
	proxy.Stall()
	_, acquire := c.Lock("a").Acquire(bg, long)
	_, query := c.Lock("a").IsLocked(bg)
	_, reenter := c.Lock("held").Acquire(lease.Context(), AcquireOptions{})
	for _, err := range []error{acquire, query, reenter, lease.Extend(bg, time.Hour), lease.Release(bg)} {
		if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrNotAcquired) {
			t.Errorf("Redis does not answer: %v", err)
		}
	}
	proxy.Restore()
}

// A waiter is told if the key turns into something that is not a lock.
func TestErrors_WrongKindWhileWaiting(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(50*time.Millisecond))
	if err := fx.rdb.HSet(bg, "a", "another:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	var waiting []<-chan acquireResult
	for range 3 {
		waiting = append(waiting, acquireAsync(bg, c.Lock("a"), forever))
	}
	eventually(t, "the callers to wait", func() bool { return c.Stats().Waiting == 3 })
	if err := fx.rdb.Set(bg, "a", "precious", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, result := range waiting {
		r := mustReceive(t, "a waiter to be told", result)
		wantErr(t, "Acquire", r.err, ErrWrongKind)
	}
	if got := fx.rdb.GetDel(bg, "a").Val(); got != "precious" {
		t.Errorf("the key holds %q", got)
	}
}

// Lock names may be secret: errors and log lines contain them only if LogNames is set.
func TestErrors_LogNames(t *testing.T) {
	t.Parallel()
	const secret = "patient-4711"
	for _, logNames := range []bool{false, true} {
		t.Run(fmt.Sprint("LogNames ", logNames), func(t *testing.T) {
			t.Parallel()
			var out lockedBuffer
			logged := func(o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
				o.LogNames = logNames
			}
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, logged, commandTimeout(2500*time.Millisecond))
			out.asks = func() { c.Stats() } // a log's handler may
			var errs []error
			note := func(err error) {
				t.Helper()
				if err == nil {
					t.Error("there should be an error")
					return
				}
				errs = append(errs, err)
			}
			lock := c.Lock(secret)
			acquire := func(ctx context.Context, opts AcquireOptions) error {
				lease, err := lock.Acquire(ctx, opts)
				if err == nil {
					t.Errorf("acquired: %s", holdOf(lease).wire)
				}
				return err
			}

			lease := mustAcquire(t, bg, c.Lock(secret), AcquireOptions{LeaseTime: time.Minute})
			note(acquire(bg, AcquireOptions{}))
			note(acquire(bg, AcquireOptions{WaitTime: 10 * time.Millisecond}))
			note(acquire(bg, AcquireOptions{WaitTime: -5}))
			over, cancel := context.WithCancel(bg)
			cancel()
			note(acquire(over, AcquireOptions{}))
			note(lease.Extend(bg, -1))
			_, err := lock.ForceUnlock(bg)
			if err != nil {
				t.Error(err)
			}
			note(lease.Release(bg)) // and a log line: lost
			fx.rdb.Set(bg, secret, 1, 0)
			note(acquire(bg, AcquireOptions{}))
			_, err = lock.IsLocked(bg)
			note(err)
			fx.rdb.Del(bg, secret)
			eventually(t, "the clean-up of the first lease", func() bool { return c.Stats().Cleanups == 0 })
			lease = mustAcquire(t, bg, c.Lock(secret), AcquireOptions{LeaseTime: 10 * time.Second}) // longer than the next three take
			proxy.Cut()
			note(acquire(lease.Context(), AcquireOptions{LeaseTime: time.Second}))
			note(acquire(bg, AcquireOptions{LeaseTime: time.Second}))
			note(lease.Release(bg)) // and log lines: failed, and never freed
			eventually(t, "a clean-up to be given up", func() bool { return strings.Contains(out.String(), "could not be freed") })
			proxy.Restore()
			// A script that Redis refuses for the key's sake must not name it either.
			limited := fx.newLocksOn(t, fx.newUser(t, "~something:else", "&*", "+@all"), logged)
			_, err = limited.Lock(secret).Acquire(bg, AcquireOptions{LeaseTime: time.Second})
			note(err)
			eventually(t, "the client to be idle", func() bool {
				fx.rdb.Do(bg, "ACL", "SETUSER", "limited", "allkeys")
				return limited.Stats() == Stats{}
			})

			hash := hashed(secret)
			shown, hidden := hash, secret
			if logNames {
				shown, hidden = secret, hash
			}
			for _, err := range errs {
				text := err.Error()
				if strings.Contains(text, hidden) || !strings.Contains(text, shown) || !strings.HasPrefix(text, "reqlock: ") || strings.Count(text, "reqlock:") != 1 {
					t.Errorf("LogNames %v, error %q: want it to begin with reqlock:, once, and to hold %s and not %s", logNames, text, shown, hidden)
				}
			}
			log := out.String()
			for _, line := range []string{"lock lost while it was held", "could not be released yet", "could not be freed"} {
				if !strings.Contains(log, line) {
					t.Errorf("the log has no line with %q", line)
				}
			}
			if strings.Contains(log, hidden) || !strings.Contains(log, shown) {
				t.Errorf("LogNames %v, the log says:\n%s", logNames, log)
			}
		})
	}
}

// A lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	asks func() // whenever something is written
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	if b.asks != nil {
		b.asks()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
