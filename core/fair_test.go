package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// queueWaiters has waiters queue for the fair lock "a", one after the other.
func (fx *redisFixture) queueWaiters(t testing.TB, clients ...*Client) (results []<-chan acquireResult) {
	t.Helper()
	return fx.queueWaitersWith(t, bg, clients...)
}

// queueWaitersWith is queueWaiters with a context.
func (fx *redisFixture) queueWaitersWith(t testing.TB, ctx context.Context, clients ...*Client) (results []<-chan acquireResult) {
	t.Helper()
	before := int(fx.rdb.LLen(bg, wire.FairQueue("a")).Val())
	for i, c := range clients {
		results = append(results, acquireAsync(ctx, c.FairLock("a"), forever))
		fx.eventuallyQueueLength(t, before+i+1)
	}
	return results
}

// eventuallyQueueLength waits until n waiters are in the queue of the fair lock "a".
func (fx *redisFixture) eventuallyQueueLength(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " places in the queue"), func() bool {
		return fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == int64(n) && fx.rdb.ZCard(bg, wire.FairDeadlines("a")).Val() == int64(n)
	})
}

// A fair lock is granted in the order of arrival, across processes. Redisson:
// testConcurrency_MultiInstance_Ordering.
func TestFair_Order(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t), fx.newLocks(t), fx.newLocks(t)}
	fx.wantOrder(t, clients, 12, AcquireOptions{WaitTime: patience}, func(lease *Lease) error { return lease.Release(bg) })
}

// Holders that never release are followed in order as well, each when the lease before it expires.
// Redisson: testLeaseTimeout.
func TestFair_OrderOfExpiringLeases(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t, pollInterval(never)), fx.newLocks(t, pollInterval(never))}
	opts := AcquireOptions{WaitTime: 2 * patience, LeaseTime: 3 * time.Second}
	fx.wantOrder(t, clients, 5, opts, func(lease *Lease) error {
		<-lease.Done()
		return nil
	})
}

// wantOrder queues up n waiters for the fair lock "a", in turn on each client, and checks that they
// get it in that order. Each calls end with its lease.
func (fx *redisFixture) wantOrder(t *testing.T, clients []*Client, n int, opts AcquireOptions, end func(*Lease) error) {
	t.Helper()
	first := mustAcquire(t, bg, clients[0].FairLock("a"), AcquireOptions{LeaseTime: time.Hour})
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lease, err := clients[i%len(clients)].FairLock("a").Acquire(bg, opts)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := end(lease); err != nil {
				t.Error(err)
			}
		})
		fx.eventuallyQueueLength(t, i+1)
	}
	mustRelease(t, first)
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("granted in the order %v", order)
	}
}

// Each of 500 waiters gets its turn. Redisson: testMultipleLocks.
func TestFair_LongQueue(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	first := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	const n = 500
	done := make(chan struct{})
	go func() {
		defer close(done)
		checkExclusion(t, n, 1, AcquireOptions{WaitTime: 5 * patience}, func(int) Locker { return c.FairLock("a") })
	}()
	fx.eventuallyQueueLength(t, n)
	mustRelease(t, first)
	<-done
}

// A waiter leaves the queue when its WaitTime or its context ends, and holds up no one. Redisson:
// testTryLockNonDelayed.
func TestFair_WaiterLeaves(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{})
	_, err := c.FairLock("a").Acquire(bg, AcquireOptions{WaitTime: 200 * time.Millisecond})
	wantErr(t, "one that waits for a while", err, ErrNotAcquired)
	fx.eventuallyQueueLength(t, 0)
	ctx, cancel := context.WithCancel(bg)
	leaving := fx.queueWaitersWith(t, ctx, c)[0]
	behind := fx.queueWaiters(t, c)[0]
	cancel()
	wantErr(t, "the waiter that leaves", mustReceive(t, "the waiter to leave", leaving).err, context.Canceled)
	fx.eventuallyQueueLength(t, 1)
	wantErr(t, "one that does not wait", tryAcquire(c.FairLock("a")), ErrNotAcquired)
	fx.eventuallyQueueLength(t, 1)
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the waiter behind", behind))
}

