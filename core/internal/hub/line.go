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

	routes  int           // how many; the channels have them
	changed []change      // routes that may differ from what is wanted
	wake    chan struct{} // something in changed
}

// A change is a route to look at, with its channel, which it does not know itself.
type change struct {
	*route
	channel *Channel
}

// A route is the subscription to one channel by one command on one line. It is over, and forgotten, when it is not wanted
// any more and the server has answered everything.
type route struct {
	line *line
	next *route // of the same channel
	kind uint8
	slot uint16 // in a cluster, of a sharded channel: one command carries channels of one slot only

	wanted     bool
	subscribed bool  // as far as has been sent on the present connection
	again      bool  // subscribed or not, another SUBSCRIBE is due, for whom its confirmation tells
	changed    bool  // it stands in line.changed
	unanswered int32 // SUBSCRIBEs sent on the present connection and not confirmed
	leaving    int32 // UNSUBSCRIBEs, likewise
}

func (r *route) confirmed() bool {
	return r.wanted && r.subscribed && !r.again && r.unanswered == 0
}

// want has a route wanted from now on. One that was not, and is subscribed to all the same since its end has not been sent yet,
// is subscribed to once more: nobody else would tell those who have come in the meantime.
func (r *route) want() {
	if !r.wanted {
		r.wanted, r.again = true, true
	}
}

// reject has a route wanted no longer.
func (r *route) reject() { r.wanted, r.again = false, false }

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
		if routes > 0 && l.hub.ctx.Err() == nil {
			l.hub.lose(l.node, err)
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
	if l.routes > 0 {
		return true
	}
	delete(l.hub.lines, l.node)
	if l.node != nil {
		delete(l.hub.lost, l.node) // its channels are elsewhere by now, and it may never come back
	}
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
	l.each(func(c *Channel, r *route) {
		r.disconnect()
		l.touch(c, r)
		if r.wanted {
			wanted++
			h.mark(c)
		}
		l.settle(c, r)
	})
	h.distrust()
	return wanted
}

// each calls f, which may settle it, for every route on the line. It looks at those of all lines: trouble is rare, and a
// list of its own would cost each route more than that. Locked, as all that follows.
func (l *line) each(f func(*Channel, *route)) {
	for _, c := range l.hub.channels {
		for r := c.routes; r != nil; {
			next := r.next
			if r.line == l {
				f(c, r)
			}
			r = next
		}
	}
}

// find is the route of a channel on the line, or nil.
func (l *line) find(c *Channel, kind uint8) *route {
	for r := c.routes; r != nil; r = r.next {
		if r.line == l && r.kind == kind {
			return r
		}
	}
	return nil
}

// route is the route of a channel on the line, which is made if need be.
func (l *line) route(c *Channel, kind uint8) *route {
	r := l.find(c, kind)
	if r == nil {
		r = &route{line: l, next: c.routes, kind: kind}
		if kind == sharded && l.hub.cluster != nil {
			r.slot = uint16(wire.Slot(c.name))
		}
		c.routes = r
		l.routes++
	}
	return r
}

// touch has the session look at a route of a channel.
func (l *line) touch(c *Channel, r *route) {
	if !r.changed {
		r.changed = true
		l.changed = append(l.changed, change{r, c})
	}
	wake(l.wake)
}

// settle forgets a route of a channel that is over.
func (l *line) settle(c *Channel, r *route) {
	if r.wanted || r.subscribed || r.unanswered > 0 || r.leaving > 0 {
		return
	}
	if c.remove(r) { // not for the second time, when the session comes to look at it
		l.routes--
		l.hub.forget(c)
	}
}

// displace has a channel, a route of which this node does not serve, placed anew.
func (l *line) displace(c *Channel, r *route) {
	r.disconnect()
	if r.wanted {
		l.hub.mark(c)
		l.hub.distrust()
	}
	l.settle(c, r)
}

// An order is a command, for the channels of one slot where that matters.
type order struct {
	kind      uint8
	subscribe bool
	slot      uint16
}

// ordersAtOnce bounds how many channels are taken, and so the size of a command.
const ordersAtOnce = 500

// takeOrders says what to send next, and takes it as sent. Not locked.
func (l *line) takeOrders() map[order][]string {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	orders, n, looked := make(map[order][]string), 0, 0
	for _, r := range l.changed {
		if n == ordersAtOnce {
			break
		}
		looked++
		r.changed = false
		if r.wanted == r.subscribed && !r.again {
			l.settle(r.channel, r.route)
			continue
		}
		r.again = false
		o := order{kind: r.kind, subscribe: r.wanted, slot: r.slot}
		orders[o] = append(orders[o], r.channel.name)
		r.subscribed = r.wanted
		if r.wanted {
			r.unanswered++
		} else {
			r.leaving++
		}
		n++
	}
	if l.changed = l.changed[looked:]; len(l.changed) == 0 {
		l.changed = nil // what a crowd has needed is not kept
	}
	return orders
}

// confirm counts a confirmation and returns whom to tell, or nil. Not locked.
func (l *line) confirm(name string, kind uint8) Listener {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channel(name)
	r := l.route(c, kind)
	if r.unanswered > 0 {
		r.unanswered--
	} else if !r.subscribed {
		r.subscribed = true // it had been given up; what is not wanted is unsubscribed from
		l.touch(c, r)
	}
	l.settle(c, r)
	if r.wanted && h.confirmed(c) {
		return c.listener
	}
	return nil
}

// left is told of the end of a subscription: one that was asked for, or the node serves the channel no longer. Not locked.
func (l *line) left(name string, kind uint8) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	c := l.hub.channels[name]
	if c == nil {
		return
	}
	switch r := l.find(c, kind); {
	case r == nil:
	case r.leaving > 0:
		r.leaving--
		l.settle(c, r)
	default:
		l.displace(c, r)
	}
}

// refused is told of an error of the node that concerns routes. Not locked.
func (l *line) refused(concerns func(*route) bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.each(func(c *Channel, r *route) {
		if concerns(r) {
			l.displace(c, r)
		}
	})
}

// busy says whether anything is expected on the line. Not locked.
func (l *line) busy() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.routes > 0
}
