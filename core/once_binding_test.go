package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A name stays bound to what its first grant bound it to, whatever becomes of the holder.
func TestOnce_Binding(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end    func(t *testing.T, fx *redisFixture, l *OnceLease)
		record string
		free   bool // for something else
	}{
		"held":          {func(*testing.T, *redisFixture, *OnceLease) {}, "", false},
		"released":      {func(t *testing.T, _ *redisFixture, l *OnceLease) { mustRelease(t, l.Lease) }, "", false},
		"lost":          {func(t *testing.T, fx *redisFixture, l *OnceLease) { fx.rdb.Del(bg, "a"); _ = l.Release(bg) }, "", false},
		"with a record": {func(t *testing.T, _ *redisFixture, l *OnceLease) { mustRecord(t, l, "done", time.Hour) }, "done", false},
		"withdrawn": {func(t *testing.T, _ *redisFixture, l *OnceLease) {
			if err := l.Withdraw(bg); err != nil {
				t.Fatal(err)
			}
		}, "", true},
		"withdrawn and lost": {func(t *testing.T, fx *redisFixture, l *OnceLease) {
			fx.rdb.Del(bg, "a")
			wantErr(t, "Withdraw", l.Withdraw(bg), ErrLockLost)
		}, "", false},
		"withdrawn, after another run": {func(t *testing.T, fx *redisFixture, l *OnceLease) {
			mustRelease(t, l.Lease)
			next := mustBegin(t, fx.newLocks(t).Once("a").WithBinding([]byte("a 50"), time.Hour), AcquireOptions{})
			if err := next.Withdraw(bg); err != nil {
				t.Fatal(err)
			}
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			defer fx.deleteRecord(t, "a")
			c := fx.newLocks(t)
			same := c.Once("a").WithBinding([]byte("a 50"), time.Hour)
			other := c.Once("a").WithBinding([]byte("a 70"), time.Hour)
			lease := mustBegin(t, same, AcquireOptions{LeaseTime: time.Hour})
			tc.end(t, fx, lease)
			got := acquireOnce(bg, other, AcquireOptions{WaitTime: time.Minute})
			if tc.free {
				if got.lease == nil {
					t.Fatalf("Acquire for something else: %+v, want the lock", got)
				}
				mustRelease(t, got.lease.Lease)
				wantErr(t, "Acquire", acquireOnce(bg, same, AcquireOptions{}).err, ErrBound)
				return
			}
			wantErr(t, "Acquire for something else", got.err, ErrBound)
			switch again := acquireOnce(bg, same, AcquireOptions{}); {
			case name == "held":
				wantErr(t, "Acquire for the same", again.err, ErrNotAcquired)
				mustRelease(t, lease.Lease)
			case tc.record != "" && again.record != tc.record, tc.record == "" && again.lease == nil:
				t.Fatalf("Acquire for the same: %+v", again)
			case again.lease != nil:
				mustRelease(t, again.lease.Lease)
			}
			if left := fx.pttl(t, "{a}:record"); left < time.Hour-patience || left > time.Hour {
				t.Errorf("the binding has %v to live", left)
			}
		})
	}
}

// waiterAndHolder returns two clients, or one twice unless remote is set.
func (fx *redisFixture) waiterAndHolder(t *testing.T, remote bool, opts ...func(*Options)) (waiter, holder *Client) {
	t.Helper()
	waiter = fx.newLocks(t, opts...)
	if !remote {
		return waiter, waiter
	}
	return waiter, fx.newLocks(t)
}

// A caller that waits in the holder's process for something else gets neither its record nor its
// lock.
func TestOnce_BindingOfWaiters(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote %v", remote), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			defer fx.deleteRecord(t, "a")
			c, holder := fx.waiterAndHolder(t, remote)
			same := func(c *Client) *Once { return c.Once("a").WithBinding([]byte("a 50"), time.Hour) }
			lease := mustBegin(t, same(holder), AcquireOptions{})
			first := acquireOnceAsync(bg, same(c), AcquireOptions{WaitTime: patience})
			eventually(t, "it to wait", func() bool { return c.Stats().Waiting == 1 })
			behind := acquireOnceAsync(bg, c.Once("a").WithBinding([]byte("a 70"), time.Hour), AcquireOptions{WaitTime: patience})
			eventually(t, "the other to wait", func() bool { return c.Stats().Waiting == 2 })
			mustRecord(t, lease, "done", time.Hour)
			wantRecords(t, []<-chan outcome{first}, "done")
			wantErr(t, "Acquire for something else", mustReceive(t, "the other", behind).err, ErrBound)
		})
	}
}