// A place in the queue outlives the lease that its waiter asked for. It lasts for the lease of the holder
// and FairWaitTimeout for each place before it, so it is given up even after an outage that was longer than
// FairWaitTimeout.
func TestFair_WaiterLeavesDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fairWaitTimeout time.Duration
		// failures is how many clean-ups fail in the outage. Six take longer than a second.
		failures int
	}{
		"an outage":                   {5 * time.Minute, 3},
		"longer than FairWaitTimeout": {time.Second, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(100*time.Millisecond), func(o *Options) { o.FairWaitTimeout = test.fairWaitTimeout })
			lease := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{})
			ctx, cancel := context.WithCancel(bg)
			leaving := acquireAsync(ctx, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Millisecond})
			eventually(t, "the waiter to hear of its place in the queue", func() bool {
				e := c.names.open("a", false)
				defer e.close()
				return e.queue.Len() == 1 && e.queue.Waiters()[0].Item.fairPlace().expires != clock.Instant{}
			})
			proxy.Cut()
			cancel()
			wantErr(t, "the one who leaves", mustReceive(t, "it to leave", leaving).err, context.Canceled)
			eventually(t, "failed clean-ups", func() bool {
				c.cleaner.mu.Lock()
				defer c.cleaner.mu.Unlock()
				for u := range c.cleaner.pending {
					return u.claim.Failures() >= test.failures
				}
				return true // it was given up
			})
			proxy.Restore()
			eventually(t, "its place to be gone", func() bool { return fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == 0 })
			mustRelease(t, lease)
		})
	}
}

// A waiter that fails because Redis does not answer is taken out of the queue later. Redisson:
// testAcquireFailedNotCalledOnRedisTimeout.
func TestFair_WaiterFailsDuringAPause(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(50*time.Millisecond), commandTimeout(3*time.Second))
	lease := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.FairLock("a"), long)
	fx.eventuallyQueueLength(t, 1)
	fx.srv.PauseClients(t, 8*time.Second)
	if got := mustReceive(t, "the waiter to be told", waiter); got.err == nil || errors.Is(got.err, ErrNotAcquired) {
		t.Errorf("the waiter: %v", got.err)
	}
	fx.eventuallyQueueLength(t, 0)
	mustRelease(t, lease)
	mustRelease(t, mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{WaitTime: patience}))
}

// A dead head of the queue is passed over once its deadline passes, and the waiters behind it
// hardly ask before.
func TestFair_HeadPastItsDeadline(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	dead := time.Now().Add(4 * time.Second).UnixMilli()
	if err := errors.Join(
		fx.rdb.RPush(bg, wire.FairQueue("a"), "dead:1").Err(),
		fx.rdb.Do(bg, "ZADD", wire.FairDeadlines("a"), dead, "dead:1").Err(),
	); err != nil {
		t.Fatal(err)
	}
	commands := countCommands(proxy, runsScript(fairAcquireScript))
	wantErr(t, "one that does not wait", tryAcquire(c.FairLock("a")), ErrNotAcquired)
	lease := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
	if now := time.Now().UnixMilli(); now < dead {
		t.Errorf("passed over %d ms too early", dead-now)
	}
	if n := commands(); n > 8 {
		t.Errorf("%d questions while the dead one had its time", n)
	}
	mustRelease(t, lease)
}

