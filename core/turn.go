package core

// A turn lets one command at a time change a hold, first come, first served. It is not a mutex, because a caller may stop waiting
// for it, and not a channel, because every hold would need one and few are ever waited for. The shard's mutex guards it.
type turn struct {
	taken bool
	queue *candidate
}

// A candidate waits for the turn.
type candidate struct {
	called chan struct{} // closed when it has the turn
	next   *candidate
}

// tryLocked takes the turn if it is free and returns nil. Otherwise it returns the caller's place in the queue.
func (t *turn) tryLocked() *candidate {
	if !t.taken {
		t.taken = true
		return nil
	}
	c := &candidate{called: make(chan struct{})}
	last := &t.queue
	for *last != nil {
		last = &(*last).next
	}
	*last = c
	return c
}

// passLocked gives the turn to the next in the queue.
func (t *turn) passLocked() {
	first := t.queue
	if first == nil {
		t.taken = false
		return
	}
	t.queue = first.next
	close(first.called)
}

// leaveLocked leaves the queue. If the turn has come meanwhile, the next in the queue gets it.
func (t *turn) leaveLocked(c *candidate) {
	for at := &t.queue; *at != nil; at = &(*at).next {
		if *at == c {
			*at = c.next
			return
		}
	}
	t.passLocked()
}
