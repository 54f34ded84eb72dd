package hub

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// patience bounds every wait for an event.
const patience = 20 * time.Second

// newHub returns a hub on a Redis client and closes it when the test ends.
func newHub(t *testing.T, rdb redis.UniversalClient, changes ...func(*Config)) *Hub {
	t.Helper()
	cluster, _ := rdb.(*redis.ClusterClient)
	cfg := Config{
		Redis:        redisclient.Client{UniversalClient: rdb, Cluster: cluster},
		Commands:     commands(true, false),
		PingInterval: time.Minute,
		Lost:         func(error) {},
		Back:         func() {},
	}
	for _, change := range changes {
		change(&cfg)
	}
	h := New(cfg)
	t.Cleanup(h.Close)
	return h
}

func commands(plain, sharded bool) func(context.Context) (bool, bool, error) {
	return func(context.Context) (bool, bool, error) { return plain, sharded, nil }
}

func pingEvery(d time.Duration) func(*Config) {
	return func(c *Config) { c.PingInterval = d }
}

// A listener counts its notifications from one channel.
type listener struct {
	hub     *Hub
	channel *Channel
	// confirmed is true if Subscribe found the channel confirmed.
	confirmed bool
	n         atomic.Int64
}

func listen(h *Hub, name string) *listener {
	l := &listener{hub: h}
	l.channel, l.confirmed = h.Subscribe(name, l)
	return l
}

func (l *listener) Close() { l.hub.Unsubscribe(l.channel, l) }

func (l *listener) Notify() { l.n.Add(1) }

// A listenerFunc calls a function on each notification.
type listenerFunc struct{ f func() }

func (l *listenerFunc) Notify() { l.f() }

func (l *listener) heard() int { return int(l.n.Load()) }

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// awaitHeard waits until the listener has received n notifications in all.
func awaitHeard(t *testing.T, l *listener, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d notifications", n), func() bool { return l.heard() >= n })
	if l.heard() > n {
		t.Fatalf("%d notifications, want %d", l.heard(), n)
	}
}

// announce publishes until the listener receives a message. It returns how many messages it may
// receive.
func announce(t *testing.T, l *listener, publish func() error) (sent int) {
	t.Helper()
	before := l.heard()
	eventually(t, "a message", func() bool {
		sent++
		if publish() != nil {
			return false
		}
		for deadline := time.Now().Add(time.Second); l.heard() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return false
			}
		}
		return true
	})
	return sent
}

func publish(t *testing.T, rdb *redis.Client, channel string) {
	t.Helper()
	if err := rdb.Publish(context.Background(), channel, "0").Err(); err != nil {
		t.Fatal(err)
	}
}

// channels returns the channels that have subscribers.
func channels(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	list, err := rdb.PubSubChannels(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// connections returns the lines of CLIENT LIST of subscribed connections.
func connections(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	list, err := rdb.Do(context.Background(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(list, func(r rune) bool { return r == '\n' })
}

func killConnections(t *testing.T, rdb *redis.Client) {
	t.Helper()
	n, err := rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Result()
	if err != nil || n == 0 {
		t.Fatalf("CLIENT KILL: %d connections, %v", n, err)
	}
}

func TestConfirmationAndMessages(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb)

	first := listen(h, "a")
	if first.confirmed {
		t.Error("confirmed before it was subscribed")
	}
	awaitHeard(t, first, 1) // the confirmation
	other := listen(h, "b")
	awaitHeard(t, other, 1)

	second := listen(h, "a")
	if !second.confirmed {
		t.Error("an active subscription must be confirmed at once")
	}
	publish(t, rdb, "a")
	awaitHeard(t, first, 2)
	awaitHeard(t, second, 1)

	// A later message on the same connection shows that the other listeners got nothing more.
	publish(t, rdb, "b")
	awaitHeard(t, other, 2)
	awaitHeard(t, first, 2)
	awaitHeard(t, second, 1)
}

func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb)
	one, two, other := listen(h, "a"), listen(h, "a"), listen(h, "b")
	awaitHeard(t, one, 1)
	awaitHeard(t, other, 1)
	heard := one.heard()

	one.Close()
	one.Close() // nothing more
	publish(t, rdb, "a")
	awaitHeard(t, two, 2)
	if one.heard() != heard {
		t.Error("a closed subscription was notified")
	}
	if got := channels(t, rdb); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("channels %q although a still has a listener", got)
	}

	two.Close()
	eventually(t, "a to be unsubscribed", func() bool { return slices.Equal(channels(t, rdb), []string{"b"}) })
	eventually(t, "a to be forgotten", func() bool { return h.Len() == 1 })
	other.Close()
	eventually(t, "b to be unsubscribed", func() bool { return len(channels(t, rdb)) == 0 && h.Len() == 0 })

	again := listen(h, "a")
	if again.confirmed {
		t.Error("confirmed although it is not subscribed")
	}
	awaitHeard(t, again, 1)
	publish(t, rdb, "a")
	awaitHeard(t, again, 2)
}

