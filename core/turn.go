package core

import "context"

// One command changes a hold at a time, first come, first served: its sender has the turn. The turn is not a mutex, because a caller
// may stop waiting for it, and not a channel, because every hold would need one and few are ever waited for.

// A candidate waits for the turn.
type candidate struct {
	called chan struct{} // closed when it has the turn
	next   *candidate
}

// tryTurnLocked takes the turn if it is free and returns nil. Otherwise it returns the caller's place in the queue.
func (h *hold) tryTurnLocked() *candidate {
	if !h.turnTaken {
		h.turnTaken = true
		return nil
	}
	p := &candidate{called: make(chan struct{})}
	last := &h.turnQueue
	for *last != nil {
		last = &(*last).next
	}
	*last = p
	return p
}

// lockTurn waits for the turn, unless ctx ends.
func (h *hold) lockTurn(ctx context.Context) error {
	h.entry.shard.mu.Lock()
	p := h.tryTurnLocked()
	h.entry.shard.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.called:
		return nil
	case <-ctx.Done():
		h.leaveTurn(p)
		return ended(ctx)
	}
}

// unlockTurn gives the turn to the next in the queue.
func (h *hold) unlockTurn() {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	h.unlockTurnLocked()
}

func (h *hold) unlockTurnLocked() {
	first := h.turnQueue
	if first == nil {
		h.turnTaken = false
		return
	}
	h.turnQueue = first.next
	close(first.called)
}

// leaveTurn leaves the queue. If the turn has come meanwhile, the next in the queue gets it.
func (h *hold) leaveTurn(p *candidate) {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	for at := &h.turnQueue; *at != nil; at = &(*at).next {
		if *at == p {
			*at = p.next
			return
		}
	}
	h.unlockTurnLocked()
}
