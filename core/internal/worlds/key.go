package worlds

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// A perm swaps owners of one client, which are interchangeable.
type perm struct {
	order [maxOwners]int // the owner in each place
	names [maxOwners * wiresEach]uint8
}

// permutations returns all perms, the identity first.
func permutations(clients []int) (all []perm) {
	order := make([]int, 0, len(clients))
	var extend func()
	extend = func() {
		if len(order) == len(clients) {
			p := perm{names: identity()}
			for place, o := range order {
				p.order[place] = o
				for slot := range wiresEach {
					p.names[wireOf(o, slot)] = wireOf(place, slot)
				}
			}
			all = append(all, p)
			return
		}
		for o := range clients {
			if !slices.Contains(order, o) && clients[o] == clients[len(order)] {
				order = append(order, o)
				extend()
				order = order[:len(order)-1]
			}
		}
	}
	extend()
	return all
}

// Key appends the smallest encoding among the states that differ only in owner names.
func (m *Model) Key(s State, to []byte) []byte { return m.keyWith(&s, [maxOwners]byte{}, to) }

// keyWith is Key for a state with a note on each owner.
func (m *Model) keyWith(s *State, notes [maxOwners]byte, to []byte) []byte {
	m.key = m.encode(s, &m.perms[0], notes, m.key[:0])
	for i := range m.perms[1:] {
		m.key2 = m.encode(s, &m.perms[i+1], notes, m.key2[:0])
		if bytes.Compare(m.key2, m.key) < 0 {
			m.key, m.key2 = m.key2, m.key
		}
	}
	return append(to, m.key...)
}

const messageSize = 15

func (m *Model) encode(s *State, p *perm, notes [maxOwners]byte, b []byte) []byte {
	redis := s.redis
	if p != &m.perms[0] {
		redis = m.rename(redis, p.names)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(redis))
	b = append(b, s.losses, s.evictions, s.forces, s.crashes, s.deafs, s.freezes, s.resizes, s.newest)
	for _, o := range p.order[:len(m.Clients)] {
		own := &s.owners[o]
		b = append(b, notes[o], byte(own.wait)|byte(own.hold.State())<<3|bits(own.dead)<<7, own.lease, own.left, own.leftShared, own.silent, own.excl(), own.shared(),
			byte(own.hold.Sure().Exclusive), byte(own.hold.Sure().Shared), own.deepest(),
			bits(own.reads, own.earlier.There, own.known, own.deaf, own.forced, own.earlier.Stray || own.hold.Strays(true), own.robbed, own.unsure))
		b = append(b, byte(own.uses[0]), byte(own.uses[spare]), own.depth|byte(own.clean)<<4, bits(own.frozen, own.slow, own.guest, own.invites))
	}
	first := len(b)
	for _, msg := range s.messages[:s.n] {
		msg.rename(p.names)
		b = append(b, byte(msg.op)|byte(msg.role)<<4, msg.from, msg.to, msg.excl, msg.shared, msg.deepest, msg.lease,
			byte(msg.notAfter), byte(msg.fields), byte(msg.fields>>8), byte(msg.reply), msg.age, msg.token, msg.asked, bits(msg.again, msg.enters)|byte(msg.more)<<2)
	}
	sortMessages(b[first:])
	return b
}

// sortMessages sorts encoded messages, because the order in which they were sent does not matter.
func sortMessages(b []byte) {
	var swap [messageSize]byte
	for i := messageSize; i < len(b); i += messageSize {
		for j := i; j > 0; j -= messageSize {
			x, y := b[j-messageSize:j], b[j:j+messageSize]
			if bytes.Compare(x, y) <= 0 {
				break
			}
			copy(swap[:], x)
			copy(x, y)
			copy(y, swap[:])
		}
	}
}

func bits(flags ...bool) (b byte) {
	for i, flag := range flags {
		if flag {
			b |= 1 << i
		}
	}
	return b
}
