package wasm

import (
	"context"
	"errors"
	"testing"
)

// A compilation whose load was given up keeps no other one waiting, unless too many run on.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := newTurns(2)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	busy := func() bool { return len(turns.current) > 0 }
	var running []*turn
	for n := range 3 {
		next, err := turns.await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := turns.await(over); !errors.Is(err, context.Canceled) {
			t.Errorf("a second compilation beside one that has the turn: %v", err)
		}
		next.giveUp()
		running = append(running, next)
		if got, want := busy(), n == 2; got != want {
			t.Errorf("after %d compilations were given up, another one has to wait: %v, want %v", n+1, got, want)
		}
	}
	running[0].end()
	running[0] = nil
	if !busy() {
		t.Error("the turn of the third compilation is free before it ends")
	}
	running[2].giveUp()
	if busy() {
		t.Error("the third compilation keeps the turn although another one has ended")
	}
	running[1].end()
	running[2].end()
	running[2].giveUp()
	if busy() || len(turns.givenUps) != 0 {
		t.Errorf("at the end, %d run on", len(turns.givenUps))
	}
}
