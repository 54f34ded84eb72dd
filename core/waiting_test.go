package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// never is a PollInterval longer than any test: a waiter sleeps until something wakes it.
const never = time.Hour

// lockAsStranger makes another client hold locks for a lease, or without expiry if the lease is 0.
// No message follows when they end.
func (fx *redisFixture) lockAsStranger(t testing.TB, lease time.Duration, keys ...string) {
	t.Helper()
	pipe := fx.rdb.Pipeline()
	for _, key := range keys {
		pipe.HSet(bg, key, "stranger:1", 1)
		if lease > 0 {
			pipe.PExpire(bg, key, lease)
		}
	}
	if _, err := pipe.Exec(bg); err != nil {
		t.Fatal(err)
	}
}

// publishRelease publishes the message of a release.
func (fx *redisFixture) publishRelease(t testing.TB, key string) {
	t.Helper()
	if err := fx.rdb.Publish(bg, wire.LockChannel(key), wire.Unlocked).Err(); err != nil {
		t.Fatal(err)
	}
}

// startWaiter starts a waiter and returns once it is queued.
func startWaiter(t testing.TB, ctx context.Context, c *Client, name string, opts AcquireOptions) <-chan acquireResult {
	t.Helper()
	before := c.Stats().Waiting
	result := acquireAsync(ctx, c.Lock(name), opts)
	eventually(t, "another waiter", func() bool { return c.Stats().Waiting > before })
	return result
}

var (
	forever = AcquireOptions{WaitTime: WaitForever}
	long    = AcquireOptions{WaitTime: time.Hour} // fails if Redis fails
)

// mustReceiveLease waits for the lease of a waiter.
func mustReceiveLease(t testing.TB, what string, result <-chan acquireResult) *Lease {
	t.Helper()
	got := mustReceive(t, what, result)
	if got.err != nil {
		t.Fatalf("%s: %v", what, got.err)
	}
	return got.lease
}

// eventuallyAsleep waits until the first waiter for each name has subscribed, was refused once more
// after that, and sleeps. PollInterval must be never, and the name must have been idle before.
func eventuallyAsleep(t testing.TB, c *Client, names ...string) {
	t.Helper()
	for _, name := range names {
		eventuallyAsleepFor(t, c, name, false)
	}
}

// eventuallyAsleepFor is eventuallyAsleep for a lock, or for a semaphore, which is counted.
func eventuallyAsleepFor(t testing.TB, c *Client, name string, counted bool) {
	t.Helper()
	eventually(t, "the first waiter to subscribe and sleep", func() bool {
		e := c.names.open(name, counted)
		defer e.close()
		return e.firstSleepsLocked() && e.queue.Waiters()[0].PollAt.Since(clock.Now()) > 2*subscribePatience
	})
}

// firstSleepsLocked reports whether the first waiter was woken, at least by the confirmation of its
// subscription, has tried again since, and sleeps.
func (e *entry) firstSleepsLocked() bool {
	if e.queue.Len() == 0 {
		return false
	}
	w := e.queue.Waiters()[0]
	wakes, pending := w.Wakes()
	return wakes > 0 && !pending && w.State() == claim.Asleep
}

// wakeCount returns how often the first waiter for a name was woken.
func wakeCount(c *Client, name string) uint16 {
	e := c.names.open(name, false)
	defer e.close()
	if e.queue.Len() == 0 {
		return 0
	}
	wakes, _ := e.queue.Waiters()[0].Wakes()
	return wakes
}

// waitUntilStable waits until count stops changing, and returns it.
func waitUntilStable(count func() int) int {
	last := count()
	for since := time.Now(); time.Since(since) < 200*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
	}
	return last
}