// When the process of the first waiters dies, the next one gets the lock long before
// FairWaitTimeout, whether the holder releases it or dies too.
func TestFair_DeadHeadsArePassedOver(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"released": 0, "expired": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			proxy := fx.srv.Proxy(t)
			dying := newUncheckedLocks(t, proxy.Client(t), commandTimeout(3*time.Second))
			living := fx.newLocks(t)
			holder := mustAcquire(t, bg, dying.FairLock("a"), AcquireOptions{LeaseTime: lease})
			results := fx.queueWaiters(t, dying, dying, living)
			proxy.Cut() // from now on Redis does not hear of it
			if lease == 0 {
				if err := fx.rdb.HDel(bg, "a", holdOf(holder).wire).Err(); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			got := <-results[2]
			if got.err != nil {
				t.Fatal(got.err)
			}
			t.Logf("granted %v later", time.Since(began).Round(time.Millisecond))
			if took := time.Since(began); took > lease+15*time.Second+patience {
				t.Errorf("it waited for %v behind the dead", took)
			}
			mustRelease(t, got.lease)
			ctx, cancel := context.WithCancel(bg)
			cancel()
			_ = dying.Close(ctx)
		})
	}
}

// A waiter whose connections break when it is its turn, and come back, keeps its place.
func TestFair_ReconnectingHeadIsNotPassedOver(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	other := fx.newLocks(t)
	holder := mustAcquire(t, bg, other.FairLock("a"), AcquireOptions{})
	results := fx.queueWaiters(t, c, other)
	proxy.Cut()
	eventually(t, "Redis to notice", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 1 })
	mustRelease(t, holder)
	absentees := wire.FairDeadlines("a") + ":absent"
	noted := func() int { // waiters without a listener; the rest is for the scripts
		fields := fx.rdb.HKeys(bg, absentees).Val()
		return len(slices.DeleteFunc(fields, func(f string) bool { return f == "next" || f == "due" }))
	}
	eventually(t, "others to see that nobody listens", func() bool { return noted() == 1 })
	time.Sleep(defaultPauses.absent / 3) // it is away for a moment
	proxy.Restore()
	next := mustReceiveLease(t, "the first waiter", results[0])
	if noted() != 0 {
		t.Error("it is still taken for absent")
	}
	mustRelease(t, next)
	mustRelease(t, mustReceiveLease(t, "the second waiter", results[1]))
}

// A waiter that is told that its turn has come, and leaves the lock alone although its connections
// stand, is passed over with all other waiters of its process. They queue up again.
func TestFair_FrozenHeadIsPassedOver(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(2*time.Minute))
	other := fx.newLocks(t)
	holder := mustAcquire(t, bg, other.FairLock("a"), AcquireOptions{})
	results := fx.queueWaiters(t, c, c, c, other)
	eventually(t, "all to listen", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 4 })
	proxy.Stall()
	mustRelease(t, holder)
	began := time.Now()
	got := <-results[3]
	if got.err != nil {
		t.Fatal(got.err)
	}
	// The first is passed over after a poll and a grace, the others after one more grace.
	took := time.Since(began)
	t.Logf("granted %v later", took.Round(time.Millisecond))
	if took > fairPoll+2*defaultPauses.absent+2*absentPause+patience {
		t.Errorf("the last has waited for %v", took)
	}
	select {
	case r := <-results[0]:
		t.Fatalf("the first has the lock too: %v, %v", r.lease, r.err)
	default:
	}
	proxy.Restore()
	fx.eventuallyQueueLength(t, 3)
	mustRelease(t, got.lease)
	back := merge(results[:3]...)
	for range 3 {
		mustRelease(t, mustGetIn(t, 2*patience, "a waiter that goes on", back))
	}
}

