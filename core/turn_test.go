package core

import (
	"context"
	"errors"
	"testing"
)

// idleHold returns a hold without a client.
func idleHold() *hold { return &hold{entry: &entry{shard: new(shard)}} }

// lineLength returns how many candidates wait for the turn.
func (h *hold) lineLength() (n int) {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	for p := h.turn.queue; p != nil; p = p.next {
		n++
	}
	return n
}

// Candidates get the turn in the order they came. The turn skips those that left.
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
		eventually(t, "the candidate to queue up", func() bool { return h.lineLength() == i+1 })
	}
	leave(cause)
	for range 2 {
		wantErr(t, "a candidate that left", <-left, cause)
	}
	if n := h.lineLength(); n != 3 {
		t.Errorf("%d candidates in the queue, want the 3 that stayed", n)
	}
	h.unlockTurn()
	for _, want := range []int{0, 2, 4} {
		if i := <-got; i != want {
			t.Errorf("candidate %d got the turn, want %d", i, want)
		}
	}
	eventually(t, "the turn to be free", func() bool {
		h.entry.shard.mu.Lock()
		defer h.entry.shard.mu.Unlock()
		return !h.turn.taken && h.turn.queue == nil
	})
}

// A candidate that leaves just as it gets the turn passes it on.
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
		t.Error("the turn is taken after all candidates left")
	}
	if h.turn.tryLocked() != nil {
		t.Error("tryLocked did not take a free turn")
	}
}
