package hub

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// newHub returns a hub on a Redis client, closed when the test ends.
func newHub(t *testing.T, rdb redis.UniversalClient, changes ...func(*Config)) *Hub {
	t.Helper()
	cfg := Config{
		Redis:        rdb,
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
	hub       *Hub
	channel   *Channel
	confirmed bool // at once
	n         atomic.Int64
}

func listen(h *Hub, name string) *listener {
	l := &listener{hub: h}
	l.channel, l.confirmed = h.Subscribe(name, l)
	return l
}

func (l *listener) Close() { l.hub.Unsubscribe(l.channel, l) }

func (l *listener) Notify() { l.n.Add(1) }

// A listenerFunc is a listener with a mind of its own.
type listenerFunc struct{ f func() }

func (l *listenerFunc) Notify() { l.f() }

func (l *listener) heard() int { return int(l.n.Load()) }

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// awaitHeard waits until the listener has been notified n times in all.
func awaitHeard(t *testing.T, l *listener, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d notifications", n), func() bool { return l.heard() >= n })
	if l.heard() > n {
		t.Fatalf("%d notifications, want %d", l.heard(), n)
	}
}

// announce publishes until the listener has heard of it. It returns how many messages may have been
// on the way.
func announce(t *testing.T, l *listener, publish func() error) (sent int) {
	t.Helper()
	before := l.heard()
	eventually(t, "a message is heard", func() bool {
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

// channels returns those that anybody is subscribed to.
func channels(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	list, err := rdb.PubSubChannels(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// connections returns the lines of CLIENT LIST for subscribed connections.
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
		t.Error("confirmed before it was sent")
	}
	awaitHeard(t, first, 1) // the confirmation
	other := listen(h, "b")
	awaitHeard(t, other, 1)

	second := listen(h, "a")
	if !second.confirmed {
		t.Error("a channel that is subscribed to already needs no further confirmation")
	}
	publish(t, rdb, "a")
	awaitHeard(t, first, 2)
	awaitHeard(t, second, 1)

	// What comes later on the same connection shows that nothing more had come for the others.
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
		t.Errorf("channels %q, while a still has a subscriber", got)
	}

	two.Close()
	eventually(t, "a is unsubscribed from", func() bool { return slices.Equal(channels(t, rdb), []string{"b"}) })
	eventually(t, "a is forgotten", func() bool { return h.Len() == 1 })
	other.Close()
	eventually(t, "b is unsubscribed from", func() bool { return len(channels(t, rdb)) == 0 && h.Len() == 0 })

	again := listen(h, "a")
	if again.confirmed {
		t.Error("confirmed, though it was unsubscribed from")
	}
	awaitHeard(t, again, 1)
	publish(t, rdb, "a")
	awaitHeard(t, again, 2)
}

// Of several listeners to a channel each is told as long as it is subscribed, and the last one
// takes the subscription with it.
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
	eventually(t, "a is unsubscribed from", func() bool { return len(channels(t, rdb)) == 0 && h.Len() == 0 })
}

// Any number of channels needs one connection and few commands.
func TestManyChannelsOneConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t))

	const n = 3*ordersAtOnce + 7
	// How many come together depends on the scheduler; that they come together does not. A machine
	// that has other things to do may hand each of them on by itself, but not every time.
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
		eventually(t, "all is unsubscribed from", func() bool { return h.Len() == 0 && len(channels(t, rdb)) == 0 })
		subscribes, unsubscribes = proxy.Count("SUBSCRIBE")-subscribes, proxy.Count("UNSUBSCRIBE")-unsubscribes
		t.Logf("%d SUBSCRIBEs and %d UNSUBSCRIBEs for %d channels", subscribes, unsubscribes, n)
		few = subscribes <= n/20 && unsubscribes <= n/20
	}
	if !few {
		t.Error("every time there were too many commands")
	}
}

// The library's own channel drops messages when more than a hundred wait to be read.
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
	eventually(t, "all messages have arrived", func() bool { return n.Load() == messages+1 })
}

// A connection that is killed comes back with all its channels, and everybody is told: a message
// may have been missed.
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
		eventually(t, "one connection is left", func() bool { return len(connections(t, rdb)) == 1 })
	}
}

