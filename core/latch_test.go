package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func mustSetCount(t testing.TB, l *CountDownLatch, n int) {
	t.Helper()
	if set, err := l.TrySetCount(bg, n); !set || err != nil {
		t.Fatalf("TrySetCount: %v, %v", set, err)
	}
}

func mustCountDown(t testing.TB, l *CountDownLatch) {
	t.Helper()
	if err := l.CountDown(bg); err != nil {
		t.Fatalf("CountDown: %v", err)
	}
}

func wantLatchCount(t testing.TB, l *CountDownLatch, want int) {
	t.Helper()
	if n, err := l.Count(bg); n != want || err != nil {
		t.Errorf("Count: %d, %v; want %d", n, err, want)
	}
}

// awaitAsync calls Await on a goroutine. The channel gives the result, once.
func awaitAsync(ctx context.Context, l *CountDownLatch) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.Await(ctx) }()
	return result
}

// wantReleased waits until a caller of Await has gone on.
func wantReleased(t testing.TB, result <-chan error) {
	t.Helper()
	if err := mustReceive(t, "the latch to open", result); err != nil {
		t.Errorf("Await: %v", err)
	}
}

// eventuallyAwaiting waits until callers of a client wait for a latch, have subscribed, and have
// looked at the count since.
func (fx *redisFixture) eventuallyAwaiting(t testing.TB, c *Client, name string, callers int) {
	t.Helper()
	fx.eventuallyHearing(t, name)
	eventually(t, "callers to wait for the latch "+name, func() bool {
		c.latches.mu.Lock()
		defer c.latches.mu.Unlock()
		a := c.latches.awaited[name]
		if a == nil || len(a.waiting) != callers || len(a.changed) > 0 {
			return false
		}
		for _, looked := range a.waiting {
			if !looked {
				return false
			}
		}
		return true
	})
}

// eventuallyHearing waits until a client has subscribed to the changes of a latch.
func (fx *redisFixture) eventuallyHearing(t testing.TB, name string) {
	t.Helper()
	channel := wire.LatchChannel(name)
	eventually(t, "a subscriber to "+channel, func() bool {
		return fx.rdb.PubSubNumSub(bg, channel).Val()[channel] > 0
	})
}

// eventuallyQuiet waits until a caller waits for a latch, and its client does not look any more: the
// confirmation of its subscription may come late. It polls never.
func (fx *redisFixture) eventuallyQuiet(t testing.TB, c *Client, proxy *redistest.Proxy, name string) {
	t.Helper()
	fx.eventuallyAwaiting(t, c, name, 1)
	waitUntilStable(func() int { return proxy.Count("EVALSHA") })
}

// swallowCountDown counts down to 0 and waits until the message of that is lost.
func swallowCountDown(t testing.TB, proxy *redistest.Proxy, l *CountDownLatch) {
	t.Helper()
	swallowed := proxy.SwallowMessages(-1)
	mustCountDown(t, l)
	mustReceive(t, "the loss of the message", swallowed.Hit())
	swallowed.Remove()
}

// A latch opens when it has been counted down by any clients. Redis then keeps nothing, which the end
// of the test checks. Redisson: testCountDown, testMultiAwait, testTrySetCount, testCount.
func TestLatch(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		c, other := fx.newLocks(t, pollInterval(never)), fx.newLocks(t, pollInterval(never))
		mine, theirs := c.CountDownLatch("a"), other.CountDownLatch("a")
		if mine.Name() != "a" {
			t.Errorf("its name is %q", mine.Name())
		}
		wantReleased(t, awaitAsync(bg, mine)) // no count is 0
		wantLatchCount(t, mine, 0)
		mustCountDown(t, mine) // does nothing
		wantLatchCount(t, mine, 0)

		for range 2 { // a latch can be used again
			mustSetCount(t, mine, 3)
			if set, err := theirs.TrySetCount(bg, 5); set || err != nil {
				t.Errorf("TrySetCount of a latch with a count: %v, %v", set, err)
			}
			wantLatchCount(t, theirs, 3)
			waiters := []<-chan error{awaitAsync(bg, mine), awaitAsync(bg, theirs), awaitAsync(bg, theirs)}
			fx.eventuallyAwaiting(t, c, "a", 1)
			fx.eventuallyAwaiting(t, other, "a", 2)
			mustCountDown(t, mine)
			mustCountDown(t, theirs)
			wantLatchCount(t, mine, 1)
			for i, w := range waiters {
				select {
				case err := <-w:
					t.Fatalf("waiter %d: %v at a count of 1", i, err)
				default:
				}
			}
			mustCountDown(t, theirs)
			for _, w := range waiters {
				wantReleased(t, w)
			}
			wantLatchCount(t, mine, 0)
			mustCountDown(t, mine)
			wantLatchCount(t, mine, 0)
		}
	})
}

