package core

import "context"

// The turn to change a hold is one's at a time, first come, first served. It is no mutex, since who waits for it may leave,
// and no channel, since every hold would have one and hardly ever anybody waits.

// A candidate waits for the turn.
type candidate struct {
	called chan struct{} // closed when it has the turn
	next   *candidate
}

// lineUp takes the turn, if it is free, and returns nil; or else it returns the caller's place in the line.
func (h *hold) lineUp() *candidate {
	if !h.taken {
		h.taken = true
		return nil
	}
	p := &candidate{called: make(chan struct{})}
	last := &h.line
	for *last != nil {
		last = &(*last).next
	}
	*last = p
	return p
}

// take waits for the turn.
func (h *hold) take(ctx context.Context) error {
	h.entry.shard.mu.Lock()
	p := h.lineUp()
	h.entry.shard.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.called:
		return nil
	case <-ctx.Done():
		h.stepOut(p)
		return ended(ctx)
	}
}

// give passes the turn on.
func (h *hold) give() {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	h.passOnLocked()
}

// passOnLocked is give.
func (h *hold) passOnLocked() {
	first := h.line
	if first == nil {
		h.taken = false
		return
	}
	h.line = first.next
	close(first.called)
}

// stepOut leaves the line; if the turn has come at the same moment, it is passed on.
func (h *hold) stepOut(p *candidate) {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	for at := &h.line; *at != nil; at = &(*at).next {
		if *at == p {
			*at = p.next
			return
		}
	}
	h.passOnLocked()
}