// Each of several listeners is notified until it unsubscribes. The last one ends the subscription.
func TestSeveralListeners(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb)
	last := listen(h, "a")
	awaitHeard(t, last, 1)
	first, second, twice := listen(h, "a"), listen(h, "a"), listen(h, "a")
	h.Subscribe("a", twice)
	for round, l := range []*listener{first, twice, second, twice} {
		publish(t, rdb, "a")
		awaitHeard(t, last, round+2)
		l.Close()
	}
	publish(t, rdb, "a")
	awaitHeard(t, last, 6)
	for l, want := range map[*listener]int{first: 1, second: 3, twice: 2 + 2 + 1 + 1} {
		if got := l.heard(); got != want {
			t.Errorf("%d notifications, want %d", got, want)
		}
	}
	last.Close()
	eventually(t, "a to be unsubscribed", func() bool { return len(channels(t, rdb)) == 0 && h.Len() == 0 })
}

// Any number of channels needs one connection and few commands.
func TestManyChannelsOneConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t))

	const n = 3*ordersAtOnce + 7
	// How many subscriptions share a command depends on the scheduler. On a busy machine each may
	// get its own command, but not in every attempt.
	few := false
	for round := 0; round < 10 && !few; round++ {
		subscribes, unsubscribes := proxy.Count("SUBSCRIBE"), proxy.Count("UNSUBSCRIBE")
		listeners := make([]*listener, n)
		for i := range listeners {
			listeners[i] = listen(h, fmt.Sprintf("channel:%d", i))
		}
		for _, l := range listeners {
			awaitHeard(t, l, 1)
		}
		if got := connections(t, rdb); len(got) != 1 {
			t.Errorf("%d pub/sub connections for %d channels: %q", len(got), n, got)
		}
		publish(t, rdb, "channel:5")
		awaitHeard(t, listeners[5], 2)
		for _, l := range listeners {
			l.Close()
		}
		eventually(t, "all channels to be unsubscribed", func() bool { return h.Len() == 0 && len(channels(t, rdb)) == 0 })
		subscribes, unsubscribes = proxy.Count("SUBSCRIBE")-subscribes, proxy.Count("UNSUBSCRIBE")-unsubscribes
		t.Logf("%d SUBSCRIBEs and %d UNSUBSCRIBEs for %d channels", subscribes, unsubscribes, n)
		few = subscribes <= n/20 && unsubscribes <= n/20
	}
	if !few {
		t.Error("too many commands in every attempt")
	}
}