// The keys and channels are those of Redisson, after the NameMapper.
func TestLatch_Wire(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, func(o *Options) { o.NameMapper = func(name string) string { return "app:" + name } })
	messages := fx.subscribe(t, "redisson_countdownlatch__channel__{app:a}")
	defer messages.close(t)
	mustSetCount(t, c.CountDownLatch("a"), 2)
	if value, ttl := fx.rdb.Get(bg, "app:a").Val(), fx.rdb.PTTL(bg, "app:a").Val(); value != "2" || ttl != -1 {
		t.Errorf("the key has the value %q and the TTL %v, want 2 and none", value, ttl)
	}
	mustCountDown(t, c.CountDownLatch("a"))
	mustCountDown(t, c.CountDownLatch("a"))
	if got := messages.messages(t); fmt.Sprint(got) != "[1 0]" {
		t.Errorf("messages %q, want 1 for the count and 0 for its end", got)
	}
}

// A call whose reply is lost is sent again, and counts once.
func TestLatch_LostReply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action  redistest.Action
		connect func(*redisFixture, testing.TB, ...func(*Options)) (*Client, *redistest.Proxy)
	}{
		"cut before execution": {redistest.CutBefore, (*redisFixture).newProxiedLocks},
		"cut after execution":  {redistest.CutAfter, (*redisFixture).newProxiedLocks},
		"reply lost":           {redistest.DropReply, (*redisFixture).newLossyLocks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := test.connect(fx, t)
			latch := c.CountDownLatch("a")
			proxy.OnMatch(1, runsScript(latchSetScript), test.action)
			mustSetCount(t, latch, 3)
			downs := countCommands(proxy, runsScript(latchCountDownScript))
			for left := 2; left >= 0; left-- {
				proxy.OnMatch(1, runsScript(latchCountDownScript), test.action)
				mustCountDown(t, latch)
				wantLatchCount(t, latch, left)
			}
			if n := downs(); n < 6 {
				t.Errorf("%d tries of three calls, want two of each", n)
			}
			fx.deleteMarks(t, "a")
		})
	}
}

// A try of a call arrives late, when the latch counts for the next time. It changes nothing. Its
// mark expires.
func TestLatch_Stray(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second))
	latch := c.CountDownLatch("a")
	mustSetCount(t, latch, 1)
	stray := proxy.OnMatch(1, runsScript(latchCountDownScript), redistest.HoldRequest)
	mustCountDown(t, latch) // The second try has a reply.
	mustSetCount(t, latch, 2)
	strayOfSet := proxy.OnMatch(1, runsScript(latchSetScript), redistest.HoldRequest)
	if set, err := latch.TrySetCount(bg, 7); set || err != nil {
		t.Fatalf("TrySetCount of a latch with a count: %v, %v", set, err)
	}
	stray.Release()
	mustReceive(t, "Redis to run the stray", stray.Done())
	wantLatchCount(t, latch, 2)
	mustCountDown(t, latch)
	mustCountDown(t, latch)
	strayOfSet.Release()
	mustReceive(t, "Redis to run the other stray", strayOfSet.Done())
	wantLatchCount(t, latch, 0)
	marks := fx.marks(t, "a")
	if len(marks) != 2 {
		t.Errorf("marks %q, want one for each of the two calls with a stray", marks)
	}
	for _, mark := range marks {
		if ttl := fx.pttl(t, mark); ttl <= 0 || ttl > time.Minute {
			t.Errorf("a mark expires in %v, want at most %v", ttl, time.Minute)
		}
	}
	fx.deleteMarks(t, "a")
}

