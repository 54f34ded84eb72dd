package core

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var running = []byte("running")

// stored returns what Redis has beside the lock.
func (fx *redisFixture) stored(t testing.TB, name string) map[string]string {
	t.Helper()
	return fx.hash(t, "{"+name+"}:record")
}

// A lost reply is retried, whether Redis ran the script or not, and each step happens once.
func TestOnce_LostReplies(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{
		"executed":     redistest.CutAfter,
		"not executed": redistest.CutBefore,
	} {
		for _, script := range onceScripts {
			t.Run(script.Name+", "+name, func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c, proxy := fx.newProxiedLocks(t)
				defer fx.deleteRecord(t, "a")
				once := c.Once("a").WithMarker(running, time.Hour)
				rule := proxy.OnMatch(1, runsScript(script), action)

				lease := mustBegin(t, once, AcquireOptions{})
				fx.wantFields(t, "{a}:record", map[string]string{"record": "running", "marker": holdOf(lease.Lease).wire, "ttl": "3600000"})
				mustRelease(t, lease)
				fx.wantStored(t, "a", "", 0)

				lease = mustBegin(t, once, AcquireOptions{})
				mustRecord(t, lease, "done", time.Minute)
				fx.wantFields(t, "{a}:record", map[string]string{"record": "done", "owner": holdOf(lease.Lease).wire, "ttl": "60000"})
				fx.wantStored(t, "a", "done", time.Minute)
				if script == onceLookScript {
					if record, err := recordWhenRefused(c, "a"); record != "done" {
						t.Errorf("a look finds %q, %v", record, err)
					}
				}
				wantRecord(t, once, "done")
				mustReceive(t, "the reply to be lost", rule.Hit())
			})
		}
	}
}

// recordWhenRefused asks for the record like a caller that the queue refuses.
func recordWhenRefused(c *Client, name string) (string, error) {
	w := newWaiter(bg, c.engine, name, &c.Once(name).kind, nil, AcquireOptions{})
	w.entry = c.names.open(name, false)
	w.entry.close()
	err := w.recordOr(ErrTooManyWaiters)
	if r := (*recorded)(nil); errors.As(err, &r) {
		return string(r.record), nil
	}
	return "", err
}

// A lost reply to a replay is retried.
func TestOnce_LostReplay(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	defer fx.deleteRecord(t, "a")
	mustRecord(t, mustBegin(t, c.Once("a"), AcquireOptions{}), "done", time.Hour)
	rule := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.CutAfter)
	wantRecord(t, c.Once("a"), "done")
	mustReceive(t, "the reply to be lost", rule.Hit())
	eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
	wantRecord(t, c.Once("a"), "done")
}

// A ReleaseWith that is retried does not mistake the loss of the lock for its own work, and reports
// a record only if it wrote one.
func TestOnce_UnwrittenRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a").WithMarker(running, time.Hour), AcquireOptions{LeaseTime: time.Hour})
	fx.rdb.Del(bg, "a")
	proxy.OnMatch(1, runsScript(onceRecordScript), redistest.CutBefore)
	wantErr(t, "ReleaseWith", lease.ReleaseWith(bg, []byte("done"), time.Hour), ErrLockLost)
	fx.wantStored(t, "a", "running", time.Hour)
}

// A record that was written and expired before the retry counts as written.
func TestOnce_ExpiredRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(patience))
	lease := mustBegin(t, c.Once("a"), AcquireOptions{LeaseTime: time.Hour})
	proxy.OnMatch(1, runsScript(onceRecordScript), redistest.DropReply)
	mustRecord(t, lease, "done", 10*time.Millisecond)
	fx.wantStored(t, "a", "", 0)
}

