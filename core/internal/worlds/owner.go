package worlds

import "github.com/reqlock/reqlock/core/internal/claim"

// An owner is an owner as its client knows it.
type owner struct {
	wait  claim.State // New: it makes no call of Acquire.
	lease uint8       // It is what the call asks for.
	reads bool        // The call is for the read side.
	stay
	uses  [wiresEach]use
	depth uint8  // Hold.Deepest of the hold that the unclean wire owner had.
	clean opcode // It cleans that wire owner up.
	dead  bool   // Its client has crashed.
}

// A stay is what a client knows of an owner's current wire owner.
type stay struct {
	hold       claim.Hold
	earlier    claim.Leftovers // It is what the attempts so far have left.
	left       uint8           // Ticks to the local deadline of the latest lease.
	leftShared uint8           // Ticks to that of the latest lease of the read side.
	known      bool            // A waiter for a fair lock was refused: it listens and knows the server's clock.
	silent     uint8           // Ticks since a waiter for a fair lock asked.
	deaf       bool            // The subscription was lost.
	frozen     bool            // The client does nothing, and its subscription stands.
	slow       bool            // It was frozen, or an attempt was lost, and none has succeeded since.
	forced     bool            // ForceUnlock took the pending grant.
	robbed     bool            // Redis lost the hold, or force took it, and the owner does not know.
	unsure     bool            // Redis may have another count than the leases.
	guest      bool            // It asks or has entered as a guest.
	invites    bool            // Another may enter as its guest, so it hands nothing over.
}

func (own *owner) excl() uint8    { return uint8(own.hold.Counts().Exclusive) }
func (own *owner) shared() uint8  { return uint8(own.hold.Counts().Shared) }
func (own *owner) deepest() uint8 { return uint8(own.hold.Deepest()) }

// holds reports whether the owner has the lock, as far as it knows.
func (own *owner) holds() bool {
	return own.hold.State() == claim.Held && own.hold.Counts().Total() > 0
}

// idle reports whether the owner neither waits nor has a hold.
func (own *owner) idle() bool {
	return !own.dead && !own.wait.Waits() && own.hold.State() == claim.Held && !own.holds()
}

// ends ends the wait. The next call has another waiter.
func (own *owner) ends() {
	own.wait.Move(claim.Out)
	own.wait = claim.New
}

// acquire begins a wait.
func (m *Model) acquire(s *State, o int, lease uint8, reads bool) bool {
	own := &s.owners[o]
	own.lease, own.reads = lease, reads
	own.wait.Move(claim.Ready)
	return m.ask(s, o)
}

// ask sends an attempt, with a new wire owner unless the current one may be in a queue.
func (m *Model) ask(s *State, o int) bool {
	own := &s.owners[o]
	if own.uses[0] == free && !m.begin(s, o) {
		return false
	}
	own.wait.Move(claim.Asking)
	own.silent = 0
	c := command{op: opAcquire, from: wireOf(o, 0), lease: own.lease, notAfter: never, excl: 1}
	if own.reads {
		c.excl, c.shared = 0, 1
	}
	if own.known {
		c.notAfter, own.earlier = 1, own.earlier.Queueing()
	}
	return s.send(message{command: c})
}

// visit begins an attempt to enter the hold of another owner as its guest, on the side that this has.
func (m *Model) visit(s *State, o, host int, lease uint8) bool {
	own, of := &s.owners[o], &s.owners[host]
	if own.uses[0] != free || !m.begin(s, o) {
		return false
	}
	own.lease, own.reads, own.guest = lease, of.excl() == 0, true
	of.invites = true
	own.wait.Move(claim.Ready)
	own.wait.Move(claim.Asking)
	c := command{op: opEnter, from: wireOf(o, 0), to: wireOf(host, 0), lease: lease, notAfter: never, excl: 1}
	if own.reads {
		c.excl, c.shared = 0, 1
	}
	return s.send(message{command: c})
}

// gets makes an owner a holder.
func (m *Model) gets(s *State, o int, msg message, left claim.Leftovers) error {
	own := &s.owners[o]
	own.ends()
	if !own.guest && !own.robbed && m.believes(s, o) {
		return errBeside
	}
	own.hold, own.earlier, own.known, own.deaf = claim.NewHold(own.reads, left), claim.Leftovers{}, false, false
	own.hold.Enter(own.reads)
	if own.reads {
		own.leftShared = own.left
	}
	if m.Kind == Fenced && !own.guest { // a guest has the token of its host
		if msg.token >= s.newest && !own.robbed {
			return errOldToken
		}
		s.newest = min(s.newest, msg.token)
	}
	return nil
}

// believes reports whether another owner believes in a hold that excludes the one that o was granted.
func (m *Model) believes(s *State, o int) bool {
	if !m.Guests {
		return false // checkHolders sees it
	}
	for other := range m.Clients {
		own := &s.owners[other]
		if other != o && own.holds() && !own.robbed && (!s.owners[o].reads || own.excl() > 0) {
			return true
		}
	}
	return false
}

