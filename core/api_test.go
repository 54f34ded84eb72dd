package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

// Every Options field that is no good is refused, by name.
func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for field, opts := range map[string][]Options{
		"WatchdogTimeout": {{WatchdogTimeout: -1}, {WatchdogTimeout: -time.Hour}, {WatchdogTimeout: 1}, {WatchdogTimeout: minWatchdog - 1}},
		"PollInterval":    {{PollInterval: -1}, {PollInterval: -time.Hour}, {PollInterval: time.Millisecond - 1}},
		"CommandTimeout":  {{CommandTimeout: -1}, {CommandTimeout: -time.Hour}, {CommandTimeout: time.Millisecond - 1}},
		"PublishMode":     {{PublishMode: -1}, {PublishMode: PublishBoth + 1}},
	} {
		for _, o := range opts {
			c, err := New(rdb, o)
			if c != nil || !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "core.Options."+field) {
				t.Errorf("%+v: %v, %v; want an error that names %s", o, c, err, field)
			}
		}
	}
}

func TestOptionsDefaults(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	c, err := New(rdb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o := c.opts; o.WatchdogTimeout != 30*time.Second || o.PollInterval != 5*time.Second || o.CommandTimeout != 3*time.Second || o.Logger != slog.Default() {
		t.Errorf("defaults %+v", o)
	}
	if err := c.Close(bg); err != nil {
		t.Error(err)
	}
}

func TestAcquireOptionsRefused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	commands := counter(proxy, runs())
	held := mustAcquire(t, c, "held", AcquireOptions{})
	for field, opts := range map[string][]AcquireOptions{
		"WaitTime":   {{WaitTime: -2}, {WaitTime: -time.Second}, {WaitTime: math.MinInt64}},
		"LeaseTime":  {{LeaseTime: -1}, {LeaseTime: -time.Second}, {LeaseTime: 1}, {LeaseTime: time.Millisecond - 1}},
		"MaxWaiters": {{MaxWaiters: -2}, {MaxWaiters: math.MinInt}},
	} {
		for _, o := range opts {
			for _, ctx := range []context.Context{bg, held.Context()} {
				lease, err := c.Lock("held").Acquire(ctx, o)
				if lease != nil || !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "core.AcquireOptions."+field) {
					t.Errorf("%+v: %v, %v; want an error that names %s", o, lease, err, field)
				}
			}
		}
	}
	if n := commands(); n != 1 {
		t.Errorf("%d commands were sent for options that cannot work", n-1)
	}
	mustRelease(t, held)
}

// The longest durations there are work: for ever is what people mean by them.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	const forever = time.Duration(math.MaxInt64)
	b := newBundle(t)
	c := b.client(t, pollInterval(forever), commandTimeout(forever), watchdogTimeout(forever))
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: forever})
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	wantErr(t, "another's Acquire", err, ErrNotAcquired)
	for what, d := range map[string]time.Duration{"a waiter's pause": c.pause(forever), "the time until a renewal is over": c.twoLooks()} {
		if d < 1000*24*time.Hour {
			t.Errorf("%s: %v", what, d)
		}
	}
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	if d := lease.Remaining(); d < 1000*24*time.Hour {
		t.Errorf("%v remaining", d)
	}
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: forever})
	eventually(t, "somebody waits", func() bool { return c.Stats().Waiting == 1 })
	if err := lease.Extend(bg, forever); err != nil {
		t.Fatal(err)
	}
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, lease)
	r := await(t, "the waiter gets it", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if err := r.lease.Extend(bg, time.Minute); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("Extend of a watchdog lease: %v", err)
	}
	mustRelease(t, r.lease)
}

// A program of another language has given a lock centuries, more than a time.Duration has: that is a lock without an end.
func TestLockOfManyCenturies(t *testing.T) {
	t.Parallel()
	for name, kind := range lockKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(time.Hour))
			fields := []any{"other", "1"}
			if name == "read" || name == "write" {
				fields = []any{"other:write", "1", "mode", "write"}
			}
			err := errors.Join(
				b.rdb.HSet(bg, "a", fields...).Err(),
				b.rdb.Do(bg, "PEXPIREAT", "a", int64(math.MaxInt64/2)).Err(),
			)
			if err != nil {
				t.Fatal(err)
			}
			l := kind.lock(c, "a")
			_, err = l.Acquire(bg, AcquireOptions{})
			var held *NotAcquiredError
			if !errors.As(err, &held) || held.TTL != noTTL {
				t.Errorf("Acquire: %#v, want %v for TTL", err, noTTL)
			}
			if ttl, err := l.RemainingTTL(bg); ttl != noTTL || err != nil {
				t.Errorf("RemainingTTL: %v, %v; want %v", ttl, err, noTTL)
			}

			asked := counter(proxy, runs())
			waiting := acquireAsync(bg, l, forever)
			eventually(t, "it waits", func() bool { s := c.Stats(); return s.Waiting == 1 && s.Channels == 1 })
			time.Sleep(50 * shortPause)
			if n := asked(); n > 5 {
				t.Errorf("the waiter has asked %d times", n)
			}
			if ok, err := l.ForceUnlock(bg); name != "read" && !ok || err != nil {
				t.Error(ok, err)
			}
			if name == "read" { // it is a writer's
				if ok, err := c.ReadWriteLock("a").Write().ForceUnlock(bg); !ok || err != nil {
					t.Error(ok, err)
				}
			}
			mustRelease(t, mustGet(t, "it is granted", waiting))
		})
	}
}

