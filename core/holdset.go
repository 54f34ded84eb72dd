package core

// A holdSet is the set of holds of one lock in this process. Most have one hold; a read lock may
// have thousands. Adding, removing and finding a hold takes constant time. The shard's mutex guards
// it.
type holdSet struct {
	first     *hold // head of a linked list
	len       int32
	exclusive int32            // number of holds that are not read holds
	byOwner   map[uint64]*hold // the latest hold of each owner of WithOwner; nil while there are few holds
}

// fewHolds is how many holds a linear search goes through.
const fewHolds = 8

func (s *holdSet) add(h *hold) {
	h.next = s.first
	if s.first != nil {
		s.first.prev = h
	}
	s.first = h
	s.len++
	if !h.kind.Shared {
		s.exclusive++
	}
	if s.byOwner == nil && s.len > fewHolds {
		s.byOwner = make(map[uint64]*hold)
		for h := s.first.next; h != nil; h = h.next {
			if !h.claim.Ended() && h.owner() != 0 {
				s.byOwner[h.owner()] = h
			}
		}
	}
	if s.byOwner != nil && h.owner() != 0 {
		s.byOwner[h.owner()] = h
	}
}

// remove removes h. It reports whether h was in the set.
func (s *holdSet) remove(h *hold) bool {
	switch {
	case h.prev != nil:
		h.prev.next = h.next
	case s.first == h:
		s.first = h.next
	default:
		return false
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.next, h.prev = nil, nil
	s.len--
	if !h.kind.Shared {
		s.exclusive--
	}
	if s.byOwner[h.owner()] == h {
		delete(s.byOwner, h.owner())
	}
	if s.len == 0 {
		s.byOwner = nil
	}
	return true
}

// of returns the hold of an owner of WithOwner that has not ended, or nil. 0 has none.
func (s *holdSet) of(owner uint64) *hold {
	if owner == 0 {
		return nil
	}
	if s.byOwner != nil {
		if h := s.byOwner[owner]; h != nil && !h.claim.Ended() {
			return h
		}
		return nil
	}
	for h := s.first; h != nil; h = h.next {
		if h.owner() == owner && !h.claim.Ended() {
			return h
		}
	}
	return nil
}
