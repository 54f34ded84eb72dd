package hub

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A model is a hub without goroutines, its only line, and the server at the other end. What the goroutines would do at any time
// is done here in an order of chance, one step after another.
type model struct {
	*testing.T
	hub       *Hub
	line      *line
	listeners []*listener
	sent      []request        // on their way to the server
	answers   []request        // on their way back
	served    map[request]bool // the subscriptions that the server has
}

// A request subscribes to a channel, or unsubscribes from it.
type request struct {
	name  string
	kind  uint8
	leave bool
}

func newModel(t *testing.T, commands [kinds]bool) *model {
	h := newHub(t, nil)
	h.started, h.kinds = true, commands // nobody routes but the model
	m := &model{T: t, hub: h, line: &line{hub: h, wake: make(chan struct{}, 1)}, served: make(map[request]bool)}
	h.lines[nil] = m.line
	return m
}

func (m *model) step(chance *rand.Rand) {
	steps := []func(){m.listen, m.leave, m.hub.route, m.send, m.serve, m.hear}
	if chance.IntN(50) == 0 {
		m.breakLine()
		return
	}
	steps[chance.IntN(len(steps))]()
}

func (m *model) listen() {
	m.listeners = append(m.listeners, listen(m.hub, fmt.Sprint("model:", len(m.listeners)%2)))
}

func (m *model) leave() {
	if len(m.listeners) > 0 {
		m.listeners[0].Close()
		m.listeners = m.listeners[1:]
	}
}

// send is what a session's writer does.
func (m *model) send() {
	for o, names := range m.line.takeOrders() {
		for _, name := range names {
			m.sent = append(m.sent, request{name, o.kind, !o.subscribe})
		}
	}
}

// serve is what the server does.
func (m *model) serve() {
	if len(m.sent) == 0 {
		return
	}
	r := m.sent[0]
	m.sent, m.answers = m.sent[1:], append(m.answers, r)
	if r.leave {
		delete(m.served, request{r.name, r.kind, false})
	} else {
		m.served[r] = true
	}
}

// hear is what a session's reader does.
func (m *model) hear() {
	if len(m.answers) == 0 {
		return
	}
	r := m.answers[0]
	m.answers = m.answers[1:]
	if r.leave {
		m.line.left(r.name, r.kind)
	} else if l := m.line.confirm(r.name, r.kind); l != nil {
		l.Notify()
	}
}

func (m *model) breakLine() {
	m.sent, m.answers = nil, nil
	clear(m.served)
	m.line.broke()
}

// wanted is what the server should have in the end.
func (m *model) wanted() map[request]bool {
	wanted := make(map[request]bool)
	for _, l := range m.listeners {
		for kind, used := range m.hub.kinds {
			if used {
				wanted[request{l.channel.name, uint8(kind), false}] = true
			}
		}
	}
	return wanted
}

// check looks at what must hold after every step.
func (m *model) check() {
	m.Helper()
	for _, l := range m.listeners {
		if !m.hub.Confirmed(l.channel) {
			continue
		}
		for kind, used := range m.hub.kinds {
			r := request{l.channel.name, uint8(kind), false}
			if used && (!m.served[r] || slices.Contains(m.sent, request{r.name, r.kind, true})) {
				m.Fatalf("%v counts as confirmed; the server has %v, sent is %v", r, m.served, m.sent)
			}
		}
	}
}

// checkAtRest looks at what must hold when everything has been routed, sent, served and heard.
func (m *model) checkAtRest() {
	m.Helper()
	wanted := m.wanted()
	if !maps.Equal(m.served, wanted) {
		m.Fatalf("the server has %v, wanted is %v", m.served, wanted)
	}
	for _, l := range m.listeners {
		if !l.confirmed && l.heard() == 0 {
			m.Fatalf("somebody who listens to %s was never told of it", l.channel.name)
		}
	}
	if want := len(wanted); m.line.routes != want {
		m.Fatalf("%d routes, want %d", m.line.routes, want)
	}
	if m.hub.Len() > len(wanted) {
		m.Fatalf("%d channels, wanted is %v", m.hub.Len(), wanted)
	}
}

// Whatever comes in between, the server has in the end the subscriptions that are wanted and no others, and whoever subscribes is
// told when messages can be missed no longer.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for _, commands := range [][kinds]bool{{plain: true}, {sharded: true}, {plain: true, sharded: true}} {
		for seed := range uint64(200) {
			t.Run(fmt.Sprint(commands, seed), func(t *testing.T) {
				chance := rand.New(rand.NewPCG(seed, 0))
				m := newModel(t, commands)
				for range 500 {
					m.step(chance)
					m.check()
				}
				for len(m.hub.changed)+len(m.line.changed)+len(m.sent)+len(m.answers) > 0 {
					m.hub.route()
					m.send()
					m.serve()
					m.hear()
					m.check()
				}
				m.checkAtRest()
			})
		}
	}
}