// However many dead waiters are before it, and between it and other live ones, a waiter gets a free
// lock within 15 seconds.
func TestFair_ThousandsOfDeadHeads(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	one, two := fx.newLocks(t), fx.newLocks(t)
	holder := mustAcquire(t, bg, one.FairLock("a"), AcquireOptions{})
	bury := func(from, n int) {
		pipe := fx.rdb.Pipeline()
		for i := range n {
			// Threads of a JVM, and waiters of a dead process of ours.
			owner := fmt.Sprintf("8f8e7c1a-0000-4000-8000-00000000000%d:%d", i%3, from+i)
			if i%2 == 0 {
				owner = fmt.Sprintf("dead-%d.1.abcdefgh:%d", i%3, from+i)
			}
			pipe.RPush(bg, wire.FairQueue("a"), owner)
			pipe.Do(bg, "ZADD", wire.FairDeadlines("a"), time.Now().Add(time.Duration(from+i)*5*time.Minute).UnixMilli(), owner)
		}
		if _, err := pipe.Exec(bg); err != nil {
			t.Fatal(err)
		}
	}
	bury(1, 2500)
	first := fx.queueWaiters(t, one)[0]
	bury(2501, 2500)
	second := fx.queueWaiters(t, two)[0]
	mustRelease(t, holder)
	began := time.Now()
	lease := mustGetIn(t, 15*time.Second+patience, "the first that lives", first)
	t.Logf("the first was granted the lock %v later", time.Since(began).Round(time.Millisecond))
	mustRelease(t, lease)
	lease = mustGetIn(t, 15*time.Second+patience, "the second that lives", second)
	t.Logf("the second was granted the lock %v later", time.Since(began).Round(time.Millisecond))
	mustRelease(t, lease)
}

func mustGetIn(t *testing.T, d time.Duration, what string, result <-chan acquireResult) *Lease {
	t.Helper()
	select {
	case got := <-result:
		if got.err != nil {
			t.Fatalf("%s: %v", what, got.err)
		}
		return got.lease
	case <-time.After(d):
		t.Fatalf("%s does not get the lock in %v", what, d)
	}
	return nil
}

// Waiters that leave together give up their places in few scripts.
func TestFair_ManyLeaveTogether(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"context", "WaitTime"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			holder := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{LeaseTime: time.Hour})
			released := countCommands(proxy, runsScript(fairReleaseScript))
			ctx, leave := context.WithCancel(bg)
			defer leave()
			const n = 500
			opts := AcquireOptions{WaitTime: WaitForever}
			if how == "WaitTime" {
				opts.WaitTime = 10 * time.Second
			}
			results := make([]<-chan acquireResult, n)
			for i := range results {
				results[i] = acquireAsync(ctx, c.FairLock("a"), opts)
			}
			fx.eventuallyQueueLength(t, n)
			if how == "context" {
				leave()
			}
			for _, r := range results {
				if got := mustReceive(t, "a waiter to leave", r); got.err == nil {
					t.Error("a waiter gets a held lock")
				}
			}
			fx.eventuallyQueueLength(t, 0)
			if got := released(); got > n/4 {
				t.Errorf("%d scripts for %d waiters that leave together", got, n)
			} else {
				t.Logf("%d scripts", got)
			}
			mustRelease(t, holder)
		})
	}
}

// FairWaitTimeout bounds the wait for a silent head.
func TestFair_WaitTimeout(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, func(o *Options) { o.FairWaitTimeout = time.Second })
	other := fx.newLocks(t, func(o *Options) { o.FairWaitTimeout = time.Second })
	holder := mustAcquire(t, bg, other.FairLock("a"), AcquireOptions{LeaseTime: 5 * time.Second})
	results := fx.queueWaiters(t, c, other)
	proxy.Stall()
	mustReceive(t, "the lease to expire", holder.Done())
	r := mustReceiveLease(t, "the second waiter", results[1])
	proxy.Restore()
	mustRelease(t, r)
	mustRelease(t, mustReceiveLease(t, "the first, which queued up again", results[0]))
}

// Where subscribers cannot be counted, only the free lock tells that a waiter is dead: it leaves it
// alone.
func TestFair_WhereListenersAreCounted(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Second, WriteTimeout: time.Second})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Second, WriteTimeout: time.Second})
	for _, test := range []struct {
		rdb  redis.UniversalClient
		mode PublishMode
		want bool
	}{
		{single, PublishAuto, true},
		{single, PublishPlain, true},
		{single, PublishSharded, true},
		{single, PublishBoth, true},
		{cluster, PublishSharded, true},
		{cluster, PublishPlain, false},
		{cluster, PublishBoth, false},
	} {
		t.Cleanup(func() { _ = test.rdb.Close() })
		t.Run(fmt.Sprintf("%T %v", test.rdb, test.mode), func(t *testing.T) {
			c := newUncheckedLocks(t, test.rdb, func(o *Options) { o.PublishMode = test.mode })
			defer c.Close(bg)
			if got := c.settings().CountsListeners; got != test.want {
				t.Errorf("counted: %v, want %v", got, test.want)
			}
		})
	}
}