// A record that has expired by the time of the reply is not given to those who wait: they get the
// lock.
func TestOnce_ExpiredRecordIsNotDelivered(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	once := c.Once("a")
	lease := mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
	waiter := acquireOnceAsync(bg, once, AcquireOptions{WaitTime: patience})
	eventually(t, "it sleeps", func() bool { return sleepingWaiters(c, "a") == 1 })
	held := proxy.OnMatch(1, runsScript(onceRecordScript), redistest.HoldReply)
	released := make(chan error, 1)
	go func() { released <- lease.ReleaseWith(bg, []byte("done"), 10*time.Millisecond) }()
	mustReceive(t, "Redis to have the record", held.Hit())
	eventually(t, "it to expire", func() bool { return fx.rdb.Exists(bg, "{a}:record").Val() == 0 })
	held.Release()
	if err := mustReceive(t, "ReleaseWith to return", released); err != nil {
		t.Fatal(err)
	}
	r := mustReceive(t, "the waiter", waiter)
	if r.err != nil || r.lease == nil || r.record != "" {
		t.Fatalf("the waiter has %+v, want the lock", r)
	}
	mustRelease(t, r.lease.Lease)
}

// A holder that was paused beyond its lease neither overwrites nor deletes what the next holder has
// or has left.
func TestOnce_PausedHolder(t *testing.T) {
	t.Parallel()
	next := map[string]func(t *testing.T, o *Once) (check func(t *testing.T, fx *redisFixture)){
		"the next holds": func(t *testing.T, o *Once) func(*testing.T, *redisFixture) {
			lease := mustBegin(t, o, AcquireOptions{LeaseTime: time.Hour})
			return func(t *testing.T, fx *redisFixture) {
				fx.wantCount(t, lease.Lease, 1)
				if got := fx.stored(t, "a"); len(got) != 0 {
					t.Errorf("beside the lock is %q", got)
				}
				mustRecord(t, lease, "the next one's", time.Hour)
				wantRecord(t, o, "the next one's")
			}
		},
		"the next holds, with a marker": func(t *testing.T, o *Once) func(*testing.T, *redisFixture) {
			lease := mustBegin(t, o.WithMarker(running, time.Hour), AcquireOptions{LeaseTime: time.Hour})
			return func(t *testing.T, fx *redisFixture) {
				fx.wantCount(t, lease.Lease, 1)
				fx.wantFields(t, "{a}:record", map[string]string{"record": "running", "marker": holdOf(lease.Lease).wire, "ttl": "3600000"})
				mustRelease(t, lease)
			}
		},
		"the next has left a record": func(t *testing.T, o *Once) func(*testing.T, *redisFixture) {
			mustRecord(t, mustBegin(t, o, AcquireOptions{}), "the next one's", time.Hour)
			return func(t *testing.T, fx *redisFixture) { fx.wantStored(t, "a", "the next one's", time.Hour) }
		},
		"the next has died": func(t *testing.T, o *Once) func(*testing.T, *redisFixture) {
			lease := mustBegin(t, o.WithMarker(running, time.Hour), AcquireOptions{LeaseTime: 3 * time.Second})
			mustReceive(t, "its lease to expire", lease.Done())
			return func(t *testing.T, fx *redisFixture) {
				eventually(t, "the lock to expire", func() bool { return len(fx.hash(t, "a")) == 0 })
				fx.wantStored(t, "a", "running", time.Hour)
			}
		},
	}
	for what, wake := range map[string]func(l *OnceLease) error{
		"record":  func(l *OnceLease) error { return l.ReleaseWith(bg, []byte("the late one's"), time.Hour) },
		"release": func(l *OnceLease) error { return l.Release(bg) },
		"nothing": nil,
	} {
		for name, take := range next {
			for _, marker := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, marker %v", name, what, marker), func(t *testing.T) {
					t.Parallel()
					fx := newRedis(t)
					clock := stoppedClock()
					c := fx.newLocksWithClock(t, fx.srv.Client(t), clock)
					defer fx.deleteRecord(t, "a")
					once := c.Once("a")
					if marker {
						once = once.WithMarker(running, 50*time.Millisecond)
					}
					lease := mustBegin(t, once, AcquireOptions{LeaseTime: 50 * time.Millisecond})
					eventually(t, "its lock and its marker to expire", func() bool {
						return fx.rdb.Exists(bg, "a", "{a}:record").Val() == 0
					})
					check := take(t, fx.newLocks(t).Once("a"))
					if wake == nil {
						clock.move(time.Hour, time.Hour)
						wantErr(t, "the late one", lease.Err(), ErrLockLost)
						eventually(t, "its clean-up to end", func() bool { return c.Stats().Cleanups == 0 })
					} else {
						wantErr(t, "the late one", wake(lease), ErrLockLost)
					}
					check(t, fx)
				})
			}
		}
	}
}

