package hub

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A model is a hub without goroutines, with its lines and the servers they connect to. It does the
// goroutines' steps in random order, one at a time.
type model struct {
	*testing.T
	hub       *Hub
	chance    *rand.Rand
	listeners []*listener
	ends      []*end
	// homes has the home of each sharded channel in a cluster.
	homes     map[string]*end
	forbidden map[string]bool // channels that the user may not subscribe to
}

// An end is a connection to a server, with its requests and answers in flight.
type end struct {
	*line
	// sent is what the session has sent.
	sent     unanswered
	requests []command
	answers  []answer
	// served are the subscriptions that the server has.
	served map[subscription]bool
}

type subscription struct {
	name string
	kind uint8
}

// An answer is the reply to a command for a channel, or an unsubscription by the server.
type answer struct {
	subscription
	leave  bool
	moved  bool // MOVED
	noperm bool // NOPERM, for all channels
}

func newModel(t *testing.T, chance *rand.Rand, commands [kinds]bool, nodes int) *model {
	h := newHub(t, nil)
	h.started, h.kinds = true, commands // only the model routes
	m := &model{T: t, hub: h, chance: chance, homes: make(map[string]*end), forbidden: make(map[string]bool)}
	m.connect(nil)
	if nodes > 0 {
		h.cfg.Redis.Cluster = new(redis.ClusterClient) // never called
	}
	for range nodes {
		m.connect(new(redis.Client))
	}
	return m
}

func (m *model) connect(node *redis.Client) {
	l := &line{hub: m.hub, node: node, wake: make(chan struct{}, 1)}
	m.hub.lines[node] = l
	m.ends = append(m.ends, &end{line: l, served: make(map[subscription]bool)})
}

func (m *model) step() {
	if m.chance.IntN(50) == 0 {
		m.anyEnd().breakOff()
		return
	}
	if m.chance.IntN(20) == 0 {
		m.move()
		return
	}
	if m.chance.IntN(20) == 0 {
		m.change()
		return
	}
	if m.chance.IntN(20) == 0 {
		m.anyEnd().retry()
		return
	}
	steps := []func(){m.listen, m.leave, m.route, m.anyEnd().send, func() { m.serve(m.anyEnd()) }, m.anyEnd().hear}
	steps[m.chance.IntN(len(steps))]()
}

func (m *model) anyEnd() *end { return m.ends[m.chance.IntN(len(m.ends))] }

var modelNames = []string{"model:0", "model:1"}

func (m *model) listen() {
	m.listeners = append(m.listeners, listen(m.hub, modelNames[len(m.listeners)%len(modelNames)]))
}

func (m *model) leave() {
	if len(m.listeners) > 0 {
		m.listeners[0].Close()
		m.listeners = m.listeners[1:]
	}
}

// home returns the server of a sharded channel: the only one, or in a cluster the owner of its
// slot.
func (m *model) home(name string) *end {
	if len(m.ends) == 1 {
		return m.ends[0]
	}
	if m.homes[name] == nil {
		m.homes[name] = m.ends[1]
	}
	return m.homes[name]
}

// move moves a slot as a cluster does. The old node unsubscribes the slot's channels.
func (m *model) move() {
	if len(m.ends) == 1 {
		return
	}
	name := modelNames[m.chance.IntN(len(modelNames))]
	s := subscription{name, sharded}
	old := m.home(name)
	if m.homes[name] = m.ends[1+m.chance.IntN(len(m.ends)-1)]; m.homes[name] != old && old.served[s] {
		delete(old.served, s)
		old.answers = append(old.answers, answer{subscription: s, leave: true})
	}
}

// change permits or forbids a channel. The server closes connections with channels that are
// forbidden.
func (m *model) change() {
	name := modelNames[m.chance.IntN(len(modelNames))]
	m.forbidden[name] = !m.forbidden[name]
	for _, e := range m.ends {
		if m.forbidden[name] && (e.served[subscription{name, plain}] || e.served[subscription{name, sharded}]) {
			e.breakOff()
		}
	}
}

