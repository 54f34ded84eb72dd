package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/waitqueue"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redistest"
)

// never is a PollInterval that no test lives to see: who is not woken stays asleep.
const never = time.Hour

// occupy has a stranger hold locks, with a lease, or with 0 for ever. Nobody announces their end.
func (b *bundle) occupy(t testing.TB, lease time.Duration, keys ...string) {
	t.Helper()
	pipe := b.rdb.Pipeline()
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

// announce publishes what a release publishes.
func (b *bundle) announce(t testing.TB, key string) {
	t.Helper()
	if err := b.rdb.Publish(bg, wire.LockChannel(key), wire.Unlocked).Err(); err != nil {
		t.Fatal(err)
	}
}

// queueUp starts a waiter and returns when it is in the queue.
func queueUp(t testing.TB, ctx context.Context, c *Client, name string, opts AcquireOptions) <-chan acquired {
	t.Helper()
	before := c.Stats().Waiting
	result := acquireAsync(ctx, c.Lock(name), opts)
	eventually(t, "another one waits", func() bool { return c.Stats().Waiting > before })
	return result
}

var (
	forever = AcquireOptions{WaitTime: WaitForever}
	long    = AcquireOptions{WaitTime: time.Hour} // fails when Redis does
)

// mustGet waits for a lease.
func mustGet(t testing.TB, what string, result <-chan acquired) *Lease {
	t.Helper()
	got := await(t, what, result)
	if got.err != nil {
		t.Fatalf("%s: %v", what, got.err)
	}
	return got.lease
}

// listened waits until the first waiter for each name is told of releases, has asked since it knows that, was refused, and
// sleeps. Its poll interval must be never, and nothing may have happened to the name before it came.
func listened(t testing.TB, c *Client, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, "the first waiter listens", func() bool {
			e := c.names.lock(name)
			defer e.unlock()
			return e.firstSleepsLocked() && e.queue.Waiters()[0].PollAt.Since(clock.Now()) > 2*subscribePatience
		})
	}
}

// firstSleepsLocked reports whether the first waiter has been woken, by the confirmation of its channel at least, has asked since,
// and sleeps.
func (e *entry) firstSleepsLocked() bool {
	if e.queue.Len() == 0 {
		return false
	}
	w := e.queue.Waiters()[0]
	wakes, pending := w.Wakes()
	return wakes > 0 && !pending && w.State() == waitqueue.Asleep
}

// wakesOf is how often the first waiter for a name was woken.
func wakesOf(c *Client, name string) uint16 {
	e := c.names.lock(name)
	defer e.unlock()
	if e.queue.Len() == 0 {
		return 0
	}
	wakes, _ := e.queue.Waiters()[0].Wakes()
	return wakes
}

// quiet waits until nothing is counted any more.
func quiet(count func() int) int {
	last := count()
	for since := time.Now(); time.Since(since) < 200*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
	}
	return last
}

// Twenty wait, one asks; and the one that has waited longest has the lock first.
func TestQueue_OnlyTheFirstAsks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	asked := counter(proxy, runs(acquireScript))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})

	const n = 20
	waiters := make([]<-chan acquired, n)
	for i := range waiters {
		waiters[i] = queueUp(t, bg, c, "a", forever)
	}
	listened(t, c, "a")
	if got := quiet(asked); got != 2 {
		t.Errorf("%d acquire scripts for %d waiters; want one before the subscription and one after it", got, n)
	}

	mustRelease(t, holder)
	for i, waiter := range waiters {
		lease := mustGet(t, fmt.Sprintf("waiter %d has the lock", i), waiter)
		for j := i + 1; j < n; j++ {
			select {
			case got := <-waiters[j]:
				t.Fatalf("waiter %d came before %d: %+v", j, i, got)
			default:
			}
		}
		mustRelease(t, lease)
	}
	if got := asked(); got > 2+3*n {
		t.Errorf("%d acquire scripts for %d waiters in all", got, n)
	}
}