// waitsOn lets an owner sleep that did not get the lock. left is what its wire owner has left if it
// does not wait on with that.
func (m *Model) waitsOn(s *State, o int, left claim.Leftovers) {
	own := &s.owners[o]
	own.wait.Move(claim.Asleep)
	if own.forced = false; m.Kind != Fair {
		m.retire(s, o, left, opUndo)
	}
}

// leaves ends a wait without the lock. left is what goes with its wire owner beside its place.
func (m *Model) leaves(s *State, o int, left claim.Leftovers) {
	own := &s.owners[o]
	own.ends()
	if own.uses[0] != free {
		m.retire(s, o, left.Or(own.earlier), opUndo)
	}
}

// lose ends a hold that is gone or whose lease is over.
func (m *Model) lose(s *State, o int) {
	own := &s.owners[o]
	own.hold.Lose()
	for i := int(s.n) - 1; i >= 0; i-- {
		if msg := s.messages[i]; msg.op != opForce && msg.role == change && msg.from == wireOf(o, 0) {
			s.drop(i)
		}
	}
	m.retire(s, o, claim.AfterLoss(own.hold.Strays(false)), opRelease)
}

// plan takes the turn, and returns the command with the levels to send.
func (own *owner) plan(c command, more claim.Addition) (command, bool) {
	own.hold.Turn.Take()
	n, ok := own.hold.Plan(more)
	c.excl, c.shared, c.deepest = uint8(n.Exclusive), uint8(n.Shared), own.deepest()
	return c, ok
}

// update sends the levels that an owner wants.
func (m *Model) update(s *State, o int, more claim.Addition, lease uint8) bool {
	own := &s.owners[o]
	c, ok := own.plan(command{op: opUpdate, from: wireOf(o, 0), lease: lease}, more)
	if !ok {
		return false
	}
	if c.shared > 0 {
		c.lease = max(lease, own.leftShared)
	}
	return s.send(message{command: c, asked: lease, enters: c.shared > own.shared() || own.excl() == 0, more: more})
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

// exit returns how a lease is released in Redis, unless a waiter can be its heir.
func (own *owner) exit(shared bool) claim.Way {
	return claim.Exit{Counts: own.hold.Counts().Minus(shared)}.Verdict()
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
	c, _ := own.plan(command{op: op, from: wireOf(o, 0), lease: own.leftShared}, claim.NoAddition)
	return s.send(message{command: c})
}

// expireReads ends the leases of the read side of a hold.
func (own *owner) expireReads() {
	for own.shared() > 0 {
		own.hold.Leave(true)
	}
	own.recount()
}

// recount plans the count anew, because Redis may have a level that no lease is for. The next change
// sends it.
func (own *owner) recount() {
	underWay := own.hold.Turn.Taken() // then what it has sent is no longer sure either
	if !underWay {
		own.hold.Turn.Take()
	}
	own.hold.Plan(claim.NoAddition)
	if !underWay {
		own.hold.Turn.Pass()
	}
	own.unsure = true
}

// release releases the last level.
func (m *Model) release(s *State, o int) bool {
	return m.free(s, o, m.releaseOf(wireOf(o, 0), s.owners[o].deepest(), opFree))
}

// free sends a command that ends a hold.
func (m *Model) free(s *State, o int, c command) bool {
	own := &s.owners[o]
	own.hold.Leave(own.shared() > 0)
	own.plan(c, claim.NoAddition)
	return s.send(message{command: c})
}

// releaseOf returns a release of a wire owner. Only a kind with markers tells opFree and opUndo from
// opRelease. Where records go stale, opFree is one that puts off the next renewal.
func (m *Model) releaseOf(w, deepest uint8, op opcode) command {
	if op != opRecord && !m.Marker && !(m.Stale && op == opFree) {
		op = opRelease
	}
	return command{op: op, from: w, deepest: deepest}
}

// pass hands the lock over to a waiter of the same client.
func (m *Model) pass(s *State, o, to int) bool {
	own, next := &s.owners[o], &s.owners[to]
	way := claim.Exit{
		Deepest: own.hold.Deepest(), HandsOver: m.Pass && !own.invites && !own.guest, Heir: m.client(o) == m.client(to) && next.wait == claim.Asleep,
		SameKind: !next.reads, Queued: m.Kind == Fair, HeirEarlier: next.earlier,
	}.Verdict()
	if way != claim.HandsOver || next.uses[0] == free && !m.begin(s, to) {
		return false
	}
	next.wait.Move(claim.Heir)
	return m.free(s, o, command{op: opPass, from: wireOf(o, 0), to: wireOf(to, 0), lease: next.lease})
}
