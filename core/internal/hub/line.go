package hub

import (
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A line keeps a connection to a node open while it has routes. Hub.mu guards all fields that
// change.
type line struct {
	hub  *Hub
	node *redis.Client // nil: the only server, or any node of a cluster

	routes  int           // number of routes; the channels hold them
	changed []change      // routes that may differ from the wanted ones
	wake    chan struct{} // signals that changed is not empty

	heard atomic.Int64 // the clock.Moment when anything last arrived
}

// hears records that something has arrived.
func (l *line) hears() { l.heard.Store(int64(clock.Now())) }

// heardSince reports whether anything has arrived since a moment.
func (l *line) heardSince(m clock.Moment) bool { return clock.Moment(l.heard.Load()) >= m }

// A change is a route to be synchronized, and its channel.
type change struct {
	*route
	channel *Channel
}

// A route is the subscription to one channel by one command on one line. It ends when it is not
// wanted any more and the server has answered everything.
type route struct {
	line *line
	next *route // the next route of the same channel
	kind uint8
	// The slot of a sharded channel in a cluster, where a command takes channels of one slot only.
	slot uint16

	wanted     bool
	subscribed bool // SUBSCRIBE was sent on the current connection
	again      bool // send another SUBSCRIBE in any case: its confirmation notifies new listeners
	alone      bool // a command with several channels was refused: send this one separately
	// denied is true if Redis refused this one, too. Only deny changes it.
	denied bool
	// changed is true if the route is in line.changed.
	changed bool
	// unanswered counts the SUBSCRIBEs that were sent on the current connection and not confirmed.
	// Silence ends it before there are many.
	unanswered int16
	// leaving counts such UNSUBSCRIBEs.
	leaving int16
}

func (r *route) confirmed() bool {
	return r.wanted && r.subscribed && !r.again && r.unanswered == 0
}

// want marks a route as wanted. If it was not, but its UNSUBSCRIBE has not been sent yet, it is
// subscribed once more: without that confirmation the new listeners would never be notified.
func (r *route) want() {
	if !r.wanted {
		r.wanted, r.again = true, true
	}
}

// reject marks a route as not wanted.
func (r *route) reject() { r.wanted, r.again = false, false }

// disconnect resets what was sent on a connection that is gone. A denied route may be permitted on
// the next one.
func (r *route) disconnect() {
	r.subscribed, r.unanswered, r.leaving = false, 0, 0
	r.again = r.again || r.denied && r.wanted
	r.deny(r.denied && r.wanted)
}

// deny records whether the server denies the route.
func (r *route) deny(denied bool) {
	if r.denied != denied {
		r.denied = denied
		if denied {
			r.line.hub.denied++
		} else {
			r.line.hub.denied--
		}
	}
}

// run runs one session after another, until a session ends and no route is left, or the hub closes.
// A session that ends at once, whatever it has heard, does not count as a success: the next one may
// be no better, and each confirms all subscriptions again, which makes the listeners ask Redis.
func (l *line) run() {
	for failures := 0; l.needed(); failures++ {
		s, began := newSession(l), clock.Now()
		err := s.run(l.hub.ctx)
		routes := l.disconnected()
		if l.heardSince(began) && clock.Now().Since(began) >= longestPause {
			failures = 0
		}
		if routes > 0 && l.hub.ctx.Err() == nil {
			l.hub.dropNode(l.node, err)
		}
		if !l.hub.sleep(backoff.Doubled(firstPause, longestPause, failures)) {
			return
		}
	}
}

// needed reports whether the line has routes, and removes it from the hub if not.
func (l *line) needed() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.routes > 0 {
		return true
	}
	delete(l.hub.lines, l.node)
	if l.node != nil {
		delete(l.hub.lost, l.node) // its channels have moved, and the node may never come back
	}
	return false
}

// open returns a PubSub without channels. It does not connect yet.
func (l *line) open() (*redis.PubSub, error) {
	h := l.hub
	switch {
	case l.node != nil:
		return l.node.Subscribe(h.ctx), nil
	case !h.inCluster():
		return h.cfg.Redis.Subscribe(h.ctx), nil
	}
	node, err := h.anyMaster()
	if err != nil {
		return nil, fmt.Errorf("find a master: %w", err)
	}
	return node.Subscribe(h.ctx), nil
}

// disconnected resets all routes after the connection has ended and returns how many are wanted.
// The next session subscribes to those, unless the router has moved them by then.
func (l *line) disconnected() (wanted int) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	l.eachLocked(func(c *Channel, r *route) {
		r.disconnect()
		l.touch(c, r)
		if r.wanted {
			wanted++
			h.markLocked(c)
		}
		l.removeEnded(c, r)
	})
	h.distrustLocked()
	return wanted
}