// Names do not wait for each other.
func TestQueue_OnePerName(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(never))
	b.occupy(t, 0, "a")
	waiter := queueUp(t, bg, c, "a", forever)
	for i := range 100 { // shards are shared by names
		mustRelease(t, mustAcquire(t, c, fmt.Sprint("b:", i), AcquireOptions{}))
	}
	listened(t, c, "a")
	b.free(t, "a")
	b.announce(t, "a")
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// If an owner that holds the lock queued up behind others, it would wait for those who wait for it.
func TestQueue_HoldersPassIt(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	outer := mustAcquire(t, c, "a", AcquireOptions{})
	var waiters []<-chan acquired
	for range 5 {
		waiters = append(waiters, queueUp(t, bg, c, "a", forever))
	}
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{MaxWaiters: 1})
	b.wantCount(t, inner, 2)
	mustRelease(t, outer)
	mustRelease(t, inner)
	for _, w := range waiters {
		mustRelease(t, mustGet(t, "a waiter has it", w))
	}
}

// Of one owner's waiters one is granted; the others enter with it, also past a stranger between them, for whom they would
// otherwise wait while he waits for them.
func TestQueue_OtherCallsOfTheOwnerReenter(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(never))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{})
	mine := WithOwner(bg)
	first := queueUp(t, mine, c, "a", forever)
	stranger := queueUp(t, bg, c, "a", forever)
	second := queueUp(t, mine, c, "a", AcquireOptions{WaitTime: patience})
	third := queueUp(t, mine, c, "a", forever)
	listened(t, c, "a")
	mustRelease(t, holder)

	leases := []*Lease{mustGet(t, "the first", first), mustGet(t, "the second", second), mustGet(t, "the third", third)}
	b.wantCount(t, leases[0], 3)
	select {
	case got := <-stranger:
		t.Fatalf("the stranger got %+v", got)
	default:
	}
	for _, l := range leases {
		mustRelease(t, l)
	}
	mustRelease(t, mustGet(t, "the stranger", stranger))
}

// Who does not want to wait, and sees others wait, need not ask.
// Readers ask together, also those of one owner. They have one hold all the same, whoever's answer comes first.
func TestQueue_TwoReadersOfOneOwner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	l, owner := c.ReadWriteLock("a").Read(), WithOwner(bg)
	var answers []*redistest.Rule
	var readers []<-chan acquired
	for n := 1; n <= 2; n++ {
		answers = append(answers, proxy.OnMatch(n, runs(readAcquireScript), redistest.HoldReply))
	}
	for range 2 {
		readers = append(readers, acquireAsync(owner, l, AcquireOptions{WaitTime: patience}))
	}
	for _, a := range answers {
		await(t, "a question is answered", a.Hit())
	}
	for _, a := range answers {
		a.Release()
	}
	var leases []*Lease
	for _, r := range readers {
		got := await(t, "a reader", r)
		if got.err != nil {
			t.Fatal(got.err)
		}
		leases = append(leases, got.lease)
	}
	if n, err := l.HoldCount(owner); n != 2 || err != nil {
		t.Errorf("the owner has it %d times (%v), want 2", n, err)
	}
	eventually(t, "the other grant is undone", func() bool { return len(b.fields(t, "a")) == 2 }) // the mode and a reader
	for _, lease := range leases {
		mustRelease(t, lease)
	}
}

func TestQueue_NoWaitTimeBehindOthers(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	b.occupy(t, time.Minute, "a")
	leave, cancel := context.WithCancel(bg)
	waiter := queueUp(t, leave, c, "a", forever)
	listened(t, c, "a")
	before := proxy.Count("")
	for range 10 {
		_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
		var held *NotAcquiredError
		if !errors.As(err, &held) {
			t.Fatalf("Acquire: %v, want a NotAcquiredError", err)
		}
		if held.TTL <= time.Minute-patience || held.TTL > time.Minute {
			t.Errorf("TTL %s, while the holder has a little less than a minute", held.TTL)
		}
	}
	if n := proxy.Count("") - before; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	cancel()
	wantErr(t, "the waiter", await(t, "the waiter leaves", waiter).err, context.Canceled)
	b.free(t, "a")
}