// The shortest lease is one millisecond; it is granted or too late, and leaves nothing.
func TestShortestLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	for range 50 {
		lease, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Millisecond, WaitTime: patience})
		if err != nil {
			wantErr(t, "Acquire", err, errLate)
			continue
		}
		await(t, "it is over", lease.Done())
		wantErr(t, "Err", lease.Err(), ErrLockLost)
	}
}

func TestNamesRefused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	commands := counter(proxy, runs())
	for title, name := range map[string]string{
		"empty":         "",
		"a byte over":   strings.Repeat("x", maxNameLen+1),
		"one megabyte":  strings.Repeat("x", 1<<20),
		"braces, large": "{" + strings.Repeat("x", 1<<20) + "}",
	} {
		lock := c.Lock(name)
		_, acquire := lock.Acquire(bg, AcquireOptions{})
		_, isLocked := lock.IsLocked(bg)
		_, isHeld := lock.IsHeld(WithOwner(bg))
		_, holdCount := lock.HoldCount(bg)
		_, remaining := lock.RemainingTTL(bg)
		_, force := lock.ForceUnlock(bg)
		do := Do(bg, lock, AcquireOptions{}, func(context.Context) error { t.Error("it ran"); return nil })
		for i, err := range []error{acquire, isLocked, isHeld, holdCount, remaining, force, do} {
			if !errors.Is(err, ErrInvalidName) {
				t.Errorf("%s, call %d: %v, want ErrInvalidName", title, i, err)
			} else if len(err.Error()) > 200 {
				t.Errorf("%s, call %d: an error of %d bytes", title, i, len(err.Error()))
			}
		}
	}
	if n := commands(); n != 0 {
		t.Errorf("%d commands were sent for names that cannot work", n)
	}
}

// The mapper makes the key; everything on the wire is made of that, and everything that is told says the name.
func TestNameMapper(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var events eventLog
	c := b.client(t, events.observe, func(o *Options) {
		o.NameMapper = func(name string) string {
			if name == "nothing" {
				return ""
			}
			return "shop:" + name
		}
	})
	l := b.listen(t, "redisson_lock__channel:{shop:a}")
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	b.wantFields(t, "shop:a", map[string]string{lease.hold.field: "1"})
	if lease.Name() != "a" {
		t.Errorf("Name %q, want a", lease.Name())
	}
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.Name != "a" {
		t.Errorf("%v, %+v", err, held)
	}
	if locked, err := c.Lock("a").IsLocked(bg); !locked || err != nil {
		t.Errorf("IsLocked: %v, %v", locked, err)
	}
	wantHeldByOther(t, b.client(t), "shop:a")
	mustRelease(t, lease)
	if got := fmt.Sprint(l.heard(t)); got != "[0]" {
		t.Errorf("published %s", got)
	}
	l.done(t)
	for _, e := range events.list() {
		if e.Name != "a" {
			t.Errorf("event %+v", e)
		}
	}
	_, err = c.Lock("nothing").Acquire(bg, AcquireOptions{})
	wantErr(t, "a name that is mapped to nothing", err, ErrInvalidName)
	if err == nil || !strings.Contains(err.Error(), "NameMapper") {
		t.Errorf("%v does not say why", err)
	}
}

// A key that turns into something else while somebody waits for the lock: the waiter is told.
func TestWrongKindWhileWaiting(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(50*time.Millisecond))
	if err := b.rdb.HSet(bg, "a", "somebody", 1).Err(); err != nil {
		t.Fatal(err)
	}
	var waiting []<-chan acquired
	for range 3 {
		waiting = append(waiting, acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever}))
	}
	eventually(t, "they wait", func() bool { return c.Stats().Waiting == 3 })
	if err := b.rdb.Set(bg, "a", "precious", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, result := range waiting {
		r := await(t, "a waiter is told", result)
		wantErr(t, "Acquire", r.err, ErrWrongKind)
	}
	if got := b.rdb.GetDel(bg, "a").Val(); got != "precious" {
		t.Errorf("the key holds %q", got)
	}
}

