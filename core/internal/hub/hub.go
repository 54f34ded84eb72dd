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
	changed  map[*channel]struct{} // to be routed
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
	name   string
	subs   map[*Subscription]struct{}
	routes [kinds]*route
}

// A Subscription is one party's interest in one channel.
type Subscription struct {
	hub     *Hub
	channel *channel
	notify  func()
}

// New returns a hub. It does nothing until the first Subscribe.
func New(cfg Config) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{
		cfg:      cfg,
		channels: make(map[string]*channel),
		changed:  make(map[*channel]struct{}),
		lines:    make(map[*redis.Client]*line),
		wake:     make(chan struct{}, 1),
		ctx:      ctx,
		cancel:   cancel,
	}
	h.cluster, _ = cfg.Redis.(*redis.ClusterClient)
	return h
}

// Subscribe registers interest in a channel and returns at once. notify is called on every confirmation of the
// subscription and on every message, without a mutex of the hub held; it must not block. A channel that is confirmed
// already needs no further confirmation.
func (h *Hub) Subscribe(name string, notify func()) (s *Subscription, confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = &Subscription{hub: h, notify: notify}
	c := h.channels[name]
	if c == nil {
		c = &channel{name: name, subs: make(map[*Subscription]struct{}, 1)}
		h.channels[name] = c
	}
	c.subs[s], s.channel = struct{}{}, c
	if len(c.subs) == 1 {
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
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if _, open := s.channel.subs[s]; !open {
		return
	}
	delete(s.channel.subs, s)
	if len(s.channel.subs) == 0 {
		s.hub.touch(s.channel)
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
	clear(h.changed)
}

// touch has the router look at a channel. Locked.
func (h *Hub) touch(c *channel) {
	h.changed[c] = struct{}{}
	wake(h.wake)
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
		if r := c.routes[kind]; r == nil || !r.confirmed() {
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

func (c *channel) list() []*Subscription {
	list := make([]*Subscription, 0, len(c.subs))
	for s := range c.subs {
		list = append(list, s)
	}
	return list
}

// forget drops a channel of which there is nothing to know any more. Locked.
func (h *Hub) forget(c *channel) {
	if len(c.subs) == 0 && c.routes == [kinds]*route{} && h.channels[c.name] == c {
		delete(h.channels, c.name)
	}
}