// marks returns the keys of the calls that Redis remembers.
func (fx *redisFixture) marks(t testing.TB, name string) []string {
	t.Helper()
	keys, err := fx.rdb.Keys(bg, wire.LatchMark(name, "*")).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// deleteMarks deletes them: they would expire in a minute.
func (fx *redisFixture) deleteMarks(t testing.TB, name string) {
	t.Helper()
	if marks := fx.marks(t, name); len(marks) > 0 {
		fx.deleteKeys(t, marks...)
	}
}

// The key of something else is refused at once, and left alone.
func TestLatch_WrongKind(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, fx *redisFixture) {
		c := fx.newLocks(t)
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		latch := c.CountDownLatch("a")
		_, err := latch.TrySetCount(bg, 1)
		wantErr(t, "TrySetCount", err, ErrWrongKind)
		wantErr(t, "CountDown", latch.CountDown(bg), ErrWrongKind)
		_, err = latch.Count(bg)
		wantErr(t, "Count", err, ErrWrongKind)
		wantErr(t, "Await", mustReceive(t, "Await to return", awaitAsync(bg, latch)), ErrWrongKind)
		wantHeld(t, lease)
		mustRelease(t, lease)

		mustSetCount(t, latch, 1)
		wantErr(t, "a lock with the name of a latch", tryAcquire(c.Lock("a")), ErrWrongKind)
		wantLatchCount(t, latch, 1)
		mustCountDown(t, latch)
	})
}

// What can never work is refused before Redis is asked, with a text that says what to change.
func TestLatch_Refusals(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	for _, n := range []int{0, -1} {
		_, err := c.CountDownLatch("a").TrySetCount(bg, n)
		wantErr(t, fmt.Sprint("a count of ", n), err, ErrInvalidOptions)
	}
	cluster := newUncheckedLocks(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr()}}))
	t.Cleanup(func() { closeQuietly(cluster.Redis()) })
	defer mustClose(t, cluster)
	for name, latch := range map[string]*CountDownLatch{
		"no name":             c.CountDownLatch(""),
		"braces in a cluster": cluster.CountDownLatch("{a}:b"),
	} {
		_, err := latch.TrySetCount(bg, 1)
		wantErr(t, name, err, ErrInvalidName)
		wantErr(t, name, latch.CountDown(bg), ErrInvalidName)
		wantErr(t, name, latch.Await(bg), ErrInvalidName)
		if _, err = latch.Count(bg); !errors.Is(err, ErrInvalidName) || !strings.HasPrefix(err.Error(), "reqlock: read latch #") {
			t.Errorf("%s: Count: %v", name, err)
		}
	}
	if n := proxy.Count(""); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// The callers of one client that wait for a latch share a subscription. They all go on with one
// message and few questions.
func TestLatch_OneSubscription(t *testing.T) {
	t.Parallel()
	const callers = 200
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	looks := countCommands(proxy, runsScript(latchCountScript))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	var waiters []<-chan error
	for range callers {
		waiters = append(waiters, awaitAsync(bg, c.CountDownLatch("a")))
	}
	fx.eventuallyAwaiting(t, c, "a", callers)
	before := waitUntilStable(looks)
	if n := proxy.Count("SUBSCRIBE"); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	if s := c.Stats(); s.Waiting != callers || s.Channels != 1 {
		t.Errorf("%+v, want %d callers and one channel", s, callers)
	}
	commands, begun := proxy.Count(""), time.Now()
	eventually(t, "a second to pass", func() bool { return time.Since(begun) > time.Second })
	if n := proxy.Count("") - commands; n != 0 {
		t.Errorf("%d commands within a second, want none", n)
	}
	mustCountDown(t, latch)
	for _, w := range waiters {
		wantReleased(t, w)
	}
	if n := looks() - before; n != 1 {
		t.Errorf("%d looks after the message, want 1", n)
	}
}

