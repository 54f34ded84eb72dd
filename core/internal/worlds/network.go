package worlds

// send adds a message.
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

// giveUp gives up on a message. If it has no reply yet, it becomes a stray. Otherwise it is gone.
func (s *State) giveUp(i int) {
	msg := &s.messages[i]
	if msg.reply != none {
		s.remove(i)
		return
	}
	msg.role, msg.age, msg.again, msg.asked, msg.enters = stray, 0, false, 0, false
}

// drop abandons a message without counting a loss. It keeps one stray of each kind, because their
// number would have no bound otherwise.
func (s *State) drop(i int) {
	for _, msg := range s.messages[:s.n] {
		if msg.role == stray && msg.op == s.messages[i].op {
			s.remove(i)
			return
		}
	}
	s.giveUp(i)
}

// has reports whether an owner's current wire owner has a message of a role in flight.
func (s *State) has(o int, r role) bool {
	return s.some(func(msg *message) bool { return msg.role == r && msg.op != opForce && msg.from == wireOf(o, 0) })
}

// some reports whether f is true of a message.
func (s *State) some(f func(*message) bool) bool {
	for i := range s.messages[:s.n] {
		if f(&s.messages[i]) {
			return true
		}
	}
	return false
}

// names reports whether a message names a wire owner.
func (s *State) names(w uint8) bool {
	return s.some(func(msg *message) bool {
		return msg.op == opForce && msg.fields&(1<<w) != 0 || msg.op != opForce && msg.from == w || (msg.op == opPass || msg.op == opEnter) && msg.to == w
	})
}

// strays reports whether a command may still put a wire owner into Redis.
func (s *State) strays(w uint8) bool {
	return s.some(func(msg *message) bool {
		return msg.op.asks() && msg.from == w || msg.op == opPass && msg.to == w
	})
}

// strayUpdate reports whether an update of an owner's hold may still arrive.
func (s *State) strayUpdate(o int) bool {
	return s.some(func(msg *message) bool {
		return msg.role == stray && (msg.op == opUpdate || msg.op == opRecord) && msg.from == wireOf(o, 0)
	})
}

// An audience says which wire owners have their own subscription, and which of them may not have
// tried for long.
type audience struct{ listen, slow uint16 }

func (m *Model) listening(s *State) (a audience) {
	if m.Kind != Fair {
		return a
	}
	for o := range m.Clients {
		own := &s.owners[o]
		if own.known && !own.deaf && own.wait.Waits() {
			a.listen |= 1 << wireOf(o, 0)
		}
		if own.slow {
			a.slow |= 1 << wireOf(o, 0)
		}
	}
	return a
}

// deliver makes Redis execute a message.
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
	if e.reply == yes && (msg.op.asks() || msg.op == opPass) {
		return nil // the client learns later that it has the lock
	}
	return m.read(s, i)
}

// read makes the client read the reply to a message.
func (m *Model) read(s *State, i int) error {
	msg := s.messages[i]
	s.remove(i)
	return m.conclude(s, msg, answered)
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
