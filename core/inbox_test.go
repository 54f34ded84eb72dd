package core

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// eventuallyListening waits until Redis knows that a client listens on its own channel.
func eventuallyListening(t testing.TB, rdb redis.UniversalClient, clients ...*Client) {
	t.Helper()
	for _, c := range clients {
		channel := wire.ClientChannel(c.id)
		eventually(t, "the client to listen", func() bool { return rdb.PubSubNumSub(bg, channel).Val()[channel] == 1 })
		eventually(t, "its confirmation", func() bool {
			c.inbox.mu.Lock()
			defer c.inbox.mu.Unlock()
			return c.inbox.channel != nil && c.hub.Confirmed(c.inbox.channel)
		})
	}
}

// eventuallyAnswered waits until the client has the answers to all that its inbox asks Redis.
func eventuallyAnswered(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "the answers", func() bool {
		c.inbox.mu.Lock()
		defer c.inbox.mu.Unlock()
		return len(c.inbox.asking) == 0
	})
}

// stopVerifying keeps a client from asking Redis, when its inbox is confirmed, which holds it has.
func stopVerifying(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "the last answer", func() bool {
		c.inbox.mu.Lock()
		defer c.inbox.mu.Unlock()
		if len(c.inbox.asking) > 0 {
			return false
		}
		c.inbox.asking[question{all: true}] = false // as if that question were under way
		return true
	})
}

// ForceUnlock ends the leases of every kind in another client at once, with a LeaseTime, too: long
// before a renewal or the deadline would.
func TestForceUnlock_ReachesOtherClientsAtOnce(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*Client, string) *Lock{"once": func(c *Client, name string) *Lock { return c.Once(name).asLock() }}
	for name, kind := range allKinds {
		kinds[name] = kind.lock
	}
	for name, lock := range kinds {
		for _, fixed := range []time.Duration{0, time.Hour} {
			t.Run(name+" "+fixed.String(), func(t *testing.T) {
				t.Parallel()
				fx := newRedisWithInboxes(t)
				c := fx.newLocks(t, watchdogTimeout(time.Hour))
				leases := []*Lease{mustAcquire(t, bg, lock(c, "a"), AcquireOptions{LeaseTime: fixed})}
				if name == "read" {
					leases = append(leases, mustAcquire(t, bg, lock(c, "a"), AcquireOptions{LeaseTime: fixed}))
				}
				other := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{})
				eventuallyListening(t, fx.rdb, c)
				began := time.Now()
				mustForce(t, lock(fx.newLocks(t), "a"))
				for _, lease := range leases {
					mustReceive(t, "the lease to end", lease.Context().Done())
					wantErr(t, "the cause", context.Cause(lease.Context()), ErrLockLost)
				}
				t.Logf("after %s", time.Since(began))
				wantHeld(t, other)
				eventually(t, "the count", func() bool { return c.Counters().Forced == uint64(len(leases)) })
				mustRelease(t, other)
				mustForgetAll(t, leases...)
			})
		}
	}
}

// It takes less than 100 ms on an idle machine. The test allows for a busy one by its best of ten.
func TestForceUnlock_ReachesOtherClientsWithin100ms(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	best := time.Hour
	for range 10 {
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
		eventuallyListening(t, fx.rdb, c)
		began := time.Now()
		mustForce(t, other.Lock("a"))
		mustReceive(t, "the lease to end", lease.Done())
		best = min(best, time.Since(began))
		mustForgetAll(t, lease)
	}
	t.Logf("the fastest of ten took %s", best)
	if best > 100*time.Millisecond {
		t.Errorf("the fastest of ten took %s", best)
	}
}

// A writer that also reads loses both sides, and a holder that has entered twice loses both levels.
func TestForceUnlock_ReachesEveryLevel(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, owner := fx.newLocks(t), WithOwner(bg)
	rw := c.ReadWriteLock("a")
	leases := []*Lease{
		mustAcquire(t, owner, rw.Write(), AcquireOptions{LeaseTime: time.Hour}),
		mustAcquire(t, owner, rw.Read(), AcquireOptions{LeaseTime: time.Hour}),
		mustAcquire(t, owner, rw.Write(), AcquireOptions{}),
	}
	eventuallyListening(t, fx.rdb, c)
	mustForce(t, fx.newLocks(t).ReadWriteLock("a").Write())
	for _, lease := range leases {
		mustReceive(t, "the lease to end", lease.Done())
		wantErr(t, "the lease", lease.Err(), ErrLockLost)
	}
}

