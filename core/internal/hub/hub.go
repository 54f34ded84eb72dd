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
// those after a reconnect or a move to another node, reaches the subscribers as a notification, exactly as a message does: in
// all cases something may have happened that they have not seen.
//
// A channel has its subscriptions and its routes in lists, and what is to be looked at stands in a list with a mark on it: of
// most things there is one, there may be one channel for each lock that is waited for, and a map costs more than all of them.
//
// When a connection breaks, a node says that it does not serve a slot (MOVED), or takes a channel back (an SUNSUBSCRIBE that
// nobody asked for), the router reads the cluster's slots again and places the channels anew. Should the node it finds not
// be the right one yet, the same happens again.
package hub

import (
	"context"
	"log/slog"
	"sync"
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
	Logger       *slog.Logger
}

// A Hub opens connections when they are needed, and keeps them until Close.
type Hub struct {
	cfg     Config
	cluster *redis.ClusterClient // nil: all channels are at the same server

	mu       sync.Mutex
	kinds    [kinds]bool // of routes that each channel has; none before Config.Commands has told
	channels map[string]*channel
	changed  []*channel // to be routed
	lines    map[*redis.Client]*line
	stale    bool // what is known of the cluster's slots
	started  bool
	closed   bool

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

// A channel is guarded by Hub.mu. It is known while anybody subscribes to it, or a route of it is not over.
type channel struct {
	hub     *Hub
	name    string
	subs    *Subscription // the first
	routes  *route        // likewise; of each kind one is wanted at most, others, on other lines, come to their end
	changed bool          // it stands in Hub.changed
}

// A Subscription is one party's interest in one channel.
type Subscription struct {
	channel  *channel
	listener Listener
	next     *Subscription // to the same channel
}

// A Listener is who subscribes.
type Listener interface {
	// Notify is called on every confirmation of the subscription and on every message, without a mutex of the hub held. It
	// must not block.
	Notify()
}

// New returns a hub. It does nothing until the first Subscribe.
func New(cfg Config) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		cfg:      cfg,
		channels: make(map[string]*channel),
		lines:    make(map[*redis.Client]*line),
		wake:     make(chan struct{}, 1),
		ctx:      ctx,
		cancel:   cancel,
	}
	h.cluster, _ = cfg.Redis.(*redis.ClusterClient)
	return h
}

// Subscribe registers interest in a channel and returns at once. A channel that is confirmed already needs no further
// confirmation.
func (h *Hub) Subscribe(name string, listener Listener) (s *Subscription, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channel(name)
	s = &Subscription{channel: c, listener: listener, next: c.subs}
	c.subs = s
	if s.next == nil {
		h.touch(c)
	}
	if !h.started && !h.closed {
		h.started = true
		h.running.Go(h.run)
	}
	return s, h.confirmed(c)
}

// Close ends the interest. A notification under way may still arrive.
func (s *Subscription) Close() {
	c := s.channel
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for at := &c.subs; *at != nil; at = &(*at).next {
		if *at == s {
			*at = s.next
			if c.subs == nil {
				c.hub.touch(c)
			}
			return
		}
	}
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
func (h *Hub) channel(name string) *channel {
	c := h.channels[name]
	if c == nil {
		c = &channel{hub: h, name: name}
		h.channels[name] = c
	}
	return c
}

// touch has the router look at a channel. Locked.
func (h *Hub) touch(c *channel) {
	h.mark(c)
	wake(h.wake)
}

// mark has the router look at a channel when it wakes. Locked.
func (h *Hub) mark(c *channel) {
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

// confirmed says whether nothing that is published can be missed. Locked.
func (h *Hub) confirmed(c *channel) bool {
	any := false
	for kind, wanted := range h.kinds {
		if !wanted {
			continue
		}
		if r := c.wanted(uint8(kind)); r == nil || !r.confirmed() {
			return false
		}
		any = true
	}
	return any
}

// subscribers are those to tell of a message.
func (h *Hub) subscribers(name string) []*Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.channels[name]; c != nil {
		return c.list()
	}
	return nil
}

func (c *channel) list() (list []*Subscription) {
	for s := c.subs; s != nil; s = s.next {
		list = append(list, s)
	}
	return list
}

// wanted is the route of a kind that is wanted, or nil.
func (c *channel) wanted(kind uint8) *route {
	for r := c.routes; r != nil; r = r.next {
		if r.kind == kind && r.wanted {
			return r
		}
	}
	return nil
}

// remove takes out a route, and reports whether it was there.
func (c *channel) remove(r *route) bool {
	for at := &c.routes; *at != nil; at = &(*at).next {
		if *at == r {
			*at = r.next
			return true
		}
	}
	return false
}

// forget drops a channel of which there is nothing to know any more. Locked.
func (h *Hub) forget(c *channel) {
	if c.subs == nil && c.routes == nil && h.channels[c.name] == c {
		delete(h.channels, c.name)
	}
}
