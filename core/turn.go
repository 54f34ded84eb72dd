package core

// A turn lets one command at a time change a hold, in the order of arrival. A mutex would not let a
// caller stop waiting. A channel would cost every hold memory, and few turns are ever waited for.
// The shard's mutex guards it.
type turn struct {
	taken bool
	queue *candidate
}

// A candidate waits for the turn.
type candidate struct {
	called chan struct{} // closed when the candidate gets the turn
	next   *candidate
}

// tryLocked takes the turn and returns nil if the turn is free. Otherwise it queues the caller up
// and returns its place.
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

// passLocked passes the turn to the next candidate.
func (t *turn) passLocked() {
	first := t.queue
	if first == nil {
		t.taken = false
		return
	}
	t.queue = first.next
	close(first.called)
}

// leaveLocked takes c out of the queue. If c has the turn by now, the next candidate gets it.
func (t *turn) leaveLocked(c *candidate) {
	for at := &t.queue; *at != nil; at = &(*at).next {
		if *at == c {
			*at = c.next
			return
		}
	}
	t.passLocked()
}
