// Package hub multiplexes all subscriptions of a lock client over one pub/sub connection, or over
// one per master in a cluster with sharded channels.
//
// Three kinds of goroutines share the work. Hub.mu guards all state they share:
//
//	the router (router.go)   places each channel on a line. There is only one line, except in a
//	                         cluster with sharded channels, where slots move and masters change
//	a line (line.go)         keeps a connection to one node open while channels are placed there
//	a session (session.go)   is one such connection: its writer subscribes and unsubscribes as
//	                         wanted, its reader dispatches what arrives
//
// A channel has one route per command that subscribes to it: plain, sharded or both. A route is
// confirmed when the server has answered every SUBSCRIBE sent for it, a channel when all its routes
// are. Every confirmation, the first and those after a reconnect or a move to another node,
// notifies the listeners just as a message does, because they may have missed something before it.
//
// The server may forbid some channels, or one of the commands. It then refuses a SUBSCRIBE with all
// its channels, so each of them is sent again alone. A route that is refused alone is denied: it is
// sent again with each ping only. The connection and all other routes stay as they are.
//
// There may be a channel for each lock with waiters, usually with one listener and one route. So a
// channel keeps its routes in a list and stores a single listener directly, and work queues are
// lists whose entries carry a mark. Maps would cost more than all of that.
//
// When a connection breaks, or a node answers MOVED or sends an SUNSUBSCRIBE that was not asked
// for, the router reloads the cluster's slots and places the channels again. If the new node turns
// out to be wrong as well, this repeats.
package hub

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// Config configures a Hub. All fields are required.
type Config struct {
	// Redis is not closed by the hub.
	Redis redisclient.Client
	// Commands returns which commands subscribe to a channel, at least one of them. The hub calls
	// it before it opens the first connection, and retries after a pause if it fails.
	Commands func(ctx context.Context) (plain, sharded bool, err error)
	// PingInterval is how long a connection may be silent before it is pinged. A ping is answered
	// within the next PingInterval, or the connection is lost. The known slots of a cluster are
	// trusted for twice as long.
	PingInterval time.Duration
	// Lost is called when a connection that has subscriptions is lost or cannot be opened, once per
	// node until it works again. It is also called when the server denies a subscription and has
	// denied none before.
	Lost func(err error)
	// Back is called after Lost, when a subscription is confirmed, no connection is lost any more
	// and no wanted subscription is denied.
	Back func()
}

// A Hub opens connections as needed and keeps them until Close.
type Hub struct {
	cfg Config

	mu sync.Mutex
	// The kinds of routes of each channel; all false before Config.Commands has returned.
	kinds    [kinds]bool
	channels map[string]*Channel
	own      *Channel // see SubscribeOwn; nil: none yet
	// changed are the channels that the router has yet to place.
	changed []*Channel
	lines   map[*redis.Client]*line
	lost    map[*redis.Client]bool // nodes whose connection is lost
	denied  int                    // number of denied routes
	stale   bool                   // reload the cluster's slots before placing channels
	started bool
	closed  bool

	reported atomic.Bool // Lost was called and Back is due; changed only with mu held

	wake    chan struct{} // signals that changed is not empty
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the router, and the lines it starts
}

// The kinds of routes.
const (
	plain = iota
	sharded
	kinds
	pings // no kind of route: a PING among the commands
)

// A Channel is a pub/sub channel. Hub.mu guards it. The hub keeps it while it has a listener or a
// route that has not ended.
type Channel struct {
	name     string
	listener Listener // nil: none
	routes   *route   // a list with at most one wanted route per kind; the others are ending
	// changed is true if the channel is in Hub.changed.
	changed bool
}

// A Listener is notified of a channel's messages. It must be a pointer, which identifies it.
type Listener interface {
	// Notify is called on every confirmation of the subscription and on every message, with no
	// mutex of the hub held. It must not block.
	Notify()
}

// A Reader is a Listener that is given the messages. It is notified of confirmations only. A
// channel with a Reader has no other listener.
type Reader interface {
	Listener
	// Read is called on every message, as Notify is.
	Read(message string)
}

// several is a list of listeners to one channel. It is immutable, because a notification may be
// reading it.
type several []Listener

func (s several) Notify() {
	for _, l := range s {
		l.Notify()
	}
}

// inCluster reports whether the hub serves a cluster, and no single server.
func (h *Hub) inCluster() bool { return h.cfg.Redis.Cluster != nil }

// New returns a hub. It starts nothing before the first Subscribe.
func New(cfg Config) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		cfg:      cfg,
		channels: make(map[string]*Channel),
		lines:    make(map[*redis.Client]*line),
		lost:     make(map[*redis.Client]bool),
		wake:     make(chan struct{}, 1),
		ctx:      ctx,
		cancel:   cancel,
	}
	return h
}

// Subscribe adds a listener to a channel and returns at once. confirmed means that the subscription
// is already active, so that no confirmation will follow.
func (h *Hub) Subscribe(name string, l Listener) (c *Channel, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c = h.subscribeLocked(name, l)
	return c, h.confirmedLocked(c)
}

// SubscribeOwn subscribes to the client's own channel. It has only plain routes, whatever
// Config.Commands returns, because any program may publish there and knows no slot for it. Len does
// not count it. Its results are those of Subscribe.
func (h *Hub) SubscribeOwn(name string, r Reader) (c *Channel, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c = h.subscribeLocked(name, r)
	h.own = c
	return c, h.confirmedLocked(c)
}