// route does the router's work after it has read the slots.
func (m *model) route() {
	todo := m.hub.changed
	m.hub.changed = nil
	for _, c := range todo {
		c.changed = false
		m.hub.placeLocked(c, m.home(c.name).node)
	}
}

// send does the work of a session's writer.
func (e *end) send() {
	orders := e.takeOrders()
	for kind := range uint8(kinds) {
		for o, names := range orders {
			if o.kind == kind {
				e.requests = append(e.requests, command{o, names})
				e.sent.sent(command{o, slices.Clone(names)})
			}
		}
	}
}

// serve does a server's work.
func (m *model) serve(e *end) {
	if len(e.requests) == 0 {
		return
	}
	r := e.requests[0]
	e.requests = e.requests[1:]
	if r.subscribe && slices.ContainsFunc(r.channels, func(name string) bool { return m.forbidden[name] }) {
		e.answers = append(e.answers, answer{noperm: true})
		return
	}
	for _, name := range r.channels {
		s := subscription{name, r.kind}
		moved := r.kind == sharded && m.home(name) != e
		e.answers = append(e.answers, answer{subscription: s, leave: !r.subscribe, moved: moved})
		switch {
		case moved:
		case r.subscribe:
			e.served[s] = true
		default:
			delete(e.served, s)
		}
	}
}

// hear does the work of a session's reader.
func (e *end) hear() {
	if len(e.answers) == 0 {
		return
	}
	a := e.answers[0]
	e.answers = e.answers[1:]
	switch {
	case a.noperm:
		cmd, ok := e.sent.refused(func(order) bool { return true })
		if ok = ok && e.forbid(cmd, nil); !ok && !e.hub.inCluster() {
			panic("no SUBSCRIBE was refused")
		} else if !ok { // answers to others were taken for its own while the slot moved
			e.breakOff()
		}
	case a.moved:
		slot := uint16(wire.Slot(a.name))
		e.sent.refused(func(o order) bool { return o.kind == sharded && o.slot == slot })
		e.refused(func(r *route) bool { return r.kind == sharded && r.slot == slot })
	case a.leave:
		e.sent.confirmed(order{kind: a.kind}, a.name)
		e.left(a.name, a.kind)
	default:
		e.sent.confirmed(order{kind: a.kind, subscribe: true}, a.name)
		if l := e.confirm(a.name, a.kind); l != nil {
			l.Notify()
		}
	}
}

func (e *end) breakOff() {
	e.requests, e.answers, e.sent = nil, nil, unanswered{}
	clear(e.served)
	e.disconnected()
}

// rest does all remaining work.
func (m *model) rest() {
	for busy := true; busy; {
		busy = len(m.hub.changed) > 0
		m.route()
		for _, e := range m.ends {
			busy = busy || len(e.changed)+len(e.requests)+len(e.answers) > 0
			e.send()
			m.serve(e)
			e.hear()
		}
	}
}

// retry does what pings do, and the work that it makes.
func (m *model) retry() {
	m.hub.review()
	for _, e := range m.ends {
		e.retry()
	}
	m.rest()
}

// check checks what must hold after every step, unless slots move, which clients learn only later.
func (m *model) check() {
	m.Helper()
	if len(m.ends) > 1 {
		return
	}
	server := m.ends[0]
	for _, l := range m.listeners {
		for _, s := range m.subscriptions(l) {
			leaves := func(c command) bool { return !c.subscribe && c.kind == s.kind && slices.Contains(c.channels, s.name) }
			if m.hub.Confirmed(l.channel) && (!server.served[s] || slices.ContainsFunc(server.requests, leaves)) {
				m.Fatalf("%v is confirmed; served: %v, in flight: %v", s, server.served, server.requests)
			}
		}
	}
}

// subscriptions returns the subscriptions that a listener needs.
func (m *model) subscriptions(l *listener) (list []subscription) {
	for kind, used := range m.hub.kinds {
		if used {
			list = append(list, subscription{l.channel.name, uint8(kind)})
		}
	}
	return list
}