// A paused holder has lost its lock during its work, so its marker stays. Its record comes too late.
func TestOnce_PausedHolderAndItsMarker(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		wake func(l *OnceLease) error
		left string
	}{
		"record":  {func(l *OnceLease) error { return l.ReleaseWith(bg, []byte("done"), time.Hour) }, "running"},
		"release": {func(l *OnceLease) error { return l.Release(bg) }, "running"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocksWithClock(t, fx.srv.Client(t), stoppedClock())
			defer fx.deleteRecord(t, "a")
			once := c.Once("a").WithMarker(running, time.Hour)
			lease := mustBegin(t, once, AcquireOptions{LeaseTime: 50 * time.Millisecond})
			eventually(t, "its lock to expire", func() bool { return len(fx.hash(t, "a")) == 0 })
			wantRecord(t, once, "running")
			wantErr(t, "the late one", tc.wake(lease), ErrLockLost)
			fx.wantStored(t, "a", tc.left, time.Hour)
		})
	}
}

// A stray acquire takes nothing while there is a record. Otherwise what it takes is released,
// marker included.
func TestOnce_StrayAcquire(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end   func(t *testing.T, fx *redisFixture, l *OnceLease)
		taken bool
		left  string
	}{
		"after a record":        {func(t *testing.T, fx *redisFixture, l *OnceLease) { mustRecord(t, l, "done", time.Hour) }, false, "done"},
		"after a clean failure": {func(t *testing.T, fx *redisFixture, l *OnceLease) { mustRelease(t, l) }, true, ""},
		"when the record is over": {func(t *testing.T, fx *redisFixture, l *OnceLease) {
			mustRecord(t, l, "done", time.Hour)
			fx.deleteRecord(t, "a")
		}, true, ""},
		"when the next has left a record": {func(t *testing.T, fx *redisFixture, l *OnceLease) {
			mustRelease(t, l)
			mustRecord(t, mustBegin(t, fx.newLocks(t).Once("a"), AcquireOptions{}), "the next one's", time.Hour)
		}, false, "the next one's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second))
			defer fx.deleteRecord(t, "a")
			stray := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldRequest)
			lease := mustBegin(t, c.Once("a").WithMarker(running, time.Hour), AcquireOptions{LeaseTime: time.Hour}) // by its second try
			tc.end(t, fx, lease)
			if n := c.Stats().Cleanups; n != 1 {
				t.Fatalf("%d clean-ups, want one for the hold", n)
			}
			stray.Release()
			mustReceive(t, "the stray to be executed", stray.Done())
			if taken := len(fx.hash(t, "a")) == 1; taken != tc.taken {
				t.Errorf("the stray has taken the lock: %v", taken)
			}
			eventually(t, "the clean-up to end", func() bool { return c.Stats().Cleanups == 0 })
			fx.wantStored(t, "a", tc.left, time.Hour)
		})
	}
}

// A holder fails, and a waiter in its process gets the lock. It has its own marker.
func TestOnce_NextHasItsOwnMarker(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	once := c.Once("a").WithMarker(running, time.Hour)
	lease := mustBegin(t, once, AcquireOptions{})
	waiters := waitForRecord(t, c, once, 2)
	for range 2 {
		mustRelease(t, lease)
		var r outcome
		select {
		case r = <-waiters[0]:
		case r = <-waiters[1]:
		case <-time.After(patience):
		}
		if lease = r.lease; lease == nil {
			t.Fatalf("a waiter has got %+v, want the lock", r)
		}
		fx.wantCount(t, lease.Lease, 1)
		fx.wantFields(t, "{a}:record", map[string]string{"record": "running", "marker": holdOf(lease.Lease).wire, "ttl": "3600000"})
	}
	mustRelease(t, lease)
	fx.wantStored(t, "a", "", 0)
}