// The release comes before the subscription, so its message never arrives. The waiter tries again
// once it has subscribed.
func TestWaiting_AsksAgainWhenSubscribed(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	subscribing := proxy.On("SUBSCRIBE", 1, redistest.HoldRequest)
	waiter := startWaiter(t, bg, c, "a", forever)
	mustReceive(t, "the waiter to subscribe", subscribing.Hit())
	mustRelease(t, holder)
	subscribing.Release()
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// The confirmation of the subscription is lost. The first waiter polls.
func TestWaiting_PollsWithoutASubscription(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(200*time.Millisecond))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	unconfirmed := proxy.On("SUBSCRIBE", 1, redistest.DropReply)
	waiter := startWaiter(t, bg, c, "a", forever)
	mustReceive(t, "the loss of the confirmation", unconfirmed.Hit())
	mustRelease(t, holder)
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// A short PollInterval does not shorten the time a ping has for its reply.
func TestWaiting_ShortPollIntervalAndSlowPings(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(10*time.Millisecond))
	proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "PING") }, redistest.Delay(200*time.Millisecond))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	waiter := startWaiter(t, bg, c, "a", forever)
	eventually(t, "two pings of the connection", func() bool { return proxy.Count("PING") >= 2 })
	if n := proxy.Count("SUBSCRIBE"); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	mustRelease(t, holder)
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// The message of the release is lost. The waiter gets the lock at its next poll.
func TestWaiting_PollsWhenAMessageIsLost(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(400*time.Millisecond))
	asked := countCommands(proxy, runsScript(acquireScript))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	waiter := startWaiter(t, bg, c, "a", forever)
	fx.eventuallySubscribed(t, "a")
	eventually(t, "a few attempts of the waiter", func() bool { return asked() >= 4 })
	swallowed := proxy.SwallowMessages(1)
	mustRelease(t, holder)
	mustReceive(t, "the loss of the message", swallowed.Hit())
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// A holder dies without a message. The waiter tries again when the lock expires.
func TestWaiting_SleepsNoLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	asked := countCommands(proxy, runsScript(acquireScript))
	fx.lockAsStranger(t, 1500*time.Millisecond, "a")
	lease := mustReceiveLease(t, "the waiter's lease", acquireAsync(bg, c.Lock("a"), forever))
	if n := asked(); n > 10 {
		t.Errorf("%d attempts, want at most 10", n)
	}
	mustRelease(t, lease)
}

// A holder that has renewed its lock dies without a message. The waiter looked when the TTL that it
// knew was over, and learned the next one.
func TestWaiting_FollowsRenewals(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	asked := countCommands(proxy, runsScript(acquireScript))
	fx.lockAsStranger(t, 3*time.Second, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	eventuallyAsleep(t, c, "a")
	before := asked()
	fx.expire(t, "a", 4*time.Second)
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
	if n := asked() - before; n < 2 || n > 8 {
		t.Errorf("%d attempts, want one at the end of each TTL, or a few more", n)
	}
}

// A waiter sleeps for the TTL of the lock or until its next poll, the shorter of the two. It does
// not spin on a TTL of 0 or on a lock without expiry.
func TestWaiting_Pauses(t *testing.T) {
	t.Parallel()
	const poll = 5 * time.Second
	for ttl, want := range map[time.Duration]time.Duration{
		-2 * time.Millisecond: shortPause,
		-time.Millisecond:     poll,
		0:                     shortPause,
		time.Millisecond:      2 * time.Millisecond,
		time.Second:           1001 * time.Millisecond,
		time.Hour:             poll,
	} {
		if got := untilExpiry(ttl, poll); got != want {
			t.Errorf("a TTL of %s: %s, want %s", ttl, got, want)
		}
	}
}

// An odd TTL leads neither to a storm of attempts nor to an endless sleep.
func TestWaiting_OddTTLs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		reply string
		poll  time.Duration
		least int // attempts
		most  int // attempts per second
	}{
		{"0, about to expire", "*1\r\n:0\r\n", never, 5, 210},
		{"-2, just freed", "*1\r\n:-2\r\n", never, 5, 210},
		{"-1, without expiry", "*1\r\n:-1\r\n", 200 * time.Millisecond, 3, 10},
		{"beyond the poll interval", "*1\r\n:3600000\r\n", 200 * time.Millisecond, 3, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(test.poll))
			asked := countCommands(proxy, runsScript(acquireScript))
			odd := proxy.OnEvery(runsScript(acquireScript), redistest.ReplyWith(test.reply))
			begun := time.Now()
			waiter := startWaiter(t, bg, c, "a", forever)
			eventually(t, "a second to pass and enough attempts", func() bool {
				return time.Since(begun) > time.Second && asked() >= test.least
			})
			n, seconds := asked(), time.Since(begun).Seconds()
			if float64(n) > float64(test.most)*seconds+2 {
				t.Errorf("%d attempts in %.1fs, want at most %d per second", n, seconds, test.most)
			}
			odd.Remove()
			mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
		})
	}
}