// The release came before the subscription: no message will tell of it.
func TestWaiting_AsksAgainWhenSubscribed(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	subscribing := proxy.On("SUBSCRIBE", 1, redistest.HoldRequest)
	waiter := queueUp(t, bg, c, "a", forever)
	await(t, "the waiter subscribes", subscribing.Hit())
	mustRelease(t, holder)
	subscribing.Release()
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// No confirmation ever comes: the first waiter asks by and by.
func TestWaiting_PollsWithoutASubscription(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(200*time.Millisecond))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	deaf := proxy.On("SUBSCRIBE", 1, redistest.DropReply)
	waiter := queueUp(t, bg, c, "a", forever)
	await(t, "the confirmation is lost", deaf.Hit())
	mustRelease(t, holder)
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// Asking often, as one must behind locks that announce nothing, does not mean that answers to pings are due as soon.
func TestWaiting_ShortPollIntervalAndSlowPings(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(10*time.Millisecond))
	proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "PING") }, redistest.Delay(200*time.Millisecond))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	waiter := queueUp(t, bg, c, "a", forever)
	eventually(t, "the connection has been asked twice whether it is there", func() bool { return proxy.Count("PING") >= 2 })
	if n := proxy.Count("SUBSCRIBE"); n != 1 {
		t.Errorf("subscribed %d times", n)
	}
	mustRelease(t, holder)
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// The message was lost; and so is every other that could help.
func TestWaiting_PollsWhenAMessageIsLost(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(400*time.Millisecond))
	asked := counter(proxy, runs(acquireScript))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	waiter := queueUp(t, bg, c, "a", forever)
	b.eventuallyListens(t, "a")
	eventually(t, "the waiter has asked a few times", func() bool { return asked() >= 4 })
	swallowed := proxy.SwallowMessages(1)
	mustRelease(t, holder)
	await(t, "the message is lost", swallowed.Hit())
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// A holder that dies says nothing; its lock is free when its TTL is over.
func TestWaiting_SleepsNoLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	asked := counter(proxy, runs(acquireScript))
	b.occupy(t, 1500*time.Millisecond, "a")
	lease := mustGet(t, "the waiter has it", acquireAsync(bg, c.Lock("a"), forever))
	if n := asked(); n > 10 {
		t.Errorf("%d questions", n)
	}
	mustRelease(t, lease)
}

// The time to live of the holder's key ends the sleep, when it is shorter than the poll; 0 and no end are no reason to spin.
func TestWaiting_Pauses(t *testing.T) {
	t.Parallel()
	c := &engine{opts: Options{PollInterval: 5 * time.Second}}
	for ttl, want := range map[time.Duration][2]time.Duration{
		-2 * time.Millisecond: {shortPause, shortPause},
		-time.Millisecond:     {4 * time.Second, 5 * time.Second},
		0:                     {shortPause, shortPause},
		time.Millisecond:      {2 * time.Millisecond, 2 * time.Millisecond},
		time.Second:           {1001 * time.Millisecond, 1001 * time.Millisecond},
		time.Hour:             {4 * time.Second, 5 * time.Second},
	} {
		for range 100 {
			if got := c.pause(ttl); got < want[0] || got > want[1] {
				t.Errorf("pause(%s) = %s, want %s to %s", ttl, got, want[0], want[1])
			}
		}
	}
}

