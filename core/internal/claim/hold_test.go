package claim

import "testing"

// A hold changes its state as docs/inside/engine-states.md says. In tests, any other change panics.
func TestHold_RefusesWhatTheMachineDoesNotHave(t *testing.T) {
	t.Parallel()
	allowed := map[[2]HoldState]bool{
		{Held, Freeing}:     true,
		{Freeing, Held}:     true,
		{Freeing, Released}: true,
		{Held, Lost}:        true,
		{Freeing, Lost}:     true,
	}
	for from := Held; from <= Lost; from++ {
		for to := Held; to <= Lost; to++ {
			h := &Hold{state: from}
			refused := panics(func() { h.move(to) })
			if want := !allowed[[2]HoldState{from, to}]; refused != want {
				t.Errorf("%s to %s: refused %v, want %v", from, to, refused, want)
			}
			if refused && h.state != from || !refused && h.state != to {
				t.Errorf("%s to %s: the hold is %s", from, to, h.state)
			}
			if h.Ended() != (h.state == Released || h.state == Lost) {
				t.Errorf("%s: Ended is %v", h.state, h.Ended())
			}
		}
	}
}

// The levels of a hold follow its leases. Those that Redis has for certain never count one that was
// asked for and not confirmed, or given up.
func TestHold_Levels(t *testing.T) {
	t.Parallel()
	h := NewHold(false, Leftovers{})
	h.Turn.Take()
	h.Enter(false)
	n, ok := h.Plan(AddsShared)
	if want := (Counts{1, 1}); !ok || n != want || h.Sure() != (Counts{1, 0}) || h.Deepest() != 1 {
		t.Errorf("a writer that reads: %+v, %v, sure %+v, deepest %d", n, ok, h.Sure(), h.Deepest())
	}
	h.Confirm(n)
	h.Enter(true)
	if last := h.Leave(false); last || h.State() != Held {
		t.Errorf("after the downgrade: last %v, %s", last, h.State())
	}
	n, _ = h.Plan(NoAddition)
	if !Downgraded(false, n) || h.Sure() != (Counts{0, 1}) {
		t.Errorf("a downgrade: %+v, sure %+v", n, h.Sure())
	}
	if _, ok := h.Plan(AddsExclusive); ok {
		t.Error("a reader may become a writer")
	}
	if last := h.Leave(true); !last || h.State() != Freeing {
		t.Errorf("after the last lease: last %v, %s", last, h.State())
	}
	// The levels of the last release are sure until Redis has answered: a re-entry may get the turn.
	if n, _ := h.Plan(NoAddition); n.Total() != 0 || h.Sure() != (Counts{0, 1}) {
		t.Errorf("the last release: %+v, sure %+v", n, h.Sure())
	}
	h.Enter(true)
	if h.State() != Held {
		t.Errorf("after a re-entry: %s", h.State())
	}
}

// What may still arrive at Redis for a hold.
func TestHold_Strays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		shared       bool
		left         Leftovers
		freed, other bool // Strays after Redis has freed it, and otherwise
	}{
		{false, Leftovers{}, false, false},
		{true, Leftovers{}, false, true},
		{false, Leftovers{Stray: true}, true, true},
		{false, Leftovers{There: true}, false, false},
	} {
		h := NewHold(test.shared, test.left)
		if h.Strays(true) != test.freed || h.Strays(false) != test.other {
			t.Errorf("%+v: %v and %v", test, h.Strays(true), h.Strays(false))
		}
	}
	h := NewHold(false, Leftovers{})
	if h.MayStray(Leftovers{Stray: true}); !h.Strays(true) {
		t.Error("a stray of the heir was forgotten")
	}
}