// The message of the end is lost. The callers go on at the next poll.
func TestLatch_LostMessage(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(300*time.Millisecond))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	looks := countCommands(proxy, runsScript(latchCountScript))
	waiter := awaitAsync(bg, c.CountDownLatch("a"))
	eventually(t, "a few looks", func() bool { return looks() >= 4 })
	swallowCountDown(t, proxy, latch)
	wantReleased(t, waiter)
	if n := c.Counters().Polls; n == 0 {
		t.Error("no poll was counted")
	}
}

// While it hears its channel, a client polls a latch once in six PollIntervals.
func TestLatch_PollsRarely(t *testing.T) {
	t.Parallel()
	const poll = 250 * time.Millisecond
	fx := newRedis(t)
	c := fx.newLocks(t, pollInterval(poll))
	latch := c.CountDownLatch("a")
	mustSetCount(t, latch, 1)
	waiter := awaitAsync(bg, latch)
	polls := func() uint64 { return c.Counters().Polls }
	eventually(t, "the first poll", func() bool { return polls() > 0 })
	before, began := polls(), time.Now()
	eventually(t, "three polls more", func() bool { return polls() >= before+3 })
	if took := time.Since(began); took < reliance*poll { // the first of them may have been about to begin
		t.Errorf("three polls in %s, want at least %s between two", took, reliance*poll)
	}
	mustCountDown(t, latch)
	wantReleased(t, waiter)
}

// A caller that comes later looks at the count, and so finds for all what a lost message said.
func TestLatch_EveryCallerLooks(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	first := awaitAsync(bg, c.CountDownLatch("a"))
	fx.eventuallyQuiet(t, c, proxy, "a")
	swallowCountDown(t, proxy, latch)
	wantReleased(t, awaitAsync(bg, c.CountDownLatch("a")))
	wantReleased(t, first)
}

// What Redis said before a caller came does not open the latch for it: there is a new count.
func TestLatch_AnswerOfBefore(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	latch := fx.newLocks(t).CountDownLatch("a")
	held := proxy.OnMatch(1, runsScript(latchCountScript), redistest.HoldReply)
	first := awaitAsync(bg, c.CountDownLatch("a"))
	mustReceive(t, "the answer that the count is 0", held.Hit())
	mustSetCount(t, latch, 1)
	second := awaitAsync(bg, c.CountDownLatch("a"))
	eventually(t, "the second caller", func() bool { return c.Stats().Waiting == 2 })
	held.Release()
	wantReleased(t, first)
	fx.eventuallyAwaiting(t, c, "a", 1)
	select {
	case err := <-second:
		t.Fatalf("Await of a count of 1: %v", err)
	default:
	}
	mustCountDown(t, latch)
	wantReleased(t, second)
}

// Messages published while the connection is down are lost. The new subscription makes the callers
// look.
func TestLatch_Reconnects(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	waiter := awaitAsync(bg, c.CountDownLatch("a"))
	fx.eventuallyQuiet(t, c, proxy, "a")
	swallowCountDown(t, proxy, latch)
	if n, err := fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub").Result(); n == 0 || err != nil {
		t.Fatalf("CLIENT KILL: %d, %v", n, err)
	}
	wantReleased(t, waiter)
	if proxy.Count("SUBSCRIBE") < 2 {
		t.Error("the latch opened without a new subscription")
	}
}