// TTLs that say nothing must lead neither to a storm nor to sleep without end.
func TestWaiting_OddTTLs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		reply string
		poll  time.Duration
		least int // questions
		most  int // in a second
	}{
		{"0, at its end", "*1\r\n:0\r\n", never, 5, 210},
		{"-2, gone just now", "*1\r\n:-2\r\n", never, 5, 210},
		{"-1, without end", "*1\r\n:-1\r\n", 200 * time.Millisecond, 3, 10},
		{"beyond the poll interval", "*1\r\n:3600000\r\n", 200 * time.Millisecond, 3, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(test.poll))
			asked := counter(proxy, runs(acquireScript))
			odd := proxy.OnEvery(runs(acquireScript), redistest.ReplyWith(test.reply))
			begun := time.Now()
			waiter := queueUp(t, bg, c, "a", forever)
			eventually(t, "a second is over, and it has asked", func() bool {
				return time.Since(begun) > time.Second && asked() >= test.least
			})
			n, seconds := asked(), time.Since(begun).Seconds()
			if float64(n) > float64(test.most)*seconds+2 {
				t.Errorf("%d questions in %.1fs, want %d at most in one", n, seconds, test.most)
			}
			odd.Remove()
			mustRelease(t, mustGet(t, "the waiter has it", waiter))
		})
	}
}

// The lock is released while the answer "held" is on its way: the message comes first, and must not be forgotten.
func TestWaiting_MessageBeforeTheRefusal(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	waiter := queueUp(t, bg, c, "a", forever)
	listened(t, c, "a")

	refusal := proxy.OnMatch(1, runs(acquireScript), redistest.HoldReply)
	b.announce(t, "a") // a false alarm
	await(t, "Redis has refused", refusal.Hit())
	before := wakesOf(c, "a")
	mustRelease(t, holder)
	eventually(t, "the message has arrived", func() bool { return wakesOf(c, "a") > before })
	refusal.Release()
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// The first waiter was told, and leaves: there will be no second message.
func TestWaiting_PromotedAsksAtOnce(t *testing.T) {
	t.Parallel()
	for _, stray := range []struct {
		name string
		what redistest.Action
		runs bool
	}{
		{"before its question has arrived", redistest.HoldRequest, false},
		{"when it has the lock without knowing", redistest.HoldReply, true},
	} {
		t.Run(stray.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(never))
			holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
			leave, cancel := context.WithCancel(bg)
			defer cancel()
			first := queueUp(t, leave, c, "a", forever)
			second := queueUp(t, bg, c, "a", forever)
			listened(t, c, "a")

			question := proxy.OnMatch(1, runs(acquireScript), stray.what)
			mustRelease(t, holder)
			await(t, "the first asks", question.Hit())
			cancel()
			wantErr(t, "the first", await(t, "the first leaves", first).err, context.Canceled)
			if stray.runs {
				question.Release()
			}
			lease := mustGet(t, "the second has it", second)
			question.Release()
			mustRelease(t, lease)
		})
	}
}

// A waiter that leaves the queue before it has asked passes the word on.
func TestWaiting_PromotedAsksAtOnceAfterATimeout(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	asked := counter(proxy, runs(acquireScript))
	b.occupy(t, 0, "a")
	first := queueUp(t, bg, c, "a", AcquireOptions{WaitTime: 4 * time.Second})
	second := queueUp(t, bg, c, "a", forever)
	listened(t, c, "a")
	b.free(t, "a") // nobody is told
	wantErr(t, "the first", await(t, "the first gives up", first).err, ErrNotAcquired)
	mustRelease(t, mustGet(t, "the second has it", second))
	if n := asked(); n > 3 {
		t.Errorf("%d questions", n)
	}
}

// Whatever was published while there was no connection is lost.
func TestWaiting_ResubscriptionWakes(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	holder := mustAcquire(t, b.client(t), "a", AcquireOptions{LeaseTime: time.Hour})
	waiter := queueUp(t, bg, c, "a", forever)
	listened(t, c, "a")
	swallowed := proxy.SwallowMessages(-1)
	mustRelease(t, holder)
	await(t, "the message is lost", swallowed.Hit())
	if n, err := b.rdb.ClientKillByFilter(bg, "TYPE", "pubsub").Result(); n == 0 || err != nil {
		t.Fatalf("CLIENT KILL: %d, %v", n, err)
	}
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
	if proxy.Count("SUBSCRIBE") < 2 {
		t.Error("it was not the subscription that did it")
	}
}

