package worlds

import (
	"errors"
	"fmt"
	"slices"
)

// An Event is a step of a world.
type Event struct {
	what    string
	owner   int8 // -1: none
	client  int8 // -1: none
	message message
	shown   bool // the message is part of it
	detail  string
	names   *Model
}

func (e Event) String() string {
	text := e.what
	switch {
	case e.owner >= 0:
		text = e.names.ownerName(int(e.owner)) + " " + text
	case e.client >= 0:
		text = fmt.Sprintf("client %c %s", 'A'+rune(e.client), text)
	}
	if e.shown {
		text += ": " + e.names.describeMessage(e.message)
	}
	if e.detail != "" {
		text += " " + e.detail
	}
	return text
}

// stepper yields steps out of a state.
type stepper struct {
	*Model
	from  State
	yield func(Event, State, error)
}

// Steps yields every step out of s.
func (m *Model) Steps(s State, yield func(Event, State, error)) {
	st := &stepper{m, s, yield}
	for i := range int(s.n) {
		st.messageSteps(i)
	}
	for o := range m.Clients {
		st.ownerSteps(o)
	}
	st.tick()
	st.faults()
}

// do yields a step that f makes on a copy of the state; f reports whether it is possible.
func (st *stepper) do(e Event, f func(s *State) (bool, error)) {
	s := st.from
	e.names = st.Model
	ok, err := f(&s)
	if err != nil {
		st.yield(e, s, err)
		return
	}
	if ok {
		st.tidy(&s)
		st.yield(e, s, nil)
	}
}

func (st *stepper) by(o int, what string, f func(s *State) bool) {
	st.do(Event{what: what, owner: int8(o), client: -1}, func(s *State) (bool, error) { return f(s), nil })
}

// messageSteps are what may happen to a message.
func (st *stepper) messageSteps(i int) {
	msg := st.from.messages[i]
	about := func(what string) Event { return Event{what: what, owner: -1, client: -1, message: msg, shown: true} }
	if msg.reply == none {
		st.do(about("Redis executes"), func(s *State) (bool, error) { return true, st.deliver(s, i) })
	}
	if msg.role == stray {
		st.do(about("a stray is lost"), func(s *State) (bool, error) { s.remove(i); return true, nil })
		return
	}
	if msg.reply != none {
		st.do(about("the reply arrives"), func(s *State) (bool, error) { return true, st.read(s, i) })
	}
	// A reply that is lost is the same as a command that is given up before Redis executes it.
	if msg.reply != none || st.from.losses == 0 {
		return
	}
	if msg.role == change {
		st.do(about("sent again for lack of a reply"), func(s *State) (bool, error) {
			s.losses--
			s.abandon(i)
			msg.age, msg.again = 0, true
			return s.send(msg), nil
		})
	}
	st.do(about("given up for lack of a reply"), func(s *State) (bool, error) {
		s.losses--
		s.abandon(i)
		return st.unknown(s, msg, false), nil
	})
	if msg.op == opAcquire || msg.op == opPass {
		st.do(about("given up for lack of a reply, and the waiter stays"), func(s *State) (bool, error) {
			s.losses--
			s.abandon(i)
			return st.unknown(s, msg, true), nil
		})
	}
}

// ownerSteps are what an owner may do next.
func (st *stepper) ownerSteps(o int) {
	own := &st.from.owners[o]
	for slot := 1; slot < wiresEach; slot++ {
		if own.uses[slot] == unclean && own.phase != dead {
			st.do(Event{what: "cleans up", owner: int8(o), client: -1, detail: st.wireName(wireOf(o, slot))}, func(s *State) (bool, error) { return true, st.cleanUp(s, o, slot) })
		}
	}
	switch own.phase {
	case idle:
		for _, lease := range st.Leases {
			st.by(o, fmt.Sprintf("acquires for %d", lease), func(s *State) bool { return st.acquire(s, o, lease, false) })
			if st.Kind == ReadWrite {
				st.by(o, fmt.Sprintf("acquires the read side for %d", lease), func(s *State) bool { return st.acquire(s, o, lease, true) })
			}
		}
	case waiting:
		st.by(o, "asks again", func(s *State) bool { return st.ask(s, o) })
		st.by(o, "leaves", func(s *State) bool { st.leave(s, o); return true })
		if st.Kind == Fair && !own.deaf && st.from.deafs > 0 {
			st.by(o, "loses its subscription", func(s *State) bool { s.deafs--; s.owners[o].deaf = true; return true })
		}
	case held:
		st.heldSteps(o)
	}
}