// A stray ReleaseWith changes nothing for later holders.
func TestOnce_StrayRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	defer fx.deleteRecord(t, "a")
	once := c.Once("a").WithMarker(running, time.Hour)
	lease := mustBegin(t, once, AcquireOptions{})
	stray := proxy.OnMatch(1, runsScript(onceRecordScript), redistest.HoldRequest)
	mustRecord(t, lease, "first", time.Hour) // by its second try
	fx.deleteRecord(t, "a")
	next := mustBegin(t, once, AcquireOptions{})
	stray.Release()
	mustReceive(t, "the stray to be executed", stray.Done())
	fx.wantCount(t, next.Lease, 1)
	fx.wantFields(t, "{a}:record", map[string]string{"record": "running", "marker": holdOf(next.Lease).wire, "ttl": "3600000"})
	mustRecord(t, next, "second", time.Hour)
	fx.wantStored(t, "a", "second", time.Hour)
}

// A grant for a caller that has left is undone with its marker, because nothing ran, even if the
// lock expires before.
func TestOnce_CallerHasLeft(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"in time": time.Hour, "over": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
			once := c.Once("a").WithMarker(running, time.Hour)
			rule := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldReply)
			ctx, cancel := context.WithCancel(bg)
			result := acquireOnceAsync(ctx, once, AcquireOptions{LeaseTime: lease})
			mustReceive(t, "Redis to grant it", rule.Hit())
			cancel()
			if r := mustReceive(t, "the caller to be let go", result); !errors.Is(r.err, context.Canceled) {
				t.Fatalf("Acquire: %+v", r)
			}
			if fx.stored(t, "a")["record"] != "running" {
				t.Fatal("there is no marker")
			}
			if name == "over" {
				eventually(t, "the lock to expire", func() bool { return len(fx.hash(t, "a")) == 0 })
			}
			rule.Release()
			eventually(t, "the lock and the marker to go", func() bool { return fx.rdb.Exists(bg, "a", "{a}:record").Val() == 0 })
		})
	}
}

// A waiter whose late attempt is granted after it was given a record returns the record, and the
// grant is undone.
func TestOnce_GrantAfterTheRecord(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	once := c.Once("a").WithMarker(running, time.Hour)
	lease := mustBegin(t, once, AcquireOptions{})
	late := proxy.OnMatch(1, runsScript(onceAcquireScript), redistest.HoldRequest)
	waiter := acquireOnceAsync(bg, once, AcquireOptions{WaitTime: patience})
	mustReceive(t, "the waiter to ask", late.Hit())
	mustRecord(t, lease, "done", time.Hour)
	fx.deleteRecord(t, "a")
	late.Release()
	wantRecords(t, []<-chan outcome{waiter}, "done")
	eventually(t, "the lock and the marker to go", func() bool { return fx.rdb.Exists(bg, "a", "{a}:record").Val() == 0 })
}

// If Redis is away when the holder is done, its record is written as soon as Redis is back.
func TestOnce_RecordLeftLater(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
	defer fx.deleteRecord(t, "a")
	other := fx.newLocks(t)
	lease := mustBegin(t, c.Once("a").WithMarker(running, time.Hour), AcquireOptions{LeaseTime: time.Hour})
	waiter := acquireOnceAsync(bg, other.Once("a"), AcquireOptions{WaitTime: patience})
	proxy.Cut()
	if err := lease.ReleaseWith(bg, []byte("done"), time.Hour); err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("ReleaseWith while Redis is away: %v", err)
	}
	proxy.Restore()
	wantRecords(t, []<-chan outcome{waiter}, "done")
	eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
	fx.wantStored(t, "a", "done", time.Hour)
}

