package core

import "testing"

// A hold changes its state as docs/engine-states.md says. In tests, any other change panics.
func TestHold_RefusesWhatTheMachineDoesNotHave(t *testing.T) {
	t.Parallel()
	allowed := map[[2]holdState]bool{
		{held, freeing}:     true,
		{freeing, held}:     true,
		{freeing, released}: true,
		{held, lost}:        true,
		{freeing, lost}:     true,
	}
	for from := held; from <= lost; from++ {
		for to := held; to <= lost; to++ {
			h := &hold{state: from}
			refused := panics(func() { h.moveLocked(to) })
			if want := !allowed[[2]holdState{from, to}]; refused != want {
				t.Errorf("%s to %s: refused %v, want %v", from, to, refused, want)
			}
			if refused && h.state != from || !refused && h.state != to {
				t.Errorf("%s to %s: the hold is %s", from, to, h.state)
			}
			if h.over() != (h.state == released || h.state == lost) {
				t.Errorf("%s: over is %v", h.state, h.over())
			}
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
