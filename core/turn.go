package core

import (
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