// A message alone ends nothing: the holder asks Redis. Neither a forged message, nor one about a
// hold that was lost before this one was granted, does any harm.
func TestInbox_MessagesAreHints(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(time.Hour))
	asked := countCommands(proxy, runsScript(presentScript))
	// The first hold subscribes. When that is confirmed, the client asks about what it holds by then:
	// about this hold only.
	leases := []*Lease{mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})}
	eventuallyListening(t, fx.rdb, c)
	eventually(t, "the question of the first subscription", func() bool { return asked() == 1 })
	eventuallyAnswered(t, c)
	leases = append(leases,
		mustAcquire(t, bg, c.ReadWriteLock("rw").Write(), AcquireOptions{}),
		mustAcquire(t, bg, c.ReadWriteLock("r").Read(), AcquireOptions{}))
	for i, key := range []string{"a", "rw", "r"} {
		if n := fx.rdb.Publish(bg, wire.ClientChannel(c.id), key).Val(); n != 1 {
			t.Fatalf("%d clients heard of %s", n, key)
		}
		eventually(t, "a question about "+key, func() bool { return asked() == 2+i })
	}
	for _, message := range []string{"", "b", strings.Repeat("x", 1<<16), "\x00"} { // not held: nothing to ask
		fx.rdb.Publish(bg, wire.ClientChannel(c.id), message)
	}
	fx.rdb.Publish(bg, wire.ClientChannel(c.id), "a")
	eventually(t, "the last question", func() bool { return asked() == 5 })
	eventuallyAnswered(t, c)
	for _, lease := range leases {
		wantHeld(t, lease)
		mustRelease(t, lease)
	}
	if n := c.Counters(); n.Forced != 0 || n.Lost != 0 {
		t.Errorf("%+v", n)
	}
}

// Redis grants the lock, another client forces it, and the message arrives before the reply. The
// lease ends as soon as Acquire has returned it.
func TestForceUnlock_OfAnotherClientBeforeTheReply(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedisWithInboxes(t)
			c, proxy := fx.newProxiedLocks(t, watchdogTimeout(time.Hour))
			first := mustAcquire(t, bg, c.Lock("b"), AcquireOptions{})
			eventuallyListening(t, fx.rdb, c)
			held := proxy.OnMatch(1, runsScript(kind.acquire), redistest.HoldReply)
			result := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			mustReceive(t, "Redis to grant the lock", held.Hit())
			mustForce(t, kind.lock(fx.newLocks(t), "a"))
			eventually(t, "the message", func() bool {
				e := c.names.open("a", false)
				defer e.close()
				hinted := false
				e.eachPendingLocked(func(w *waiter) { hinted = w.aside != nil && w.aside.hinted })
				return hinted
			})
			held.Release()
			lease := mustReceiveLease(t, "Acquire to return", result)
			mustReceive(t, "the lease to end", lease.Done())
			wantErr(t, "the lease", lease.Err(), ErrLockLost)
			mustRelease(t, first)
		})
	}
}

// A holder that releases while Redis is asked is not told that it lost the lock.
func TestInbox_ReleaseMeanwhile(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(time.Hour))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	eventuallyListening(t, fx.rdb, c)
	eventually(t, "the first question to be answered", func() bool { return proxy.Count("EVALSHA") >= 2 && len(c.inbox.locks.(*names).heldOf("a", false)) == 1 })

	question := proxy.OnMatch(1, runsScript(presentScript), redistest.HoldRequest)
	fx.rdb.Publish(bg, wire.ClientChannel(c.id), "a")
	mustReceive(t, "the question", question.Hit())
	release := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldReply)
	released := releaseAsync(lease)
	mustReceive(t, "the release", release.Hit())
	question.Release()
	eventuallyAnswered(t, c)
	release.Release()
	if err := mustReceive(t, "Release", released); err != nil {
		t.Errorf("Release: %v", err)
	}
	if n := c.Counters().Lost; n != 0 {
		t.Errorf("%d locks lost", n)
	}
}