// go-redis's own channel drops messages when more than a hundred are unread. The hub must not.
func TestNoMessageIsDropped(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb)
	slow := make(chan struct{})
	var n atomic.Int64
	h.Subscribe("a", &listenerFunc{func() {
		if n.Add(1) == 2 {
			<-slow
		}
	}})
	eventually(t, "the confirmation", func() bool { return n.Load() == 1 })
	const messages = 5000
	pipe := rdb.Pipeline()
	for range messages {
		pipe.Publish(context.Background(), "a", "0")
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	close(slow)
	eventually(t, "all messages", func() bool { return n.Load() == messages+1 })
}

// After a reconnect all channels are subscribed again, and all listeners are notified, because they
// may have missed a message.
func TestReconnect(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb)
	a, b := listen(h, "a"), listen(h, "b")
	awaitHeard(t, a, 1)
	awaitHeard(t, b, 1)
	for round := range 3 {
		killConnections(t, rdb)
		awaitHeard(t, a, 2*round+2)
		awaitHeard(t, b, 2*round+2)
		publish(t, rdb, "a")
		publish(t, rdb, "b")
		awaitHeard(t, a, 2*round+3)
		awaitHeard(t, b, 2*round+3)
		eventually(t, "one connection", func() bool { return len(connections(t, rdb)) == 1 })
	}
}

// A line that loses its connection while it has no listeners is removed. A later listener gets a
// new line.
func TestReconnect_WithoutListeners(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	h := newHub(t, proxy.Client(t))
	for range 2 {
		a := listen(h, "a")
		awaitHeard(t, a, 1)
		a.Close()
		eventually(t, "a to be unsubscribed", func() bool { return h.Len() == 0 })
		proxy.Cut()
		eventually(t, "the line to be removed", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lines) == 0
		})
		proxy.Restore()
	}
}

// Changes made without a connection take effect on the next one.
func TestChangesWhileDown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t))
	stays, goes := listen(h, "stays"), listen(h, "goes")
	awaitHeard(t, stays, 1)
	awaitHeard(t, goes, 1)

	proxy.Cut()
	eventually(t, "Redis to notice the end of the connection", func() bool { return len(connections(t, rdb)) == 0 })
	goes.Close()
	comes := listen(h, "comes")
	brief := listen(h, "brief")
	brief.Close()
	if comes.confirmed {
		t.Error("confirmed without a connection")
	}
	proxy.Restore()
	awaitHeard(t, stays, 2)
	awaitHeard(t, comes, 1)
	eventually(t, "only the wanted channels", func() bool {
		return slices.Equal(channels(t, rdb), []string{"comes", "stays"}) && h.Len() == 2
	})
	if brief.heard() != 0 || goes.heard() != 1 {
		t.Errorf("notifications for closed subscriptions: %d, %d", brief.heard(), goes.heard())
	}
	if again := listen(h, "stays"); !again.confirmed {
		t.Error("stays is subscribed but not confirmed")
	}
}

// Subscribe returns at once even if Redis is down, and takes effect when Redis comes up.
func TestSubscribe_RedisDown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Kill(t)
	h := newHub(t, srv.Client(t))
	a := listen(h, "a")
	if a.confirmed || h.Len() != 1 {
		t.Errorf("confirmed %v, Len %d", a.confirmed, h.Len())
	}
	srv.Restart(t)
	awaitHeard(t, a, 1)
	publish(t, srv.Client(t), "a")
	awaitHeard(t, a, 2)
}

// A connection that is open but silent is closed after a ping without a reply.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
	var lost atomic.Int64
	h := newHub(t, rdb, pingEvery(200*time.Millisecond), func(c *Config) { c.Lost = func(error) { lost.Add(1) } })
	a := listen(h, "a")
	awaitHeard(t, a, 1)

	// From here on this connection gets no replies. Another one would. A machine slower than the
	// pings may cost further connections.
	deaf := proxy.On("PING", 1, redistest.DropReply)
	<-deaf.Hit()
	eventually(t, "a confirmation on another connection", func() bool { return a.heard() >= 2 })
	direct := srv.Client(t)
	announce(t, a, func() error { return direct.Publish(t.Context(), "a", "0").Err() })

	// Now no connection gets replies.
	gone := lost.Load()
	proxy.Stall()
	eventually(t, "the connection to be closed", func() bool { return lost.Load() > gone })
	heard := a.heard()
	proxy.Restore()
	eventually(t, "another confirmation", func() bool { return a.heard() > heard })
	eventually(t, "one connection", func() bool { return len(connections(t, direct)) == 1 })
}

