package claim

import "fmt"

// A state is an enum of up to eight values.
type state interface {
	~uint8
	fmt.Stringer
}

// A machine has the transitions of an enum. docs/engine-states.md is written from it.
type machine[S state] struct {
	of          string // what has the states
	transitions []transition[S]
	next        [8]uint8 // for each state, a bit for each that may follow
}

// A transition is a change of state that may happen, and what causes it.
type transition[S state] struct {
	from, to S
	when     string
}

func newMachine[S state](of string, transitions ...transition[S]) *machine[S] {
	m := &machine[S]{of: of, transitions: transitions}
	for _, t := range transitions {
		m.next[t.from] |= 1 << t.to
	}
	return m
}

// move is the only function that changes a state. It refuses a change that the machine does not have,
// and reports whether it made the change.
func (m *machine[S]) move(at *S, to S) bool {
	if m.next[*at]&(1<<to) != 0 {
		*at = to
		return true
	}
	if Strict {
		panic("claim: " + m.of + " cannot go from " + (*at).String() + " to " + to.String())
	}
	return false
}

// Strict makes a refused change panic. Tests set it. In production the state stays as it is: a waiter
// tries again at PollAt, and a hold has ended already.
var Strict bool
