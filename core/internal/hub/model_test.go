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
	homes     map[string]*end // in a cluster, of sharded channels
}

// An end is a connection to a server, with its requests and answers in flight.
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

// A request is a SUBSCRIBE or UNSUBSCRIBE.
type request struct {
	subscription
	leave bool
}

// An answer is the reply to a request, or an unsubscription by the server.
type answer struct {
	request
	moved bool // MOVED
}

func newModel(t *testing.T, chance *rand.Rand, commands [kinds]bool, nodes int) *model {
	h := newHub(t, nil)
	h.started, h.kinds = true, commands // only the model routes
	m := &model{T: t, hub: h, chance: chance, homes: make(map[string]*end)}
	m.connect(nil)
	if nodes > 0 {
		h.cluster = new(redis.ClusterClient) // never called
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
		old.answers = append(old.answers, answer{request: request{s, true}})
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
			for _, name := range names {
				if o.kind == kind {
					e.requests = append(e.requests, request{subscription{name, kind}, !o.subscribe})
				}
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

// hear does the work of a session's reader.
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

// check checks what must hold after every step, unless slots move, which clients learn only later.
func (m *model) check() {
	m.Helper()
	if len(m.ends) > 1 {
		return
	}
	server := m.ends[0]
	for _, l := range m.listeners {
		for _, s := range m.subscriptions(l) {
			if m.hub.Confirmed(l.channel) && (!server.served[s] || slices.Contains(server.requests, request{s, true})) {
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
			m.Errorf("a listener of %s was never notified", l.channel.name)
		}
		if !m.hub.Confirmed(l.channel) {
			m.Errorf("%s is not confirmed", l.channel.name)
		}
	}
	for i, e := range m.ends {
		if !maps.Equal(e.served, wanted[e]) {
			m.Errorf("server %d has %v, want %v", i, e.served, wanted[e])
		}
		if e.routes != len(wanted[e]) {
			m.Errorf("%d routes to server %d, want %v", e.routes, i, wanted[e])
		}
	}
	if m.hub.Len() != len(channels) {
		m.Errorf("%d channels, want %v", m.hub.Len(), channels)
	}
}

// In any order of steps, the servers end up with exactly the wanted subscriptions, and every
// listener learns when it can miss no more messages.
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