// A channel is heard from its confirmation on, for as long as its connection is there and is heard.
func TestHears(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	h := newHub(t, proxy.Client(t)) // pings each minute, so it is heard for three
	subscribing := proxy.On("SUBSCRIBE", 1, redistest.HoldRequest)
	a := listen(h, "a")
	<-subscribing.Hit()
	if h.Hears(a.channel) {
		t.Error("a channel is heard before it is confirmed")
	}
	subscribing.Release()
	awaitHeard(t, a, 1)
	if !h.Hears(a.channel) {
		t.Error("a confirmed channel is not heard")
	}

	h.mu.Lock()
	l := a.channel.routes.line
	h.mu.Unlock()
	for ago, want := range map[time.Duration]bool{2 * time.Minute: true, 4 * time.Minute: false} {
		l.heard.Store(int64(clock.Now().Add(-ago)))
		if h.Hears(a.channel) != want {
			t.Errorf("nothing has arrived for %s: heard %t, want %t", ago, !want, want)
		}
	}

	l.hears()
	proxy.Cut()
	eventually(t, "the loss of the connection to show", func() bool { return !h.Hears(a.channel) })
	proxy.Restore()
	eventually(t, "the channel to be heard again", func() bool { return h.Hears(a.channel) })
}

// Lost and Back are called once per outage, even if the last listener leaves during it.
func TestLost_Back(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	events := make(chan string, 100)
	h := newHub(t, proxy.Client(t), func(c *Config) {
		c.Lost = func(err error) { events <- fmt.Sprint("lost ", err != nil) }
		c.Back = func() { events <- "back" }
	})
	wantTold := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("timed out waiting for %q", want)
		}
	}
	a := listen(h, "a")
	awaitHeard(t, a, 1)
	for _, listens := range []bool{true, false} {
		proxy.Cut()
		wantTold("lost true")
		if !listens {
			a.Close()
			eventually(t, "all channels to be forgotten", func() bool { return h.Len() == 0 })
		}
		proxy.Restore()
		if !listens {
			a = listen(h, "b")
		}
		wantTold("back")
	}
	a.Close()
	eventually(t, "all channels to be forgotten", func() bool { return h.Len() == 0 })
	h.Close()
	if len(events) > 0 {
		t.Errorf("extra event %q", <-events)
	}
}

// Pings keep an idle connection alive. They are not sent while messages arrive, or without
// listeners.
func TestPings(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t), pingEvery(100*time.Millisecond))
	a := listen(h, "a")
	awaitHeard(t, a, 1)
	// If the machine stalls, pings are answered too late and the connection is closed, as it should
	// be. That cannot happen in every attempt.
	eventually(t, "a few pings leave everything as it is", func() bool {
		pings, subscribes, heard := proxy.Count("PING"), proxy.Count("SUBSCRIBE"), a.heard()
		eventually(t, "a few pings", func() bool { return proxy.Count("PING") >= pings+5 })
		return proxy.Count("SUBSCRIBE") == subscribes && a.heard() == heard
	})

	a.Close()
	eventually(t, "all channels to be forgotten", func() bool { return h.Len() == 0 })
	pings := proxy.Count("PING")
	time.Sleep(600 * time.Millisecond)
	if n := proxy.Count("PING"); n > pings+1 { // one may just have been due
		t.Errorf("%d pings without listeners", n-pings)
	}
	b := listen(h, "b")
	awaitHeard(t, b, 1)
	if got := connections(t, rdb); len(got) != 1 {
		t.Errorf("connections %q", got)
	}
}

