package worlds

import (
	"errors"
	"slices"
)

// rob notes the owners whose holds were taken from outside.
func (s *State) rob(wires uint16) {
	for o := range s.owners {
		if wires&(1<<wireOf(o, 0)) != 0 {
			s.owners[o].robbed = true
		}
	}
}

var (
	errSpuriousLoss = errors.New("an owner is told that it lost the lock, but nothing took it away")
	errOldToken     = errors.New("a client accepts a token that is not greater than those accepted before")
)

// read makes the client read the reply to a message.
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
	case opRelease, opFree, opUndo:
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

// released ends a hold that Redis no longer has.
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
	own.stray, own.slow = own.stray || msg.again, false
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
	left := msg.asked - min(msg.age, msg.asked)
	own.left = max(own.left, left)
	if msg.enters {
		own.leftShared = max(own.leftShared, left)
	}
	own.excl, own.shared = msg.excl, msg.shared
	own.sure = [2]uint8{msg.excl, msg.shared}
	if own.leftShared == 0 && own.shared > 0 && m.Kind == ReadWrite { // those leases are over
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

// waitOn makes an owner wait that did not get the lock. It waits with another wire owner, unless
// the current one may be in a queue. If the lock has neither a queue nor a hand-over, a waiter is
// as good as idle.
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
		return nil // the writer became a reader since
	}
	if safe {
		return errSpuriousLoss
	}
	m.lose(s, o)
	return nil
}

// lose ends a hold that is gone or whose lease is over.
func (m *Model) lose(s *State, o int) {
	s.owners[o].phase = idle
	for i := int(s.n) - 1; i >= 0; i-- {
		if msg := s.messages[i]; msg.op != opForce && msg.role == change && msg.from == wireOf(o, 0) {
			s.drop(i)
		}
	}
	m.retire(s, o, unclean)
}

// unknown ends a change whose outcome the client does not know. stays means that the waiter keeps
// waiting.
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
		own.slow = m.Kind == Fair
		m.waitOn(s, o)
	case opUpdate:
		own.unsure = true
	case opRecord:
		if msg.excl > 0 {
			own.unsure = true
			return true
		}
		fallthrough
	case opRelease, opFree, opUndo:
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

// cleanUp frees what a wire owner may have left. It is done when no stray can arrive any more.
func (m *Model) cleanUp(s *State, o int) error {
	w := wireOf(o, spare)
	depth := s.owners[o].depth
	if m.Kind == ReadWrite {
		depth = max(depth, 1)
	}
	if _, err := m.execute(s, m.releaseOf(w, depth, opUndo)); err != nil {
		return err
	}
	if !s.strays(w) {
		s.owners[o].uses[spare] = late // until nothing names it
	}
	return nil
}

// strays reports whether a command may still put a wire owner into Redis.
func (s *State) strays(w uint8) bool {
	return slices.ContainsFunc(s.messages[:s.n], func(msg message) bool {
		return msg.op == opAcquire && msg.from == w || msg.op == opPass && msg.to == w
	})
}
