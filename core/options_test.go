package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
)

// New names the field of Options that it refuses.
func TestOptions_Refused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for field, opts := range map[string][]Options{
		"WatchdogTimeout": {{WatchdogTimeout: -1}, {WatchdogTimeout: -time.Hour}, {WatchdogTimeout: 1}, {WatchdogTimeout: minWatchdog - 1}},
		"PollInterval":    {{PollInterval: -1}, {PollInterval: -time.Hour}, {PollInterval: time.Millisecond - 1}},
		"CommandTimeout":  {{CommandTimeout: -1}, {CommandTimeout: -time.Hour}, {CommandTimeout: time.Millisecond - 1}},
		"MaxWaiting":      {{MaxWaiting: -2}, {MaxWaiting: math.MinInt}},
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
	mustClose(t, c)
}

// Acquire names the field of AcquireOptions that it refuses, and sends nothing.
func TestAcquireOptions_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	commands := countCommands(proxy, runsScript())
	held := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{})
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

// The longest durations work: people mean "for ever" by them.
func TestOptions_LongestDurations(t *testing.T) {
	t.Parallel()
	const forever = time.Duration(math.MaxInt64)
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(forever), commandTimeout(forever), watchdogTimeout(forever))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: forever})
	wantErr(t, "another's Acquire", tryAcquire(c.Lock("a")), ErrNotAcquired)
	for what, d := range map[string]time.Duration{
		"a waiter's first pause":             untilExpiry(forever, c.reliedPause(false)),
		"a waiter's pause":                   untilExpiry(forever, c.reliedPause(true)),
		"a waiter's pause without a channel": c.pollPause(),
		"the time until a renewal is over":   c.twoBeats(),
	} {
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
	eventually(t, "a waiter", func() bool { return c.Stats().Waiting == 1 })
	if err := lease.Extend(bg, forever); err != nil {
		t.Fatal(err)
	}
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, lease)
	next := mustReceiveLease(t, "the waiter to get it", result)
	if err := next.Extend(bg, time.Minute); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("Extend of a watchdog lease: %v", err)
	}
	mustRelease(t, next)
}

// The shortest lease is one millisecond. It is granted or comes too late, and leaves nothing.
func TestAcquireOptions_ShortestLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	for range 50 {
		lease, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Millisecond, WaitTime: patience})
		if err != nil {
			wantErr(t, "Acquire", err, claim.ErrLate)
			continue
		}
		mustReceive(t, "the lease to end", lease.Done())
		wantErr(t, "Err", lease.Err(), ErrLockLost)
	}
}

// Names that cannot work are refused before anything is sent, with a short error.
func TestNames_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	commands := countCommands(proxy, runsScript())
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

// A name whose keys are in different slots of a cluster is refused before anything is sent, for
// every kind of lock. A single server takes it.
func TestNames_CrossSlots(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	nowhere := []string{"127.0.0.1:1"}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nowhere})
	t.Cleanup(func() { _ = cluster.Close() })
	c := newUncheckedLocks(t, cluster)
	mapped := newUncheckedLocks(t, cluster, func(o *Options) { o.NameMapper = func(name string) string { return "{" + name } })
	single := fx.newLocks(t)
	for kindName, kind := range lockKinds {
		for _, name := range []string{"a{b", "{}a", "}a", "a}b", "{}{a}"} {
			err := tryAcquire(kind.lock(c, name))
			wantErr(t, kindName+" "+name, err, ErrInvalidName)
			if !strings.Contains(err.Error(), "{order}:42") || strings.Contains(err.Error(), name) {
				t.Errorf("%s %q: %v", kindName, name, err)
			}
			mustRelease(t, mustAcquire(t, bg, kind.lock(single, name), AcquireOptions{}))
		}
		for _, name := range []string{"a", "{a}b", "a{b}}", "}{a}"} {
			if err := c.checkSlot(name); err != nil {
				t.Errorf("%s %q: %v", kindName, name, err)
			}
		}
		wantErr(t, kindName+" with a mapper that leaves a brace open", tryAcquire(kind.lock(mapped, "a")), ErrInvalidName)
	}
	for _, c := range []*Client{c, mapped} {
		mustClose(t, c)
	}
}

// The mapper makes the key. Errors, events and Name have the name.
func TestNames_Mapper(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var events eventLog
	c := fx.newLocks(t, events.observe, func(o *Options) {
		o.NameMapper = func(name string) string {
			if name == "nothing" {
				return ""
			}
			return "shop:" + name
		}
	})
	l := fx.subscribe(t, "redisson_lock__channel:{shop:a}")
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	fx.wantFields(t, "shop:a", map[string]string{holdOf(lease).wire: "1"})
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
	wantHeldByOther(t, fx.newLocks(t), "shop:a")
	mustRelease(t, lease)
	if got := fmt.Sprint(l.messages(t)); got != "[0]" {
		t.Errorf("published %s", got)
	}
	l.close(t)
	for _, e := range events.list() {
		if e.Name != "a" {
			t.Errorf("event %+v", e)
		}
	}
	err = tryAcquire(c.Lock("nothing"))
	wantErr(t, "a name that is mapped to nothing", err, ErrInvalidName)
	if err == nil || !strings.Contains(err.Error(), "NameMapper") {
		t.Errorf("%v does not say why", err)
	}
}
