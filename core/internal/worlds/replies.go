package worlds

import (
	"errors"
	"slices"

	"github.com/reqlock/reqlock/core/internal/claim"
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
		return m.readRelease(s, o, msg, safe)
	case opRecord:
		if msg.excl > 0 {
			return m.readUpdate(s, o, msg, safe)
		}
		return m.readRelease(s, o, msg, safe)
	case opPass:
		return m.readPass(s, o, msg, safe)
	case opRenew:
		return m.readRenew(s, o, msg, safe)
	}
	return nil
}

// readRelease reads the reply to the release of a hold. safe means that the hold must be there.
func (m *Model) readRelease(s *State, o int, msg message, safe bool) error {
	own := &s.owners[o]
	v := claim.Release{
		Loss: claim.ErrLockLost, There: msg.reply != no, Stray: msg.again, LeaseLeft: own.left > 0, Strays: own.hold.Strays(true),
		Records: msg.op == opRecord, RecordOld: true, // the age of the first try is not known
	}.Verdict()
	if v.Err != nil && safe {
		return errSpuriousLoss
	}
	m.released(s, o, v.Clean)
	return nil
}

// released ends a hold that was released.
func (m *Model) released(s *State, o int, left claim.Left) {
	own := &s.owners[o]
	own.hold.Turn.Pass()
	own.hold.Release()
	own.phase = idle
	m.retire(s, o, useOf(left))
}

func (m *Model) readAcquire(s *State, o int, msg message) error {
	own := &s.owners[o]
	own.traces, own.slow = own.traces.Or(claim.AfterAcquire(false, msg.again)), false
	switch msg.reply {
	case yes:
		own.left = msg.lease - min(msg.age, msg.lease)
		return m.granted(s, o, msg)
	case recorded:
		own.phase = idle
		m.retire(s, o, useOf(own.traces))
	default:
		own.known = m.Kind == Fair
		m.waitOn(s, o)
	}
	return nil
}

// granted makes an owner a holder, unless its lease is over or was taken by force.
func (m *Model) granted(s *State, o int, msg message) error {
	own := &s.owners[o]
	v := claim.Grant{Asks: true, Forced: own.forced, Late: own.left == 0}.Verdict()
	if v.Err != nil {
		own.phase = idle
		m.retire(s, o, unclean)
		return nil
	}
	return m.holds(s, o, msg)
}

// holds makes an owner a holder.
func (m *Model) holds(s *State, o int, msg message) error {
	own := &s.owners[o]
	own.phase, own.known, own.queued, own.deaf = held, false, false, false
	own.hold = claim.NewHold(own.reads, own.traces)
	own.hold.Enter(own.reads)
	if own.reads {
		own.leftShared = own.left
	}
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
	sent := claim.Levels{Exclusive: int32(msg.excl), Shared: int32(msg.shared)}
	own.hold.Confirm(sent)
	own.hold.Turn.Pass()
	if msg.more != claim.NoEntry {
		own.hold.Enter(msg.more == claim.SharedEntry)
	}
	over := own.leftShared == 0 && own.shared() > 0 // the leases of the read side
	if m.Kind == ReadWrite && (over || own.hold.Levels() != sent) {
		own.dropReads()
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

// handOver returns what is known of a hand-over. The heir's lease is known by then.
func (m *Model) handOver(s *State, msg message, reply claim.HandOverReply, stray bool) claim.HandOver {
	own, next := &s.owners[ownerOf(msg.from)], &s.owners[ownerOf(msg.to)]
	h := claim.HandOver{
		Reply: reply, Stray: stray, HoldStray: own.hold.Strays(true), LeaseLeft: own.left > 0,
		Here: next.phase == heir, Queued: m.Kind == Fair, Place: next.traces, Forced: next.forced, Late: next.left == 0,
	}
	if reply == claim.Unknown {
		h.Err = errUnanswered
	}
	return h
}

var errUnanswered = errors.New("no reply")

func (m *Model) readPass(s *State, o int, msg message, safe bool) error {
	to := ownerOf(msg.to)
	next := &s.owners[to]
	reply := claim.FreedInstead
	switch msg.reply {
	case yes:
		reply, next.left = claim.HandedOver, msg.lease-min(msg.age, msg.lease)
	case no:
		reply = claim.NotHeld
	}
	v := m.handOver(s, msg, reply, msg.again).Verdict()
	if v.Err != nil && safe {
		return errSpuriousLoss
	}
	m.released(s, o, v.CleanHold)
	next.traces = next.traces.Or(v.Heir)
	switch {
	case v.Accepted:
		return m.holds(s, to, msg)
	case v.HeirErr != nil:
		next.phase = idle
		m.retire(s, to, unclean)
	default:
		m.waitOn(s, to)
	}
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
	lease, reads := own.lease, own.reads
	m.retire(s, o, useOf(own.traces))
	own.lease, own.reads = lease, reads
}

func (m *Model) readRenew(s *State, o int, msg message, safe bool) error {
	own := &s.owners[o]
	if msg.reply == yes && own.phase == held {
		v := claim.Renewal{Watched: true, Known: int(msg.shared), Shared: int(own.shared())}.Verdict()
		if v.Prolongs {
			left := m.Renewal - min(msg.age, m.Renewal)
			own.left = max(own.left, left)
			if own.shared() > 0 {
				own.leftShared = max(own.leftShared, left)
			}
		}
		return nil
	}
	if msg.reply == yes {
		return nil
	}
	same := m.Kind != ReadWrite || (msg.excl > 0) == (own.hold.Sure().Exclusive > 0)
	state := own.hold.State()
	if own.phase != held { // its hold has ended
		state = claim.Released
	}
	if v := (claim.Missing{State: state, Same: same}).Verdict(); v != claim.IsLost {
		return nil
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
	s.owners[o].hold.Lose()
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
		own.traces = own.traces.Or(claim.AfterAcquire(false, true))
		if !stays {
			own.phase = idle
			m.retire(s, o, useOf(own.traces))
			return true
		}
		own.slow = m.Kind == Fair
		m.waitOn(s, o)
	case opUpdate:
		own.unsure = true
		own.hold.Turn.Pass()
	case opRecord:
		if msg.excl > 0 {
			own.unsure = true
			own.hold.Turn.Pass()
			return true
		}
		fallthrough
	case opRelease, opFree, opUndo:
		v := claim.Release{Err: errUnanswered, Stray: true, LeaseLeft: own.left > 0, Strays: own.hold.Strays(false), Records: msg.op == opRecord}.Verdict()
		m.released(s, o, v.Clean)
	case opPass:
		to := ownerOf(msg.to)
		v := m.handOver(s, msg, claim.Unknown, true).Verdict()
		m.released(s, o, v.CleanHold)
		next := &s.owners[to]
		next.traces = next.traces.Or(v.Heir).Or(v.CleanHeir)
		if stays {
			m.waitOn(s, to)
			break
		}
		next.phase = idle
		m.retire(s, to, useOf(next.traces))
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