// A line that has lost its connection when nobody listens is given up, and whoever comes then has
// another.
func TestConnectionLostWhileNobodyListens(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	h := newHub(t, proxy.Client(t))
	for range 2 {
		a := listen(h, "a")
		awaitHeard(t, a, 1)
		a.Close()
		eventually(t, "a is unsubscribed from", func() bool { return h.Len() == 0 })
		proxy.Cut()
		eventually(t, "the line is given up", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lines) == 0
		})
		proxy.Restore()
	}
}

// What changes while there is no connection is right when there is one again.
func TestChangesWhileDown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t))
	stays, goes := listen(h, "stays"), listen(h, "goes")
	awaitHeard(t, stays, 1)
	awaitHeard(t, goes, 1)

	proxy.Cut()
	eventually(t, "Redis has seen the end of the connection", func() bool { return len(connections(t, rdb)) == 0 })
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
	eventually(t, "only what is wanted is left", func() bool {
		return slices.Equal(channels(t, rdb), []string{"comes", "stays"}) && h.Len() == 2
	})
	if brief.heard() != 0 || goes.heard() != 1 {
		t.Errorf("notifications for closed subscriptions: %d, %d", brief.heard(), goes.heard())
	}
	if again := listen(h, "stays"); !again.confirmed {
		t.Error("stays is subscribed to, but does not count as confirmed")
	}
}

// Subscribing returns at once also when Redis is down, and it works when Redis comes up.
func TestRedisComesUpLater(t *testing.T) {
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

// A connection on which nothing arrives any more, though it is open, is given up after a ping
// without an answer.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
	var lost atomic.Int64
	h := newHub(t, rdb, pingEvery(200*time.Millisecond), func(c *Config) { c.Lost = func(error) { lost.Add(1) } })
	a := listen(h, "a")
	awaitHeard(t, a, 1)

	// From here on the connection is deaf, and stays so; another would be as good as new. A machine
	// that is slower than the pings may cost further connections.
	deaf := proxy.On("PING", 1, redistest.DropReply)
	<-deaf.Hit()
	eventually(t, "the subscription is confirmed on another connection", func() bool { return a.heard() >= 2 })
	direct := srv.Client(t)
	announce(t, a, func() error { return direct.Publish(t.Context(), "a", "0").Err() })

	// Now none is.
	gone := lost.Load()
	proxy.Stall()
	eventually(t, "the connection is given up", func() bool { return lost.Load() > gone })
	heard := a.heard()
	proxy.Restore()
	eventually(t, "the subscription is confirmed anew", func() bool { return a.heard() > heard })
	eventually(t, "one connection is left", func() bool { return len(connections(t, direct)) == 1 })
}

// Lost and Back are called once for each outage, also if the last listener leaves during it.
func TestLostAndBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	told := make(chan string, 100)
	h := newHub(t, proxy.Client(t), func(c *Config) {
		c.Lost = func(err error) { told <- fmt.Sprint("lost ", err != nil) }
		c.Back = func() { told <- "back" }
	})
	wantTold := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told %q, want %q", got, want)
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
			eventually(t, "nobody listens", func() bool { return h.Len() == 0 })
		}
		proxy.Restore()
		if !listens {
			a = listen(h, "b")
		}
		wantTold("back")
	}
	a.Close()
	eventually(t, "nobody listens", func() bool { return h.Len() == 0 })
	h.Close()
	if len(told) > 0 {
		t.Errorf("told %q as well", <-told)
	}
}