// Messages may be missed while the connection is down. Afterwards all holds are verified, whether
// the watchdog renews them or not, and even if there are many.
func TestInbox_VerifiesAllAfterAReconnect(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, fewKeys + 1} {
		fx := newRedisWithInboxes(t)
		c, proxy := fx.newProxiedLocks(t, watchdogTimeout(time.Hour))
		verified := countCommands(proxy, runsScript(presentScript))
		leases := []*Lease{mustAcquire(t, bg, c.Lock("watcheda"), AcquireOptions{})}
		eventuallyListening(t, fx.rdb, c)
		eventually(t, "the first hold to be verified", func() bool { return verified() == 1 })
		for i := 1; i < n; i++ {
			leases = append(leases, mustAcquire(t, bg, c.Lock("watched"+string(rune('a'+i))), AcquireOptions{}))
		}
		fixed := mustAcquire(t, bg, c.Lock("fixed"), AcquireOptions{LeaseTime: time.Hour})
		subscriptions := proxy.Count("SUBSCRIBE")
		for _, key := range []string{"watcheda", "fixed"} { // nothing is published
			if err := fx.rdb.Del(bg, key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []*Lease{leases[0], fixed} {
			mustReceive(t, "the lease to end", lease.Done())
		}
		if proxy.Count("SUBSCRIBE") == subscriptions {
			t.Error("lost before the reconnect")
		}
		for _, lease := range leases[1:] {
			wantHeld(t, lease)
			mustRelease(t, lease)
		}
	}
}

// A connection that comes and goes has all holds verified once at a time, and once more after the
// last confirmation.
func TestInbox_VerifiesAllOnceAtATime(t *testing.T) {
	t.Parallel()
	c := newUncheckedLocks(t, newRedis(t).rdb)
	l := &slowLocks{locks: c.names, began: make(chan struct{}, 20), goOn: make(chan struct{})}
	b := newInbox(c.engine, l)
	b.Notify()
	mustReceive(t, "the first verification", l.began)
	for range 10 {
		b.Notify()
	}
	l.goOn <- struct{}{}
	mustReceive(t, "another one after the confirmations", l.began)
	l.goOn <- struct{}{}
	eventually(t, "the end of it", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.asking) == 0
	})
	close(l.goOn)
	mustClose(t, c)
	if n := l.runs.Load(); n != 2 {
		t.Errorf("%d verifications, want 2", n)
	}
}

// slowLocks verify all holds when the test says so.
type slowLocks struct {
	locks
	runs  atomic.Int64
	began chan struct{}
	goOn  chan struct{}
}

func (l *slowLocks) verifyAll() {
	l.runs.Add(1)
	l.began <- struct{}{}
	<-l.goOn
}

// A client listens while it has locks and for pauses.listening after that, and not before.
func TestInbox_ListensWhileItHolds(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c := fx.newLocks(t)
	c.pauses.listening = 10 * time.Millisecond
	channels := func() []string { return fx.rdb.PubSubChannels(bg, "*").Val() }
	if got := channels(); len(got) != 0 {
		t.Fatalf("before the first hold: %q", got)
	}
	for range 2 {
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		eventuallyListening(t, fx.rdb, c)
		if n := c.Stats().Channels; n != 0 {
			t.Errorf("Stats counts %d channels", n)
		}
		mustRelease(t, lease)
		eventually(t, "the channel to go", func() bool { return len(channels()) == 0 })
	}
}

// The channel of a client with many callers that come and go is there whenever one of them holds.
func TestInbox_ComesAndGoes(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, other := fx.newLocks(t), fx.newLocks(t)
	c.pauses.listening = time.Microsecond
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			name := string(rune('a' + i))
			for range 20 {
				lease := mustAcquire(t, bg, c.Lock(name), AcquireOptions{LeaseTime: time.Hour})
				if _, err := other.Lock(name).ForceUnlock(bg); err != nil {
					t.Error(err)
				}
				mustReceive(t, "the lease to end", lease.Done())
			}
		})
	}
	callers.Wait()
}