// checkAtRest checks what must hold when no work is left.
func (m *model) checkAtRest() {
	m.Helper()
	wanted, routes := make(map[*end]map[subscription]bool), make(map[*end]map[subscription]bool)
	denied := 0
	for _, e := range m.ends {
		wanted[e], routes[e] = make(map[subscription]bool), make(map[subscription]bool)
	}
	channels := make(map[string]bool)
	for _, l := range m.listeners {
		channels[l.channel.name] = true
		for _, s := range m.subscriptions(l) {
			at := m.ends[0]
			if s.kind == sharded {
				at = m.home(s.name)
			}
			if !routes[at][s] && m.forbidden[s.name] {
				denied++
			}
			routes[at][s] = true
			if !m.forbidden[s.name] {
				wanted[at][s] = true
			}
		}
		if !m.forbidden[l.channel.name] && !l.confirmed && l.heard() == 0 {
			m.Errorf("a listener of %s was never notified", l.channel.name)
		}
		if m.hub.Confirmed(l.channel) == m.forbidden[l.channel.name] {
			m.Errorf("%s is forbidden, %v, and confirmed, %v", l.channel.name, m.forbidden[l.channel.name], m.hub.Confirmed(l.channel))
		}
	}
	if m.hub.denied != denied {
		m.Errorf("%d routes are denied, want %d", m.hub.denied, denied)
	}
	for i, e := range m.ends {
		if !maps.Equal(e.served, wanted[e]) {
			m.Errorf("server %d has %v, want %v", i, e.served, wanted[e])
		}
		if e.routes != len(routes[e]) {
			m.Errorf("%d routes to server %d, want %v", e.routes, i, routes[e])
		}
		if n := len(e.sent.commands); n != 0 {
			m.Errorf("%d commands to server %d are not answered", n, i)
		}
	}
	if m.hub.Len() != len(channels) {
		m.Errorf("%d channels, want %v", m.hub.Len(), channels)
	}
}

// In any order of steps, the servers end up with exactly the wanted subscriptions that they permit,
// and every listener of those learns when it can miss no more messages.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{0, 3} {
		for _, commands := range [][kinds]bool{{plain: true}, {sharded: true}, {plain: true, sharded: true}} {
			for seed := range uint64(200) {
				t.Run(fmt.Sprintf("nodes %d, commands %v, seed %d", nodes, commands, seed), func(t *testing.T) {
					m := newModel(t, rand.New(rand.NewPCG(seed, 0)), commands, nodes)
					for range 500 {
						m.step()
						m.check()
					}
					m.rest()
					m.retry()
					m.checkAtRest()
					clear(m.forbidden)
					m.retry()
					m.checkAtRest()
				})
			}
		}
	}
}

// A channel that the server forbids is asked for again with a ping, not before.
func TestDeniedWaitsForRetry(t *testing.T) {
	t.Parallel()
	m := newModel(t, nil, [kinds]bool{plain: true}, 0)
	e := m.ends[0]
	for _, name := range modelNames {
		m.forbidden[name] = true
		m.listeners = append(m.listeners, listen(m.hub, name))
	}
	refused := func() (commands int) {
		for m.route(); ; commands++ {
			if e.send(); len(e.requests) == 0 {
				return commands
			}
			if commands == 100 {
				t.Fatal("denied channels are asked for again at once")
			}
			m.serve(e)
			e.hear()
		}
	}
	if n := refused(); n != 3 {
		t.Errorf("%d commands, want one for both channels and one for each", n)
	}
	m.hub.mu.Lock()
	for _, c := range m.hub.channels {
		m.hub.touchLocked(c)
	}
	m.hub.mu.Unlock()
	if n := refused(); n != 0 {
		t.Errorf("%d commands before a ping", n)
	}
	e.retry()
	if n := refused(); n != 2 {
		t.Errorf("%d commands after a ping, want one for each channel", n)
	}
}