func (st *stepper) heldSteps(o int) {
	own := st.from.owners[o]
	if st.Renewal > 0 && !st.from.has(o, renewal) {
		st.by(o, "renews", func(s *State) bool { return st.renew(s, o) })
	}
	if st.from.has(o, change) {
		return
	}
	levels := own.excl + own.shared
	if levels < st.Levels {
		for _, lease := range st.Leases {
			if own.sure[0] > 0 {
				st.by(o, fmt.Sprintf("enters again for %d", lease), func(s *State) bool { return st.update(s, o, own.excl+1, own.shared, lease) })
			}
			if st.Kind == ReadWrite {
				st.by(o, fmt.Sprintf("enters the read side again for %d", lease), func(s *State) bool { return st.update(s, o, own.excl, own.shared+1, lease) })
			}
		}
	}
	if st.Extend {
		st.by(o, "extends", func(s *State) bool { return st.update(s, o, own.excl, own.shared, st.maxLease) })
	}
	if levels > 1 {
		if own.excl > 0 {
			st.by(o, "releases one level", func(s *State) bool { return st.lower(s, o, own.excl-1, own.shared, opUpdate) })
		}
		if own.shared > 0 {
			st.by(o, "releases one level of the read side", func(s *State) bool { return st.lower(s, o, own.excl, own.shared-1, opUpdate) })
		}
		if st.Kind == Once {
			st.by(o, "releases one level with a record", func(s *State) bool { return st.lower(s, o, own.excl-1, 0, opRecord) })
		}
		return
	}
	st.by(o, "releases", func(s *State) bool { return st.release(s, o) })
	if st.Kind == Once {
		st.by(o, "releases with a record", func(s *State) bool {
			s.owners[o].phase = freeing
			return s.send(message{command: command{op: opRecord, from: wireOf(o, 0)}})
		})
	}
	if st.Pass && own.deepest == 0 {
		for to := range st.Clients {
			st.do(Event{what: "hands the lock over to", owner: int8(o), client: -1, detail: st.ownerName(to)}, func(s *State) (bool, error) { return st.pass(s, o, to), nil })
		}
	}
}

// send puts a message on its way.
func (s *State) send(msg message) bool {
	if int(s.n) == maxMessages {
		return false
	}
	s.messages[s.n] = msg
	s.n++
	return true
}

func (s *State) remove(i int) {
	copy(s.messages[i:s.n], s.messages[i+1:s.n])
	s.n--
	s.messages[s.n] = message{}
}

// abandon gives up on a message: nothing reads its reply any more, and if it has none it is a stray.
func (s *State) abandon(i int) {
	msg := &s.messages[i]
	if msg.reply != none {
		s.remove(i)
		return
	}
	msg.role, msg.age, msg.again = stray, 0, false
}

// drop is abandon for what costs no loss. Of such strays there is one of a kind, or else there would be
// no end of them.
func (s *State) drop(i int) {
	for _, msg := range s.messages[:s.n] {
		if msg.role == stray && msg.op == s.messages[i].op {
			s.remove(i)
			return
		}
	}
	s.abandon(i)
}

// has reports whether an owner has a message of a role under way for its current wire owner.
func (s *State) has(o int, r role) bool {
	for _, msg := range s.messages[:s.n] {
		if msg.role == r && msg.op != opForce && msg.from == wireOf(o, 0) {
			return true
		}
	}
	return false
}

// names reports whether a message names a wire owner.
func (s *State) names(w uint8) bool {
	for _, msg := range s.messages[:s.n] {
		if msg.op == opForce && msg.fields&(1<<w) != 0 || msg.op != opForce && msg.from == w || msg.op == opPass && msg.to == w {
			return true
		}
	}
	return false
}