// Which error is which.
func TestErrorMatrix(t *testing.T) {
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

// What operations return, by what has become of the lease.
func TestErrorsOfAnEndedLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	released := mustAcquire(t, c, "released", AcquireOptions{LeaseTime: time.Minute})
	mustRelease(t, released)
	lost := mustAcquire(t, c, "lost", AcquireOptions{LeaseTime: time.Minute})
	if freed, err := c.Lock("lost").ForceUnlock(bg); !freed || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", freed, err)
	}
	closing := newLooseClient(t, b.srv.Client(t))
	ended := mustAcquire(t, closing, "closed", AcquireOptions{LeaseTime: time.Minute})
	over, cancel := context.WithCancel(bg)
	cancel()
	if err := closing.Close(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("Close: %v", err)
	}
	for lease, want := range map[*Lease]error{released: ErrReleased, lost: ErrLockLost, ended: ErrClosed} {
		if err := lease.Err(); err != want {
			t.Errorf("%s: Err is %v, want exactly %v", lease.Name(), err, want)
		}
		await(t, "Done", lease.Done())
		await(t, "the end of its context", lease.Context().Done())
		if cause := context.Cause(lease.Context()); cause != want {
			t.Errorf("%s: the cause of its context is %v, want exactly %v", lease.Name(), cause, want)
		}
		if d := lease.Remaining(); d != 0 {
			t.Errorf("%s: %v remaining", lease.Name(), d)
		}
		for what, err := range map[string]error{"release": lease.Release(bg), "extend": lease.Extend(bg, time.Minute)} {
			if !errors.Is(err, want) || !errors.Is(err, ErrNotHeld) {
				t.Errorf("%s: %s: %v, want %v", lease.Name(), what, err, want)
			}
		}
		lease.StopRenewal() // does nothing
	}
}