// The lock is released while a refusal is on its way. The message arrives before the refusal and
// still wakes the waiter.
func TestWaiting_MessageBeforeTheRefusal(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	waiter := startWaiter(t, bg, c, "a", forever)
	eventuallyAsleep(t, c, "a")

	refusal := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
	fx.publishRelease(t, "a") // a false alarm
	mustReceive(t, "the refusal", refusal.Hit())
	before := wakeCount(c, "a")
	mustRelease(t, holder)
	eventually(t, "the message", func() bool { return wakeCount(c, "a") > before })
	refusal.Release()
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// The first waiter leaves after it got the message. No second message comes, so its successor tries
// at once.
func TestWaiting_PromotedAsksAtOnce(t *testing.T) {
	t.Parallel()
	for _, stray := range []struct {
		name string
		what redistest.Action
		runs bool
	}{
		{"before its attempt reaches Redis", redistest.HoldRequest, false},
		{"after Redis grants its attempt", redistest.HoldReply, true},
	} {
		t.Run(stray.name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
			leave, cancel := context.WithCancel(bg)
			defer cancel()
			first := startWaiter(t, leave, c, "a", forever)
			second := startWaiter(t, bg, c, "a", forever)
			eventuallyAsleep(t, c, "a")

			question := proxy.OnMatch(1, runsScript(acquireScript), stray.what)
			mustRelease(t, holder)
			mustReceive(t, "the first waiter's attempt", question.Hit())
			cancel()
			wantErr(t, "the first waiter", mustReceive(t, "the first waiter to leave", first).err, context.Canceled)
			if stray.runs {
				question.Release()
			}
			lease := mustReceiveLease(t, "the second waiter's lease", second)
			question.Release()
			mustRelease(t, lease)
		})
	}
}

// The first waiter leaves while the lock is free. The next tries at once.
func TestWaiting_PromotedAsksAtOnceAfterASleep(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	asked := countCommands(proxy, runsScript(acquireScript))
	fx.lockAsStranger(t, 0, "a")
	ctx, leave := context.WithCancel(bg)
	first := startWaiter(t, ctx, c, "a", forever)
	second := startWaiter(t, bg, c, "a", forever)
	eventuallyAsleep(t, c, "a")
	fx.deleteKeys(t, "a") // without a message
	leave()
	wantErr(t, "the first waiter", mustReceive(t, "the first waiter to leave", first).err, context.Canceled)
	mustRelease(t, mustReceiveLease(t, "the second waiter's lease", second))
	if n := asked(); n > 3 {
		t.Errorf("%d attempts, want at most 3", n)
	}
}

// The lock becomes free without a message after the waiter's last poll. It gets the lock at the end
// of its WaitTime.
func TestWaiting_AsksOnceMoreAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(c *Client) Locker{
		"plain":  func(c *Client) Locker { return c.Lock("a") },
		"fenced": func(c *Client) Locker { return c.FencedLock("a") },
		"fair":   func(c *Client) Locker { return c.FairLock("a") },
		"read":   func(c *Client) Locker { return c.ReadWriteLock("a").Read() },
		"write":  func(c *Client) Locker { return c.ReadWriteLock("a").Write() },
		"multi":  func(c *Client) Locker { return MultiLock(c.Lock("a"), c.Lock("b")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			proxy.SwallowMessages(-1)
			asked := countCommands(proxy, runsScript(acquireScript, manyScript, fencedAcquireScript, fairAcquireScript, readAcquireScript, writeAcquireScript, fencedFairAcquireScript, fencedWriteAcquireScript))
			fx.lockAsStranger(t, 0, "a")
			if name == "read" || name == "write" {
				fx.rdb.Del(bg, "a")
				fx.rdb.HSet(bg, "a", "mode", "write", "stranger:1:write", 1)
			}
			const wait = 6 * time.Second
			began := time.Now()
			waiter := acquireAsync(bg, lock(c), AcquireOptions{WaitTime: wait})
			eventually(t, "the poll in the middle", func() bool { return time.Since(began) > wait*3/4 && asked() > 2 })
			fx.deleteKeys(t, "a")
			lease := mustReceiveLease(t, "the waiter", waiter)
			if took := time.Since(began); took < wait-wait/20 {
				t.Errorf("granted after %v: by a poll, or a message", took)
			}
			mustRelease(t, lease)
		})
	}
}

// While someone waits, the queue polls within its WaitTime, even if the first in the queue waits
// for ever.
func TestWaiting_PollsWithinWaitTime(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(c *Client) Locker{
		"plain": func(c *Client) Locker { return c.Lock("a") },
		"fair":  func(c *Client) Locker { return c.FairLock("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			proxy.SwallowMessages(-1)
			fx.lockAsStranger(t, 0, "a")
			first := acquireAsync(bg, lock(c), forever)
			eventually(t, "the first waiter", func() bool {
				return c.Stats().Waiting == 1 && (name == "plain" || fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1)
			})
			second := acquireAsync(bg, lock(c), AcquireOptions{WaitTime: 8 * time.Second})
			eventually(t, "the second waiter", func() bool { return c.Stats().Waiting == 2 })
			fx.deleteKeys(t, "a") // without a message
			began := time.Now()
			mustRelease(t, mustReceiveLease(t, "the first waiter", first))
			mustRelease(t, mustReceiveLease(t, "the second waiter", second))
			t.Logf("%v later", time.Since(began))
		})
	}
}

