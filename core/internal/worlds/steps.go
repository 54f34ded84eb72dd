package worlds

import (
	"fmt"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// An Event is a step of a world.
type Event struct {
	what    string
	owner   int8 // -1: none
	client  int8 // -1: none
	message message
	shown   bool // String includes the message
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

// A stepper yields the steps out of a state.
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

// do yields a step. f makes it on a copy of the state, and reports whether it is possible.
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

// messageSteps yields what may happen to a message.
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
	// A lost reply has the same effect as a command given up before Redis executes it.
	if msg.reply != none || st.from.losses == 0 {
		return
	}
	if msg.role == change {
		st.do(about("sent again for lack of a reply"), func(s *State) (bool, error) {
			s.losses--
			s.giveUp(i)
			msg.age, msg.again = 0, true
			return s.send(msg), nil
		})
	}
	st.do(about("given up for lack of a reply"), func(s *State) (bool, error) {
		s.losses--
		s.giveUp(i)
		return true, st.conclude(s, msg, givenUp)
	})
	if msg.op == opAcquire || msg.op == opPass {
		st.do(about("given up for lack of a reply, and the waiter stays"), func(s *State) (bool, error) {
			s.losses--
			s.giveUp(i)
			return true, st.conclude(s, msg, outlasted)
		})
	}
}

// ownerSteps yields what an owner may do next.
func (st *stepper) ownerSteps(o int) {
	own := &st.from.owners[o]
	if own.frozen {
		st.by(o, "goes on", func(s *State) bool { s.owners[o].frozen = false; return true })
		return
	}
	if own.uses[spare] == unclean && !own.dead {
		st.do(Event{what: "cleans up", owner: int8(o), client: -1, detail: st.wireName(wireOf(o, spare))}, func(s *State) (bool, error) { return true, st.cleanUp(s, o) })
	}
	switch {
	case own.idle():
		for _, lease := range st.Leases {
			st.by(o, fmt.Sprintf("acquires for %d", lease), func(s *State) bool { return st.acquire(s, o, lease, false) })
			if st.Kind == ReadWrite {
				st.by(o, fmt.Sprintf("acquires the read side for %d", lease), func(s *State) bool { return st.acquire(s, o, lease, true) })
			}
			for host := range st.Clients {
				if st.Guests && host != o && st.from.owners[host].holds() {
					st.by(o, fmt.Sprintf("enters as a guest of %s for %d", st.ownerName(host), lease), func(s *State) bool { return st.visit(s, o, host, lease) })
				}
			}
		}
	case own.wait == claim.Asleep:
		st.by(o, "asks again", func(s *State) bool { return st.ask(s, o) })
		st.by(o, "leaves", func(s *State) bool { st.leaves(s, o, claim.Leftovers{}); return true })
		if st.Kind == Fair && !own.deaf && st.from.deafs > 0 {
			st.by(o, "loses its subscription", func(s *State) bool { s.deafs--; s.owners[o].deaf = true; return true })
		}
		if st.Kind == Fair && own.known && st.from.freezes > 0 && st.alone(o) {
			st.by(o, "freezes", func(s *State) bool { s.freezes--; s.owners[o].frozen, s.owners[o].slow = true, true; return true })
		}
		if own.deaf {
			st.by(o, "subscribes again", func(s *State) bool { s.owners[o].deaf = false; return true })
		}
	case own.holds():
		st.heldSteps(o)
	}
}

// alone reports whether an owner is the only one of its client.
func (m *Model) alone(o int) bool {
	for other := range m.Clients {
		if other != o && m.client(other) == m.client(o) {
			return false
		}
	}
	return true
}

func (st *stepper) heldSteps(o int) {
	own := st.from.owners[o]
	if st.Renewal > 0 && !st.from.has(o, renewal) {
		st.by(o, "renews", func(s *State) bool { return st.renew(s, o) })
	}
	if st.from.has(o, change) {
		return
	}
	levels := own.excl() + own.shared()
	if levels < st.Levels {
		for _, lease := range st.Leases {
			st.by(o, fmt.Sprintf("enters again for %d", lease), func(s *State) bool { return st.update(s, o, claim.AddsExclusive, lease) })
			if st.Kind == ReadWrite {
				st.by(o, fmt.Sprintf("enters the read side again for %d", lease), func(s *State) bool { return st.update(s, o, claim.AddsShared, lease) })
			}
		}
	}
	if st.Extend {
		st.by(o, "extends", func(s *State) bool { return st.update(s, o, claim.NoAddition, st.maxLease) })
	}
	if own.exit(own.excl() == 0) == claim.LowersCount {
		if own.excl() > 0 {
			st.by(o, "releases one level", func(s *State) bool { return st.lower(s, o, false, opUpdate) })
		}
		if own.shared() > 0 {
			st.by(o, "releases one level of the read side", func(s *State) bool { return st.lower(s, o, true, opUpdate) })
		}
		if st.Kind == Once {
			st.by(o, "releases one level with a record", func(s *State) bool { return st.lower(s, o, false, opRecord) })
		}
		return
	}
	st.by(o, "releases", func(s *State) bool { return st.release(s, o) })
	if st.Kind == Once {
		st.by(o, "releases with a record", func(s *State) bool {
			return st.free(s, o, command{op: opRecord, from: wireOf(o, 0)})
		})
	}
	for to := range st.Clients {
		st.do(Event{what: "hands the lock over to", owner: int8(o), client: -1, detail: st.ownerName(to)}, func(s *State) (bool, error) { return st.pass(s, o, to), nil })
	}
}
