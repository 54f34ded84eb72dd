package worlds

import (
	"slices"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// A use says what a wire owner is used for.
type use uint8

const (
	free    use = iota
	current     // the owner holds or asks with it; only for the first of its two
	unclean     // Redis may have a trace of it
	late        // it is clean, but a message still names it
)

// begin gives an owner a new wire owner. It fails if there is no room for what that may leave
// behind.
func (m *Model) begin(s *State, o int) bool {
	own := &s.owners[o]
	if own.uses[spare] != free {
		return false
	}
	own.uses[0], own.stay = current, stay{}
	return true
}

// retire ends the use of an owner's current wire owner, which has left something. clean will clean
// that up.
func (m *Model) retire(s *State, o int, left claim.Leftovers, clean opcode) {
	own := &s.owners[o]
	w, u := wireOf(o, 0), unclean
	if clean = m.releaseOf(w, 0, clean).op; left.None() {
		u, clean = free, 0
	}
	for i := int(s.n) - 1; i >= 0; i-- { // its renewals are useless now
		if s.messages[i].role == renewal && s.messages[i].from == w {
			s.drop(i)
		}
	}
	if u == free && s.names(w) {
		u = late
	}
	if u != free {
		m.swap(s, o)
		own.uses[spare], own.depth, own.clean = u, own.deepest(), clean
	}
	own.uses[0], own.stay = free, stay{}
	s.redis = m.forget(s.redis, w)
}

// swap turns an owner's current wire owner into its spare one.
func (m *Model) swap(s *State, o int) {
	names := identity()
	a, b := wireOf(o, 0), wireOf(o, spare)
	names[a], names[b] = b, a
	s.redis = m.rename(s.redis, names)
	for i := range s.messages[:s.n] {
		s.messages[i].rename(names)
	}
}

func (msg *message) rename(names [maxOwners * wiresEach]uint8) {
	if msg.op == opForce {
		fields := uint16(0)
		for w := range names {
			if msg.fields&(1<<w) != 0 {
				fields |= 1 << names[w]
			}
		}
		msg.fields = fields
		return
	}
	msg.from = names[msg.from]
	if msg.op == opPass || msg.op == opEnter {
		msg.to = names[msg.to]
	}
}

// tidy frees wire owners that no message names any more, and ranks the tokens.
func (m *Model) tidy(s *State) {
	s.rankTokens()
	for o := range m.Clients {
		own := &s.owners[o]
		if own.uses[spare] == late && !s.names(wireOf(o, spare)) {
			own.uses[spare], own.depth = free, 0
			s.redis = m.forget(s.redis, wireOf(o, spare))
		}
		if own.idle() {
			own.lease, own.reads = 0, false
		}
	}
}

// rankTokens replaces the ages of tokens by their order. Nothing else matters.
func (s *State) rankTokens() {
	var ages [maxMessages]uint8
	n := 0
	for _, msg := range s.messages[:s.n] {
		if msg.reply == yes {
			ages[n] = msg.token
			n++
		}
	}
	slices.Sort(ages[:n])
	all := slices.Compact(ages[:n])
	rank := func(age uint8) uint8 {
		older := uint8(0)
		for _, a := range all {
			if a < age {
				older++
			}
		}
		return older
	}
	// An even number is between two ranks, an odd one is on a rank.
	s.newest = 2*rank(s.newest) + bits(slices.Contains(all, s.newest))
	for i := range s.messages[:s.n] {
		if msg := &s.messages[i]; msg.reply == yes {
			msg.token = 2*rank(msg.token) + 1
		}
	}
}

// cleanUp frees what a wire owner may have left. It is done when no stray can arrive any more.
func (m *Model) cleanUp(s *State, o int) error {
	own, w := &s.owners[o], wireOf(o, spare)
	depth := own.depth
	if m.Kind == ReadWrite {
		depth = max(depth, 1)
	}
	if _, err := m.execute(s, m.releaseOf(w, depth, own.clean)); err != nil {
		return err
	}
	if !s.strays(w) {
		own.uses[spare], own.clean = late, 0 // until nothing names it
	}
	return nil
}

// rob notes the owners whose holds were taken from outside.
func (s *State) rob(wires uint16) {
	for o := range s.owners {
		if wires&(1<<wireOf(o, 0)) != 0 {
			s.owners[o].robbed = true
		}
	}
}