// Waiters whose time ends together send one attempt for all of them.
func TestWaiting_TheEndOfManyIsOneAttempt(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(c *Client) Locker{
		"plain": func(c *Client) Locker { return c.Lock("a") },
		"read":  func(c *Client) Locker { return c.ReadWriteLock("a").Write() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			fx.rdb.HSet(bg, "a", "mode", "write", "stranger:1:write", 1)
			if name == "plain" {
				fx.rdb.HDel(bg, "a", "mode")
			}
			asked := countCommands(proxy, runsScript(acquireScript, manyScript, writeAcquireScript))
			const n = 2000
			began := time.Now()
			inParallel(n, func(int) {
				_, err := lock(c).Acquire(bg, AcquireOptions{WaitTime: 3 * time.Second, MaxWaiters: -1})
				if !errors.Is(err, ErrNotAcquired) {
					t.Errorf("Acquire: %v", err)
				}
			})
			// One in the middle, and at the end one for each 50 ms between the first and the last.
			if got, most := asked(), 10+int(time.Since(began)/(50*time.Millisecond)); got > most {
				t.Errorf("%d attempts of %d waiters, want %d at most", got, n, most)
			}
			fx.deleteKeys(t, "a")
		})
	}
}

// The attempt at the end of WaitTime has no reply in time. The caller gets the answer before it,
// and what Redis grants late is freed.
func TestWaiting_LastAttemptWithoutAReply(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	proxy.SwallowMessages(-1)
	fx.lockAsStranger(t, 0, "a")
	const wait = 4 * time.Second
	began := time.Now()
	waiter := startWaiter(t, bg, c, "a", AcquireOptions{WaitTime: wait})
	eventually(t, "the poll in the middle", func() bool { return time.Since(began) > wait*3/4 })
	late := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
	fx.deleteKeys(t, "a")
	mustReceive(t, "the last attempt", late.Hit())
	wantErr(t, "the waiter", mustReceive(t, "the waiter to give up", waiter).err, ErrNotAcquired)
	if took := time.Since(began); took < wait {
		t.Errorf("it gave up after %v", took)
	}
	fx.wantLocked(t, "a")
	late.Release()
	eventually(t, "the late grant to be freed", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// Messages published while the connection is down are lost. A new subscription wakes the waiters.
func TestWaiting_ResubscriptionWakes(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	holder := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	waiter := startWaiter(t, bg, c, "a", forever)
	eventuallyAsleep(t, c, "a")
	swallowed := proxy.SwallowMessages(-1)
	mustRelease(t, holder)
	mustReceive(t, "the loss of the message", swallowed.Hit())
	if n, err := fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub").Result(); n == 0 || err != nil {
		t.Fatalf("CLIENT KILL: %d, %v", n, err)
	}
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
	if proxy.Count("SUBSCRIBE") < 2 {
		t.Error("the waiter got the lock without a new subscription")
	}
}

// A release or a loss wakes the waiters of the same process without a message.
func TestWaiting_LocalReleaseAndLossWake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts AcquireOptions
		end  func(t *testing.T, fx *redisFixture, c *Client, l *Lease)
	}{
		"release": {
			AcquireOptions{},
			func(t *testing.T, _ *redisFixture, _ *Client, l *Lease) { mustRelease(t, l) },
		},
		"expiry": {
			AcquireOptions{LeaseTime: 4 * time.Second},
			func(*testing.T, *redisFixture, *Client, *Lease) {},
		},
		"loss found by a renewal": {
			AcquireOptions{},
			func(t *testing.T, fx *redisFixture, _ *Client, _ *Lease) { fx.deleteKeys(t, "a") },
		},
		"loss found by Extend": {
			AcquireOptions{LeaseTime: time.Hour},
			func(t *testing.T, fx *redisFixture, _ *Client, l *Lease) {
				fx.deleteKeys(t, "a")
				wantErr(t, "Extend", l.Extend(bg, 2*time.Hour), ErrLockLost)
			},
		},
		"ForceUnlock": {
			AcquireOptions{LeaseTime: time.Hour},
			func(t *testing.T, _ *redisFixture, c *Client, _ *Lease) {
				if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never), watchdogTimeout(9*time.Second))
			proxy.SwallowMessages(-1)
			holder := mustAcquire(t, bg, c.Lock("a"), test.opts)
			waiter := startWaiter(t, bg, c, "a", forever)
			eventually(t, "the waiter to subscribe", func() bool { return wakeCount(c, "a") > 0 })
			test.end(t, fx, c, holder)
			mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
		})
	}
}