// If Redis refuses the record, the lock is released at once all the same, and a marker stays.
func TestOnce_RecordRefused(t *testing.T) {
	t.Parallel()
	for name, marker := range map[string]string{"marker": "running", "no marker": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t)
			defer fx.deleteRecord(t, "a")
			once := c.Once("a")
			if marker != "" {
				once = once.WithMarker(running, time.Hour)
			}
			lease := mustBegin(t, once, AcquireOptions{LeaseTime: time.Hour})
			fx.loadScripts(t)
			fx.rdb.ConfigSet(bg, "maxmemory", "1")
			if err := lease.ReleaseWith(bg, []byte("done"), time.Hour); err == nil || errors.Is(err, ErrNotHeld) {
				t.Errorf("ReleaseWith on a full Redis: %v", err)
			}
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
			fx.rdb.ConfigSet(bg, "maxmemory", "0")
			fx.wantStored(t, "a", marker, time.Hour)
		})
	}
}

// A record key of another type stays as it is.
func TestOnce_WrongKind(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	defer fx.deleteRecord(t, "a")
	lease := mustBegin(t, c.Once("a"), AcquireOptions{LeaseTime: time.Hour})
	fx.rdb.Set(bg, "{a}:record", "something else", 0)
	wantErr(t, "ReleaseWith", lease.ReleaseWith(bg, []byte("done"), time.Hour), ErrWrongKind)
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
	wantErr(t, "Acquire", acquireOnce(bg, c.Once("a"), AcquireOptions{WaitTime: patience}).err, ErrWrongKind)
	if v := fx.rdb.Get(bg, "{a}:record").Val(); v != "something else" {
		t.Errorf("the key is %q now", v)
	}
}

// When Redis goes down all waiters are told at once.
func TestOnce_RedisGoesWhileManyWait(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second), pollInterval(500*time.Millisecond))
	lease := mustBegin(t, fx.newLocks(t).Once("a"), AcquireOptions{})
	waiters := waitForRecordWith(t, c, c.Once("a"), 100, time.Hour)
	commands := countCommands(proxy, runsScript())
	proxy.Cut()
	for _, w := range waiters {
		if r := mustReceive(t, "a waiter to be told", w); r.err == nil || errors.Is(r.err, ErrNotAcquired) {
			t.Fatalf("a waiter has got %+v", r)
		}
	}
	if n := commands(); n > 20 {
		t.Errorf("%d commands for 100 waiters", n)
	}
	proxy.Restore()
	mustRelease(t, lease)
}

// The record of an inner level is written at once, seen when the last level is released, and
// replaced by the record of an outer one.
func TestOnce_Levels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(t *testing.T, outer *OnceLease)
		want string
	}{
		"release": {func(t *testing.T, outer *OnceLease) { mustRelease(t, outer) }, "inner"},
		"record":  {func(t *testing.T, outer *OnceLease) { mustRecord(t, outer, "outer", time.Minute) }, "outer"},
		"loss":    {func(t *testing.T, outer *OnceLease) { mustReceive(t, "it to run out", outer.Done()) }, "inner"},
	} {
		for _, marker := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, marker %v", name, marker), func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c := fx.newLocks(t)
				defer fx.deleteRecord(t, "a")
				once := c.Once("a")
				if marker {
					once = once.WithMarker(running, time.Hour)
				}
				opts := AcquireOptions{LeaseTime: time.Hour}
				if name == "loss" {
					opts.LeaseTime = 5 * time.Second
				}
				outer := mustBegin(t, once, opts)
				inner := acquireOnce(outer.Context(), once, opts)
				if inner.err != nil || inner.lease == nil {
					t.Fatalf("re-entry: %+v", inner)
				}
				fx.wantCount(t, outer.Lease, 2)
				mustRecord(t, inner.lease, "inner", time.Minute)
				fx.wantCount(t, outer.Lease, 1)
				fx.wantFields(t, "{a}:record", map[string]string{"record": "inner", "owner": holdOf(outer.Lease).wire, "ttl": "60000"})
				wantOnceLocked(t, fx.newLocks(t).Once("a"))
				if again := acquireOnce(outer.Context(), once, opts); again.lease == nil {
					t.Fatalf("re-entry after the record: %+v", again)
				} else {
					mustRelease(t, again.lease)
				}
				tc.end(t, outer)
				eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
				fx.wantStored(t, "a", tc.want, time.Minute)
				wantRecord(t, once, tc.want)
			})
		}
	}
}

