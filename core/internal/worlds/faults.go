package worlds

import (
	"fmt"
	"slices"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// faults yields what may happen to Redis and to clients.
func (st *stepper) faults() {
	if st.from.evictions > 0 {
		st.evictions()
	}
	if st.from.resizes > 0 {
		for _, n := range st.Sets {
			st.do(Event{what: fmt.Sprintf("SetPermits sets %d", n), owner: -1, client: -1}, func(s *State) (bool, error) {
				s.resizes--
				_, err := st.execute(s, command{op: opSet, excl: n})
				return true, err
			})
		}
	}
	for client := range slices.Max(st.Clients) + 1 {
		if st.from.crashes > 0 {
			st.do(Event{what: "crashes", owner: -1, client: int8(client)}, func(s *State) (bool, error) { return st.crash(s, client), nil })
		}
		if st.from.forces > 0 {
			sides := []bool{false}
			if st.Kind == ReadWrite {
				sides = []bool{false, true}
			}
			for _, reads := range sides {
				what := "frees the lock by force"
				if reads {
					what = "frees the read side by force"
				}
				st.do(Event{what: what, owner: -1, client: int8(client)}, func(s *State) (bool, error) { return st.force(s, client, reads), nil })
			}
		}
	}
}

func (st *stepper) evictions() {
	keys := st.look(st.from.redis).keys
	for i := -1; i < len(keys); i++ {
		if i < 0 && len(keys) < 2 {
			continue
		}
		gone, detail := keys, "all keys"
		if i >= 0 {
			gone, detail = keys[i:i+1], keys[i]
		}
		st.do(Event{what: "Redis loses", owner: -1, client: -1, detail: detail}, func(s *State) (bool, error) {
			s.evictions--
			st.evict(s, gone)
			return true, nil
		})
	}
}

func (m *Model) evict(s *State, gone []string) {
	db := m.db(s.redis)
	for w := range m.wires() {
		had, left := m.has(db, w), m.readerLeft(db, w)
		if slices.Contains(gone, m.holdsKey()) && had {
			s.rob(1 << w)
		}
		if m.Kind == ReadWrite && left > 0 {
			after := m.db(s.redis)
			for _, name := range gone {
				after.Delete(name)
			}
			if m.readerLeft(after, w) < left {
				s.rob(1 << w)
			}
		}
	}
	for _, name := range gone {
		db.Delete(name)
	}
	s.redis = m.number(db)
}

// crash ends a client. It sends and reads nothing more, but what it has sent may still arrive.
func (m *Model) crash(s *State, client int) bool {
	alive := false
	for i := int(s.n) - 1; i >= 0; i-- {
		if msg := s.messages[i]; msg.op != opForce && m.client(ownerOf(msg.from)) == client && msg.role != stray {
			s.giveUp(i)
		}
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if m.client(o) == client {
			alive = alive || !own.dead
			*own = owner{dead: true, uses: own.uses, depth: own.depth}
		}
	}
	s.crashes--
	return alive
}

// force finds the holders of the lock, ends those that belong to the client, and sends a command
// that ends them all in Redis.
func (m *Model) force(s *State, client int, reads bool) bool {
	l := m.look(s.redis)
	fields := uint16(0)
	for w := range m.wires() {
		if reads && l.writes[w] {
			return false
		}
		if m.Kind != ReadWrite && l.present[w] || m.Kind == ReadWrite && (reads && l.reads[w] || !reads && l.writes[w]) {
			fields |= 1 << w
		}
	}
	if fields == 0 {
		return false
	}
	s.forces--
	c := command{op: opForce, from: 0, fields: fields}
	if m.Kind == ReadWrite && !reads {
		c.excl = 1
	}
	if !s.send(message{command: c}) {
		return false
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if m.client(o) != client || fields&(1<<wireOf(o, 0)) == 0 {
			continue
		}
		switch {
		case own.holds():
			m.lose(s, o)
		case own.wait == claim.Asking || own.wait == claim.Heir:
			own.forced = true
		}
	}
	return true
}