// An attempt that arrives too late does not get a place, which no one would take.
func TestFair_StrayDoesNotQueue(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	late := time.Now().Add(-time.Second).UnixMilli()
	x := c.ops.Op(kinds.Fair.Acquire(c.settings(), kinds.Try{Key: "a", Wire: "stray:1", Lease: time.Minute, NotAfter: late}), patience)
	answer, err := x.Run(redisop.Until{})
	if err != nil {
		t.Fatal(err)
	}
	if told, err := readGrant(x, answer, err); told.Granted || told.Place != 0 || err != nil {
		t.Errorf("%+v, %v", told, err)
	}
	if n := fx.rdb.Exists(bg, wire.FairQueue("a"), wire.FairDeadlines("a")).Val(); n != 0 {
		t.Errorf("%d keys of a queue", n)
	}
	mustRelease(t, lease)
}

// A lost reply neither costs a waiter its place nor leaves a second one behind.
func TestFair_LostReply(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 3; nth++ {
		t.Run(fmt.Sprint("question ", nth), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t)
			lease := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{})
			rule := proxy.OnMatch(nth, runsScript(fairAcquireScript), redistest.DropReply)
			waiter := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
			mustReceive(t, "the reply to be lost", rule.Hit())
			eventually(t, "one place in the queue", func() bool { return fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == 1 })
			mustRelease(t, lease)
			mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
		})
	}
}

// However long PollInterval is, a waiter asks early enough not to be taken for dead.
func TestFair_PollsBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(never))
	lease := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{LeaseTime: 10 * time.Hour})
	waiter := acquireAsync(bg, c.FairLock("a"), forever)
	var pause time.Duration
	eventually(t, "the waiter to sleep in the queue", func() bool {
		e := c.names.open("a", false)
		defer e.close()
		if e.queue.Len() == 0 {
			return false
		}
		w := e.queue.Waiters()[0]
		if w.State() != claim.Asleep || !w.Item.fairPlace().leftovers.There {
			return false
		}
		pause = w.PollAt.Since(clock.Now())
		return true
	})
	if pause > fairPoll {
		t.Errorf("it asks again in %v", pause)
	}
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
}

// A waiter keeps its place while the lock is held for long.
func TestFair_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(50*time.Millisecond))
	lease := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: patience})
	queue, deadlines := wire.FairQueue("a"), wire.FairDeadlines("a")
	eventually(t, "the place in the queue", func() bool { return fx.rdb.LLen(bg, queue).Val() == 1 })
	owner := fx.rdb.LIndex(bg, queue, 0).Val()
	soon := float64(time.Now().Add(time.Minute).UnixMilli())
	if err := fx.rdb.Do(bg, "ZADD", deadlines, soon, owner).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its deadline to be put off", func() bool { return fx.rdb.ZScore(bg, deadlines, owner).Val() > soon+60_000 })
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
}

// The longest CommandTimeout does not overflow the time after which an attempt may not queue up.
func TestFair_LongestCommandTimeout(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, commandTimeout(math.MaxInt64))
	holder := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{LeaseTime: math.MaxInt64})
	waiter := acquireAsync(bg, c.FairLock("a"), forever)
	fx.eventuallyQueueLength(t, 1)
	mustRelease(t, holder)
	mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
}

// pollers counts the attempts of each waiter for a fair lock from now on.
type pollers struct {
	mu    sync.Mutex
	polls map[string]int
}