// The record of an inner level is written once: the outer level does not restore it.
func TestOnce_InnerRecordWrittenOnce(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	outer := mustBegin(t, c.Once("a"), AcquireOptions{})
	inner := acquireOnce(outer.Context(), c.Once("a"), AcquireOptions{})
	mustRecord(t, inner.lease, "inner", time.Hour)
	fx.deleteRecord(t, "a")
	mustRelease(t, outer)
	fx.wantStored(t, "a", "", 0)
}

// A record of an inner level that could not be written goes with the next level.
func TestOnce_InnerRecordCarriedOn(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	defer fx.deleteRecord(t, "a")
	outer := mustBegin(t, c.Once("a"), AcquireOptions{})
	inner := acquireOnce(outer.Context(), c.Once("a"), AcquireOptions{})
	proxy.OnMatch(1, runsScript(onceRecordScript), redistest.ReplyWith("-ERR not now\r\n"))
	if err := inner.lease.ReleaseWith(bg, []byte("inner"), time.Hour); err == nil || errors.Is(err, ErrNotHeld) {
		t.Errorf("ReleaseWith: %v", err)
	}
	mustRelease(t, outer)
	fx.wantStored(t, "a", "inner", time.Hour)
}

// When two levels are released at the same time, the last one to reach Redis frees the lock, and
// the record stays.
func TestOnce_LevelsAtTheSameTime(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	once := c.Once("a").WithMarker(running, time.Hour)
	for range 50 {
		outer := mustBegin(t, once, AcquireOptions{})
		inner := acquireOnce(outer.Context(), once, AcquireOptions{})
		other := releaseAsync(outer)
		mustRecord(t, inner.lease, "done", time.Hour)
		if err := mustReceive(t, "the other level to be released", other); err != nil {
			t.Fatal(err)
		}
		fx.wantStored(t, "a", "done", time.Hour)
		fx.deleteRecord(t, "a")
	}
}

// Closing a client that holds the lock leaves the marker, because what the holder does is not
// known.
func TestOnce_Close(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t))
	lease := mustBegin(t, c.Once("a").WithMarker(running, time.Hour), AcquireOptions{})
	waiter := acquireOnceAsync(bg, c.Once("a"), forever)
	eventually(t, "it to wait", func() bool { return c.Stats().Waiting == 1 })
	if err := c.Close(contextWithTimeout(t, 20*time.Millisecond)); err == nil {
		t.Error("Close has not noticed the holder")
	}
	wantErr(t, "the waiter", mustReceive(t, "the waiter to be let go", waiter).err, ErrClosed)
	wantErr(t, "ReleaseWith", lease.ReleaseWith(bg, []byte("done"), time.Hour), ErrClosed)
	wantErr(t, "Acquire", acquireOnce(bg, c.Once("a"), AcquireOptions{}).err, ErrClosed)
	fx.wantStored(t, "a", "running", time.Hour)
}