// Names may hold what must not be logged: no error text, and no log line, has them unless LogNames
// is set.
func TestTextsHoldNamesOnlyWithLogNames(t *testing.T) {
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
			b := newBundle(t)
			c, proxy := b.proxied(t, logged, commandTimeout(2500*time.Millisecond))
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
					t.Errorf("acquired: %s", lease.hold.field)
				}
				return err
			}

			lease := mustAcquire(t, c, secret, AcquireOptions{LeaseTime: time.Minute})
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
			b.rdb.Set(bg, secret, 1, 0)
			note(acquire(bg, AcquireOptions{}))
			_, err = lock.IsLocked(bg)
			note(err)
			b.rdb.Del(bg, secret)
			eventually(t, "nothing is left of the first lease", func() bool { return c.Stats().Cleanups == 0 })
			lease = mustAcquire(t, c, secret, AcquireOptions{LeaseTime: 10 * time.Second}) // longer than the next three take
			proxy.Cut()
			note(acquire(lease.Context(), AcquireOptions{LeaseTime: time.Second}))
			note(acquire(bg, AcquireOptions{LeaseTime: time.Second}))
			note(lease.Release(bg)) // and log lines: failed, and never freed
			eventually(t, "the clean-ups are given up", func() bool { return strings.Contains(out.String(), "could not be freed") && c.Stats().Cleanups == 0 })
			proxy.Restore()
			// A script that Redis refuses for the key's sake must not name it either.
			limited := b.clientOn(t, b.user(t, "~something:else", "&*", "+@all"), logged)
			_, err = limited.Lock(secret).Acquire(bg, AcquireOptions{LeaseTime: time.Second})
			note(err)
			eventually(t, "nothing is left to do", func() bool {
				b.rdb.Do(bg, "ACL", "SETUSER", "limited", "allkeys")
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
			for _, line := range []string{"lock lost while it was held", "release failed", "could not be freed"} {
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

// A lockedBuffer is a bytes.Buffer for many goroutines.
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

// The end of the caller's context is the caller's own error, with its cause.
func TestErrorsOfContexts(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	holder := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
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
		lease, err := c.Lock("a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
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
	b.wantCount(t, holder, 1)
	mustRelease(t, holder)
}

// Whoever gives up learns whether it waited for somebody else, or only for Redis to say something; it is no refusal in either
// case, by which a MultiLock or RedLock around it would try again.
func TestAContextThatEndsTellsWhetherTheLockWasHeld(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	waiting := make(chan struct{}, 10)
	c, proxy := b.proxied(t, commandTimeout(patience), func(o *Options) {
		o.Observer.Waiting = func(context.Context, Event) { waiting <- struct{}{} }
	})
	gone := errors.New("the client hung up")
	leave := func(what string, l Locker, wait bool, when <-chan struct{}) error {
		t.Helper()
		ctx, cancel := context.WithCancelCause(bg)
		defer cancel(nil)
		opts := AcquireOptions{WaitTime: WaitForever}
		if !wait {
			opts.WaitTime = 0
		}
		result := acquireAsync(ctx, l, opts)
		await(t, what+" waits", when)
		cancel(gone)
		err := await(t, what+" leaves", result).err
		wantErr(t, what, err, context.Canceled)
		wantErr(t, what, err, gone)
		if errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v; want no refusal", what, err)
		}
		return err
	}

	ours := mustAcquire(t, c, "ours", AcquireOptions{})
	b.occupy(t, time.Hour, "theirs")
	b.occupy(t, 0, "endless")
	for _, name := range []string{"ours", "theirs", "endless"} {
		wantErr(t, name, leave(name, c.Lock(name), true, waiting), ErrStillHeld)
		wantErr(t, name+" of several", leave(name, MultiLock(c.Lock("free"), c.Lock(name)), true, waiting), ErrStillHeld)
	}
	mustRelease(t, ours)
	b.free(t, "theirs")
	b.free(t, "endless")

	// By its name: what asks for a lock may travel with what is still under way for those before it, in a script of several.
	asksFor := func(name string) func([]string) bool {
		return func(args []string) bool { return strings.HasPrefix(args[0], "EVAL") && slices.Contains(args, name) }
	}
	silent := func(what string, l Locker, name string, wait bool) {
		t.Helper()
		reply := proxy.OnMatch(1, asksFor(name), redistest.HoldReply)
		defer reply.Release()
		if err := leave(what, l, wait, reply.Hit()); errors.Is(err, ErrStillHeld) {
			t.Errorf("%s: %v; nobody holds it", what, err)
		}
	}
	silent("silence", c.Lock("a"), "a", true)
	silent("silence, without waiting", c.Lock("b"), "b", false)
	silent("silence of several", MultiLock(c.Lock("c"), c.Lock("d")), "c", true)

	// Readers are in nobody's way but a writer's.
	rw := c.ReadWriteLock("read")
	read := mustTake(t, bg, rw.Read(), AcquireOptions{})
	for _, wait := range []bool{true, false} {
		reply := proxy.OnMatch(1, runs(readAcquireScript), redistest.HoldReply)
		if err := leave("a second reader", rw.Read(), wait, reply.Hit()); errors.Is(err, ErrStillHeld) {
			t.Errorf("a second reader: %v; only the first one holds it", err)
		}
		reply.Release()
	}
	wantErr(t, "a writer", leave("a writer", rw.Write(), true, waiting), ErrStillHeld)
	mustRelease(t, read)
	// The second readers that left may have been granted it: what they left behind goes first.
	write := mustTake(t, bg, rw.Write(), AcquireOptions{WaitTime: patience})
	wantErr(t, "a reader", leave("a reader", rw.Read(), true, waiting), ErrStillHeld)
	mustRelease(t, write)

	// What somebody ended the context for is another lock's matter.
	ctx, cancel := context.WithCancelCause(bg)
	reply := proxy.OnMatch(1, asksFor("e"), redistest.HoldReply)
	defer reply.Release()
	result := acquireAsync(ctx, MultiLock(c.Lock("e"), c.Lock("f")), AcquireOptions{WaitTime: WaitForever})
	await(t, "it asks", reply.Hit())
	cancel(&NotAcquiredError{Name: "another"})
	err := await(t, "it leaves", result).err
	wantErr(t, "with another lock's error", err, ErrNotAcquired)
	if errors.Is(err, ErrStillHeld) {
		t.Errorf("with another lock's error: %v; nobody holds this one", err)
	}
}

// A time-out of ours must not look like the caller's.
func TestCommandTimeoutIsNoContextError(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(2*time.Second))
	lease := mustAcquire(t, c, "held", AcquireOptions{LeaseTime: time.Minute})
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

func TestDo(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
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
	b.wantFields(t, "a", nil)

	if err := Do(bg, lock, AcquireOptions{}, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("Do: %v, want fn's error", err)
	}
	b.wantFields(t, "a", nil)

	// Lost on the way: fn's context ends, and the error says so even if fn does not.
	for _, fnErr := range []error{nil, failure} {
		err = Do(bg, lock, AcquireOptions{}, func(ctx context.Context) error {
			if _, err := lock.ForceUnlock(bg); err != nil {
				t.Error(err)
			}
			await(t, "fn's context ends", ctx.Done())
			wantErr(t, "its cause", context.Cause(ctx), ErrLockLost)
			return fnErr
		})
		if !errors.Is(err, ErrLockLost) || fnErr != nil && !errors.Is(err, fnErr) {
			t.Errorf("Do: %v, want ErrLockLost and %v", err, fnErr)
		}
	}

	held := mustAcquire(t, c, "a", AcquireOptions{})
	err = Do(bg, lock, AcquireOptions{}, func(context.Context) error { t.Error("fn ran without the lock"); return nil })
	wantErr(t, "Do", err, ErrNotAcquired)
	mustRelease(t, held)

	// A caller whose context ends while fn runs: the lock is released all the same.
	ctx, cancel := context.WithCancel(bg)
	err = Do(ctx, lock, AcquireOptions{}, func(ctx context.Context) error {
		cancel()
		await(t, "fn's context ends", ctx.Done())
		return ctx.Err()
	})
	wantErr(t, "Do", err, context.Canceled)
	if errors.Is(err, ErrNotHeld) {
		t.Errorf("Do: %v", err)
	}
	b.wantFields(t, "a", nil)
}

func TestDoPanicAndGoexit(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lock := c.Lock("a")

	thrown := fmt.Errorf("thrown")
	func() {
		defer func() {
			if r := recover(); r != thrown {
				t.Errorf("recovered %v, want what was thrown", r)
			}
			b.wantFields(t, "a", nil)
		}()
		_ = Do(bg, lock, AcquireOptions{}, func(context.Context) error { panic(thrown) })
	}()

	var wg sync.WaitGroup
	wg.Go(func() {
		_ = Do(bg, lock, AcquireOptions{}, func(context.Context) error { runtime.Goexit(); return nil })
		t.Error("Do has returned")
	})
	wg.Wait()
	b.wantFields(t, "a", nil)
}

func TestOwners(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	one := WithOwner(bg)
	if WithOwner(one) != one {
		t.Error("WithOwner of a context with an owner is another context")
	}
	lease := mustEnter(t, one, c, "a", AcquireOptions{})
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
	// An owner outlives its locks.
	again := mustEnter(t, one, c, "a", AcquireOptions{})
	mustRelease(t, again)
}

// Without an owner every Acquire is somebody else: the same goroutine, the same context.
func TestNoOwnerNeverReenters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	lease := mustEnter(t, ctx, c, "a", AcquireOptions{})
	_, err := c.Lock("a").Acquire(ctx, AcquireOptions{WaitTime: 20 * time.Millisecond})
	wantErr(t, "Acquire", err, ErrNotAcquired)
	mustRelease(t, lease)
}

// One owner has several locks, and each ends for itself.
func TestOneOwnerManyLocks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	ctx := WithOwner(bg)
	one, two := mustEnter(t, ctx, c, "1", AcquireOptions{}), mustEnter(t, ctx, c, "2", AcquireOptions{})
	if one.hold == two.hold || one.hold.field == two.hold.field {
		t.Error("two locks share a hold")
	}
	mustRelease(t, one)
	if err := two.Err(); err != nil {
		t.Error(err)
	}
	if err := two.Context().Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, two)
}

