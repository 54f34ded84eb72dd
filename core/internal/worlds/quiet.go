package worlds

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// patience is how many ticks a quiet world may take to become empty. TTLs must end, and dead
// waiters must be found absent when their turn comes.
func (m *Model) patience() int { return int(m.maxLease) + 6*grace }

// endless is more steps than any quiet world takes.
const endless = 10_000

// endsEmpty returns an error unless the quiet world that begins at s ends free and empty, both if all
// owners leave at once and if all are served first.
func (m *Model) endsEmpty(s State) error {
	if err := m.follow(s, leaving); err != nil {
		return err
	}
	return m.follow(s, serving)
}

// A mood says what owners do in a quiet world.
type mood uint8

const (
	leaving mood = iota // they release what they hold, or stop waiting
	serving             // each acquires the lock once more
)

// A quiet world has no faults and no crashes. Time passes only when no owner can move.
type quiet struct {
	*Model
	State
	mood   mood
	served uint8 // owners
	asked  uint8 // owners that were refused since the last tick
	ticks  int
	rounds int
	note   []byte
}

// follow runs a quiet world to its end, or to a state that is known to reach one.
func (m *Model) follow(s State, how mood) error {
	s.losses, s.evictions, s.forces, s.crashes, s.deafs, s.freezes, s.resizes = 0, 0, 0, 0, 0, 0, 0
	q := &quiet{Model: m, State: s, mood: how}
	var way [][2]uint64
	for {
		key := q.memo()
		if _, known := m.settled[key]; known {
			break
		}
		way = append(way, key)
		done, err := q.step()
		if err == nil && len(way) == endless {
			err = errors.New("it never ends")
		}
		if err != nil {
			return fmt.Errorf("in a quiet world: %w\n%s", err, m.Describe(q.State))
		}
		if done {
			break
		}
		m.tidy(&q.State)
	}
	for _, key := range way {
		m.settled[key] = struct{}{}
	}
	return nil
}

// memo identifies a state of the quiet world. The time it has taken does not count.
func (q *quiet) memo() [2]uint64 {
	var notes [maxOwners]byte
	for o := range notes {
		notes[o] = q.served>>o&1 | q.asked>>o&1<<1
	}
	q.note = q.keyWith(&q.State, notes, q.note[:0])
	q.note = append(q.note, byte(q.mood), byte(q.rounds))
	return [2]uint64{maphash.Bytes(q.seeds[0], q.note), maphash.Bytes(q.seeds[1], q.note)}
}

// step makes one step. done means that the world is empty.
func (q *quiet) step() (done bool, err error) {
	for i := range int(q.n) {
		if q.messages[i].reply != none {
			return false, q.read(&q.State, i)
		}
	}
	if q.n > 0 {
		return false, q.answer()
	}
	for o := range q.Clients {
		own := &q.owners[o]
		if own.dead || own.frozen {
			continue
		}
		if own.uses[spare] == unclean {
			return false, q.cleanUp(&q.State, o)
		}
		if q.moves(o) {
			return false, nil
		}
	}
	return q.rest()
}

// answer makes Redis execute the first message, and notes whether its owner was served or refused.
func (q *quiet) answer() error {
	msg := q.messages[0]
	if q.mood == serving && msg.op == opAcquire && msg.role == change {
		bit := uint8(1) << ownerOf(msg.from)
		switch q.exec(q.redis, msg.command, q.listening(&q.State)).reply {
		case recorded:
			q.served |= bit
		case no:
			q.asked |= bit
		}
	}
	return q.deliver(&q.State, 0)
}

// moves makes the next move of an owner, and reports whether there was one.
func (q *quiet) moves(o int) bool {
	own, bit := &q.owners[o], uint8(1)<<o
	switch {
	case own.holds():
		if q.mood == serving {
			q.served |= bit
			q.asked = 0 // the waiters may succeed now
		}
		for own.excl()+own.shared() > 1 {
			own.hold.Leave(own.shared() > 0)
		}
		return q.release(&q.State, o)
	case own.wait == claim.Asleep:
		if q.mood == leaving {
			q.leaves(&q.State, o, claim.Leftovers{})
			return true
		}
		return q.asked&bit == 0 && q.ask(&q.State, o)
	case own.idle():
		lease := q.Leases[0]
		return q.mood == serving && q.served&bit == 0 && q.asked&bit == 0 && q.acquire(&q.State, o, lease, q.Kind == ReadWrite && o%2 == 1)
	}
	return false
}

// rest handles a world without a move: all owners wait, or the world has ended.
func (q *quiet) rest() (done bool, err error) {
	l := q.look(q.redis)
	waits := false
	for o := range q.Clients {
		own := &q.owners[o]
		waits = waits || own.wait == claim.Asleep && !own.frozen || q.mood == serving && own.idle() && q.served&(1<<o) == 0
	}
	switch {
	case !waits && len(l.rest) == 0:
		return true, nil
	case !waits && len(l.lasting) == len(l.rest) && (q.mood == leaving || q.rounds > 0):
		if q.crashed() && q.mood == leaving {
			return true, nil // the next caller removes it
		}
		return false, fmt.Errorf("keys without TTL are left: %q", l.lasting)
	case !waits && len(l.lasting) == len(l.rest): // a last round of callers meets the dead ones
		q.rounds++
		q.served, q.asked = 0, 0
		return false, nil
	case q.mood == leaving && !q.crashed() && q.holders(l) > 0:
		return false, errors.New("all have left, but Redis still has a hold")
	case q.ticks == q.patience():
		return false, fmt.Errorf("after %d ticks it is not free and empty", q.ticks)
	}
	q.ticks++
	q.asked = 0
	q.later(&q.State)
	return false, nil
}

func (q *quiet) crashed() bool {
	for o := range q.Clients {
		if q.owners[o].dead || q.owners[o].frozen {
			return true
		}
	}
	return false
}

func (q *quiet) holders(l *look) (n int) {
	for _, present := range l.present {
		if present {
			n++
		}
	}
	return n
}
