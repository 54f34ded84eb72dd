package wasm

import (
	"context"
	"sync"
)

// compilations gives turns to the compilations of the process, so that several of them leave no
// processor to requests.
var compilations = newTurns(2)

// turns lets one compilation run at a time. One whose load was given up cannot be stopped. It runs
// on beside the next ones, so that it keeps no other plugin waiting, as long as few do so.
type turns struct {
	current  chan struct{} // holds the compilation that has the turn
	givenUps chan struct{} // holds those that run on without one
}

func newTurns(givenUps int) *turns {
	return &turns{current: make(chan struct{}, 1), givenUps: make(chan struct{}, givenUps)}
}

// A turn is the right to compile.
type turn struct {
	turns *turns

	mu sync.Mutex
	// place is where the turn has its token. nil: it has ended.
	place chan struct{}
}

// await waits for a turn until ctx ends.
func (t *turns) await(ctx context.Context) (*turn, error) {
	select {
	case t.current <- struct{}{}:
		return &turn{turns: t, place: t.current}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// end ends the compilation.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	<-t.place
	t.place = nil
}

// giveUp passes the turn to the next compilation while this one runs on. If too many already do, it
// keeps the turn until it ends.
func (t *turn) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.place == nil {
		return
	}
	select {
	case t.turns.givenUps <- struct{}{}:
		<-t.place
		t.place = t.turns.givenUps
	default:
	}
}