// Nobody needs a message to hear of what happens in its own process.
func TestWaiting_LocalReleaseAndLossWake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts AcquireOptions
		end  func(t *testing.T, b *bundle, c *Client, l *Lease)
	}{
		"release": {
			AcquireOptions{},
			func(t *testing.T, _ *bundle, _ *Client, l *Lease) { mustRelease(t, l) },
		},
		"lease over": {
			AcquireOptions{LeaseTime: 4 * time.Second},
			func(*testing.T, *bundle, *Client, *Lease) {},
		},
		"found gone by a renewal": {
			AcquireOptions{},
			func(t *testing.T, b *bundle, _ *Client, _ *Lease) { b.free(t, "a") },
		},
		"found gone by Extend": {
			AcquireOptions{LeaseTime: time.Hour},
			func(t *testing.T, b *bundle, _ *Client, l *Lease) {
				b.free(t, "a")
				wantErr(t, "Extend", l.Extend(bg, 2*time.Hour), ErrLockLost)
			},
		},
		"ForceUnlock": {
			AcquireOptions{LeaseTime: time.Hour},
			func(t *testing.T, _ *bundle, c *Client, _ *Lease) {
				if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(never), watchdogTimeout(9*time.Second))
			proxy.SwallowMessages(-1)
			holder := mustAcquire(t, c, "a", test.opts)
			waiter := queueUp(t, bg, c, "a", forever)
			eventually(t, "it is subscribed", func() bool { return wakesOf(c, "a") > 0 })
			test.end(t, b, c, holder)
			mustRelease(t, mustGet(t, "the waiter has it", waiter))
		})
	}
}

// Hundreds of waiters, and not one command.
// A writer that goes on as a reader lets readers in, those of its own process without a message.
func TestWaiting_LocalDowngradeWakes(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"release": time.Hour, "lease over": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, pollInterval(never))
			l, owner := c.ReadWriteLock("a"), WithOwner(bg)
			write := mustTake(t, owner, l.Write(), AcquireOptions{LeaseTime: lease})
			read := mustTake(t, owner, l.Read(), AcquireOptions{LeaseTime: time.Hour})
			proxy.SwallowMessages(-1)
			reader := acquireAsync(bg, l.Read(), AcquireOptions{WaitTime: WaitForever})
			eventually(t, "it is subscribed", func() bool { return wakesOf(c, "a") > 0 })
			if lease == time.Hour {
				mustRelease(t, write)
			}
			mustRelease(t, mustGet(t, "the reader has it", reader))
			mustRelease(t, read)
		})
	}
}

