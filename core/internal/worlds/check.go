package worlds

import (
	"errors"
	"fmt"
	"strconv"
)

// Check returns the promise that a state breaks; nil: it keeps all.
func (m *Model) Check(s State) error {
	if err := m.checkHolders(&s); err != nil {
		return err
	}
	if err := m.checkTraces(&s); err != nil {
		return err
	}
	return m.endsEmpty(s)
}

// checkHolders checks that a client that believes it holds the lock does hold it, for as long as it
// believes so, unless something outside took the lock away. So two clients never believe in holds
// that exclude each other.
func (m *Model) checkHolders(s *State) error {
	l := m.look(s.redis)
	holders, writers := 0, 0
	for o := range m.Clients {
		own := &s.owners[o]
		if !own.holds() || own.robbed {
			continue
		}
		holders++
		if own.excl() > 0 {
			writers++
		}
		w := wireOf(o, 0)
		switch {
		case !l.present[w]:
			return fmt.Errorf("%s believes it holds the lock, but Redis does not have its hold", m.ownerName(o))
		case l.left[w] < own.left:
			return fmt.Errorf("%s believes it holds the lock for %d, but in Redis the lease ends in %d", m.ownerName(o), own.left, l.left[w])
		case own.excl() > 0 && m.Kind == ReadWrite && !l.writes[w]:
			return fmt.Errorf("%s believes it is the writer, but in Redis it is not", m.ownerName(o))
		}
		if own.unsure || s.has(o, change) || s.strayUpdate(o) {
			continue
		}
		if want := count(own, m.Kind); l.counts[w] != want {
			return fmt.Errorf("%s has entered %v times, and Redis has %v", m.ownerName(o), want, l.counts[w])
		}
	}
	if m.Kind == Semaphore {
		return m.checkBelievers(holders)
	}
	if writers > 0 && holders > 1 && !m.Guests { // then gets looks at it
		return errors.New("two owners believe they hold the lock")
	}
	return nil
}

// count returns the values of a hold's fields: one for each side, or the only one.
func count(own *owner, k Kind) [2]string {
	text := func(n uint8) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	if k == ReadWrite {
		return [2]string{text(own.excl()), text(own.shared())}
	}
	return [2]string{"", text(own.excl())}
}

// checkTraces checks that Redis keeps nothing of a wire owner once its client is done with it.
func (m *Model) checkTraces(s *State) error {
	l := m.look(s.redis)
	for o := range m.Clients {
		own := &s.owners[o]
		if own.dead {
			continue
		}
		for slot, u := range own.uses {
			w := wireOf(o, slot)
			switch {
			case (u == free || u == late) && (l.present[w] || l.queued[w]):
				return fmt.Errorf("%s is done with %s, but Redis still has it", m.ownerName(o), m.wireName(w))
			case u == free && l.traced[w]:
				return fmt.Errorf("%s is done with %s, but Redis still has a trace of it", m.ownerName(o), m.wireName(w))
			}
		}
	}
	return nil
}