// A grant for a caller that has left undoes its binding, because nothing ran.
func TestOnce_BindingUndone(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	rule := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldReply)
	ctx, cancel := context.WithCancel(bg)
	result := acquireOnceAsync(ctx, c.Once("a").WithBinding([]byte("a 50"), time.Hour), AcquireOptions{})
	mustReceive(t, "Redis to grant it", rule.Hit())
	cancel()
	mustReceive(t, "the caller to be let go", result)
	rule.Release()
	eventually(t, "the lock and the binding to go", func() bool { return fx.rdb.Exists(bg, "a", "{a}:record").Val() == 0 })
}

// The binding costs no round trip.
func TestOnce_BindingRoundTrips(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	defer fx.deleteRecord(t, "a")
	commands := countCommands(proxy, func(args []string) bool { return strings.HasPrefix(args[0], "EVAL") })
	once := c.Once("a").WithBinding([]byte("a 50"), time.Hour)
	mustRelease(t, mustBegin(t, once, AcquireOptions{}).Lease)
	mustRecord(t, mustBegin(t, once, AcquireOptions{}), "done", time.Hour)
	wantRecord(t, once, "done")
	wantErr(t, "Acquire", acquireOnce(bg, c.Once("a").WithBinding([]byte("a 70"), time.Hour), AcquireOptions{}).err, ErrBound)
	if n := commands(); n != 6 {
		t.Errorf("two runs, a replay and a refusal cost %d commands, want 6", n)
	}
}

// Those who have waited for a holder that left no record do not take its place. The next caller does.
func TestOnce_WithoutSuccession(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		for name, end := range map[string]func(*testing.T, *redisFixture, *OnceLease){
			"released": func(t *testing.T, _ *redisFixture, l *OnceLease) { mustRelease(t, l.Lease) },
			"died":     func(_ *testing.T, fx *redisFixture, _ *OnceLease) { fx.rdb.PExpire(bg, "a", time.Millisecond) },
		} {
			t.Run(fmt.Sprintf("%s, remote %v", name, remote), func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c, holder := fx.waiterAndHolder(t, remote, pollInterval(50*time.Millisecond))
				once := func(c *Client) *Once { return c.Once("a").WithoutSuccession() }
				lease := mustBegin(t, once(holder), AcquireOptions{LeaseTime: time.Hour})
				waiters := waitForRecordWith(t, c, once(c), 50, patience)
				eventually(t, "the first to be refused", func() bool { return sleepingWaiters(c, "a") == 1 })
				end(t, fx, lease)
				for _, w := range waiters {
					wantErr(t, "a waiter", mustReceive(t, "a waiter", w).err, ErrUnrecorded)
				}
				_ = lease.Release(bg)
				mustRelease(t, mustBegin(t, once(c), AcquireOptions{}).Lease)
			})
		}
	}
}

// Those who wait without succession get the record.
func TestOnce_WithoutSuccessionGetsTheRecord(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote %v", remote), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			defer fx.deleteRecord(t, "a")
			c, holder := fx.waiterAndHolder(t, remote)
			lease := mustBegin(t, holder.Once("a"), AcquireOptions{})
			waiters := waitForRecordWith(t, c, c.Once("a").WithoutSuccession(), 50, patience)
			mustRecord(t, lease, "done", time.Hour)
			wantRecords(t, waiters, "done")
		})
	}
}