func countPolls(proxy *redistest.Proxy) *pollers {
	p := &pollers{polls: make(map[string]int)}
	isPoll := runsScript(fairAcquireScript)
	proxy.OnEvery(func(args []string) bool {
		if isPoll(args) {
			p.mu.Lock()
			p.polls[args[fairOwnerArg]]++
			p.mu.Unlock()
		}
		return false // let it pass
	}, redistest.Delay(1))
	return p
}

// fairOwnerArg is the index of the wire owner in the command that acquires a fair lock.
const fairOwnerArg = 3 + 3 + 7

// of returns how often a waiter has polled, and all together.
func (p *pollers) of(owner string) (its, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.polls {
		all += n
	}
	return p.polls[owner], all
}

// fairCrowd returns a client with n waiters for the fair lock "a", all of which hear their channels.
// The first polls four times a second. first and last are their wire owners.
func (fx *redisFixture) fairCrowd(t *testing.T, n int) (results <-chan acquireResult, proxy *redistest.Proxy, first, last string) {
	t.Helper()
	// They poll four times a second. On a slow machine the first must not be taken for dead meanwhile.
	c, proxy := fx.newProxiedLocks(t, pollInterval(time.Second/4), func(o *Options) { o.FairWaitTimeout = 2 * patience })
	all := []<-chan acquireResult{acquireAsync(bg, c.FairLock("a"), forever)}
	fx.eventuallyQueueLength(t, 1) // the first here is the first there
	for range n - 1 {
		all = append(all, acquireAsync(bg, c.FairLock("a"), forever))
	}
	fx.eventuallyQueueLength(t, n)
	e := c.names.open("a", false)
	waiters := e.queue.Waiters()
	e.close()
	eventually(t, "all to hear their channels", func() bool {
		return !slices.ContainsFunc(waiters, func(w *claim.Waiter[*waiter]) bool { return !c.hub.Confirmed(w.Item.fairPlace().channel) })
	})
	ends := fx.rdb.LRange(bg, wire.FairQueue("a"), 0, 0).Val()
	ends = append(ends, fx.rdb.LRange(bg, wire.FairQueue("a"), -1, -1).Val()...)
	return merge(all...), proxy, ends[0], ends[1]
}

// In a crowd of waiters the first polls, and the others the less often the farther back they are. So
// a turn costs about the same in a crowd of any size.
func TestFair_CrowdPollsRarely(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	holder := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{LeaseTime: time.Hour})
	const n = 300
	results, proxy, first, last := fx.fairCrowd(t, n)
	polls := countPolls(proxy)
	eventually(t, "the first to poll", func() bool { its, _ := polls.of(first); return its >= 12 })
	its, all := polls.of(last)
	t.Logf("%d polls of %d waiters, 12 of them of the first", all, n)
	if all > 12*n/4 || its > 3 {
		t.Errorf("%d polls of %d waiters, %d of the last, while the first has polled 12 times", all, n, its)
	}
	mustRelease(t, holder)
	for range n {
		mustRelease(t, mustReceiveLease(t, "a waiter", results))
	}
}

// Waiters that do not hear their channels all poll, so that none is taken for dead.
func TestFair_PollsWhileItDoesNotHear(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	holder := mustAcquire(t, bg, fx.newLocks(t).FairLock("a"), AcquireOptions{LeaseTime: time.Hour})
	const n = 100
	results, proxy, first, last := fx.fairCrowd(t, n)
	refused := proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "subscribe") }, redistest.CutBefore)
	fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub")
	mustReceive(t, "its connection to be lost", refused.Hit())
	polls := countPolls(proxy)
	eventually(t, "the first to poll", func() bool { its, _ := polls.of(first); return its >= 12 })
	if its, _ := polls.of(last); its < 4 {
		t.Errorf("the last has polled %d times, and the first 12 times", its)
	}
	refused.Remove()
	mustRelease(t, holder)
	for range n {
		mustRelease(t, mustReceiveLease(t, "a waiter", results))
	}
}
