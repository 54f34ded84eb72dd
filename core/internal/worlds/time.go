package worlds

import "github.com/reqlock/reqlock/core/internal/claim"

// tick lets time pass.
func (st *stepper) tick() {
	if st.busy(&st.from) {
		return
	}
	st.do(Event{what: "a tick passes", owner: -1, client: -1}, func(s *State) (bool, error) {
		st.later(s)
		return true, nil
	})
}

// busy reports whether a client must act before the next tick. It cleans up what no stray can bring
// back. A waiter for a fair lock asks, because it could lose its place otherwise. A client waits
// for a reply no longer than the longest lease.
func (m *Model) busy(s *State) bool {
	for o := range m.Clients {
		own := &s.owners[o]
		if own.dead || own.frozen {
			continue
		}
		if own.wait == claim.Asleep && own.known && own.silent > 0 {
			return true
		}
		if own.uses[spare] == unclean && !s.strays(wireOf(o, spare)) {
			return true
		}
	}
	for _, msg := range s.messages[:s.n] {
		asks := msg.op == opAcquire && s.owners[ownerOf(msg.from)].known
		passes := msg.op == opPass && m.Kind == Fair
		if msg.role == change && msg.reply == none && (asks || passes) || msg.role != stray && msg.age == m.maxLease {
			return true
		}
	}
	return false
}

// later moves a world one tick on: TTLs, leases and messages are older then.
func (m *Model) later(s *State) {
	s.redis = m.tickRedis(s.redis)
	for i := range s.messages[:s.n] {
		msg := &s.messages[i]
		if msg.role != stray {
			msg.age = min(msg.age+1, m.maxLease)
		}
		if msg.notAfter != never && msg.notAfter > -1 {
			msg.notAfter--
		}
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if own.wait == claim.Asleep && own.known {
			own.silent = 1
		}
		if own.left == 0 {
			continue
		}
		if own.leftShared > 0 {
			if own.leftShared--; own.leftShared == 0 && own.shared() > 0 && own.excl() > 0 {
				own.expireReads()
			}
		}
		if own.left--; own.left == 0 && own.holds() {
			m.lose(s, o)
		}
	}
}