func TestOnce_Refused(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	once := c.Once("a")
	for name, o := range map[string]*Once{
		"no marker":        once.WithMarker(nil, time.Hour),
		"empty marker":     once.WithMarker([]byte{}, time.Hour),
		"no time":          once.WithMarker(running, 0),
		"too short a time": once.WithMarker(running, time.Millisecond-1),
		"a negative time":  once.WithMarker(running, -time.Hour),
	} {
		wantErr(t, name, acquireOnce(bg, o, AcquireOptions{}).err, ErrInvalidOptions)
	}
	wantErr(t, "no name", acquireOnce(bg, c.Once(""), AcquireOptions{}).err, ErrInvalidName)
	wantErr(t, "no name, no marker", acquireOnce(bg, c.Once("").WithMarker(nil, 0), AcquireOptions{}).err, ErrInvalidName)

	lease := mustBegin(t, once, AcquireOptions{})
	for name, try := range map[string]func() error{
		"no record":        func() error { return lease.ReleaseWith(bg, nil, time.Hour) },
		"no time":          func() error { return lease.ReleaseWith(bg, []byte("x"), 0) },
		"too short a time": func() error { return lease.ReleaseWith(bg, []byte("x"), time.Millisecond-1) },
	} {
		wantErr(t, name, try(), ErrInvalidOptions)
		if err := lease.Err(); err != nil {
			t.Errorf("%s: the lease has ended: %v", name, err)
		}
	}
	mustRelease(t, lease)
	for name, l := range map[string]Locker{
		"a lock":       c.Lock("b"),
		"a fair lock":  c.FairLock("b"),
		"a write lock": c.ReadWriteLock("b").Write(),
	} {
		other := mustAcquire(t, bg, l, AcquireOptions{})
		wantErr(t, name, (&OnceLease{other}).ReleaseWith(bg, []byte("x"), time.Hour), ErrInvalidOptions)
		mustRelease(t, other)
	}
	wantErr(t, "after the release", lease.ReleaseWith(bg, []byte("x"), time.Hour), ErrReleased)
}

// In a cluster lock and record are in one slot. Names that do not allow it are refused before
// anything is sent.
func TestOnce_ClusterNames(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newUncheckedLocks(t, rdb)
	t.Cleanup(func() { _ = c.Close(bg) })
	for name, ok := range map[string]bool{"a": true, "{a}:b": true, "a{b}c": true, "a{b": false, "{}a": false, "a}b": false} {
		if err := c.Once(name).lock.err; (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalidName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// For an observer a record is not the lock.
func TestOnce_Observer(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	defer fx.deleteRecord(t, "a")
	var log eventLog
	c := fx.newLocks(t, log.observe)
	ctx := context.WithValue(bg, spyKey{}, "the caller's")
	r := acquireOnce(ctx, c.Once("a"), AcquireOptions{})
	waiter := acquireOnceAsync(ctx, c.Once("a"), AcquireOptions{WaitTime: patience})
	for _, e := range log.next(t, "acquired", "waiting") {
		if e.Kind != "once" || e.Name != "a" || e.Err != nil {
			t.Errorf("%+v", e)
		}
	}
	if err := r.lease.ReleaseWith(ctx, []byte("done"), time.Hour); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, []<-chan outcome{waiter}, "done")
	eventually(t, "two events", func() bool { return len(log.list()) == 2 })
	for _, e := range log.list() {
		if e.Owner != "" && e.Err != nil || e.Owner == "" && !errors.Is(e.Err, ErrRecorded) {
			t.Errorf("%+v", e)
		}
	}
}

// Scripts, record and messages work in a cluster.
func TestOnce_Cluster(t *testing.T) {
	t.Parallel()
	srv := startClusterOfOne(t)
	fx := &redisFixture{srv: srv, rdb: srv.Client(t)}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })
	c := fx.newLocksOn(t, cluster)
	for _, name := range []string{"a", "{a}:b", "a{b}c"} {
		once := c.Once(name).WithMarker(running, time.Hour)
		mustRelease(t, mustBegin(t, once, AcquireOptions{}))
		lease := mustBegin(t, once, AcquireOptions{})
		waiters := waitForRecord(t, c, once, 3)
		mustRecord(t, lease, "done", time.Hour)
		wantRecords(t, waiters, "done")
		wantRecord(t, once, "done")
		fx.rdb.Del(bg, once.kind.RecordKey)
	}
}
