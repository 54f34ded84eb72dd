package core

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A thousand waiters on as many names send 33 commands a second together, and they are spread:
// though a new subscription wakes them all at once, they do not poll at once.
func TestReliance_Rates(t *testing.T) {
	t.Parallel()
	const waiters, minutes = 1000, 20
	eng := &engine{opts: Options{PollInterval: 5 * time.Second}}
	polls := make([]int, minutes*60+1) // by second
	for range waiters {
		for at := eng.reliedPause(false); at < minutes*time.Minute; at += eng.reliedPause(true) {
			polls[int(at.Seconds())]++
		}
	}
	total := 0
	for second, n := range polls {
		if total += n; n > 70 {
			t.Errorf("%d polls in second %d", n, second)
		}
		if second >= 60 {
			total -= polls[second-60]
		}
		if second >= 60 && total > 60*34 {
			t.Errorf("%d polls in the minute before second %d, want at most 34 a second", total, second)
		}
	}
	later := 0
	for _, n := range polls[60:] {
		later += n
	}
	if rate := float64(later) / float64((minutes-1)*60); rate > 33 {
		t.Errorf("%.1f polls a second after the first minute, want at most 33", rate)
	}
}

// While a waiter hears its channel, it polls once in six PollIntervals.
func TestReliance_PollsRarely(t *testing.T) {
	t.Parallel()
	const poll = 250 * time.Millisecond
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(poll))
	fx.lockAsStranger(t, 0, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	fx.eventuallySubscribed(t, "a")
	polls := func() uint64 { return c.Counters().Polls }
	eventually(t, "the first poll", func() bool { return polls() > 0 })
	before, began := polls(), time.Now()
	eventually(t, "three polls more", func() bool { return polls() >= before+3 })
	// The first of them may have been about to begin, and a machine that stalls for seconds may cost
	// the connection.
	if took := time.Since(began); took < reliance*poll {
		t.Errorf("three polls in %s, want at least %s between two", took, reliance*poll)
	}
	fx.deleteKeys(t, "a")
	fx.publishRelease(t, "a")
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// farAhead waits until the first waiter for a name sleeps and will not poll for some time, and
// returns when it will. A false alarm makes it try again, and then sleep for another time.
func farAhead(t *testing.T, fx *redisFixture, c *Client, name string, ahead time.Duration) (pollAt clock.Moment) {
	t.Helper()
	fx.eventuallySubscribed(t, name)
	eventually(t, "the waiter to rely on its subscription", func() bool {
		e := c.names.open(name, false)
		if e.firstSleepsLocked() && e.channel != nil && c.hub.Hears(e.channel) {
			pollAt = e.queue.Waiters()[0].PollAt
		}
		e.close()
		if pollAt.Since(clock.Now()) > ahead {
			return true
		}
		fx.publishRelease(t, name)
		time.Sleep(20 * time.Millisecond) // until it sleeps again
		return false
	})
	return pollAt
}

// A waiter that cannot subscribe again polls as often as PollInterval says, though it fell asleep
// when its subscription was good.
func TestReliance_EndsWithTheSubscription(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(2*time.Second))
	fx.lockAsStranger(t, 0, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	pollAt := farAhead(t, fx, c, "a", 8*time.Second)
	refused := proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "SUBSCRIBE") }, redistest.CutBefore)
	if n, err := fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub").Result(); n == 0 || err != nil {
		t.Fatalf("%d subscriptions ended (%v)", n, err)
	}
	fx.deleteKeys(t, "a") // without a message
	lease := mustReceiveLease(t, "the waiter's lease", waiter)
	if late := clock.Now().Since(pollAt); late >= 0 {
		t.Errorf("the waiter slept on for as long as if it heard its channel, and %s longer", late)
	}
	refused.Remove()
	mustRelease(t, lease)
}

// A connection that is open but silent is pinged, and replaced. Its waiters then try at once.
func TestReliance_SilentConnection(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(2*time.Second))
	fx.lockAsStranger(t, 0, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	pollAt := farAhead(t, fx, c, "a", 9*time.Second)
	silent := proxy.OnMatch(1, pingsOfHub, redistest.DropReply)
	mustReceive(t, "a ping of the subscription", silent.Hit())
	fx.deleteKeys(t, "a")
	fx.publishRelease(t, "a") // on the old connection, where nothing passes any more
	lease := mustReceiveLease(t, "the waiter's lease", waiter)
	if late := clock.Now().Since(pollAt); late >= 0 {
		t.Errorf("the waiter relied on a silent connection, and %s longer", late)
	}
	mustRelease(t, lease)
}

const crowd = 1000