// Pings keep a connection that has nothing to say, and are not sent where messages do the same, or
// nobody listens.
func TestPings(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t), pingEvery(100*time.Millisecond))
	a := listen(h, "a")
	awaitHeard(t, a, 1)
	// On a machine that stands still for a moment pings are answered too late, and then the
	// connection is given up as it should be; that does not go on all the time.
	eventually(t, "a few pings leave everything as it is", func() bool {
		pings, subscribes, heard := proxy.Count("PING"), proxy.Count("SUBSCRIBE"), a.heard()
		eventually(t, "a few pings", func() bool { return proxy.Count("PING") >= pings+5 })
		return proxy.Count("SUBSCRIBE") == subscribes && a.heard() == heard
	})

	a.Close()
	eventually(t, "nobody listens", func() bool { return h.Len() == 0 })
	pings := proxy.Count("PING")
	time.Sleep(600 * time.Millisecond)
	if n := proxy.Count("PING"); n > pings+1 { // one may have been due just then
		t.Errorf("%d pings while nobody listens", n-pings)
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
	publish(t, rdb, "a") // another namespace
	for range 2 {
		if err := rdb.SPublish(ctx, "a", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
	awaitHeard(t, a, 3)
	awaitHeard(t, b, 1)
	a.Close()
	b.Close()
	eventually(t, "all is unsubscribed from", func() bool {
		list, err := rdb.PubSubShardChannels(ctx, "*").Result()
		return err == nil && len(list) == 0 && h.Len() == 0
	})
}

// With both, a channel counts as confirmed when both commands are.
func TestBoth(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	h := newHub(t, proxy.Client(t), func(c *Config) { c.Commands = commands(true, true) })
	held := proxy.On("SSUBSCRIBE", 1, redistest.HoldRequest)
	a := listen(h, "a")
	<-held.Hit()
	eventually(t, "the first command is executed", func() bool { return len(channels(t, rdb)) == 1 })
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
	eventually(t, "UNSUBSCRIBE is sent", func() bool { return proxy.Count("UNSUBSCRIBE") == 1 })
	second := listen(h, "a")
	eventually(t, "SUBSCRIBE is sent again", func() bool { return proxy.Count("SUBSCRIBE") == 2 })
	if third := listen(h, "a"); third.confirmed || second.heard() != 0 {
		t.Error("confirmed by the answer to a SUBSCRIBE that an UNSUBSCRIBE has followed")
	}
	held.Release()
	awaitHeard(t, second, 1)
	if first.heard() != 0 {
		t.Error("a closed subscription was notified")
	}
	publish(t, rdb, "a")
	awaitHeard(t, second, 2)

	// And many at once.
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
	eventually(t, "only a is left", func() bool { return h.Len() == 1 && slices.Equal(channels(t, rdb), []string{"a"}) })
	for i := range 5 {
		l := listen(h, fmt.Sprint("churn:", i))
		awaitHeard(t, l, 1)
	}
}

// Whoever subscribes is told when messages can be missed no longer: at once, or by a notification.
// That is so also when the end of an earlier subscription has been decided and not been sent.
func TestEverySubscriptionIsConfirmed(t *testing.T) {
	t.Parallel()
	h := newHub(t, redistest.Start(t).Client(t))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				told := make(chan struct{}, 100)
				l := &listenerFunc{func() { told <- struct{}{} }}
				channel, confirmed := h.Subscribe(fmt.Sprint("confirmed:", g), l)
				if !confirmed {
					select {
					case <-told:
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

// Where the server forbids a channel there is an error instead of a confirmation, every time. That
// must not become a storm of connections, and the other channels' subscribers must not be told to
// ask Redis all the time.
func TestForbiddenChannel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	srv := redistest.Start(t)
	rdb, proxy := srv.Client(t), srv.Proxy(t)
	if err := rdb.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "~*", "+@all", "resetchannels", "&good:*").Err(); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, proxy.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "x" }))
	good := listen(h, "good:1")
	awaitHeard(t, good, 1)
	bad := listen(h, "bad:1")

	eventually(t, "it is tried again", func() bool { return proxy.Count("SUBSCRIBE") >= 4 })
	begun, before := time.Now(), proxy.Count("HELLO")
	time.Sleep(2 * time.Second)
	n := proxy.Count("HELLO") - before
	if took := time.Since(begun); float64(n) > 6*took.Seconds() {
		t.Errorf("%d connections in %s", n, took)
	}
	if bad.heard() != 0 {
		t.Error("a forbidden channel was confirmed")
	}
	bad.Close()
	eventually(t, "good is subscribed to again", func() bool {
		if !slices.Equal(channels(t, rdb), []string{"good:1"}) {
			return false
		}
		heard := good.heard()
		publish(t, rdb, "good:1")
		time.Sleep(20 * time.Millisecond)
		return good.heard() == heard+1
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)

	t.Run("unused", func(t *testing.T) {
		h := newHub(t, rdb)
		h.Close()
		h.Close()
		l := listen(h, "a") // starts nothing; goleak would tell
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
		eventually(t, "the connection is gone", func() bool { return len(connections(t, rdb)) == 0 })
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
		eventually(t, "it connects", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lines) == 1
		})
		closes(t, h)
		proxy.Restore()
	})
}

// closes fails the test unless Close comes to an end by itself.
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
		t.Errorf("Close goes on after %s", patience)
	}
}
