package claim

import "testing"

// A candidate that leaves just as it gets the turn passes it on.
func TestTurn_ComesTooLate(t *testing.T) {
	t.Parallel()
	var turn Turn
	turn.Take()
	one, two := turn.Take(), turn.Take()
	turn.Pass()
	<-one.Called
	turn.Leave(one)
	<-two.Called
	turn.Leave(two)
	if turn.Taken() || turn.Waiting() > 0 {
		t.Error("the turn is taken after all candidates left")
	}
	if turn.Take() != nil {
		t.Error("Take did not take a free turn")
	}
}

// Candidates get the turn in the order they came. The turn skips those that left.
func TestTurn_InOrder(t *testing.T) {
	t.Parallel()
	var turn Turn
	turn.Take()
	var line []*Candidate
	for range 5 {
		line = append(line, turn.Take())
	}
	turn.Leave(line[1])
	turn.Leave(line[3])
	for _, i := range []int{0, 2, 4} {
		turn.Pass()
		for j, c := range line {
			called := false
			select {
			case <-c.Called:
				called = true
			default:
			}
			if want := j <= i && j%2 == 0; called != want {
				t.Errorf("candidate %d, after the turn of %d: called %v, want %v", j, i, called, want)
			}
		}
	}
}

// In tests, a turn that no caller has cannot be passed, and only one that has it plans a command.
func TestTurn_HasAnOwner(t *testing.T) {
	t.Parallel()
	h := NewHold(false, Leftovers{})
	if !panics(func() { h.Turn.Pass() }) {
		t.Error("a turn was passed that nobody has")
	}
	if !panics(func() { h.Plan(NoAddition) }) {
		t.Error("a command was planned without the turn")
	}
	h.Turn.Take()
	h.Plan(NoAddition)
	h.Turn.Pass()
	if !panics(func() { h.Turn.Pass() }) {
		t.Error("a turn was passed twice")
	}
}