// A thousand waiters are light. The test counts the bytes that they add to the heap: go-redis keeps
// some for their channels, and the runtime for a select and for what starts a goroutine. It does not
// count goroutines, their stacks and connections: a crowd that does not wait has run before, and one
// waiter has opened the connection for pub/sub. S4 in bench counts in the same way.
func TestWaiters_AreLight(t *testing.T) { // not parallel: it measures the heap
	for _, tc := range []struct {
		names int
		most  int // bytes a waiter
	}{
		{1, 560},
		{crowd, 1024},
	} {
		t.Run(fmt.Sprint(tc.names, " names"), func(t *testing.T) {
			fx := newRedis(t)
			names := numbered("a:", tc.names)
			fx.lockAsStranger(t, 0, append(names, "first")...)
			least := math.MaxInt // the runtime grows lists of its own now and then
			for range 5 {
				least = min(least, weigh(t, fx, names))
			}
			t.Logf("%d bytes a waiter", least)
			if least > tc.most {
				t.Errorf("%d bytes a waiter, want at most %d", least, tc.most)
			}
			fx.deleteKeys(t, append(names, "first")...)
		})
	}
}

// weigh returns the bytes of the heap that each waiter of a crowd adds, in a new client.
func weigh(t *testing.T, fx *redisFixture, names []string) (bytes int) {
	t.Helper()
	rdb := fx.srv.ClientWith(t, func(o *redis.Options) { o.PoolSize = 4 })
	c := fx.newLocksOn(t, rdb, pollInterval(never))
	ctx, leave := context.WithCancel(bg)
	first := startWaiter(t, ctx, c, "first", forever)
	eventuallyAsleep(t, c, "first")
	var gate, gone sync.WaitGroup
	gate.Add(crowd)
	inParallel(crowd, func(i int) {
		gate.Done()
		gate.Wait()
		acquireAndRelease(t, c, fmt.Sprint("crowd:", i))
	})

	gone.Add(crowd)
	wait := func(name string) {
		if _, err := c.Lock(name).Acquire(ctx, forever); err == nil {
			t.Error("a lock that is held was granted")
		}
		gone.Done()
	}
	heap := func() int { // without the buffers of connections
		o := rdb.Options()
		stats := rdb.PoolStats()
		return heapBytes() - int(stats.TotalConns+stats.PubSubStats.Active)*(o.ReadBufferSize+o.WriteBufferSize)
	}
	before := heap()
	for i := range crowd {
		go wait(names[i%len(names)])
	}
	awaitAsleep(t, c, names, crowd+1)
	bytes = (heap() - before) / crowd
	leave()
	gone.Wait()
	mustReceive(t, "the first waiter to leave", first)
	return bytes
}

// numbered returns n names.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// heapBytes returns the bytes in use on the heap. Stacks do not count, nor does garbage, nor what is
// in a sync.Pool.
func heapBytes() int {
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return int(mem.HeapAlloc)
}

// awaitAsleep waits until a client has so many waiters, a crowd of them for some names, and all of
// these sleep. The first for each name hears its channel.
func awaitAsleep(t *testing.T, c *Client, names []string, waiters int) {
	t.Helper()
	eventually(t, "a crowd of waiters", func() bool { return c.Stats().Waiting == waiters })
	for _, name := range names {
		eventually(t, "the first waiter to hear its channel and sleep", func() bool {
			e := c.names.open(name, false)
			defer e.close()
			return e.firstSleepsLocked() && c.hub.Confirmed(e.channel)
		})
	}
	eventually(t, "all others to sleep", func() bool { return sleepers(c, names) == crowd })
}

// sleepers counts the waiters that have a signal to be woken with.
func sleepers(c *Client, names []string) (n int) {
	for _, name := range names {
		e := c.names.open(name, false)
		for _, w := range e.queue.Waiters() {
			if w.Item.signal != nil && w.State() != claim.Asking {
				n++
			}
		}
		e.close()
	}
	return n
}

// A thousand waiters on as many names poll a sixth as often as PollInterval says, as Redis counts the
// commands.
func TestWaiters_AreQuiet(t *testing.T) {
	t.Parallel()
	const poll = time.Second
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(poll))
	names := numbered("a:", crowd)
	fx.lockAsStranger(t, 0, names...)
	ctx, leave := context.WithCancel(bg)
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() { _, _ = c.Lock(name).Acquire(ctx, forever) })
	}
	eventually(t, "a crowd of waiters", func() bool { return c.Stats().Waiting == crowd })
	for _, name := range names {
		fx.eventuallySubscribed(t, name)
	}
	before, began := scriptsOf(t, fx), time.Now()
	time.Sleep(reliance * poll)
	n, rounds := scriptsOf(t, fx)-before, time.Since(began).Seconds()/(reliance*poll).Seconds()
	// The first attempts after the subscription may still be under way, one each.
	if n > int((rounds+1)*crowd*1.2) {
		t.Errorf("%d commands in %.1f rounds, want about one in a round for each of %d waiters", n, rounds, crowd)
	}
	leave()
	wg.Wait()
	fx.deleteKeys(t, names...)
}

// scriptsOf returns how many scripts the server has run.
func scriptsOf(t *testing.T, fx *redisFixture) (n int) {
	t.Helper()
	info, err := fx.rdb.Info(bg, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			if n, err = strconv.Atoi(calls); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}