// spare returns a number of a wire owner for what an owner leaves, or 0.
func (m *Model) spare(o *owner) int {
	for slot := 1; slot <= m.Spares; slot++ {
		if o.uses[slot] == free {
			return slot
		}
	}
	return 0
}

// begin gives an owner a new wire owner. There must be room for what it may leave.
func (m *Model) begin(s *State, o int) bool {
	own := &s.owners[o]
	if m.spare(own) == 0 {
		return false
	}
	own.uses[0] = current
	own.stray, own.robbed, own.forced, own.unsure, own.queued, own.known, own.deaf = false, false, false, false, false, false, false
	own.silent = 0
	return true
}

// retire ends the use of an owner's current wire owner. unclean: something of it may be in Redis.
func (m *Model) retire(s *State, o int, u use) {
	own := &s.owners[o]
	w := wireOf(o, 0)
	for i := int(s.n) - 1; i >= 0; i-- { // its renewals are of no use any more
		if s.messages[i].role == renewal && s.messages[i].from == w {
			s.drop(i)
		}
	}
	if u == free && s.names(w) {
		u = late
	}
	if u != free {
		slot := m.spare(own)
		m.swap(s, o, slot)
		own.uses[slot], own.depths[slot] = u, own.deepest
	}
	own.uses[0] = free
	s.redis = m.forget(s.redis, w)
	own.left, own.leftShared, own.excl, own.shared, own.sure, own.deepest = 0, 0, 0, 0, [2]uint8{}, 0
	own.stray, own.robbed, own.forced, own.unsure, own.queued, own.known, own.deaf = false, false, false, false, false, false, false
	own.silent = 0
}

// swap gives the current wire owner of an owner another number, which is free.
func (m *Model) swap(s *State, o, slot int) {
	names := identity()
	a, b := wireOf(o, 0), wireOf(o, slot)
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

// tidy frees wire owners that no message names any more, and counts draws of tokens anew.
func (m *Model) tidy(s *State) {
	s.rankTokens()
	for o := range m.Clients {
		own := &s.owners[o]
		for slot := 1; slot < wiresEach; slot++ {
			if own.uses[slot] == late && !s.names(wireOf(o, slot)) {
				own.uses[slot], own.depths[slot] = free, 0
				s.redis = m.forget(s.redis, wireOf(o, slot))
			}
		}
		if own.phase == idle {
			own.lease, own.reads = 0, false
		}
	}
}

// rankTokens replaces the ages of tokens by their order, which is all that counts.
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
	s.newest = 2*rank(s.newest) + bits(slices.Contains(all, s.newest)) // between two ranks, or on one
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

// ask asks for the lock: by a new wire owner, unless this one may stand in a queue.
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
	if own.queued || own.stray {
		m.retire(s, o, unclean)
	} else {
		m.retire(s, o, free)
	}
}

func (m *Model) renew(s *State, o int) bool {
	own := &s.owners[o]
	c := command{op: opRenew, from: wireOf(o, 0), lease: max(m.Renewal, own.left)}
	if m.Kind == ReadWrite {
		c.excl, c.shared = own.sure[0], own.sure[1]
	}
	return s.send(message{command: c, role: renewal})
}

// update sends the levels that an owner is to have.
func (m *Model) update(s *State, o int, excl, shared, lease uint8) bool {
	own := &s.owners[o]
	own.sure = [2]uint8{min(own.sure[0], excl), min(own.sure[1], shared)}
	own.deepest = max(own.deepest, shared)
	enters := shared > own.shared || own.excl == 0
	return s.send(message{command: command{op: opUpdate, from: wireOf(o, 0), excl: excl, shared: shared, deepest: own.deepest, lease: lease}, enters: enters})
}

// lower releases one level of several.
func (m *Model) lower(s *State, o int, excl, shared uint8, op opcode) bool {
	own := &s.owners[o]
	own.excl, own.shared = excl, shared
	own.sure = [2]uint8{min(own.sure[0], excl), min(own.sure[1], shared)}
	if shared == 0 {
		own.leftShared = 0
	}
	if excl == 0 && m.Kind == ReadWrite {
		own.left = own.leftShared // that of the write side does not count any more
	}
	return s.send(message{command: command{op: op, from: wireOf(o, 0), excl: excl, shared: shared, deepest: own.deepest}})
}

