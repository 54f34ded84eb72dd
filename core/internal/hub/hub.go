// Package hub carries every subscription of a lock client over one pub/sub connection.
//
// State has one owner each. Hub.channels, under Hub.mu, is what is wanted: which channels have subscribers. The line (see
// line.go) is what there is: the writer goroutine brings the connection's subscriptions in line with what is wanted, the
// reader goroutine hands on what arrives. When the connection breaks, both end, and the hub opens the next one and
// subscribes to everything again.
//
// A channel is confirmed when the server has answered as many SUBSCRIBEs as were sent for it. Every confirmation, the first
// and those after a reconnect, reaches the subscribers as a notification, exactly as a message does: in both cases
// something may have happened that they have not seen.
package hub

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config says where the connection comes from. All fields are required.
type Config struct {
	// Open returns a new pub/sub object without channels. It need not connect.
	Open func(ctx context.Context) *redis.PubSub
	// Plain and Sharded say which commands subscribe to a channel; one of them at least.
	Plain, Sharded bool
	// PingInterval is how long a silent connection is trusted.
	PingInterval time.Duration
	Logger       *slog.Logger
}

// A Hub holds one connection, opened when the first subscription is made, and kept until Close.
type Hub struct {
	cfg Config

	mu       sync.Mutex
	channels map[string]*channel
	changed  map[string]*channel // channels whose line may differ from what is wanted
	started  bool
	closed   bool

	wake   chan struct{} // something in changed
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
}

// A channel is guarded by Hub.mu.
type channel struct {
	name string
	subs map[*Subscription]struct{}

	subscribed bool // as far as has been sent on the present connection
	unanswered int  // SUBSCRIBEs sent on the present connection and not confirmed
}

func (c *channel) confirmed() bool { return c.subscribed && c.unanswered == 0 }

// A Subscription is one party's interest in one channel.
type Subscription struct {
	hub     *Hub
	channel *channel
	notify  func()
}

// New returns a hub. It does nothing until the first Subscribe.
func New(cfg Config) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{
		cfg:      cfg,
		channels: make(map[string]*channel),
		changed:  make(map[string]*channel),
		wake:     make(chan struct{}, 1),
		ctx:      ctx,
		cancel:   cancel,
		ended:    make(chan struct{}),
	}
}

// Subscribe registers interest in a channel and returns at once. notify is called on every confirmation of the
// subscription and on every message, from one goroutine and without a mutex of the hub held; it must not block. A
// channel that is confirmed already needs no further confirmation.
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
	h.touch(c)
	if !h.started && !h.closed {
		h.started = true
		go h.run()
	}
	return s, c.confirmed()
}

// Close ends the interest. A notification under way may still arrive.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if _, open := s.channel.subs[s]; open {
		delete(s.channel.subs, s)
		s.hub.touch(s.channel)
	}
}

// Len is the number of channels that are wanted, or still subscribed to.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.channels)
}

// Close ends the connection and waits for it.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	running := h.started
	h.mu.Unlock()
	h.cancel()
	if running {
		<-h.ended
	}
	h.mu.Lock()
	clear(h.channels)
	clear(h.changed)
	h.mu.Unlock()
}

// touch has the writer look at a channel. Locked.
func (h *Hub) touch(c *channel) {
	h.changed[c.name] = c
	select {
	case h.wake <- struct{}{}:
	default: // the writer is awake already, or about to be
	}
}

// run keeps a line open until Close.
func (h *Hub) run() {
	defer close(h.ended)
	for failures := 0; ; failures++ {
		l := &line{hub: h, pubsub: h.cfg.Open(h.ctx)}
		err := l.run(h.ctx)
		h.reset()
		if l.heard.Load() {
			failures = 0
		}
		if failures == 0 && h.ctx.Err() == nil && h.Len() > 0 {
			h.cfg.Logger.Warn("reqlock: pub/sub connection lost, waiters poll until it is back", "error", err)
		}
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(pause(failures)):
		}
	}
}

// pause grows with the failures in a row, from 10ms to 1s.
func pause(failures int) time.Duration {
	return min(10*time.Millisecond<<min(failures, 7), time.Second)
}

// reset forgets what was subscribed on a connection that is gone.
func (h *Hub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.channels {
		c.subscribed, c.unanswered = false, 0
		h.touch(c)
	}
}

// confirm counts a confirmation and returns whom to tell.
func (h *Hub) confirm(name string) []*Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[name]
	if c == nil || c.unanswered == 0 {
		return nil
	}
	c.unanswered--
	if !c.confirmed() {
		h.touch(c) // an unsubscribed channel may be forgotten now
		return nil
	}
	return c.list()
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
