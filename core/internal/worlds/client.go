package worlds

import (
	"slices"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// begin gives an owner a new wire owner. It fails if there is no room for what that may leave
// behind.
func (m *Model) begin(s *State, o int) bool {
	own := &s.owners[o]
	if own.uses[spare] != free {
		return false
	}
	own.uses[0] = current
	own.hold, own.traces = claim.Hold{}, claim.Left{}
	own.robbed, own.forced, own.unsure, own.queued, own.known, own.deaf = false, false, false, false, false, false
	own.frozen, own.slow = false, false
	own.silent = 0
	return true
}

// useOf returns the use of a wire owner that has left something.
func useOf(left claim.Left) use {
	if left.None() {
		return free
	}
	return unclean
}

// retire ends the use of an owner's current wire owner. unclean: Redis may still have a trace of
// it.
func (m *Model) retire(s *State, o int, u use) {
	own := &s.owners[o]
	w := wireOf(o, 0)
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
		own.uses[spare], own.depth = u, own.deepest()
	}
	own.uses[0] = free
	s.redis = m.forget(s.redis, w)
	own.left, own.leftShared = 0, 0
	own.hold, own.traces = claim.Hold{}, claim.Left{}
	own.robbed, own.forced, own.unsure, own.queued, own.known, own.deaf = false, false, false, false, false, false
	own.frozen, own.slow = false, false
	own.silent = 0
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
	if msg.op == opPass {
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
		if own.phase == idle {
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

// acquire begins a wait.
func (m *Model) acquire(s *State, o int, lease uint8, reads bool) bool {
	own := &s.owners[o]
	own.lease, own.reads = lease, reads
	return m.ask(s, o)
}

// ask asks for the lock with a new wire owner, unless the current one may be in a queue.
func (m *Model) ask(s *State, o int) bool {
	own := &s.owners[o]
	if own.uses[0] == free && !m.begin(s, o) {
		return false
	}
	own.phase, own.silent = asking, 0
	c := command{op: opAcquire, from: wireOf(o, 0), lease: own.lease, notAfter: never, excl: 1}
	if own.reads {
		c.excl, c.shared = 0, 1
	}
	if own.known {
		c.notAfter = 1
		own.queued = true
	}
	return s.send(message{command: c})
}

// leave ends a wait.
func (m *Model) leave(s *State, o int) {
	own := &s.owners[o]
	own.phase = idle
	if own.uses[0] == free {
		return
	}
	if own.queued || !own.traces.None() {
		m.retire(s, o, unclean)
	} else {
		m.retire(s, o, free)
	}
}

func (m *Model) renew(s *State, o int) bool {
	own := &s.owners[o]
	c := command{op: opRenew, from: wireOf(o, 0), lease: m.Renewal}
	if m.Kind == ReadWrite {
		c.lease = max(c.lease, own.left)
		c.excl, c.shared = uint8(own.hold.Sure().Exclusive), uint8(own.hold.Sure().Shared)
	}
	return s.send(message{command: c, role: renewal})
}

// plan takes the turn of an owner's hold, and returns the levels to send.
func (own *owner) plan(more claim.Entry) (excl, shared uint8, ok bool) {
	own.hold.Turn.Take()
	n, ok := own.hold.Plan(more)
	return uint8(n.Exclusive), uint8(n.Shared), ok
}

// update sends the levels that an owner wants.
func (m *Model) update(s *State, o int, more claim.Entry, lease uint8) bool {
	own := &s.owners[o]
	excl, shared, ok := own.plan(more)
	if !ok {
		return false
	}
	enters := shared > own.shared() || own.excl() == 0
	c := command{op: opUpdate, from: wireOf(o, 0), excl: excl, shared: shared, deepest: own.deepest(), lease: lease}
	if shared > 0 {
		c.lease = max(lease, own.leftShared)
	}
	return s.send(message{command: c, asked: lease, enters: enters, more: more})
}

// lower releases one of several levels.
func (m *Model) lower(s *State, o int, shared bool, op opcode) bool {
	own := &s.owners[o]
	own.hold.Leave(shared)
	if own.shared() == 0 {
		own.leftShared = 0
	}
	if own.excl() == 0 && m.Kind == ReadWrite {
		own.left = own.leftShared // the lease of the write side no longer counts
	}
	excl, reads, _ := own.plan(claim.NoEntry)
	return s.send(message{command: command{op: op, from: wireOf(o, 0), excl: excl, shared: reads, deepest: own.deepest(), lease: own.leftShared}})
}

// dropReads ends the leases of the read side of a hold, which are over. Its next change sends that.
func (own *owner) dropReads() {
	for own.shared() > 0 {
		own.hold.Leave(true)
	}
	underWay := own.hold.Turn.Taken() // then what it has sent is no longer sure either
	if !underWay {
		own.hold.Turn.Take()
	}
	own.hold.Plan(claim.NoEntry)
	if !underWay {
		own.hold.Turn.Pass()
	}
	own.unsure = true
}

// release releases the last level.
func (m *Model) release(s *State, o int) bool {
	return m.free(s, o, m.releaseOf(wireOf(o, 0), s.owners[o].deepest(), opFree))
}

// free sends a command that frees a hold.
func (m *Model) free(s *State, o int, c command) bool {
	own := &s.owners[o]
	own.phase = freeing
	own.hold.Leave(own.shared() > 0)
	own.plan(claim.NoEntry)
	return s.send(message{command: c})
}

// releaseOf returns the release of a wire owner. marked is that of a kind with markers.
func (m *Model) releaseOf(w, deepest uint8, marked opcode) command {
	c := command{op: opRelease, from: w, deepest: deepest}
	if m.Kind == Once && m.Marker {
		c.op = marked
	}
	return c
}

// pass hands the lock over to a waiter of the same client.
func (m *Model) pass(s *State, o, to int) bool {
	own, next := &s.owners[o], &s.owners[to]
	if m.client(o) != m.client(to) || next.phase != waiting || next.reads || m.Kind == Fair && !next.queued {
		return false
	}
	if next.uses[0] == free && !m.begin(s, to) {
		return false
	}
	own.phase, next.phase = passing, heir
	own.hold.Leave(false)
	own.plan(claim.NoEntry)
	return s.send(message{command: command{op: opPass, from: wireOf(o, 0), to: wireOf(to, 0), lease: next.lease}})
}
