package core

import (
	"context"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// A turn is the right to send a command that changes a hold. Whoever takes it defers pass. The zero
// value is no turn: it was passed on or given away.
type turn struct{ hold *hold }

// tryTurn takes the turn if it is free. Otherwise it returns the caller's place in line.
func (h *hold) tryTurn() (turn, *claim.Candidate) {
	h.lock()
	defer h.unlock()
	if place := h.claim.Turn.Take(); place != nil {
		return turn{}, place
	}
	return turn{h}, nil
}

// takeTurn waits for the turn, unless ctx ends.
func (h *hold) takeTurn(ctx context.Context) (turn, error) {
	t, place := h.tryTurn()
	if place == nil {
		return t, nil
	}
	select {
	case <-place.Called:
		return turn{h}, nil
	case <-ctx.Done():
		h.lock()
		h.claim.Turn.Leave(place)
		h.unlock()
		return turn{}, ended(ctx)
	}
}

// pass passes the turn to the next in line.
func (t *turn) pass() {
	if h := t.hold; h != nil {
		t.hold = nil
		h.lock()
		h.claim.Turn.Pass()
		h.unlock()
	}
}

// giveTo gives the turn to next, which runs in the background. If the client is closed, next does not
// run, and the caller keeps the turn.
func (t *turn) giveTo(next func()) {
	given := *t
	if t.hold.engine().background.Go(func() {
		defer given.pass()
		next()
	}) {
		t.hold = nil
	}
}