func TestSharded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client(t)
	h := newHub(t, rdb, func(c *Config) { c.Commands = commands(false, true) })
	a, b := listen(h, "a"), listen(h, "b")
	awaitHeard(t, a, 1)
	awaitHeard(t, b, 1)
	publish(t, rdb, "a") // plain and sharded channels are separate
	for range 2 {
		if err := rdb.SPublish(ctx, "a", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
	awaitHeard(t, a, 3)
	awaitHeard(t, b, 1)
	a.Close()
	b.Close()
	eventually(t, "all channels to be unsubscribed", func() bool {
		list, err := rdb.PubSubShardChannels(ctx, "*").Result()
		return err == nil && len(list) == 0 && h.Len() == 0
	})
}

// With both commands, a channel is confirmed when both are.
func TestBoth(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t), func(c *Config) { c.Commands = commands(true, true) })
	held := proxy.On("SSUBSCRIBE", 1, redistest.HoldRequest)
	a := listen(h, "a")
	<-held.Hit()
	eventually(t, "the first command to be executed", func() bool { return len(channels(t, rdb)) == 1 })
	if second := listen(h, "a"); second.confirmed || a.heard() != 0 {
		t.Errorf("confirmed by one of two commands: %v, %d notifications", second.confirmed, a.heard())
	}
	held.Release()
	awaitHeard(t, a, 1)
	if third := listen(h, "a"); !third.confirmed {
		t.Error("not confirmed by both commands")
	}
	publish(t, rdb, "a")
	awaitHeard(t, a, 2)
	if err := rdb.SPublish(ctx, "a", "0").Err(); err != nil {
		t.Fatal(err)
	}
	awaitHeard(t, a, 3)
}

// A subscription that is closed and made again while the server is slow ends up subscribed.
func TestChurn(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t))
	held := proxy.On("SUBSCRIBE", 1, redistest.HoldReply)
	first := listen(h, "a")
	<-held.Hit()
	first.Close()
	eventually(t, "an UNSUBSCRIBE", func() bool { return proxy.Count("UNSUBSCRIBE") == 1 })
	second := listen(h, "a")
	eventually(t, "a second SUBSCRIBE", func() bool { return proxy.Count("SUBSCRIBE") == 2 })
	if third := listen(h, "a"); third.confirmed || second.heard() != 0 {
		t.Error("confirmed by the reply to a SUBSCRIBE before an UNSUBSCRIBE")
	}
	held.Release()
	awaitHeard(t, second, 1)
	if first.heard() != 0 {
		t.Error("a closed subscription was notified")
	}
	publish(t, rdb, "a")
	awaitHeard(t, second, 2)

	// Many subscriptions at once end up right, too.
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				l := listen(h, fmt.Sprint("churn:", (g+i)%5))
				if i%3 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
				l.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "only a", func() bool { return h.Len() == 1 && slices.Equal(channels(t, rdb), []string{"a"}) })
	for i := range 5 {
		l := listen(h, fmt.Sprint("churn:", i))
		awaitHeard(t, l, 1)
	}
}

// Every subscriber learns when it can miss no more messages: at once, or by a notification. That
// also holds if an earlier subscription is about to end but its UNSUBSCRIBE is not sent yet.
func TestEverySubscriptionIsConfirmed(t *testing.T) {
	t.Parallel()
	h := newHub(t, redistest.Start(t).Client(t))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				notified := make(chan struct{}, 100)
				l := &listenerFunc{func() { notified <- struct{}{} }}
				channel, confirmed := h.Subscribe(fmt.Sprint("confirmed:", g), l)
				if !confirmed {
					select {
					case <-notified:
					case <-time.After(patience):
						t.Errorf("subscription %d was never confirmed", i)
						return
					}
				}
				h.Unsubscribe(channel, l)
				for range i % 20 {
					runtime.Gosched() // the next one comes a little later, each time
				}
			}
		})
	}
	wg.Wait()
}

