// Package hub carries every subscription of a lock client over one pub/sub connection, or in a cluster with sharded
// channels over one for each master.
//
// Three kinds of goroutines share the work, and all they share is guarded by Hub.mu:
//
//	the router (router.go)   says on which line each channel belongs: one of its own in a cluster with sharded channels,
//	                         where slots move and masters change; else there is but one line
//	a line (line.go)         keeps a connection to one node open for as long as channels belong there
//	a session (session.go)   is one such connection: its writer brings the subscriptions in line with what is wanted, its
//	                         reader hands on what arrives
//
// A channel has a route for each command that subscribes to it: plain, sharded or both. A route is confirmed when the server
// has answered as many SUBSCRIBEs as were sent for it, and a channel when its routes are. Every confirmation, the first and
// those after a reconnect or a move to another node, reaches the listeners as a notification, exactly as a message does: in
// all cases something may have happened that they have not seen.
//
// There may be one channel for each lock that is waited for, as a rule with one listener and one route. So a channel has its
// routes in a list and nothing else for a single listener, and what is to be looked at stands in a list with a mark on it: a map
// costs more than all of that.
//
// When a connection breaks, a node says that it does not serve a slot (MOVED), or takes a channel back (an SUNSUBSCRIBE that
// nobody asked for), the router reads the cluster's slots again and places the channels anew. Should the node it finds not
// be the right one yet, the same happens again.
package hub

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config says where the connections lead. All fields are required.
type Config struct {
	// Redis is not closed by the hub.
	Redis redis.UniversalClient
	// Commands says which commands subscribe to a channel, one of them at least. It is asked once, before the first
	// connection is opened, and again after a pause when it fails.
	Commands func(ctx context.Context) (plain, sharded bool, err error)
	// PingInterval is how long a silent connection is trusted, and in a cluster what is known of its slots.
	PingInterval time.Duration
	// Lost is called when a connection that subscriptions need is lost, or cannot be opened; for
	// each node once until it works again.
	Lost func(err error)
	// Back is called after Lost when a subscription is confirmed and no connection is lost any
	// more.
	Back func()
}

// A Hub opens connections when they are needed, and keeps them until Close.
type Hub struct {
	cfg     Config
	cluster *redis.ClusterClient // nil: all channels are at the same server

	mu       sync.Mutex
	kinds    [kinds]bool // of routes that each channel has; none before Config.Commands has told
	channels map[string]*Channel
	changed  []*Channel // to be routed
	lines    map[*redis.Client]*line
	lost     map[*redis.Client]bool // the nodes whose connection is lost
	stale    bool                   // what is known of the cluster's slots
	started  bool
	closed   bool

	reported atomic.Bool // Lost was called, and Back is due; changed with mu held

	wake    chan struct{} // something in changed
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the router, and the lines, which it starts
}

// The kinds of routes.
const (
	plain = iota
	sharded
	kinds
)

// A Channel is what can be subscribed to. It is guarded by Hub.mu, and known while anybody subscribes to it, or a route of it is
// not over.
type Channel struct {
	name     string
	listener Listener // nil: nobody
	routes   *route   // the first; of each kind one is wanted at most, others, on other lines, come to their end
	changed  bool     // it stands in Hub.changed
}

// A Listener is who subscribes. It is a pointer, which tells it from others.
type Listener interface {
	// Notify is called on every confirmation of the subscription and on every message, without a mutex of the hub held. It
	// must not block.
	Notify()
}

// several are listeners to one channel. They are not changed: a notification may be under way.
type several []Listener

func (s several) Notify() {
	for _, l := range s {
		l.Notify()
	}
}

// New returns a hub. It does nothing until the first Subscribe.
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
	h.cluster, _ = cfg.Redis.(*redis.ClusterClient)
	return h
}

// Subscribe registers a listener to a channel and returns at once. A channel that is confirmed already needs no further
// confirmation.
func (h *Hub) Subscribe(name string, l Listener) (c *Channel, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c = h.channel(name)
	if c.listener == nil {
		h.touch(c)
	}
	c.add(l)
	if !h.started && !h.closed {
		h.started = true
		h.running.Go(h.run)
	}
	return c, h.confirmed(c)
}

// Unsubscribe ends what Subscribe has begun. A notification under way may still arrive.
func (h *Hub) Unsubscribe(c *Channel, l Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.drop(l) && c.listener == nil {
		h.touch(c)
	}
}

// add has a listener told. Locked.
func (c *Channel) add(l Listener) {
	switch others := c.listener.(type) {
	case nil:
		c.listener = l
	case several:
		c.listener = slices.Concat(others, several{l})
	default:
		c.listener = several{others, l}
	}
}

// drop has a listener told no longer, and reports whether it was. Locked.
func (c *Channel) drop(l Listener) bool {
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

// Len is the number of channels that are wanted, or still subscribed to.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels)
}

// Close ends all connections and waits for them.
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

// channel is the channel of a name, which is made if need be. Locked.
func (h *Hub) channel(name string) *Channel {
	c := h.channels[name]
	if c == nil {
		c = &Channel{name: name}
		h.channels[name] = c
	}
	return c
}

// touch has the router look at a channel. Locked.
func (h *Hub) touch(c *Channel) {
	h.mark(c)
	wake(h.wake)
}

// mark has the router look at a channel when it wakes. Locked.
func (h *Hub) mark(c *Channel) {
	if !c.changed {
		c.changed = true
		h.changed = append(h.changed, c)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already, or about to be
	}
}

// Confirmed says whether nothing that is published on a channel can be missed now.
func (h *Hub) Confirmed(c *Channel) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed(c)
}

// confirmed is Confirmed, locked.
func (h *Hub) confirmed(c *Channel) bool {
	subscribed := false
	for kind, wanted := range h.kinds {
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

// lose reports that the connection to a node is lost.
func (h *Hub) lose(node *redis.Client, err error) {
	h.mu.Lock()
	known := h.lost[node]
	h.lost[node] = true
	h.reported.Store(true)
	h.mu.Unlock()
	if !known {
		h.cfg.Lost(err)
	}
}

// regain reports that a node has confirmed a subscription.
func (h *Hub) regain(node *redis.Client) {
	if !h.reported.Load() {
		return
	}
	h.mu.Lock()
	delete(h.lost, node)
	back := len(h.lost) == 0 && h.reported.Swap(false)
	h.mu.Unlock()
	if back {
		h.cfg.Back()
	}
}

// listener is whom to tell of a message, or nil.
func (h *Hub) listener(name string) Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.channels[name]; c != nil {
		return c.listener
	}
	return nil
}

// wanted is the route of a kind that is wanted, or nil.
func (c *Channel) wanted(kind uint8) *route {
	for r := c.routes; r != nil; r = r.next {
		if r.kind == kind && r.wanted {
			return r
		}
	}
	return nil
}

// remove takes out a route, and reports whether it was there.
func (c *Channel) remove(r *route) bool {
	for at := &c.routes; *at != nil; at = &(*at).next {
		if *at == r {
			*at = r.next
			return true
		}
	}
	return false
}

// forget drops a channel of which there is nothing to know any more. Locked.
func (h *Hub) forget(c *Channel) {
	if c.listener == nil && c.routes == nil && h.channels[c.name] == c {
		delete(h.channels, c.name)
	}
}