// eachLocked calls f for every route on the line; f may end the route. It searches the routes of
// all lines: failures are rare, and a list per line would cost each route more.
//
// The functions below need the mutex, unless they say otherwise.
func (l *line) eachLocked(f func(*Channel, *route)) {
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

// find returns the route of a channel on the line, or nil.
func (l *line) find(c *Channel, kind uint8) *route {
	for r := c.routes; r != nil; r = r.next {
		if r.line == l && r.kind == kind {
			return r
		}
	}
	return nil
}

// route returns the route of a channel on the line, and creates it if necessary.
func (l *line) route(c *Channel, kind uint8) *route {
	r := l.find(c, kind)
	if r == nil {
		r = &route{line: l, next: c.routes, kind: kind}
		if kind == sharded && l.hub.inCluster() {
			r.slot = uint16(wire.Slot(c.name))
		}
		c.routes = r
		l.routes++
	}
	return r
}

// touch makes the session synchronize a route.
func (l *line) touch(c *Channel, r *route) {
	if !r.changed {
		r.changed = true
		l.changed = append(l.changed, change{r, c})
	}
	wake(l.wake)
}

// removeEnded removes a route that has ended.
func (l *line) removeEnded(c *Channel, r *route) {
	if r.wanted || r.subscribed || r.unanswered > 0 || r.leaving > 0 || r.denied {
		return
	}
	if c.remove(r) { // the session may come to it a second time
		l.routes--
		l.hub.forgetLocked(c)
	}
}

// displace makes the router place a channel again whose route this node does not serve.
func (l *line) displace(c *Channel, r *route) {
	r.disconnect()
	if r.wanted {
		l.hub.markLocked(c)
		l.hub.distrustLocked()
	}
	l.removeEnded(c, r)
}

// An order is a SUBSCRIBE or UNSUBSCRIBE command, for channels of one slot where that matters.
type order struct {
	kind      uint8
	subscribe bool
	slot      uint16
	// alone is the number of an order for one channel only. It is 0 for any other order.
	alone int
}

// ordersAtOnce bounds how many channels takeOrders returns, and so the size of a command.
const ordersAtOnce = 500

// takeOrders returns the commands to send next and records them as sent. It takes the mutex.
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
		switch {
		case r.denied && r.wanted && !r.again:
			continue
		case r.denied && !r.wanted: // go-redis keeps its name until it is unsubscribed
			r.deny(false)
		case r.wanted == r.subscribed && !r.again:
			l.removeEnded(r.channel, r.route)
			continue
		}
		r.again = false
		o := order{kind: r.kind, subscribe: r.wanted, slot: r.slot}
		if r.alone {
			o.alone = looked
		}
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
		l.changed = nil // frees the memory after a burst
	}
	return orders
}

// confirm records a confirmation and returns the listener to notify, or nil. It takes the mutex.
func (l *line) confirm(name string, kind uint8) Listener {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channelLocked(name)
	r := l.route(c, kind)
	r.alone = false
	r.deny(false)
	if r.unanswered > 0 {
		r.unanswered--
	} else if !r.subscribed {
		r.subscribed = true // the route had ended; if it is not wanted, this unsubscribes
		l.touch(c, r)
	}
	l.removeEnded(c, r)
	if r.wanted && h.confirmedLocked(c) {
		return c.listener
	}
	return nil
}

// left records the end of a subscription, either asked for or because the node no longer serves the
// channel. It takes the mutex.
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
		l.removeEnded(c, r)
	default:
		l.displace(c, r)
	}
}

// forbid records that the server refused a command because the user lacks a permission. It returns
// false if that leaves a subscription that is not wanted, so that the connection has to end. It
// takes the mutex.
func (l *line) forbid(cmd command, err error) bool {
	h := l.hub
	if !cmd.subscribe && cmd.alone == 0 {
		return false
	}
	h.mu.Lock()
	none := h.denied == 0
	for _, name := range cmd.channels {
		if c := h.channels[name]; c != nil {
			if r := l.find(c, cmd.kind); r != nil {
				l.refuse(c, r, cmd)
			}
		}
	}
	first := none && h.denied > 0
	if first {
		h.reported.Store(true)
	}
	h.mu.Unlock()
	if first {
		h.cfg.Lost(err)
	}
	return true
}

// refuse records that a command with a route was refused. If a later SUBSCRIBE is in flight, its
// answer decides.
func (l *line) refuse(c *Channel, r *route, cmd command) {
	switch {
	case !cmd.subscribe:
		r.leaving = max(0, r.leaving-1)
	case r.unanswered == 0: // reset meanwhile
	default:
		if r.unanswered--; r.unanswered == 0 {
			r.subscribed, r.alone = false, true
			r.deny(len(cmd.channels) == 1)
			l.touch(c, r)
		}
	}
	l.removeEnded(c, r)
}

// retry makes the session subscribe to denied routes once more. It takes the mutex.
func (l *line) retry() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.hub.denied == 0 {
		return
	}
	l.eachLocked(func(c *Channel, r *route) {
		if r.denied && r.wanted {
			r.again = true
			l.touch(c, r)
		}
	})
}

// refused records an error reply that concerns some routes. It takes the mutex.
func (l *line) refused(concerns func(*route) bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.eachLocked(func(c *Channel, r *route) {
		if concerns(r) {
			l.displace(c, r)
		}
	})
}

// busy reports whether the line has routes. It takes the mutex.
func (l *line) busy() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.routes > 0
}