// The release of a fair lock wakes the next of its own process without a message, also when it ends a streak: Redis keeps the
// queue, and there is nobody to stand back for.
func TestWaiting_FairReleaseAfterAStreakWakes(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	l, opts := c.FairLock("a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Hour}
	sleeps := func() bool { // it has asked since it listens
		e := c.names.lock("a")
		defer e.unlock()
		return e.queue.Len() == 1 && e.firstSleepsLocked()
	}
	first := mustTake(t, bg, l, opts)
	waiter := acquireAsync(bg, l, opts)
	eventually(t, "it sleeps", sleeps)
	mustRelease(t, first)
	holder := mustGet(t, "it is handed on", waiter)
	<-time.After(25 * time.Millisecond) // a streak lasts for 20
	waiter = acquireAsync(bg, l, opts)
	eventually(t, "the next sleeps", sleeps)
	proxy.SwallowMessages(-1)
	question := proxy.OnMatch(1, runs(fairAcquireScript), redistest.HoldReply)
	c.names.wake("a")
	await(t, "it asks", question.Hit())
	mustRelease(t, holder) // to nobody who sleeps
	question.Release()
	mustRelease(t, mustGet(t, "the next has it", waiter))
}

func TestWaiting_SendsNothingBetweenPolls(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	leave, cancel := context.WithCancel(bg)
	defer cancel()
	var waiters []<-chan acquired
	var names []string
	for i := range 20 {
		name := fmt.Sprint("lock:", i)
		names = append(names, name)
		b.occupy(t, 0, name)
		for range 10 {
			waiters = append(waiters, acquireAsync(leave, c.Lock(name), forever))
		}
	}
	eventually(t, "all wait", func() bool { return c.Stats().Waiting == len(waiters) })
	listened(t, c, names...)
	before, begun := proxy.Count(""), time.Now()
	eventually(t, "a second is over", func() bool { return time.Since(begun) > time.Second })
	if n := proxy.Count("") - before; n != 0 {
		t.Errorf("%d commands within a second: %q", n, proxy.Commands()[before:])
	}
	cancel()
	for _, w := range waiters {
		wantErr(t, "a waiter", await(t, "it leaves", w).err, context.Canceled)
	}
	b.free(t, names...)
}

// The connection is there, and nothing comes through it any more.
func TestWaiting_DeafConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(300*time.Millisecond))
	b.occupy(t, 0, "a")
	waiter := queueUp(t, bg, c, "a", forever)
	deaf := proxy.On("PING", 1, redistest.DropReply)
	await(t, "the first ping is lost", deaf.Hit())
	eventually(t, "it subscribes on another connection", func() bool { return proxy.Count("SUBSCRIBE") >= 2 })
	b.free(t, "a")
	mustRelease(t, mustGet(t, "the waiter has it", waiter))
}

// With Redis gone, a queue of a thousand must not wait a command time-out each.
func TestOutage_FailsAllWhoWereQueued(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]redistest.Action{
		"no answer":        redistest.DropReply,
		"an error as such": redistest.ReplyWith("-ERR trouble\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			const timeout = 4 * time.Second
			c, proxy := b.proxiedWith(t, readTimeout(timeout+time.Second), pollInterval(never), commandTimeout(timeout))
			b.occupy(t, 0, "a")
			var waiters []<-chan acquired
			for range 10 {
				waiters = append(waiters, queueUp(t, bg, c, "a", long))
			}
			listened(t, c, "a")
			rule := proxy.OnMatch(1, runs(acquireScript), trouble)
			begun := time.Now()
			b.announce(t, "a")
			await(t, "the first asks", rule.Hit())
			var texts []string
			for _, w := range waiters {
				got := await(t, "it fails", w)
				if got.err == nil || errors.Is(got.err, ErrNotAcquired) || errors.Is(got.err, ErrNotHeld) || errors.Is(got.err, context.DeadlineExceeded) {
					t.Fatalf("%+v, want the trouble with Redis", got)
				}
				texts = append(texts, got.err.Error())
			}
			if took := time.Since(begun); took > 3*timeout {
				t.Errorf("it took %s, with a command timeout of %s", took, timeout)
			}
			for _, text := range texts {
				if text != texts[0] {
					t.Errorf("%q and %q", text, texts[0])
				}
			}
			b.free(t, "a")
		})
	}
}