func TestBind(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	type key struct{}
	parent, end := context.WithCancelCause(context.WithValue(bg, key{}, "kept"))
	defer end(nil)

	lease := mustAcquire(t, c, "a", AcquireOptions{})
	bound, free := lease.Bind(parent)
	if bound.Value(key{}) != "kept" {
		t.Error("the values of the context are gone")
	}
	if got, want := fmt.Sprint(bound), fmt.Sprint(parent)+".Bind"; got != want {
		t.Errorf("it is printed as %q, want %q", got, want)
	}
	inner := mustEnter(t, bound, c, "a", AcquireOptions{})
	mustRelease(t, inner)

	// Not on release.
	mustRelease(t, lease)
	if err := bound.Err(); err != nil {
		t.Errorf("it has ended with the release: %v", err)
	}
	free()
	wantErr(t, "after the function was called", bound.Err(), context.Canceled)
	free() // a second time does nothing

	// On loss, with the cause; whoever was let go before is left alone.
	lease = mustAcquire(t, c, "a", AcquireOptions{})
	bound, free = lease.Bind(parent)
	other, freeOther := lease.Bind(bg)
	gone, freeGone := lease.Bind(bg)
	freeGone()
	if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{bound, other} {
		await(t, "it ends", ctx.Done())
		wantErr(t, "its cause", context.Cause(ctx), ErrLockLost)
	}
	wantErr(t, "the cause of the one that was let go", context.Cause(gone), context.Canceled)
	free()
	freeOther()

	// After the end.
	late, freeLate := lease.Bind(parent)
	wantErr(t, "bound to a lost lease", context.Cause(late), ErrLockLost)
	freeLate()
	lease = mustAcquire(t, c, "a", AcquireOptions{})
	mustRelease(t, lease)
	late, freeLate = lease.Bind(parent)
	if err := late.Err(); err != nil {
		t.Errorf("bound to a released lease: %v", err)
	}
	// With its parent.
	cause := errors.New("the parent ends")
	end(cause)
	await(t, "it ends with its parent", late.Done())
	wantErr(t, "its cause", context.Cause(late), cause)
	freeLate()
}