// A caller outlasts a restart of Redis. With its data, the count is what it was; without, it is 0.
func TestLatch_Restart(t *testing.T) {
	t.Parallel()
	t.Run("with data", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c := fx.newLocks(t)
		latch := c.CountDownLatch("a")
		mustSetCount(t, latch, 2)
		waiter := awaitAsync(bg, latch)
		fx.eventuallyAwaiting(t, c, "a", 1)
		fx.srv.Save(t)
		fx.srv.Kill(t)
		fx.srv.Restart(t)
		mustCountDown(t, latch)
		wantLatchCount(t, latch, 1)
		fx.eventuallyAwaiting(t, c, "a", 1)
		mustCountDown(t, latch)
		wantReleased(t, waiter)
	})
	t.Run("without data", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c := fx.newLocks(t)
		latch := c.CountDownLatch("a")
		mustSetCount(t, latch, 2)
		waiter := awaitAsync(bg, latch)
		fx.eventuallyAwaiting(t, c, "a", 1)
		fx.srv.Restart(t)
		wantReleased(t, waiter)
		wantLatchCount(t, latch, 0)
	})
}

// A caller outlasts an outage, whether it came before or during it.
func TestLatch_OutlastsAnOutage(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(time.Second))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	before := awaitAsync(bg, c.CountDownLatch("a"))
	fx.eventuallyAwaiting(t, c, "a", 1)
	proxy.Cut()
	during := awaitAsync(bg, c.CountDownLatch("a"))
	eventually(t, "the caller that came during the outage to fail once", func() bool {
		c.latches.mu.Lock()
		defer c.latches.mu.Unlock()
		looked := 0
		for _, l := range c.latches.awaited["a"].waiting {
			if l {
				looked++
			}
		}
		return looked == 2
	})
	mustCountDown(t, latch) // its message is missed
	proxy.Restore()
	wantReleased(t, before)
	wantReleased(t, during)
}

// An error that no retry mends is returned to all callers.
func TestLatch_Forbidden(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(200*time.Millisecond))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	waiters := []<-chan error{awaitAsync(bg, c.CountDownLatch("a")), awaitAsync(bg, c.CountDownLatch("a"))}
	fx.eventuallyAwaiting(t, c, "a", 2)
	proxy.OnEvery(runsScript(latchCountScript), redistest.ReplyWith("-NOPERM this user has no permissions to run the 'get' command\r\n"))
	for _, w := range waiters {
		wantErr(t, "Await", mustReceive(t, "Await to return", w), ErrMisconfigured)
	}
	mustCountDown(t, latch)
}

// Close ends the wait of all callers, also of those whose question is under way. Later calls are
// refused.
func TestLatch_Close(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.ClientWith(t, readTimeout(2*patience)), pollInterval(never), commandTimeout(patience))
	latch := fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 1)
	waiters := []<-chan error{awaitAsync(bg, c.CountDownLatch("a")), awaitAsync(bg, c.CountDownLatch("a"))}
	fx.eventuallyAwaiting(t, c, "a", 2)
	asking := proxy.OnMatch(1, runsScript(latchCountScript), redistest.HoldReply)
	waiters = append(waiters, awaitAsync(bg, c.CountDownLatch("b")))
	mustReceive(t, "a question whose answer is held", asking.Hit())
	begun := time.Now()
	closing := closeAsync(t, bg, c)
	for _, w := range waiters {
		wantErr(t, "Await", mustReceive(t, "Await to return", w), ErrClosed)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("the last one left after %s", took)
	}
	asking.Release()
	if err := mustReceive(t, "Close to return", closing); err != nil {
		t.Errorf("Close: %v", err)
	}
	wantErr(t, "Await", c.CountDownLatch("a").Await(bg), ErrClosed)
	wantErr(t, "CountDown", c.CountDownLatch("a").CountDown(bg), ErrClosed)
	_, err := c.CountDownLatch("a").TrySetCount(bg, 1)
	wantErr(t, "TrySetCount", err, ErrClosed)
	_, err = c.CountDownLatch("a").Count(bg)
	wantErr(t, "Count", err, ErrClosed)
	wantLatchCount(t, latch, 1)
	mustCountDown(t, latch)
	eventually(t, "the other client to remove its mark", func() bool { return len(fx.rdb.Keys(bg, "*").Val()) == 0 })
	fx.wantClosed(t, c)
}