// A client that returns to its channel before the hub has left it gets no confirmation. It may have
// missed messages all the same. Another listener keeps the hub from leaving.
func TestInbox_ReturnsBeforeTheHubHasLeft(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c := withoutInbox(fx.newLocks(t))
	before := &silent{confirmed: make(chan struct{}, 1)}
	channel, _ := c.hub.SubscribeOwn(c.inbox.name, before)
	mustReceive(t, "the subscription", before.confirmed)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	mustForce(t, fx.newLocks(t).Lock("a"))
	c.inbox.open.Store(false)
	c.inbox.needed()
	mustReceive(t, "the lease to end", lease.Done())
	c.hub.Unsubscribe(channel, before)
	wantErr(t, "the lease", lease.Err(), ErrLockLost)
}

// silent ignores messages.
type silent struct{ confirmed chan struct{} }

func (s *silent) Notify()     { s.confirmed <- struct{}{} }
func (s *silent) Read(string) {}

// In a cluster, the channel is a plain one, whatever the locks use.
func TestInbox_Cluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, mode := range []PublishMode{PublishAuto, PublishPlain, PublishSharded, PublishBoth} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			c := newUncheckedLocks(t, cluster.Client(t), watchdogTimeout(time.Hour), func(o *Options) { o.PublishMode = mode })
			other := newUncheckedLocks(t, cluster.Client(t), func(o *Options) { o.PublishMode = mode })
			for _, name := range []string{"a", "b", "c", "d"} { // in several slots
				for kindName, kind := range allKinds {
					name := fmt.Sprint(name, kindName, mode)
					lease := mustAcquire(t, bg, kind.lock(c, name), AcquireOptions{LeaseTime: time.Hour})
					eventually(t, "the client to listen", func() bool {
						c.inbox.mu.Lock()
						defer c.inbox.mu.Unlock()
						return c.inbox.channel != nil && c.hub.Confirmed(c.inbox.channel)
					})
					mustForce(t, kind.lock(other, name))
					mustReceive(t, "the lease to end", lease.Done())
				}
			}
			eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
			mustClose(t, c)
			mustClose(t, other)
		})
	}
}

// Without permission for the channel, locks and waiters work, nothing is denied, and one line says
// what to change. A force by a user who may not publish there succeeds.
func TestInbox_WithoutPermission(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	rules := []any{"ACL", "SETUSER", "old", "on", ">secret", "~*", "+@all", "resetchannels", "&redisson*"}
	if err := fx.rdb.Do(bg, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	connect := func() *redis.Client {
		return fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "old", "secret" })
	}
	var log lockedBuffer
	c := fx.newLocksOn(t, connect(), logTo(&log), pollInterval(never))
	c.pauses.listening = 5 * time.Millisecond
	other := fx.newLocksOn(t, connect())
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	eventually(t, "the warning", func() bool { return strings.Contains(log.String(), "+subscribe &reqlock:client:*") })
	waiter := acquireAsync(bg, c.Lock("b"), AcquireOptions{WaitTime: patience})
	mustRelease(t, mustReceiveLease(t, "b", waiter))
	if denied := fx.rdb.Do(bg, "ACL", "LOG").Val(); len(denied.([]any)) != 0 {
		t.Errorf("denied: %v", denied)
	}
	mustForce(t, other.Lock("a"))
	wantErr(t, "the release of a forced lock", lease.Release(bg), ErrLockLost)

	// The permission is granted, and the next look finds it.
	if err := fx.rdb.Do(bg, append(rules, "&reqlock:client:*")...).Err(); err != nil {
		t.Fatal(err)
	}
	lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	eventuallyListening(t, fx.rdb, c)
	mustForce(t, other.Lock("a"))
	mustReceive(t, "the lease to end", lease.Done())
	if n := strings.Count(log.String(), "may not subscribe"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}