// A bound context that nobody asks for its end is not known to anybody. Whoever asks for it at last, in whatever way, gets to
// know what has happened.
func TestBind_AskedLate(t *testing.T) {
	t.Parallel()
	c := newBundle(t).client(t)
	cause := errors.New("the parent ends")
	ends := []struct {
		name string
		do   func(lease *Lease, parent context.CancelCauseFunc, free func())
		want error
	}{
		{"lost", func(l *Lease, _ context.CancelCauseFunc, _ func()) { l.hold.lose(ErrLockLost) }, ErrLockLost},
		{"lost, and let go", func(l *Lease, _ context.CancelCauseFunc, free func()) { l.hold.lose(ErrLockLost); free() }, ErrLockLost},
		{"let go", func(_ *Lease, _ context.CancelCauseFunc, free func()) { free() }, context.Canceled},
		{"let go, and lost", func(l *Lease, _ context.CancelCauseFunc, free func()) { free(); l.hold.lose(ErrLockLost) }, context.Canceled},
		{"the parent's end", func(_ *Lease, parent context.CancelCauseFunc, _ func()) { parent(cause) }, cause},
		{"the parent's, and let go", func(_ *Lease, parent context.CancelCauseFunc, free func()) { parent(cause); free() }, cause},
	}
	asks := map[string]func(t *testing.T, ctx context.Context, want error){
		"Done": func(t *testing.T, ctx context.Context, want error) {
			await(t, "the end", ctx.Done())
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
				lease := mustAcquire(t, c, t.Name(), AcquireOptions{})
				bound, free := lease.Bind(parent)
				defer free()
				lease.lock()
				if lease.listeners != nil {
					t.Error("the lease knows of it before anybody has asked")
				}
				lease.unlock()
				end.do(lease, endParent, free)
				ask(t, bound, end.want)
				if lease.Err() == nil {
					mustRelease(t, lease)
				}
			})
		}
	}
}

// A child of a bound context ends in the same moment: no goroutine has to wait for that.
func TestBind_Children(t *testing.T) {
	t.Parallel()
	c := newBundle(t).client(t)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	bound, free := lease.Bind(bg)
	defer free()
	child, cancel := context.WithTimeout(bound, time.Hour)
	defer cancel()
	lease.hold.lose(ErrLockLost)
	wantErr(t, "the child, at once", child.Err(), context.Canceled)
	wantErr(t, "its cause", context.Cause(child), ErrLockLost)
}

// The context of a lease is made for the first one who asks: it is one context for all of them, and it ends with the
// lease whenever that is.
func TestLeaseContextOnDemand(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	ends := map[error]func(*Lease){
		ErrReleased: func(l *Lease) { mustRelease(t, l) },
		ErrLockLost: func(l *Lease) { l.hold.lose(ErrLockLost) },
	}
	for want, end := range ends {
		for range 20 {
			lease := mustAcquire(t, c, "a", AcquireOptions{})
			contexts := make(chan context.Context, 4)
			for range cap(contexts) {
				go func() { contexts <- lease.Context() }()
			}
			end(lease)
			for range cap(contexts) {
				ctx := <-contexts
				await(t, "the end of a context", ctx.Done())
				wantErr(t, "its cause", context.Cause(ctx), want)
				if ctx != lease.Context() {
					t.Error("a lease has two contexts")
				}
			}
			eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
		}
	}

	ctx, cancel := context.WithCancel(bg)
	lease := mustEnter(t, ctx, c, "both", AcquireOptions{})
	cancel()
	mustRelease(t, lease)
	wantErr(t, "the cause, where the caller's context has ended as well", context.Cause(lease.Context()), ErrReleased)
}

