package hub

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A line keeps a connection to a node open for as long as routes are on it. All its fields but the constant ones are
// guarded by Hub.mu.
type line struct {
	hub  *Hub
	node *redis.Client // nil: the only one, or in a cluster any

	routes  map[routeKey]*route
	changed map[*route]struct{} // that may differ from what is wanted
	wake    chan struct{}       // something in changed
}

type routeKey struct {
	channel string
	kind    int
}

// A route is the subscription to one channel by one command on one line. It is over, and forgotten, when it is not wanted
// any more and the server has answered everything.
type route struct {
	routeKey
	line *line
	slot int // in a cluster, of a sharded channel: one command carries channels of one slot only

	wanted     bool
	subscribed bool // as far as has been sent on the present connection
	unanswered int  // SUBSCRIBEs sent on the present connection and not confirmed
	leaving    int  // UNSUBSCRIBEs, likewise
}

func (r *route) confirmed() bool { return r.wanted && r.subscribed && r.unanswered == 0 }

// disconnect forgets what has been sent: it is of no consequence any more.
func (r *route) disconnect() { r.subscribed, r.unanswered, r.leaving = false, 0, 0 }

// run has one session after the other until no route is left when one has ended, or the hub is closed.
func (l *line) run() {
	for failures := 0; l.needed(); failures++ {
		s := newSession(l)
		err := s.run(l.hub.ctx)
		routes := l.broke()
		if s.heard.Load() {
			failures = 0
		}
		if failures == 0 && routes > 0 && l.hub.ctx.Err() == nil {
			l.hub.cfg.Logger.Warn("reqlock: pub/sub connection lost, waiters poll until it is back", "error", err)
		}
		if !l.hub.sleep(pause(failures)) {
			return
		}
	}
}

// needed gives the line up if it is not.
func (l *line) needed() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if len(l.routes) > 0 {
		return true
	}
	delete(l.hub.lines, l.node)
	return false
}

// open returns a pub/sub object without channels. It does not connect yet.
func (l *line) open() (*redis.PubSub, error) {
	h := l.hub
	switch {
	case l.node != nil:
		return l.node.Subscribe(h.ctx), nil
	case h.cluster == nil:
		return h.cfg.Redis.Subscribe(h.ctx), nil
	}
	node, err := h.anyMaster()
	if err != nil {
		return nil, fmt.Errorf("find a master: %w", err)
	}
	return node.Subscribe(h.ctx), nil
}

// broke is told when the connection is gone. Whoever is wanted is subscribed to on the next one, unless the router finds by
// then that it belongs elsewhere. It returns how many there are.
func (l *line) broke() (wanted int) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range l.routes {
		r.disconnect()
		l.touch(r)
		if c := h.channels[r.channel]; r.wanted && c != nil {
			wanted++
			h.changed[c] = struct{}{}
		}
		l.settle(r)
	}
	h.distrust()
	return wanted
}

// route is the route of a channel on the line. Locked, as all that follows.
func (l *line) route(c *channel, kind int) *route {
	return l.routeOf(routeKey{c.name, kind})
}

func (l *line) routeOf(key routeKey) *route {
	r := l.routes[key]
	if r == nil {
		r = &route{routeKey: key, line: l}
		if key.kind == sharded && l.hub.cluster != nil {
			r.slot = wire.Slot(key.channel)
		}
		l.routes[key] = r
	}
	return r
}

// touch has the session look at a route.
func (l *line) touch(r *route) {
	l.changed[r] = struct{}{}
	wake(l.wake)
}

// settle forgets a route that is over.
func (l *line) settle(r *route) {
	if r.wanted || r.subscribed || r.unanswered > 0 || r.leaving > 0 {
		return
	}
	delete(l.routes, r.routeKey)
	delete(l.changed, r)
	if c := l.hub.channels[r.channel]; c != nil && c.routes[r.kind] == r {
		c.routes[r.kind] = nil
		l.hub.forget(c)
	}
}

// displace has a route, which this node does not serve, placed anew.
func (l *line) displace(r *route) {
	r.disconnect()
	if c := l.hub.channels[r.channel]; r.wanted && c != nil {
		l.hub.changed[c] = struct{}{}
		l.hub.distrust()
	}
	l.settle(r)
}

// An order is a command, for the channels of one slot where that matters.
type order struct {
	kind      int
	subscribe bool
	slot      int
}

// ordersAtOnce bounds how many channels are taken, and so the size of a command.
const ordersAtOnce = 500

// takeOrders says what to send next, and takes it as sent. Not locked.
func (l *line) takeOrders() map[order][]string {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	orders, n := make(map[order][]string), 0
	for r := range l.changed {
		if n == ordersAtOnce {
			break
		}
		delete(l.changed, r)
		if r.wanted == r.subscribed {
			l.settle(r)
			continue
		}
		o := order{kind: r.kind, subscribe: r.wanted, slot: r.slot}
		orders[o] = append(orders[o], r.channel)
		r.subscribed = r.wanted
		if r.wanted {
			r.unanswered++
		} else {
			r.leaving++
		}
		n++
	}
	return orders
}

// confirm counts a confirmation and returns whom to tell. Not locked.
func (l *line) confirm(key routeKey) []*Subscription {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r := l.routeOf(key)
	if r.unanswered > 0 {
		r.unanswered--
	} else if !r.subscribed {
		r.subscribed = true // it had been given up; what is not wanted is unsubscribed from
		l.touch(r)
	}
	l.settle(r)
	if c := h.channels[key.channel]; c != nil && c.routes[key.kind] == r && h.confirmed(c) {
		return c.list()
	}
	return nil
}

// left is told of the end of a subscription: one that was asked for, or the node serves the channel no longer. Not locked.
func (l *line) left(key routeKey) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	r := l.routes[key]
	switch {
	case r == nil:
	case r.leaving > 0:
		r.leaving--
		l.settle(r)
	default:
		l.displace(r)
	}
}

// refused is told of an error of the node that concerns routes. Not locked.
func (l *line) refused(concerns func(*route) bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, r := range l.routes {
		if concerns(r) {
			l.displace(r)
		}
	}
}

// busy says whether anything is expected on the line. Not locked.
func (l *line) busy() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return len(l.routes) > 0
}