// If the server forbids some channels or one of the commands, the connections and the other
// channels stay as they are: listeners of those do not ask Redis all the time. Once a channel is
// permitted, it is subscribed.
func TestForbiddenChannel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules          string
		plain, sharded bool
		cluster        bool
		channels       int // permitted ones
	}{
		"beside one":          {"+@all &good:*", true, false, false, 1},
		"beside several":      {"+@all &good:*", true, false, false, 10},
		"beside many":         {"+@all &good:*", true, false, false, 2*ordersAtOnce + 10},
		"sharded":             {"+@all &good:*", false, true, false, 10},
		"both":                {"+@all &good:*", true, true, false, 10},
		"sharded in cluster":  {"+@all &good:*", false, true, true, 30},
		"both in cluster":     {"+@all &good:*", true, true, true, 30},
		"without SSUBSCRIBE":  {"+@all -ssubscribe -sunsubscribe allchannels", true, true, false, 10},
		"without SUBSCRIBE":   {"+@all -subscribe -unsubscribe allchannels", true, true, false, 10},
		"cluster, no ssubscr": {"+@all -ssubscribe -sunsubscribe allchannels", true, true, true, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rdb redis.UniversalClient
			var nodes []*redis.Client
			if test.cluster {
				cluster := redistest.StartCluster(t)
				rdb = cluster.ClientWith(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "limited", "x" })
				for _, srv := range cluster.Masters(t) {
					nodes = append(nodes, srv.Client(t))
				}
			} else {
				srv := redistest.Start(t)
				rdb = srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "x" })
				nodes = []*redis.Client{srv.Client(t)}
			}
			setUser(t, nodes, "resetchannels "+test.rules)
			var lost, back atomic.Int64
			h := newHub(t, rdb, pingEvery(time.Second), func(c *Config) {
				c.Commands = commands(test.plain, test.sharded)
				c.Lost = func(error) { lost.Add(1) }
				c.Back = func() { back.Add(1) }
			})
			all := !strings.Contains(test.rules, "&") // no channel can be confirmed
			var good []*listener
			for i := range test.channels {
				good = append(good, listen(h, fmt.Sprintf("good:%d", i)))
			}
			bad := listen(h, "bad:1")
			if !all {
				for _, l := range good {
					awaitHeard(t, l, 1)
				}
			}
			eventually(t, "Lost", func() bool { return lost.Load() > 0 })
			heard := func() (n int) {
				for _, l := range good {
					n += l.heard()
				}
				return n
			}
			// A machine slower than the pings may cost a connection, but not in every attempt.
			eventually(t, "refusals that leave everything as it is", func() bool {
				connected, before, refused := connectionIDs(t, nodes), heard(), refusals(t, nodes)
				eventually(t, "refusals", func() bool { return refusals(t, nodes) >= refused+2 })
				return slices.Equal(connectionIDs(t, nodes), connected) && heard() == before
			})
			if bad.heard() != 0 || back.Load() != 0 && lost.Load() < 2 {
				t.Errorf("%d notifications of a forbidden channel, Lost %d times, Back %d times", bad.heard(), lost.Load(), back.Load())
			}

			left := listen(h, "bad:2")
			left.Close()
			eventually(t, "a forbidden channel without listeners to be forgotten", func() bool { return h.Len() == len(good)+1 })
			setUser(t, nodes, "allchannels +@all")
			awaitHeard(t, bad, 1)
			if back := func() bool { return back.Load() > 0 }; all {
				for _, l := range good {
					awaitHeard(t, l, 1)
				}
				eventually(t, "Back", back)
			} else {
				eventually(t, "Back", back)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.denied != 0 {
				t.Errorf("%d routes are denied", h.denied)
			}
		})
	}
}

