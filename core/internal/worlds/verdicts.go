package worlds

import (
	"errors"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// An ending says how a message has ended for the client that sent it.
type ending uint8

const (
	answered  ending = iota
	givenUp          // It had no reply in time.
	outlasted        // It had none, and the waiter goes on waiting.
)

// err returns the error of the command.
func (e ending) err() error {
	if e == answered {
		return nil
	}
	return errUnanswered
}

var (
	errUnanswered   = errors.New("no reply")
	errSpuriousLoss = errors.New("an owner is told that it lost the lock, but nothing took it away")
	errBeside       = errors.New("a client is granted the lock while another believes that it holds it")
	errOldToken     = errors.New("a client accepts a token that is not greater than those accepted before")
)

// A result is a message that has ended.
type result struct {
	message
	ending
	// safe means that Redis must have the hold of its owner: the lease lasts, and nothing took it away.
	safe bool
}

// stray reports whether a try had no reply.
func (r result) stray() bool { return r.again || r.ending != answered }

// remaining returns what is left of a lease that begins when the message was sent.
func (r result) remaining(lease uint8) uint8 { return lease - min(r.age, lease) }

// conclude carries out what follows from the end of a message.
func (m *Model) conclude(s *State, msg message, e ending) error {
	if msg.op == opForce || msg.op == opRenew && e != answered {
		return nil
	}
	own := &s.owners[ownerOf(msg.from)]
	r := result{msg, e, e == answered && !own.robbed && own.left > 0}
	switch {
	case msg.op.asks():
		return m.attempted(s, r)
	case msg.op == opPass:
		return m.handedOver(s, r)
	case msg.op == opRenew:
		return m.renewed(s, r)
	case msg.op == opUpdate || msg.op == opRecord && msg.excl > 0:
		return m.updated(s, r)
	}
	return m.freed(s, r)
}

// attempted ends an attempt.
func (m *Model) attempted(s *State, r result) error {
	o := ownerOf(r.from)
	own := &s.owners[o]
	left := claim.Attempt{Granted: r.reply == yes, Unanswered: r.stray(), Keeps: m.Kind == Fair && !own.guest, Earlier: own.earlier}.Verdict()
	own.earlier, own.slow = left.Kept, m.Kind == Fair && !own.guest && r.ending != answered
	stays := false
	switch {
	case r.ending != answered || r.reply == recorded:
		stays = claim.Failure{Outlasts: r.ending == outlasted && m.queues()}.Verdict().Sleeps
	case r.reply == yes:
		own.left = r.remaining(r.lease)
		v := claim.Grant{Asks: own.wait == claim.Asking, Forced: own.forced, Late: own.left == 0}.Verdict()
		if v.Err == nil {
			return m.gets(s, o, r.message, left.Leftovers())
		}
	default:
		own.known = m.Kind == Fair && !own.guest
		stays = claim.Refusal{NoWait: !m.queues() || own.guest, Queued: own.known, Hears: !own.deaf}.Verdict().Sleeps
	}
	if stays {
		m.waitsOn(s, o, left.Clean)
	} else {
		m.leaves(s, o, left.Clean)
	}
	return nil
}

// queues reports whether it matters that a waiter waits. Without a queue in Redis or a hand-over it is
// as good as one that begins another call.
func (m *Model) queues() bool { return m.Kind == Fair || m.Pass }

// updated ends a change of a hold that goes on.
func (m *Model) updated(s *State, r result) error {
	o := ownerOf(r.from)
	own := &s.owners[o]
	sent, lease := claim.Counts{Exclusive: int32(r.excl), Shared: int32(r.shared)}, r.remaining(r.asked)
	v := claim.Update{
		Err: r.err(), Loss: claim.ErrLockLost, There: r.reply != no, Downgrades: claim.Downgraded(own.reads, sent), CountOnly: r.asked == 0,
		// With a watchdog, the lease lasts as long as the others, which it has renewed meanwhile.
		Late: r.more != claim.NoAddition && lease == 0 && m.Renewal == 0,
	}.Verdict()
	if v.Loss != nil {
		if r.safe {
			return errSpuriousLoss
		}
		m.lose(s, o)
		return nil
	}
	if v.Confirms {
		own.hold.Confirm(sent)
	}
	own.hold.Turn.Pass()
	if v.Applies {
		own.applies(r, lease)
	}
	switch {
	case v.Err != nil && !v.Resends:
		own.unsure = true
	case v.Resends || own.hold.Counts() != sent:
		own.recount()
	case own.leftShared == 0 && own.shared() > 0:
		own.expireReads()
	default:
		own.unsure = s.strayUpdate(o)
	}
	return nil
}

// applies begins or prolongs the lease that an update was for.
func (own *owner) applies(r result, lease uint8) {
	own.left = max(own.left, lease)
	if r.enters {
		own.leftShared = max(own.leftShared, lease)
	}
	if r.more != claim.NoAddition {
		own.hold.Enter(r.more == claim.AddsShared)
	}
}

// freed ends the release of a hold.
func (m *Model) freed(s *State, r result) error {
	o := ownerOf(r.from)
	own := &s.owners[o]
	v := claim.Release{
		Err: r.err(), Loss: claim.ErrLockLost, There: r.reply != no, Unanswered: r.stray(), LeaseLeft: own.left > 0,
		Strays: own.hold.Strays(r.ending == answered), Records: r.op == opRecord,
		RecordOld: true, // The age of the first try is not known.
	}.Verdict()
	if v.Err != nil && r.safe {
		return errSpuriousLoss
	}
	m.released(s, o, v.Clean, [...]opcode{claim.SameCall: r.op, claim.PlainCall: opRelease, claim.GoneCall: opUndo}[v.Call])
	return nil
}

// released ends a hold that was released.
func (m *Model) released(s *State, o int, left claim.Leftovers, clean opcode) {
	own := &s.owners[o]
	own.hold.Turn.Pass()
	own.hold.Release()
	m.retire(s, o, left, clean)
}

// handedOver ends a hand-over.
func (m *Model) handedOver(s *State, r result) error {
	o, to := ownerOf(r.from), ownerOf(r.to)
	own, next := &s.owners[o], &s.owners[to]
	known := claim.HandOver{
		Reply: claim.FreedInstead, Err: r.err(), Unanswered: r.stray(), HoldStray: own.hold.Strays(true), LeaseLeft: own.left > 0,
		Here: next.wait == claim.Heir, Queued: m.Kind == Fair, Earlier: next.earlier, Forced: next.forced,
	}
	switch {
	case r.ending != answered:
		known.Reply = claim.Unknown
	case r.reply == yes:
		next.left = r.remaining(r.lease)
		known.Reply, known.Late = claim.HandedOver, next.left == 0
	case r.reply == no:
		known.Reply = claim.NotHeld
	}
	v := known.Verdict()
	if v.Err != nil && r.safe {
		return errSpuriousLoss
	}
	m.released(s, o, v.CleanHold, opRelease)
	if v.KeepsOn {
		next.earlier = next.earlier.Or(v.HeirLeftovers)
	}
	switch {
	case v.Accepted:
		return m.gets(s, to, r.message, v.HeirLeftovers)
	case v.HeirErr != nil || v.Dismiss != nil && r.ending != outlasted:
		m.leaves(s, to, v.CleanHeir)
	default:
		m.waitsOn(s, to, v.CleanHeir)
	}
	return nil
}

// renewed ends a renewal.
func (m *Model) renewed(s *State, r result) error {
	o := ownerOf(r.from)
	own := &s.owners[o]
	if r.reply == yes {
		v := claim.Renewal{Watched: own.holds(), Known: int(r.shared), Shared: int(own.shared())}.Verdict()
		if lease := r.remaining(m.Renewal); v.Prolongs {
			own.left = max(own.left, lease)
			if own.shared() > 0 {
				own.leftShared = max(own.leftShared, lease)
			}
		}
		return nil
	}
	same := m.Kind != ReadWrite || (r.excl > 0) == (own.hold.Sure().Exclusive > 0)
	if v := (claim.Missing{State: own.hold.State(), Same: same}).Verdict(); v != claim.IsLost {
		return nil
	}
	if r.safe {
		return errSpuriousLoss
	}
	m.lose(s, o)
	return nil
}