// Who came when the question was on its way already asks for itself.
func TestOutage_SparesThoseWhoCameLater(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxiedWith(t, readTimeout(5*time.Second), pollInterval(never), commandTimeout(4*time.Second))
	b.occupy(t, 0, "a", "b")
	elsewhere := queueUp(t, bg, c, "b", long)
	first := queueUp(t, bg, c, "a", long)
	second := queueUp(t, bg, c, "a", long)
	listened(t, c, "a", "b")
	lost := proxy.OnMatch(1, runs(acquireScript), redistest.DropReply)
	b.announce(t, "a")
	await(t, "the first asks", lost.Hit())
	third := queueUp(t, bg, c, "a", long)
	for _, w := range []<-chan acquired{first, second} {
		if got := await(t, "it fails", w); got.err == nil {
			t.Fatal("a waiter got a lock that is held")
		}
	}
	b.free(t, "a", "b")
	b.announce(t, "a")
	b.announce(t, "b")
	mustRelease(t, mustGet(t, "the one who came later has it", third))
	mustRelease(t, mustGet(t, "the one for another name has it", elsewhere))
}

// A thousand waiters, and Redis dies. All know it within one command time-out from the poll that noticed.
func TestOutage_AThousandWaiters(t *testing.T) {
	t.Parallel()
	const n, poll, timeout = 1000, time.Second, 4 * time.Second
	for _, test := range []struct {
		name      string
		end, back func(*redistest.Server, testing.TB)
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, pollInterval(poll), commandTimeout(timeout))
			b.occupy(t, 0, "a")
			errs := make(chan error, n)
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					_, err := c.Lock("a").Acquire(bg, long)
					errs <- err
				})
			}
			eventually(t, "all wait", func() bool { return c.Stats().Waiting == n })
			begun := time.Now()
			test.end(b.srv, t)
			wg.Wait()
			if took := time.Since(begun); took > 5*(poll+timeout) {
				t.Errorf("the last one failed after %s", took)
			} else {
				t.Logf("the last one failed after %s", took)
			}
			close(errs)
			for err := range errs {
				if err == nil || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrNotHeld) || errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v, want the trouble with Redis", err)
				}
			}
			test.back(b.srv, t)
			b.free(t, "a")
		})
	}
}

// pubSubConnections are the connections to Redis that subscribe.
func (b *bundle) pubSubConnections(t testing.TB) int {
	t.Helper()
	list, err := b.rdb.Do(bg, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "id=")
}

func TestPubSub_OneConnectionForAllNames(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, pollInterval(never))
	mustRelease(t, mustAcquire(t, c, "free", AcquireOptions{}))
	if n := b.pubSubConnections(t); n != 0 {
		t.Errorf("%d pub/sub connections, though nobody has waited", n)
	}
	const n = 200
	waiters := make([]<-chan acquired, n)
	var holders []*Lease
	other := b.client(t)
	for i := range waiters {
		name := fmt.Sprint("lock:", i)
		holders = append(holders, mustAcquire(t, other, name, AcquireOptions{}))
		waiters[i] = acquireAsync(bg, c.Lock(name), forever)
	}
	eventually(t, "all listen", func() bool {
		names, err := b.rdb.PubSubChannels(bg, "*").Result()
		return err == nil && len(names) == n
	})
	if got := b.pubSubConnections(t); got != 1 {
		t.Errorf("%d pub/sub connections for %d names", got, n)
	}
	for i, holder := range holders {
		mustRelease(t, holder)
		mustRelease(t, mustGet(t, "the waiter has it", waiters[i]))
	}
}