// setUser changes the rules of the user limited on all nodes.
func setUser(t *testing.T, nodes []*redis.Client, rules string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "limited", "on", "nopass", "~*"}
	for _, rule := range strings.Fields(rules) {
		args = append(args, rule)
	}
	for _, node := range nodes {
		if err := node.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// refusals returns how many SUBSCRIBEs and SSUBSCRIBEs the nodes have refused.
func refusals(t *testing.T, nodes []*redis.Client) (n int) {
	t.Helper()
	for _, node := range nodes {
		stats, err := node.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(stats) {
			if _, rejected, ok := strings.Cut(line, "rejected_calls="); ok && strings.Contains(line, "subscribe:") && !strings.Contains(line, "unsubscribe:") {
				calls, _, _ := strings.Cut(rejected, ",")
				rejections, err := strconv.Atoi(calls)
				if err != nil {
					t.Fatal(err)
				}
				n += rejections
			}
		}
	}
	return n
}

// connectionIDs returns the IDs of subscribed connections.
func connectionIDs(t *testing.T, nodes []*redis.Client) (ids []string) {
	t.Helper()
	for _, node := range nodes {
		for _, line := range connections(t, node) {
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, node.Options().Addr+" "+id)
		}
	}
	slices.Sort(ids)
	return ids
}

// A server that ends each connection, or answers with an error that concerns the connection, is not
// asked for new ones all the time, even if it has confirmed subscriptions on each.
func TestReconnect_BacksOff(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	h := newHub(t, proxy.Client(t), func(c *Config) { c.Commands = commands(true, true) })
	refused := proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "ssubscribe") }, redistest.ReplyWith("-ERR not today\r\n"))
	a := listen(h, "a")
	eventually(t, "retries", func() bool { return proxy.Count("HELLO") >= 8 })
	begun, before := time.Now(), proxy.Count("HELLO")
	time.Sleep(2 * time.Second)
	n := proxy.Count("HELLO") - before
	if took := time.Since(begun); float64(n) > 4*took.Seconds() {
		t.Errorf("%d connections in %s", n, took)
	}
	refused.Remove()
	awaitHeard(t, a, 1)
}

func TestClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)

	t.Run("unused", func(t *testing.T) {
		h := newHub(t, rdb)
		h.Close()
		h.Close()
		l := listen(h, "a") // starts nothing, or goleak fails
		l.Close()
	})
	t.Run("in use", func(t *testing.T) {
		h := newHub(t, rdb)
		a := listen(h, "a")
		awaitHeard(t, a, 1)
		h.Close()
		if h.Len() != 0 {
			t.Errorf("Len = %d after Close", h.Len())
		}
		eventually(t, "the connection to close", func() bool { return len(connections(t, rdb)) == 0 })
		a.Close()
		h.Close()
	})
	t.Run("Redis down", func(t *testing.T) {
		down := redistest.Start(t)
		down.Kill(t)
		h := newHub(t, down.Client(t))
		listen(h, "a")
		closes(t, h)
	})
	t.Run("stalled", func(t *testing.T) {
		proxy := srv.Proxy(t)
		h := newHub(t, proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Hour, time.Hour }))
		a := listen(h, "a")
		awaitHeard(t, a, 1)
		proxy.Stall()
		closes(t, h)
		proxy.Restore()
	})
	t.Run("stalled while connecting", func(t *testing.T) {
		proxy := srv.Proxy(t)
		proxy.Stall()
		h := newHub(t, proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second }))
		listen(h, "a")
		eventually(t, "a connection", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lines) == 1
		})
		closes(t, h)
		proxy.Restore()
	})
}

// closes fails the test unless Close returns in time.
func closes(t *testing.T, h *Hub) {
	t.Helper()
	begun, closed := time.Now(), make(chan struct{})
	go func() {
		defer close(closed)
		h.Close()
	}()
	select {
	case <-closed:
		t.Logf("Close took %s", time.Since(begun))
	case <-time.After(patience):
		t.Errorf("Close still runs after %s", patience)
	}
}
