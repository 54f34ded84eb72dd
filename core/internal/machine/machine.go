// Package machine has the states of the engine's values: which may follow which, and why.
// docs/inside/engine-states.md is written from its machines.
package machine

import (
	"fmt"
	"strings"
)

// A State is an enum of up to eight values.
type State interface {
	~uint8
	fmt.Stringer
}

// A Machine has the transitions of an enum.
type Machine[S State] struct {
	of          string // what has the states
	transitions []Transition[S]
	next        [8]uint8 // has, for each state, a bit for each that may follow
}

// A Transition is a change of state that may happen.
type Transition[S State] struct {
	From, To S
	When     string // what causes it
}

// New returns the machine of what of names.
func New[S State](of string, transitions ...Transition[S]) *Machine[S] {
	m := &Machine[S]{of: of, transitions: transitions}
	for _, t := range transitions {
		m.next[t.From] |= 1 << t.To
	}
	return m
}

// Move is the only function that changes a state. It refuses a change that the machine does not have,
// and reports whether it made the change.
func (m *Machine[S]) Move(at *S, to S) bool {
	if m.next[*at]&(1<<to) != 0 {
		*at = to
		return true
	}
	if Strict {
		panic("reqlock: " + m.of + " cannot go from " + (*at).String() + " to " + to.String())
	}
	return false
}

// Table returns the transitions in Markdown. Those with one cause and one end share a row.
func (m *Machine[S]) Table() string {
	var b strings.Builder
	b.WriteString("| From | To | When |\n|---|---|---|\n")
	done := make(map[string]bool)
	for _, t := range m.transitions {
		var from []string
		for _, other := range m.transitions {
			if other.To == t.To && other.When == t.When {
				from = append(from, other.From.String())
			}
		}
		row := fmt.Sprintf("| %s | %s | %s |\n", strings.Join(from, ", "), t.To, t.When)
		if !done[row] {
			done[row] = true
			b.WriteString(row)
		}
	}
	return b.String()
}

// Drawing returns the machine as a Mermaid diagram.
func (m *Machine[S]) Drawing() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, t := range m.transitions {
		fmt.Fprintf(&b, "    %s --> %s\n", t.From, t.To)
	}
	b.WriteString("```\n")
	return b.String()
}

// Strict makes a refused change panic. Tests set it. In production the state stays as it is.
var Strict bool