func (h *Hub) subscribeLocked(name string, l Listener) *Channel {
	c := h.channelLocked(name)
	if c.listener == nil {
		h.touchLocked(c)
	}
	c.addLocked(l)
	if !h.started && !h.closed {
		h.started = true
		h.running.Go(h.run)
	}
	return c
}

// Unsubscribe removes a listener. A notification that has started may still arrive.
func (h *Hub) Unsubscribe(c *Channel, l Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.dropLocked(l) && c.listener == nil {
		h.touchLocked(c)
	}
}

// addLocked adds a listener.
func (c *Channel) addLocked(l Listener) {
	switch others := c.listener.(type) {
	case nil:
		c.listener = l
	case several:
		c.listener = slices.Concat(others, several{l})
	default:
		c.listener = several{others, l}
	}
}

// dropLocked removes a listener and reports whether it was there.
func (c *Channel) dropLocked(l Listener) bool {
	list, ok := c.listener.(several)
	if !ok {
		list = several{c.listener}
	}
	i := slices.Index(list, l)
	if i < 0 {
		return false
	}
	switch rest := slices.Concat(list[:i], list[i+1:]); len(rest) {
	case 0:
		c.listener = nil
	case 1:
		c.listener = rest[0]
	default:
		c.listener = rest
	}
	return true
}

// Len returns the number of channels that have a listener or a route that has not ended.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lenLocked()
}

func (h *Hub) lenLocked() (n int) {
	n = len(h.channels)
	if h.own != nil && h.channels[h.own.name] == h.own {
		n--
	}
	return n
}

// Close ends all connections and waits until they have ended.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.channels)
	h.changed = nil
}

// channelLocked returns the channel of a name, and creates it if necessary.
func (h *Hub) channelLocked(name string) *Channel {
	c := h.channels[name]
	if c == nil {
		c = &Channel{name: name}
		h.channels[name] = c
	}
	return c
}

// touchLocked makes the router place a channel again.
func (h *Hub) touchLocked(c *Channel) {
	h.markLocked(c)
	wake(h.wake)
}

// markLocked queues a channel for the router without waking it.
func (h *Hub) markLocked(c *Channel) {
	if !c.changed {
		c.changed = true
		h.changed = append(h.changed, c)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Confirmed reports whether the subscription is active, so that no message can be missed.
func (h *Hub) Confirmed(c *Channel) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmedLocked(c)
}

// mostSilent is how long a connection that works can have been silent, in PingIntervals: it falls
// silent just after the first has begun, is pinged at the end of the second, and answers in the third.
const mostSilent = 3

// Hears reports whether a message would arrive now, as far as the hub can know: the subscription is
// active, and its connections have been heard within mostSilent PingIntervals. Once a connection is
// replaced, the listeners are notified, and what was published meanwhile is lost.
func (h *Hub) Hears(c *Channel) bool {
	since := clock.Now().Add(-mostSilent * h.cfg.PingInterval)
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := c.routes; r != nil; r = r.next {
		if r.wanted && !r.line.heardSince(since) {
			return false
		}
	}
	return h.confirmedLocked(c)
}

// confirmedLocked is Confirmed with the mutex held.
func (h *Hub) confirmedLocked(c *Channel) bool {
	subscribed := false
	for kind, wanted := range h.kindsLocked(c) {
		if !wanted {
			continue
		}
		if r := c.wanted(uint8(kind)); r == nil || !r.confirmed() {
			return false
		}
		subscribed = true
	}
	return subscribed
}

// kindsLocked returns which kinds of routes a channel has.
func (h *Hub) kindsLocked(c *Channel) [kinds]bool {
	if c == h.own {
		return [kinds]bool{plain: true}
	}
	return h.kinds
}

// dropNode records that the connection to a node is lost, and reports it if that is new.
func (h *Hub) dropNode(node *redis.Client, err error) {
	h.mu.Lock()
	known := h.lost[node]
	h.lost[node] = true
	h.reported.Store(true)
	h.mu.Unlock()
	if !known {
		h.cfg.Lost(err)
	}
}

// regain records that a node confirmed a subscription, and reports the end of an outage. It is
// called after line.confirm.
func (h *Hub) regain(node *redis.Client) {
	if !h.reported.Load() {
		return
	}
	h.mu.Lock()
	delete(h.lost, node)
	back := len(h.lost) == 0 && h.denied == 0 && h.reported.Swap(false)
	h.mu.Unlock()
	if back {
		h.cfg.Back()
	}
}

// listener returns the listener of a channel, or nil.
func (h *Hub) listener(name string) Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.channels[name]; c != nil {
		return c.listener
	}
	return nil
}

// wanted returns the wanted route of a kind, or nil.
func (c *Channel) wanted(kind uint8) *route {
	for r := c.routes; r != nil; r = r.next {
		if r.kind == kind && r.wanted {
			return r
		}
	}
	return nil
}

// remove removes a route and reports whether it was there.
func (c *Channel) remove(r *route) bool {
	for at := &c.routes; *at != nil; at = &(*at).next {
		if *at == r {
			*at = r.next
			return true
		}
	}
	return false
}

// forgetLocked removes a channel that has neither a listener nor routes.
func (h *Hub) forgetLocked(c *Channel) {
	if c.listener == nil && c.routes == nil && h.channels[c.name] == c {
		delete(h.channels, c.name)
	}
}