// A hot lock has waiters again at once: its channel is not dropped and taken up all the time. An idle one is dropped.
func TestPubSub_ChannelsLinger(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(never))
	c.linger = 300 * time.Millisecond // a moment that the machine does not miss
	b.occupy(t, 0, "a")
	var left time.Time
	rounds := 0 // that were over before the machine was busy elsewhere for too long
	for begun := time.Now(); rounds < 10 && time.Since(begun) < patience; {
		leave, cancel := context.WithCancel(bg)
		before := proxy.Count("SUBSCRIBE")
		waiter := queueUp(t, leave, c, "a", forever)
		eventually(t, "it sleeps, and listens", func() bool {
			e := c.names.lock("a")
			defer e.unlock()
			return e.queue.Len() == 1 && e.queue.Waiters()[0].State() == waitqueue.Asleep && c.hub.Confirmed(e.channel)
		})
		if !left.IsZero() && time.Since(left) < c.linger/2 {
			rounds++
			if proxy.Count("SUBSCRIBE") != before {
				t.Errorf("it was subscribed anew %s after the last waiter had left", time.Since(left))
			}
		}
		cancel()
		left = time.Now()
		wantErr(t, "the waiter", await(t, "it leaves", waiter).err, context.Canceled)
		if n := c.Stats().Channels; n != 1 && time.Since(left) < c.linger/2 {
			t.Errorf("%d channels right after the last waiter has left", n)
		}
	}
	if rounds == 0 {
		t.Error("the machine is too slow for this test to say anything")
	}
	eventually(t, "the channel is dropped", func() bool {
		return c.Stats().Channels == 0 && c.Stats().Names == 0 && proxy.Count("UNSUBSCRIBE") > 0
	})
	b.free(t, "a")
}

// MaxWaiters does not concern those who do not wait: they hear that the lock is held, of whatever kind it is.
func TestMaxWaiters_WithoutWaitTime(t *testing.T) {
	t.Parallel()
	for name, sides := range map[string]func(c *Client) (held, asked *Lock){
		"plain": func(c *Client) (*Lock, *Lock) { return c.Lock("a"), c.Lock("a") },
		"fair":  func(c *Client) (*Lock, *Lock) { return c.FairLock("a"), c.FairLock("a") },
		"read":  func(c *Client) (*Lock, *Lock) { rw := c.ReadWriteLock("a"); return rw.Write(), rw.Read() },
		"write": func(c *Client) (*Lock, *Lock) { rw := c.ReadWriteLock("a"); return rw.Read(), rw.Write() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t)
			held, asked := sides(c)
			lease, err := held.Acquire(bg, AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			waiting := acquireAsync(bg, asked, AcquireOptions{WaitTime: patience})
			eventually(t, "one waits", func() bool { return c.Stats().Channels == 1 })
			_, err = asked.Acquire(bg, AcquireOptions{WaitTime: patience, MaxWaiters: 1})
			wantErr(t, "one that would wait", err, ErrTooManyWaiters)
			_, err = asked.Acquire(bg, AcquireOptions{MaxWaiters: 1})
			wantErr(t, "one that would not", err, ErrNotAcquired)
			mustRelease(t, lease)
			mustRelease(t, await(t, "the lock is had", waiting).lease)
			idle(t, c, b.rdb)
		})
	}
}

// MaxWaiters bounds the waiters even if it is not set.
func TestMaxWaiters_Default(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int32{0: 1024, -1: math.MaxInt32, 7: 7, math.MaxInt: math.MaxInt32} {
		if got := (AcquireOptions{MaxWaiters: given}).waiters(); got != want {
			t.Errorf("MaxWaiters %d bounds them to %d, want %d", given, got, want)
		}
	}
}

// MaxWaiters is exact: so many wait, and one more is refused, also when nobody knew yet that there was waiting to be done.
func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	holder := b.client(t)
	c := b.client(t)
	lease := mustAcquire(t, holder, "order", AcquireOptions{LeaseTime: time.Hour})
	const room, callers = 4, 12
	results := make(chan acquired, callers)
	for range callers {
		go func() {
			lease, err := c.Lock("order").Acquire(context.Background(), AcquireOptions{WaitTime: WaitForever, MaxWaiters: room})
			results <- acquired{lease, err}
		}()
	}
	for range callers - room {
		wantErr(t, "one too many", await(t, "it is refused", results).err, ErrTooManyWaiters)
	}
	if n := c.Stats().Waiting; n != room {
		t.Errorf("%d wait, want %d", n, room)
	}
	mustRelease(t, lease)
	for range room {
		got := await(t, "it has the lock", results)
		if got.err != nil {
			t.Fatal(got.err)
		}
		mustRelease(t, got.lease)
	}
}