// A caller whose context ends leaves at once, also while Redis does not answer. CountDown goes on in
// the background. So does one whose context had ended before.
func TestLatch_EndedContext(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	latch, other := c.CountDownLatch("a"), fx.newLocks(t).CountDownLatch("a")
	mustSetCount(t, latch, 2)
	cause := errors.New("enough")
	ctx, leave := context.WithCancelCause(bg)
	waiter := awaitAsync(ctx, latch)
	fx.eventuallyAwaiting(t, c, "a", 1)
	proxy.Stall()
	counting := make(chan error, 1)
	go func() { counting <- latch.CountDown(ctx) }()
	asking := awaitAsync(ctx, c.CountDownLatch("b"))
	eventually(t, "both waiters", func() bool { return c.Stats().Waiting == 2 })
	leave(cause)
	for what, result := range map[string]<-chan error{"Await": waiter, "Await of a silent Redis": asking, "CountDown": counting} {
		err := mustReceive(t, what+" to return", result)
		wantErr(t, what, err, context.Canceled)
		wantErr(t, what, err, cause)
	}
	wantLatchCount(t, other, 2)
	proxy.Restore()
	eventually(t, "the count down", func() bool { n, err := other.Count(bg); return n == 1 && err == nil })
	wantErr(t, "Await", latch.Await(ctx), cause)
	_, err := latch.TrySetCount(ctx, 5)
	wantErr(t, "TrySetCount", err, cause)
	if err := latch.CountDown(ctx); err != nil { // the reply may have come first
		wantErr(t, "CountDown", err, cause)
	}
	eventually(t, "the latch to open", func() bool { n, err := other.Count(bg); return n == 0 && err == nil })
}

// Callers that wait for latches count towards MaxWaiting. One that need not wait does not.
func TestLatch_MaxWaiting(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, func(o *Options) { o.MaxWaiting = 1 })
	mustSetCount(t, c.CountDownLatch("a"), 1)
	ctx, leave := context.WithCancel(bg)
	first := awaitAsync(ctx, c.CountDownLatch("a"))
	fx.eventuallyAwaiting(t, c, "a", 1)
	wantErr(t, "one too many", mustReceive(t, "Await to return", awaitAsync(bg, c.CountDownLatch("a"))), ErrTooManyWaiters)
	wantReleased(t, awaitAsync(bg, c.CountDownLatch("open")))
	leave()
	wantErr(t, "the first", mustReceive(t, "the first to leave", first), context.Canceled)
	next := awaitAsync(bg, c.CountDownLatch("a"))
	fx.eventuallyAwaiting(t, c, "a", 1)
	mustCountDown(t, c.CountDownLatch("a"))
	wantReleased(t, next)
	eventually(t, "the room to be empty", func() bool { return c.room.inside.Load() == 0 })
}

// Many count down, wait and leave at the same time. Each count is one, and nothing is left.
func TestLatch_Crowd(t *testing.T) {
	t.Parallel()
	const parties, rounds = 20, 10
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t, pollInterval(never)), fx.newLocks(t, pollInterval(never))}
	for round := range rounds {
		name := fmt.Sprint("round:", round)
		mustSetCount(t, clients[0].CountDownLatch(name), parties)
		inParallel(parties, func(i int) {
			latch := clients[i%2].CountDownLatch(name)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			gone := awaitAsync(ctx, latch) // leaves in the middle
			if err := latch.CountDown(bg); err != nil {
				t.Errorf("CountDown: %v", err)
			}
			cancel()
			if err := mustReceive(t, "the caller to leave", gone); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Await: %v", err)
			}
			if err := mustReceive(t, "the latch to open", awaitAsync(bg, latch)); err != nil {
				t.Errorf("Await: %v", err)
			}
		})
	}
}
