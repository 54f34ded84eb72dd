package core

import (
	"context"
	"errors"
	"testing"
)

// idleHold returns a hold without a client.
func idleHold() *hold { return &hold{entry: &entry{shard: &shard{engine: new(engine)}}} }

// lineLength returns how many candidates wait for the turn.
func (h *hold) lineLength() int {
	h.entry.shard.mu.Lock()
	defer h.entry.shard.mu.Unlock()
	return h.claim.Turn.Waiting()
}

// Callers get the turn in the order they came. The turn skips those whose context has ended.
func TestTurn_OfCallers(t *testing.T) {
	t.Parallel()
	h := idleHold()
	own, err := h.takeTurn(bg)
	if err != nil {
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
			own, err := h.takeTurn(ctx)
			defer own.pass() // also if it has none
			if leaving {
				left <- err
			} else {
				got <- i
			}
		}()
		eventually(t, "the caller to queue up", func() bool { return h.lineLength() == i+1 })
	}
	leave(cause)
	for range 2 {
		wantErr(t, "a caller that left", <-left, cause)
	}
	if n := h.lineLength(); n != 3 {
		t.Errorf("%d callers in line, want the 3 that stayed", n)
	}
	own.pass()
	own.pass() // it has the turn no more
	for _, want := range []int{0, 2, 4} {
		if i := <-got; i != want {
			t.Errorf("caller %d got the turn, want %d", i, want)
		}
	}
	eventually(t, "the turn to be free", func() bool {
		h.entry.shard.mu.Lock()
		defer h.entry.shard.mu.Unlock()
		return !h.claim.Turn.Taken()
	})
}

// A turn that was given away is passed on by the one that has it, and not by the giver. A client that
// is closed takes no work, so the giver keeps the turn.
func TestTurn_IsGiven(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	h := holdOf(lease)
	taken := func() bool {
		h.entry.open()
		defer h.entry.close()
		return h.claim.Turn.Taken()
	}
	own, _ := h.takeTurn(bg)
	goOn := make(chan struct{})
	own.giveTo(func() { <-goOn })
	own.pass()
	if !taken() {
		t.Error("the giver has passed a turn on that it has no more")
	}
	close(goOn)
	eventually(t, "the turn to be free", func() bool { return !taken() })
	mustRelease(t, lease)
	mustClose(t, c)
	own, _ = h.takeTurn(bg)
	own.giveTo(func() { t.Error("work has begun in a closed client") })
	if !taken() {
		t.Error("the turn was lost")
	}
	own.pass()
	if taken() {
		t.Error("the giver has not kept the turn")
	}
}