// The context of a lease is Acquire's: its values, its end. That it ends is no loss.
func TestLeaseContext(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(bg, key{}, "kept"))
	lease := mustEnter(t, ctx, c, "a", AcquireOptions{})
	if lease.Context().Value(key{}) != "kept" {
		t.Error("the values of Acquire's context are gone")
	}
	cause := errors.New("the caller ends")
	cancel(cause)
	await(t, "it ends with the caller's", lease.Context().Done())
	wantErr(t, "its cause", context.Cause(lease.Context()), cause)
	if err := lease.Err(); err != nil {
		t.Errorf("the end of the caller's context has ended the lease: %v", err)
	}
	select {
	case <-lease.Done():
		t.Error("Done is closed")
	default:
	}
	b.wantCount(t, lease, 1)
	if err := lease.Release(ctx); err != nil {
		t.Errorf("release with a context that has ended: %v", err)
	}
	b.wantFields(t, "a", nil)
	wantErr(t, "Err", lease.Err(), ErrReleased)
	await(t, "Done", lease.Done())
}

// Release is what happens first: a second one changes nothing, whoever calls it, and at what time.
func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	for range 20 {
		lease := mustAcquire(t, c, "a", AcquireOptions{})
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

func TestStopRenewal(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const watchdog = 6 * time.Second
	c := b.client(t, watchdogTimeout(watchdog))
	lease := mustAcquire(t, c, "a", AcquireOptions{})
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
	await(t, "it ends", lease.Done())
	wantErr(t, "Err", lease.Err(), ErrLockLost)

	// Another lease of the same hold goes on being renewed.
	outer := mustAcquire(t, c, "a", AcquireOptions{WaitTime: patience}) // our clock is ahead of Redis's, by the margin
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	inner.StopRenewal()
	await(t, "the one ends", inner.Done())
	if err := outer.Err(); err != nil {
		t.Errorf("and the other: %v", err)
	}
	mustRelease(t, outer)
}

func TestTooManyWaiters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	holder := mustAcquire(t, c, "a", AcquireOptions{})
	opts := AcquireOptions{WaitTime: patience, MaxWaiters: 2}
	var waiting []<-chan acquired
	for i := range 2 {
		waiting = append(waiting, acquireAsync(bg, c.Lock("a"), opts))
		eventually(t, "one more waits", func() bool { return c.Stats().Waiting == i+1 && c.Stats().Channels == 1 })
	}
	_, err := c.Lock("a").Acquire(bg, opts)
	wantErr(t, "the third", err, ErrTooManyWaiters)
	_, err = c.Lock("a").Acquire(bg, AcquireOptions{MaxWaiters: 2})
	wantErr(t, "one that would not wait", err, ErrNotAcquired)
	inner := mustEnter(t, holder.Context(), c, "a", opts) // does not wait
	mustRelease(t, inner)
	other := mustAcquire(t, c, "b", opts)
	mustRelease(t, other)
	mustRelease(t, holder)
	for range 2 {
		var r acquired
		select {
		case r = <-waiting[0]:
		case r = <-waiting[1]:
		case <-time.After(patience):
			t.Fatal("no waiter gets it")
		}
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.lease)
	}
}

// An eventLog is an Observer that notes everything.
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