// A writer that downgrades to a reader lets readers in. Readers in its own process need no message.
func TestWaiting_LocalDowngradeWakes(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"release": time.Hour, "expiry": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, pollInterval(never))
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustAcquire(t, owner, l.Write(), AcquireOptions{LeaseTime: lease})
			read := mustAcquire(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
			proxy.SwallowMessages(-1)
			reader := acquireAsync(bg, l.Read(), AcquireOptions{WaitTime: WaitForever})
			eventually(t, "the waiter to subscribe", func() bool { return wakeCount(c, "a") > 0 })
			if lease == time.Hour {
				mustRelease(t, write)
			}
			mustRelease(t, mustReceiveLease(t, "the reader's lease", reader))
			mustRelease(t, read)
		})
	}
}

// The release of a fair lock wakes the next waiter of the same process without a message, even at
// the end of a streak. Redis keeps the queue, so the waiters here need not rest.
func TestWaiting_FairReleaseAfterAStreakWakes(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	l, opts := c.FairLock("a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Hour}
	sleeps := func() bool { // and has tried since it subscribed
		e := c.names.open("a", false)
		defer e.close()
		return e.queue.Len() == 1 && e.firstSleepsLocked()
	}
	first := mustAcquire(t, bg, l, opts)
	waiter := acquireAsync(bg, l, opts)
	eventually(t, "the waiter to sleep", sleeps)
	mustRelease(t, first)
	holder := mustReceiveLease(t, "the hand-over", waiter)
	<-time.After(25 * time.Millisecond) // a streak ends after 20 ms
	waiter = acquireAsync(bg, l, opts)
	eventually(t, "the next waiter to sleep", sleeps)
	proxy.SwallowMessages(-1)
	question := proxy.OnMatch(1, runsScript(fairAcquireScript), redistest.HoldReply)
	c.names.wake("a")
	mustReceive(t, "the reply to an attempt", question.Hit())
	mustRelease(t, holder) // while no waiter is asleep
	question.Release()
	mustRelease(t, mustReceiveLease(t, "the next waiter's lease", waiter))
}

// Hundreds of waiters send no command between polls.
func TestWaiting_SendsNothingBetweenPolls(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	leave, cancel := context.WithCancel(bg)
	defer cancel()
	var waiters []<-chan acquireResult
	var names []string
	for i := range 20 {
		name := fmt.Sprint("lock:", i)
		names = append(names, name)
		fx.lockAsStranger(t, 0, name)
		for range 10 {
			waiters = append(waiters, acquireAsync(leave, c.Lock(name), forever))
		}
	}
	eventually(t, "all waiters", func() bool { return c.Stats().Waiting == len(waiters) })
	eventuallyAsleep(t, c, names...)
	waitUntilStable(func() int { return proxy.Count("") }) // connections are dialed in the background
	before, begun := proxy.Count(""), time.Now()
	eventually(t, "a second to pass", func() bool { return time.Since(begun) > time.Second })
	if n := proxy.Count("") - before; n != 0 {
		t.Errorf("%d commands within a second, want none: %q", n, proxy.Commands()[before:])
	}
	cancel()
	for _, w := range waiters {
		wantErr(t, "a waiter", mustReceive(t, "a waiter to leave", w).err, context.Canceled)
	}
	fx.deleteKeys(t, names...)
}

// eventuallyWaiting waits until a client has one waiter, which has subscribed to releases. Its
// first attempt, which does not subscribe, is over then.
func eventuallyWaiting(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "a waiter that has subscribed", func() bool {
		s := c.Stats()
		return s.Waiting == 1 && s.Channels == 1
	})
}

// eventuallySubscribed waits until a client has subscribed to the releases of a lock.
func (fx *redisFixture) eventuallySubscribed(t testing.TB, name string) {
	t.Helper()
	channel := wire.LockChannel(name)
	eventually(t, "a subscriber to releases of "+name, func() bool {
		return fx.rdb.PubSubNumSub(bg, channel).Val()[channel] > 0
	})
}

// merge returns a channel that gives the results of several Acquires as they return.
func merge(results ...<-chan acquireResult) <-chan acquireResult {
	all := make(chan acquireResult, len(results))
	for _, result := range results {
		go func() { all <- <-result }()
	}
	return all
}
