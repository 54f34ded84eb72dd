package core

// A holdSet is the holds of one lock in this process: most often one, or thousands where there are readers. To add, to remove and
// to find one takes the same time however many there are. The shard's mutex guards it.
type holdSet struct {
	first     *hold // of a list
	len       int32
	exclusive int32           // holds of the write side, and of kinds without sides
	byOwner   map[owner]*hold // the latest of each owner; nil while there are few
}

// fewHolds is how many holds are looked through one by one.
const fewHolds = 8

func (s *holdSet) add(h *hold) {
	h.next = s.first
	if s.first != nil {
		s.first.prev = h
	}
	s.first = h
	s.len++
	if !h.kind.shared {
		s.exclusive++
	}
	if s.byOwner == nil && s.len > fewHolds {
		s.byOwner = make(map[owner]*hold)
		for h := s.first.next; h != nil; h = h.next {
			if !h.over() {
				s.byOwner[h.owner] = h
			}
		}
	}
	if s.byOwner != nil {
		s.byOwner[h.owner] = h
	}
}

// remove reports whether h was there.
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
	if !h.kind.shared {
		s.exclusive--
	}
	if s.byOwner[h.owner] == h {
		delete(s.byOwner, h.owner)
	}
	if s.len == 0 {
		s.byOwner = nil
	}
	return true
}

// of returns the hold of an owner that is not over, or nil.
func (s *holdSet) of(o owner) *hold {
	if s.byOwner != nil {
		if h := s.byOwner[o]; h != nil && !h.over() {
			return h
		}
		return nil
	}
	for h := s.first; h != nil; h = h.next {
		if h.owner == o && !h.over() {
			return h
		}
	}
	return nil
}
