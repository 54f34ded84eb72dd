package machine

import (
	"strings"
	"testing"
)

type light uint8

const (
	green light = iota
	yellow
	red
)

func (l light) String() string { return [...]string{"green", "yellow", "red"}[l] }

var lights = New("a light",
	Transition[light]{green, yellow, "it will change"},
	Transition[light]{yellow, red, "it changes"},
	Transition[light]{red, green, "it changes"},
)

// A machine makes the changes that it has, and refuses all others.
func TestMachine_Move(t *testing.T) {
	all := []light{green, yellow, red}
	for _, from := range all {
		for _, to := range all {
			at := from
			want := to == (from+1)%3
			if moved := lights.Move(&at, to); moved != want || moved != (at == to && from != to) {
				t.Errorf("from %s to %s: %v, and it is %s", from, to, moved, at)
			}
		}
	}
	Strict = true
	defer func() {
		Strict = false
		if got := recover(); got != "reqlock: a light cannot go from green to red" {
			t.Errorf("a refused change panics with %v", got)
		}
	}()
	at := green
	lights.Move(&at, red)
}

// Transitions with one cause and one end share a row.
func TestMachine_Table(t *testing.T) {
	m := New("a light", Transition[light]{green, red, "a train comes"}, Transition[light]{yellow, red, "a train comes"})
	if got := m.Table(); !strings.Contains(got, "| green, yellow | red | a train comes |") || strings.Count(got, "\n") != 3 {
		t.Errorf("the table is\n%s", got)
	}
	if got := m.Drawing(); !strings.Contains(got, "    yellow --> red\n") {
		t.Errorf("the drawing is\n%s", got)
	}
}
