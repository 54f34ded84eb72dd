package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// pingsOfHub accepts the pings of a connection for pub/sub, and not the greeting of a line.
func pingsOfHub(args []string) bool {
	return strings.EqualFold(args[0], "PING") && args[len(args)-1] != "reqlock"
}

// The connection stays open but delivers nothing. The client replaces it.
func TestWaiting_DeafConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(300*time.Millisecond))
	fx.lockAsStranger(t, 0, "a")
	waiter := startWaiter(t, bg, c, "a", forever)
	unanswered := proxy.OnMatch(1, pingsOfHub, redistest.DropReply)
	mustReceive(t, "the loss of the first ping", unanswered.Hit())
	eventually(t, "a subscription on another connection", func() bool { return proxy.Count("SUBSCRIBE") >= 2 })
	fx.deleteKeys(t, "a")
	mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
}

// pubSubConnections returns how many connections to Redis have subscribed.
func (fx *redisFixture) pubSubConnections(t testing.TB) int {
	t.Helper()
	list, err := fx.rdb.Do(bg, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "id=")
}

// A client subscribes to its own channel and to all names on one connection, which it opens for the
// first hold or the first waiter.
func TestPubSub_OneConnectionForAllNames(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c := fx.newLocks(t, pollInterval(never))
	if n := fx.pubSubConnections(t); n != 0 {
		t.Errorf("%d pub/sub connections before the first hold and the first waiter", n)
	}
	mustRelease(t, mustAcquire(t, bg, c.Lock("free"), AcquireOptions{}))
	const n = 200
	waiters := make([]<-chan acquireResult, n)
	var holders []*Lease
	other := withoutInbox(fx.newLocks(t))
	for i := range waiters {
		name := fmt.Sprint("lock:", i)
		holders = append(holders, mustAcquire(t, bg, other.Lock(name), AcquireOptions{}))
		waiters[i] = acquireAsync(bg, c.Lock(name), forever)
	}
	eventually(t, "all subscriptions", func() bool {
		names, err := fx.rdb.PubSubChannels(bg, "redisson*").Result()
		return err == nil && len(names) == n
	})
	if got := fx.pubSubConnections(t); got != 1 {
		t.Errorf("%d pub/sub connections for %d names, want 1", got, n)
	}
	for i, holder := range holders {
		mustRelease(t, holder)
		mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiters[i]))
	}
	eventuallyListening(t, fx.rdb, c)
	if got := fx.pubSubConnections(t); got != 1 {
		t.Errorf("%d pub/sub connections for these names and the client's own channel, want 1", got)
	}
}

// A hot lock soon has waiters again, so its subscription outlives the last one for a while. The
// subscription of an idle lock ends.
func TestPubSub_ChannelsLinger(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(never))
	c.pauses.linger = 300 * time.Millisecond // long enough for a busy machine
	fx.lockAsStranger(t, 0, "a")
	var left time.Time
	rounds := 0 // those quick enough to count
	for begun := time.Now(); rounds < 10 && time.Since(begun) < patience; {
		leave, cancel := context.WithCancel(bg)
		before := proxy.Count("SUBSCRIBE")
		waiter := startWaiter(t, leave, c, "a", forever)
		eventually(t, "the waiter to subscribe and sleep", func() bool {
			e := c.names.open("a", false)
			defer e.close()
			return e.queue.Len() == 1 && e.queue.Waiters()[0].State() == claim.Asleep && c.hub.Confirmed(e.channel)
		})
		if !left.IsZero() && time.Since(left) < c.pauses.linger/2 {
			rounds++
			if proxy.Count("SUBSCRIBE") != before {
				t.Errorf("subscribed again %s after the last waiter left", time.Since(left))
			}
		}
		left = time.Now()
		cancel()
		wantErr(t, "the waiter", mustReceive(t, "the waiter to leave", waiter).err, context.Canceled)
		if n := c.Stats().Channels; n != 1 && time.Since(left) < c.pauses.linger/2 {
			t.Errorf("%d channels right after the last waiter left, want 1", n)
		}
	}
	if rounds == 0 {
		t.Error("no round was quick enough to count: the machine is too slow")
	}
	eventually(t, "the end of the subscription", func() bool {
		return c.Stats().Channels == 0 && c.Stats().Names == 0 && proxy.Count("UNSUBSCRIBE") > 0
	})
	fx.deleteKeys(t, "a")
}