// release gives the last level back.
func (m *Model) release(s *State, o int) bool {
	own := &s.owners[o]
	own.phase = freeing
	return s.send(message{command: m.releaseOf(wireOf(o, 0), own.deepest)})
}

func (m *Model) releaseOf(w, deepest uint8) command {
	c := command{op: opRelease, from: w, deepest: deepest}
	if m.Kind == Once && m.Marker {
		c.op = opUndo
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
	return s.send(message{command: command{op: opPass, from: wireOf(o, 0), to: wireOf(to, 0), lease: next.lease}})
}

// listening is the wire owners that have a subscription of their own.
func (m *Model) listening(s *State) (listen uint16) {
	if m.Kind != Fair {
		return 0
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if own.known && !own.deaf && (own.phase == waiting || own.phase == asking || own.phase == heir) {
			listen |= 1 << wireOf(o, 0)
		}
	}
	return listen
}

// deliver has Redis execute a message.
func (m *Model) deliver(s *State, i int) error {
	msg := s.messages[i]
	e, err := m.execute(s, msg.command)
	if err != nil {
		return err
	}
	if msg.op == opForce {
		s.rob(e.removed)
	}
	if msg.role == stray {
		s.remove(i)
		return nil
	}
	s.messages[i].reply, s.messages[i].token = e.reply, 0
	if e.reply == yes && (msg.op == opAcquire || msg.op == opPass) {
		return nil // much may happen until the client knows that it has the lock
	}
	return m.read(s, i)
}

func (m *Model) execute(s *State, c command) (effect, error) {
	e := m.exec(s.redis, c, m.listening(s))
	if e.broken != nil {
		return e, e.broken
	}
	s.redis = e.redis
	if e.drew {
		s.newest++
		for i := range s.messages[:s.n] {
			if s.messages[i].reply != none {
				s.messages[i].token++
			}
		}
	}
	return e, nil
}

// rob notes whose holds were taken from outside.
func (s *State) rob(wires uint16) {
	for o := range s.owners {
		if wires&(1<<wireOf(o, 0)) != 0 {
			s.owners[o].robbed = true
		}
	}
}

var (
	errSpuriousLoss = errors.New("an owner is told that it does not hold the lock, and nothing has taken it away")
	errOldToken     = errors.New("a client accepts a token that is not greater than those accepted before")
)

// read has the client take the reply of a message.
func (m *Model) read(s *State, i int) error {
	msg := s.messages[i]
	s.remove(i)
	if msg.op == opForce {
		return nil
	}
	o := ownerOf(msg.from)
	own := &s.owners[o]
	safe := !own.robbed && own.left > 0
	switch msg.op {
	case opAcquire:
		return m.readAcquire(s, o, msg)
	case opUpdate:
		return m.readUpdate(s, o, msg, safe)
	case opRelease, opUndo:
		if msg.reply == no && safe && !msg.again {
			return errSpuriousLoss
		}
		m.released(s, o, own.stray)
	case opRecord:
		if msg.excl > 0 {
			return m.readUpdate(s, o, msg, safe)
		}
		if msg.reply == no && safe && !msg.again {
			return errSpuriousLoss
		}
		m.released(s, o, own.stray)
	case opPass:
		return m.readPass(s, o, msg, safe)
	case opRenew:
		return m.readRenew(s, o, msg, safe)
	}
	return nil
}

// released ends a hold of which Redis says that it is not there any more.
func (m *Model) released(s *State, o int, dirty bool) {
	s.owners[o].phase = idle
	u := free
	if dirty {
		u = unclean
	}
	m.retire(s, o, u)
}

func (m *Model) readAcquire(s *State, o int, msg message) error {
	own := &s.owners[o]
	own.stray = own.stray || msg.again
	switch msg.reply {
	case yes:
		own.left = msg.lease - min(msg.age, msg.lease)
		return m.granted(s, o, msg)
	case recorded:
		own.phase = idle
		m.released(s, o, own.stray)
	default:
		own.known = m.Kind == Fair
		m.waitOn(s, o)
	}
	return nil
}

// granted makes an owner a holder, unless its lease is over or was taken by force.
func (m *Model) granted(s *State, o int, msg message) error {
	own := &s.owners[o]
	if own.forced || own.left == 0 {
		own.phase = idle
		m.retire(s, o, unclean)
		return nil
	}
	own.phase, own.known, own.queued, own.deaf = held, false, false, false
	if own.reads {
		own.shared, own.deepest, own.leftShared = 1, 1, own.left
	} else {
		own.excl = 1
	}
	own.sure = [2]uint8{own.excl, own.shared}
	if m.Kind == Fenced {
		if msg.token >= s.newest && !own.robbed {
			return errOldToken
		}
		s.newest = min(s.newest, msg.token)
	}
	return nil
}

func (m *Model) readUpdate(s *State, o int, msg message, safe bool) error {
	own := &s.owners[o]
	if msg.reply == no {
		if safe {
			return errSpuriousLoss
		}
		m.lose(s, o)
		return nil
	}
	left := msg.lease - min(msg.age, msg.lease)
	own.left = max(own.left, left)
	if msg.enters {
		own.leftShared = max(own.leftShared, left)
	}
	own.excl, own.shared = msg.excl, msg.shared
	own.sure = [2]uint8{msg.excl, msg.shared}
	if own.leftShared == 0 && own.shared > 0 && m.Kind == ReadWrite { // its leases are over already
		own.shared, own.sure[1], own.unsure = 0, 0, true
		return nil
	}
	own.unsure = s.strayUpdate(o)
	return nil
}

// strayUpdate reports whether an update of an owner's hold may still arrive.
func (s *State) strayUpdate(o int) bool {
	for _, msg := range s.messages[:s.n] {
		if msg.role == stray && (msg.op == opUpdate || msg.op == opRecord) && msg.from == wireOf(o, 0) {
			return true
		}
	}
	return false
}

func (m *Model) readPass(s *State, o int, msg message, safe bool) error {
	to := ownerOf(msg.to)
	next := &s.owners[to]
	switch msg.reply {
	case yes:
		next.stray = next.stray || msg.again
		next.left = msg.lease - min(msg.age, msg.lease)
		m.released(s, o, s.owners[o].stray)
		return m.granted(s, to, msg)
	case no:
		if safe && !msg.again {
			return errSpuriousLoss
		}
	}
	m.released(s, o, s.owners[o].stray)
	next.stray = next.stray || msg.again
	m.waitOn(s, to)
	return nil
}

// waitOn has an owner that did not get the lock wait: for another wire owner, unless this one may stand
// in a queue. Where waiters are neither in a queue nor handed the lock, they are as good as idle.
func (m *Model) waitOn(s *State, o int) {
	own := &s.owners[o]
	own.phase, own.forced = waiting, false
	if m.Kind == Fair {
		return
	}
	if !m.Pass {
		own.phase = idle
	}
	u := free
	if own.stray {
		u = unclean
	}
	lease, reads := own.lease, own.reads
	m.retire(s, o, u)
	own.lease, own.reads = lease, reads
}

func (m *Model) readRenew(s *State, o int, msg message, safe bool) error {
	own := &s.owners[o]
	if own.phase != held {
		return nil
	}
	if msg.reply == yes {
		left := m.Renewal - min(msg.age, m.Renewal)
		own.left = max(own.left, left)
		if own.shared > 0 {
			own.leftShared = max(own.leftShared, left)
		}
		return nil
	}
	if m.Kind == ReadWrite && (msg.excl > 0) != (own.sure[0] > 0) {
		return nil // it has become a reader since
	}
	if safe {
		return errSpuriousLoss
	}
	m.lose(s, o)
	return nil
}

// lose ends a hold that is not there any more, or whose lease is over.
func (m *Model) lose(s *State, o int) {
	s.owners[o].phase = idle
	for i := int(s.n) - 1; i >= 0; i-- {
		if msg := s.messages[i]; msg.op != opForce && msg.role == change && msg.from == wireOf(o, 0) {
			s.drop(i)
		}
	}
	m.retire(s, o, unclean)
}

// unknown ends a change of which the client does not know whether it was or will be executed. stays: the
// waiter waits on.
func (m *Model) unknown(s *State, msg message, stays bool) bool {
	if msg.op == opForce || msg.role == renewal {
		return true
	}
	o := ownerOf(msg.from)
	own := &s.owners[o]
	switch msg.op {
	case opAcquire:
		own.stray = true
		if !stays {
			own.phase = idle
			m.retire(s, o, unclean)
			return true
		}
		m.waitOn(s, o)
	case opUpdate:
		own.unsure = true
	case opRecord:
		if msg.excl > 0 {
			own.unsure = true
			return true
		}
		fallthrough
	case opRelease, opUndo:
		own.phase = idle
		m.retire(s, o, unclean)
	case opPass:
		own.phase = idle
		m.retire(s, o, unclean)
		to := ownerOf(msg.to)
		s.owners[to].stray = true
		if stays {
			m.waitOn(s, to)
			break
		}
		s.owners[to].phase = idle
		m.retire(s, to, unclean)
	}
	return true
}

// cleanUp frees what may be left of a wire owner. It is over when no stray can be on its way.
func (m *Model) cleanUp(s *State, o, slot int) error {
	w := wireOf(o, slot)
	depth := s.owners[o].depths[slot]
	if m.Kind == ReadWrite {
		depth = max(depth, 1)
	}
	if _, err := m.execute(s, m.releaseOf(w, depth)); err != nil {
		return err
	}
	if !s.strays(w) {
		s.owners[o].uses[slot] = late // until nothing names it
	}
	return nil
}

// strays reports whether a command may still put a wire owner into Redis.
func (s *State) strays(w uint8) bool {
	return slices.ContainsFunc(s.messages[:s.n], func(msg message) bool {
		return msg.op == opAcquire && msg.from == w || msg.op == opPass && msg.to == w
	})
}

// tick is time that passes.
func (st *stepper) tick() {
	if st.busy(&st.from) {
		return
	}
	st.do(Event{what: "a tick passes", owner: -1, client: -1}, func(s *State) (bool, error) {
		st.later(s)
		return true, nil
	})
}

// busy reports whether a client does something before the next tick: cleans up what no stray can bring
// back, or, waiting for a fair lock, asks, since its place in the queue depends on that. Nor does it wait
// for a reply for longer than any lease.
func (m *Model) busy(s *State) bool {
	for o := range m.Clients {
		own := &s.owners[o]
		if own.phase == dead {
			continue
		}
		if own.phase == waiting && own.known && own.silent > 0 {
			return true
		}
		for slot := 1; slot < wiresEach; slot++ {
			if own.uses[slot] == unclean && !s.strays(wireOf(o, slot)) {
				return true
			}
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
		if own.phase == waiting && own.known {
			own.silent = 1
		}
		if own.left == 0 {
			continue
		}
		if own.leftShared > 0 {
			if own.leftShared--; own.leftShared == 0 && own.shared > 0 && own.excl > 0 { // the leases of the read side are over
				own.shared, own.sure[1], own.unsure = 0, 0, true
			}
		}
		if own.left--; own.left == 0 && own.phase == held {
			m.lose(s, o)
		}
	}
}

// faults are what happens to Redis and to clients.
func (st *stepper) faults() {
	if st.from.evictions > 0 {
		st.evictions()
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
		if slices.Contains(gone, m.lock) && had {
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

// crash ends a client: nothing of it is sent or read any more, and what it has sent may still arrive.
func (m *Model) crash(s *State, client int) bool {
	alive := false
	for i := int(s.n) - 1; i >= 0; i-- {
		if msg := s.messages[i]; msg.op != opForce && m.client(ownerOf(msg.from)) == client && msg.role != stray {
			s.abandon(i)
		}
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if m.client(o) == client {
			alive = alive || own.phase != dead
			*own = owner{phase: dead, uses: own.uses, depths: own.depths}
		}
	}
	s.crashes--
	return alive
}

// force finds who holds the lock, ends those holds that are its own, and sends a command that ends them
// in Redis.
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
		switch own.phase {
		case held:
			m.lose(s, o)
		case asking, heir:
			own.forced = true
		}
	}
	return true
}
