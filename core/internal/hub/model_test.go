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

// A model is a hub without goroutines, its lines, and the servers at their other ends. What the
// goroutines would do at any time is done here in an order of chance, one step after another.
type model struct {
	*testing.T
	hub       *Hub
	chance    *rand.Rand
	listeners []*listener
	ends      []*end
	homes     map[string]*end // in a cluster, of sharded channels
}

// An end is a connection to a server, with what is on its way there and back.
type end struct {
	*line
	requests []request
	answers  []answer
	served   map[subscription]bool // by the server
}

type subscription struct {
	name string
	kind uint8
}

// A request subscribes, or unsubscribes.
type request struct {
	subscription
	leave bool
}

// An answer is to a request, unless a server has unsubscribed by itself.
type answer struct {
	request
	moved bool // MOVED
}

func newModel(t *testing.T, chance *rand.Rand, commands [kinds]bool, nodes int) *model {
	h := newHub(t, nil)
	h.started, h.kinds = true, commands // nobody routes but the model
	m := &model{T: t, hub: h, chance: chance, homes: make(map[string]*end)}
	m.connect(nil)
	if nodes > 0 {
		h.cluster = new(redis.ClusterClient) // nobody asks it
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

// home is where a sharded channel belongs: the only server, or in a cluster a node.
func (m *model) home(name string) *end {
	if len(m.ends) == 1 {
		return m.ends[0]
	}
	if m.homes[name] == nil {
		m.homes[name] = m.ends[1]
	}
	return m.homes[name]
}

// move is what a cluster does with a slot. The node from which it is taken tells those who have
// subscribed to its channels.
func (m *model) move() {
	if len(m.ends) == 1 {
		return
	}
	name := modelNames[m.chance.IntN(len(modelNames))]
	s := subscription{name, sharded}
	old := m.home(name)
	if m.homes[name] = m.ends[1+m.chance.IntN(len(m.ends)-1)]; m.homes[name] != old && old.served[s] {
		delete(old.served, s)
		old.answers = append(old.answers, answer{request: request{s, true}})
	}
}

// route is what the router does when it has asked the cluster.
func (m *model) route() {
	todo := m.hub.changed
	m.hub.changed = nil
	for _, c := range todo {
		c.changed = false
		m.hub.placeLocked(c, m.home(c.name).node)
	}
}

// send is what a session's writer does.
func (e *end) send() {
	orders := e.takeOrders()
	for kind := range uint8(kinds) {
		for o, names := range orders {
			for _, name := range names {
				if o.kind == kind {
					e.requests = append(e.requests, request{subscription{name, kind}, !o.subscribe})
				}
			}
		}
	}
}

// serve is what a server does.
func (m *model) serve(e *end) {
	if len(e.requests) == 0 {
		return
	}
	r := e.requests[0]
	moved := r.kind == sharded && m.home(r.name) != e
	e.requests, e.answers = e.requests[1:], append(e.answers, answer{r, moved})
	switch {
	case moved:
	case r.leave:
		delete(e.served, r.subscription)
	default:
		e.served[r.subscription] = true
	}
}

// hear is what a session's reader does.
func (e *end) hear() {
	if len(e.answers) == 0 {
		return
	}
	a := e.answers[0]
	e.answers = e.answers[1:]
	switch {
	case a.moved:
		slot := uint16(wire.Slot(a.name))
		e.refused(func(r *route) bool { return r.kind == sharded && r.slot == slot })
	case a.leave:
		e.left(a.name, a.kind)
	default:
		if l := e.confirm(a.name, a.kind); l != nil {
			l.Notify()
		}
	}
}

func (e *end) breakOff() {
	e.requests, e.answers = nil, nil
	clear(e.served)
	e.disconnected()
}

// rest does all that is still to be done.
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

// check looks at what must hold after every step, but when slots move: nobody hears of that at
// once.
func (m *model) check() {
	m.Helper()
	if len(m.ends) > 1 {
		return
	}
	server := m.ends[0]
	for _, l := range m.listeners {
		for _, s := range m.subscriptions(l) {
			if m.hub.Confirmed(l.channel) && (!server.served[s] || slices.Contains(server.requests, request{s, true})) {
				m.Fatalf("%v counts as confirmed; served is %v, and on their way are %v", s, server.served, server.requests)
			}
		}
	}
}

// subscriptions returns what it takes to listen.
func (m *model) subscriptions(l *listener) (list []subscription) {
	for kind, used := range m.hub.kinds {
		if used {
			list = append(list, subscription{l.channel.name, uint8(kind)})
		}
	}
	return list
}

// checkAtRest looks at what must hold when nothing is left to be done.
func (m *model) checkAtRest() {
	m.Helper()
	wanted := make(map[*end]map[subscription]bool)
	for _, e := range m.ends {
		wanted[e] = make(map[subscription]bool)
	}
	channels := make(map[string]bool)
	for _, l := range m.listeners {
		channels[l.channel.name] = true
		for _, s := range m.subscriptions(l) {
			at := m.ends[0]
			if s.kind == sharded {
				at = m.home(s.name)
			}
			wanted[at][s] = true
		}
		if !l.confirmed && l.heard() == 0 {
			m.Errorf("somebody who listens to %s was never told of it", l.channel.name)
		}
		if !m.hub.Confirmed(l.channel) {
			m.Errorf("%s is not confirmed", l.channel.name)
		}
	}
	for i, e := range m.ends {
		if !maps.Equal(e.served, wanted[e]) {
			m.Errorf("server %d has %v, wanted is %v", i, e.served, wanted[e])
		}
		if e.routes != len(wanted[e]) {
			m.Errorf("%d routes to server %d, wanted is %v", e.routes, i, wanted[e])
		}
	}
	if m.hub.Len() != len(channels) {
		m.Errorf("%d channels, wanted are %v", m.hub.Len(), channels)
	}
}

// Whatever comes in between, the servers have in the end the subscriptions that are wanted and no
// others, and whoever subscribes is told when messages can be missed no longer.
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
					m.checkAtRest()
				})
			}
		}
	}
}
