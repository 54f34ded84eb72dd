package core

import (
	"context"
	"errors"
	"testing"
)

// idleHold is a hold of which nobody but the test knows.
func idleHold() *hold { return &hold{entry: &entry{shard: new(shard)}} }

// lineLength is how many wait for the turn.
func (h *hold) lineLength() (n int) {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	for p := h.turn.queue; p != nil; p = p.next {
		n++
	}
	return n
}

// The turn goes round in the order in which it was asked for; those who have left the line are passed over.
func TestTurnInOrder(t *testing.T) {
	t.Parallel()
	h := idleHold()
	if err := h.lockTurn(bg); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no longer")
	leaves, leave := context.WithCancelCause(bg)
	got := make(chan int, 5)
	left := make(chan error, 2)
	for i := range 5 {
		ctx, leaving := bg, i%2 == 1
		if leaving {
			ctx = leaves
		}
		go func() {
			if err := h.lockTurn(ctx); leaving {
				left <- err
			} else {
				got <- i
				h.unlockTurn()
			}
		}()
		eventually(t, "it stands in line", func() bool { return h.lineLength() == i+1 })
	}
	leave(cause)
	for range 2 {
		wantErr(t, "who leaves", <-left, cause)
	}
	if n := h.lineLength(); n != 3 {
		t.Errorf("%d stand in line, want the 3 who have not left", n)
	}
	h.unlockTurn()
	for _, want := range []int{0, 2, 4} {
		if i := <-got; i != want {
			t.Errorf("it was the turn of %d, want %d", i, want)
		}
	}
	eventually(t, "the turn is free", func() bool {
		h.entry.shard.mu.Lock()
		defer h.entry.shard.mu.Unlock()
		return !h.turn.taken && h.turn.queue == nil
	})
}

// Who leaves at the moment at which it is called does not keep the turn.
func TestTurnComesTooLate(t *testing.T) {
	t.Parallel()
	h := idleHold()
	h.turn.tryLocked()
	one, two := h.turn.tryLocked(), h.turn.tryLocked()
	h.unlockTurn()
	<-one.called
	h.turn.leaveLocked(one)
	<-two.called
	h.turn.leaveLocked(two)
	if h.turn.taken || h.turn.queue != nil {
		t.Error("nobody has the turn, and it is not free")
	}
	if h.turn.tryLocked() != nil {
		t.Error("a free turn was not given")
	}
}