// Those who wait with succession take the place of a holder that left no record, also beside others in
// their process that do not.
func TestOnce_SuccessionOfOthers(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustBegin(t, c.Once("a"), AcquireOptions{})
	first := acquireOnceAsync(bg, c.Once("a").WithoutSuccession(), AcquireOptions{WaitTime: patience})
	eventually(t, "the first to be refused", func() bool { return sleepingWaiters(c, "a") == 1 })
	behind := acquireOnceAsync(bg, c.Once("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "the other to wait", func() bool { return c.Stats().Waiting == 2 })
	mustRelease(t, lease.Lease)
	wantErr(t, "Acquire without succession", mustReceive(t, "the first", first).err, ErrUnrecorded)
	if r := mustReceive(t, "the other", behind); r.lease == nil {
		t.Errorf("Acquire with succession: %+v, want the lock", r)
	} else {
		mustRelease(t, r.lease.Lease)
	}
}

// A caller that waits only because another asks before it has waited for no holder, so it may run.
func TestOnce_WithoutSuccessionBehindACallerThatLeaves(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	once := c.Once("a").WithoutSuccession()
	rule := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldRequest)
	ctx, cancel := context.WithCancel(bg)
	first := acquireOnceAsync(ctx, once, AcquireOptions{WaitTime: patience})
	mustReceive(t, "the first to ask", rule.Hit())
	second := acquireOnceAsync(bg, once, AcquireOptions{WaitTime: patience})
	eventually(t, "the second to wait", func() bool { return c.Stats().Waiting == 2 })
	cancel()
	mustReceive(t, "the first to leave", first)
	if r := mustReceive(t, "the second", second); r.lease == nil {
		t.Fatalf("Acquire: %+v, want the lock", r)
	} else {
		mustRelease(t, r.lease.Lease)
	}
	rule.Release()
	eventually(t, "the first one's grant to be undone", func() bool { return fx.rdb.Exists(bg, "a").Val() == 0 && c.Stats() == Stats{} })
}

// If Redis is away when the spare is to be stored, the spare is stored as soon as Redis is back.
func TestOnce_SpareLeftLater(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a").WithMarker(running, time.Hour), AcquireOptions{LeaseTime: time.Hour})
	proxy.OnEvery(func(args []string) bool { return slices.Contains(args, "done") }, redistest.ReplyWith("-ERR not this one\r\n"))
	every := proxy.OnEvery(func(args []string) bool { return slices.Contains(args, "too large") }, redistest.CutBefore)
	if err := lease.ReleaseWithSpare(bg, []byte("done"), []byte("too large"), time.Hour); err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("ReleaseWithSpare while Redis is away: %v", err)
	}
	every.Remove()
	eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
	fx.wantStored(t, "a", "too large", time.Hour)
}

// A record that is too long for Redis leaves its spare, for those who wait as well. Redis closes the
// connection, so its refusal may not arrive.
func TestOnce_SpareOfALongRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.rdb.ConfigSet(bg, "proto-max-bulk-len", "1mb")
	c := fx.newLocks(t, commandTimeout(2*time.Second))
	defer fx.deleteRecord(t, "a")
	once := c.Once("a").WithMarker(running, time.Hour)
	lease := mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
	waiters := waitForRecordWith(t, c, once, 3, patience)
	err := lease.ReleaseWithSpare(bg, make([]byte, 2<<20), []byte("too large"), time.Hour)
	if err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("ReleaseWithSpare: %v, want the refusal of Redis or the end of the connection", err)
	}
	wantRecords(t, waiters, "too large")
	fx.wantStored(t, "a", "too large", time.Hour)
}

// A refusal of the record that arrives leaves the spare, and is the error. If no answer to a long
// record arrives, the cleaner stores the spare.
func TestOnce_Spare(t *testing.T) {
	for _, test := range []struct {
		name   string
		length int
		fate   redistest.Action
		want   string
	}{
		{"refused", 4, redistest.ReplyWith("-ERR invalid bulk length\r\n"), "bulk"},
		{"no answer", 2 << 20, redistest.CutBefore, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(2*time.Second))
			defer fx.deleteRecord(t, "a")
			once, record := c.Once("a").WithMarker(running, time.Hour), strings.Repeat("r", test.length)
			lease := mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
			waiters := waitForRecordWith(t, c, once, 3, patience)
			proxy.OnEvery(func(args []string) bool { return slices.Contains(args, record) }, test.fate)
			err := lease.ReleaseWithSpare(bg, []byte(record), []byte("too large"), time.Hour)
			if err == nil || errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ReleaseWithSpare: %v, want %q in it", err, test.want)
			}
			wantRecords(t, waiters, "too large")
			fx.wantStored(t, "a", "too large", time.Hour)
		})
	}
}
