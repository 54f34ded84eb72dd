package core

import (
	"context"
	"sync"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// A turn is the right to send a command that changes a hold. Who takes it defers pass.
type turn struct {
	mu         *sync.Mutex // guards line
	line       *claim.Turn // nil: the turn was passed on or given away
	background *group
}

// pass passes the turn to the next in line.
func (t *turn) pass() {
	if t.line == nil {
		return
	}
	t.mu.Lock()
	t.line.Pass()
	t.mu.Unlock()
	t.line = nil
}

// giveTo gives the turn to next, which runs in the background. If the client is closed, next does not
// run, and the caller keeps the turn.
func (t *turn) giveTo(next func()) {
	given := *t
	if t.background.Go(func() {
		defer given.pass()
		next()
	}) {
		t.line = nil
	}
}

// turn returns the turn of the hold for the caller, who has it.
func (h *hold) turn() turn {
	s := h.entry.shard
	return turn{&s.mu, &h.claim.Turn, &s.engine.background}
}

// tryTurn takes the turn if it is free. Otherwise it returns the caller, who is in line now.
func (h *hold) tryTurn() (turn, *claim.Candidate) {
	h.entry.open()
	defer h.entry.close()
	if candidate := h.claim.Turn.Take(); candidate != nil {
		return turn{}, candidate
	}
	return h.turn(), nil
}

// takeTurn waits for the turn, unless ctx ends.
func (h *hold) takeTurn(ctx context.Context) (turn, error) {
	t, candidate := h.tryTurn()
	if candidate == nil {
		return t, nil
	}
	select {
	case <-candidate.Called:
		return h.turn(), nil
	case <-ctx.Done():
		h.entry.open()
		h.claim.Turn.Leave(candidate)
		h.entry.close()
		return turn{}, ended(ctx)
	}
}
