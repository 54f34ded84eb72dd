package claim

import "github.com/reqlock/reqlock/core/internal/machine"

// A Turn lets one command at a time change a hold, in the order of arrival. A mutex would not let a
// caller stop waiting. A channel would cost every hold memory, and few turns are ever waited for.
type Turn struct {
	taken bool
	queue *Candidate
}

// A Candidate waits for the turn.
type Candidate struct {
	Called chan struct{} // closed when the candidate gets the turn
	next   *Candidate
}

// Taken reports whether a caller has the turn.
func (t *Turn) Taken() bool { return t.taken }

// Waiting returns how many candidates wait for the turn.
func (t *Turn) Waiting() (n int) {
	for c := t.queue; c != nil; c = c.next {
		n++
	}
	return n
}

// Take takes the turn and returns nil if the turn is free. Otherwise it queues the caller up and
// returns its place.
func (t *Turn) Take() *Candidate {
	if !t.taken {
		t.taken = true
		return nil
	}
	c := &Candidate{Called: make(chan struct{})}
	last := &t.queue
	for *last != nil {
		last = &(*last).next
	}
	*last = c
	return c
}

// Pass passes the turn to the next candidate.
func (t *Turn) Pass() {
	first := t.queue
	switch {
	case !t.taken && machine.Strict:
		panic("claim: a turn was passed that nobody has")
	case first == nil:
		t.taken = false
		return
	}
	t.queue = first.next
	close(first.Called)
}

// Leave takes c out of the queue. If c has the turn by now, the next candidate gets it.
func (t *Turn) Leave(c *Candidate) {
	for at := &t.queue; *at != nil; at = &(*at).next {
		if *at == c {
			*at = c.next
			return
		}
	}
	t.Pass()
}