// settle waits for n events and swaps the last two if need be: whoever gets a lock may report that before the one who
// gave it back has.
func (l *eventLog) settle(t *testing.T, n int, last string) {
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

// take waits for as many events, and returns the first of them with their kinds.
func (l *eventLog) take(t *testing.T, kinds ...string) []Event {
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

func TestObserver(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var log eventLog
	c, proxy := b.proxied(t, log.observe, watchdogTimeout(6*time.Second), commandTimeout(3*time.Second))
	ctx := context.WithValue(bg, spyKey{}, "the caller's")
	acquire := func(ctx context.Context, opts AcquireOptions) *Lease {
		t.Helper()
		return mustEnter(t, ctx, c, "a", opts)
	}

	lease := acquire(ctx, AcquireOptions{})
	inner := acquire(lease.Context(), AcquireOptions{LeaseTime: time.Minute})
	if _, err := c.Lock("a").Acquire(ctx, AcquireOptions{}); err == nil {
		t.Fatal("two holders")
	}
	result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: patience})
	events := log.take(t, "acquired", "acquired", "not acquired", "waiting")
	for i, e := range events {
		owner, want := lease.hold.field, time.Duration(0)
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
	}

	for _, l := range []*Lease{inner, lease} {
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	r := await(t, "the waiter gets it", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	log.settle(t, 3, "acquired")
	events = log.take(t, "released", "released", "acquired")
	if e := events[0]; e.Owner != lease.hold.field || e.Lease != time.Minute || e.Err != nil {
		t.Errorf("released: %+v", e)
	}
	if e := events[1]; e.Owner != lease.hold.field || e.Lease != 0 || e.Held <= 0 || e.Err != nil {
		t.Errorf("released: %+v", e)
	}
	if e := events[2]; e.Owner != r.lease.hold.field || e.Waited <= 0 {
		t.Errorf("acquired: %+v", e)
	}

	// A renewal that fails, then a loss, and a release that tells of it no more.
	refuse := proxy.OnEvery(runs(renewScript), redistest.ReplyWith("-ERR not today\r\n"))
	events = log.take(t, "renew failed")
	if e := events[0]; e.Owner != r.lease.hold.field || e.Err == nil || !strings.Contains(e.Err.Error(), "not today") {
		t.Errorf("renew failed: %+v", e)
	}
	if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
		t.Fatal(err)
	}
	refuse.Remove()
	eventually(t, "the loss is told", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		for len(log.kinds) > 1 && log.kinds[0] == "renew failed" {
			log.kinds, log.events, log.ctxs = log.kinds[1:], log.events[1:], log.ctxs[1:]
		}
		return len(log.kinds) > 0 && log.kinds[0] == "lost"
	})
	events = log.take(t, "lost")
	if e := events[0]; e.Owner != r.lease.hold.field || e.Err != ErrLockLost || e.Held <= 0 {
		t.Errorf("lost: %+v", e)
	}
	wantErr(t, "Release", r.lease.Release(bg), ErrLockLost)

	// A release that finds the lock gone, and one that does not get through.
	lease = acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	b.rdb.Del(bg, "a")
	wantErr(t, "Release", lease.Release(ctx), ErrLockLost)
	events = log.take(t, "acquired", "released")
	wantErr(t, "the event's error", events[1].Err, ErrLockLost)
	lease = acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	proxy.Cut()
	if err := lease.Release(ctx); err == nil {
		t.Error("released over a connection that is cut")
	}
	events = log.take(t, "acquired", "released")
	if err := events[1].Err; err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("the event's error: %v", err)
	}
	proxy.Restore()
}

// An observer may use the lock it is told of: no mutex is held.
func TestObserverMayCallBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
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
	c = b.client(t, func(o *Options) {
		o.Observer = Observer{
			Waiting: look("waiting"), Acquired: look("acquired"), NotAcquired: look("not acquired"),
			Released: look("released"), Lost: look("lost"),
		}
	})
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: 3 * time.Second})
	wantErr(t, "Acquire", err, ErrNotAcquired)
	mustRelease(t, lease)
	lease = mustAcquire(t, c, "a", AcquireOptions{LeaseTime: 3 * time.Second})
	await(t, "it is lost", lease.Done())
	for _, want := range []string{"acquired", "waiting", "not acquired", "released", "acquired", "lost"} {
		if got := await(t, want, calls); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A caller that an observer's panic keeps from its lease has none, also where it recovers, and nobody waits in its name.
func TestObserverThatPanics(t *testing.T) {
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
			b := newBundle(t)
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
					if !within(patience, func() bool { return b.rdb.Exists(bg, tc.member).Val() == 0 }) {
						t.Error("what was granted to the member whose callback panics is not given back")
					}
				}
			}
			c := b.client(t, func(o *Options) { o.Observer.Acquired, o.Observer.Waiting = observe, observe })

			free, opts := func() {}, AcquireOptions{}
			if tc.waits {
				lease := mustTake(t, bg, tc.lock(b.client(t)), AcquireOptions{})
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
			mustRelease(t, mustTake(t, bg, tc.lock(c), AcquireOptions{WaitTime: patience}))
		})
	}

	t.Run("of a re-entry", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		calls := 0
		c := b.client(t, func(o *Options) {
			o.Observer.Acquired = func(context.Context, Event) {
				if calls++; calls > 1 {
					panic("thrown")
				}
			}
		})
		lease := mustAcquire(t, c, "a", AcquireOptions{})
		func() {
			defer func() {
				if r := recover(); r != "thrown" {
					t.Errorf("recovered %v, want what was thrown", r)
				}
			}()
			_, err := c.Lock("a").Acquire(lease.Context(), AcquireOptions{})
			t.Errorf("Acquire has returned: %v", err)
		}()
		eventually(t, "it is entered once", func() bool { return b.fields(t, "a")[lease.hold.field] == "1" })
		wantHeld(t, lease)
		mustRelease(t, lease)
	})
}
