package explore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jugs are two vessels of 3 and 5 litres, a puzzle whose states and shortest solutions are known.
type jugs struct {
	unwanted  int  // litres in the larger one; -1: none
	breakStep bool // report it at the step, not at the state
}

type pour string

func (p pour) String() string { return string(p) }

func (jugs) Start() [2]int { return [2]int{} }

func (j jugs) Steps(s [2]int, yield func(pour, [2]int, error)) {
	step := func(name pour, small, large int) {
		var broken error
		if j.breakStep && large == j.unwanted {
			broken = errors.New("unwanted step")
		}
		yield(name, [2]int{small, large}, broken)
	}
	step("fill the small one", 3, s[1])
	step("fill the large one", s[0], 5)
	step("empty the small one", 0, s[1])
	step("empty the large one", s[0], 0)
	n := min(s[0], 5-s[1])
	step("pour the small one into the large one", s[0]-n, s[1]+n)
	n = min(s[1], 3-s[0])
	step("pour the large one into the small one", s[0]+n, s[1]-n)
}

func (jugs) Key(s [2]int, to []byte) []byte { return append(to, byte(s[0]), byte(s[1])) }
func (jugs) Describe(s [2]int) string       { return fmt.Sprint(s) }

func (j jugs) Check(s [2]int) error {
	if !j.breakStep && s[1] == j.unwanted {
		return errors.New("unwanted state")
	}
	return nil
}

func TestRun_FindsAllStates(t *testing.T) {
	t.Parallel()
	r := Run(jugs{unwanted: -1}, 0)
	if r.States != 16 || r.Transitions != 16*6 || r.Depth != 7 || !r.Complete || r.Violation != nil {
		t.Errorf("%+v, want 16 states of 6 steps each, the deepest 7 steps from the start", r)
	}
	if r := Run(jugs{unwanted: -1}, 7); r.Complete || r.States < 7 || r.States > 12 {
		t.Errorf("with a limit of 7: %+v", r)
	}
}

func TestRun_FindsTheShortestPath(t *testing.T) {
	t.Parallel()
	for _, m := range []jugs{{unwanted: 4}, {unwanted: 4, breakStep: true}} {
		v := Run(m, 0).Violation
		if v == nil || len(v.Path) != 6 {
			t.Fatalf("%+v: %v, want 6 steps to 4 litres", m, v)
		}
		again, err := ParsePath(v.Path.String())
		if err != nil {
			t.Fatal(err)
		}
		if trace, broken := Replay(m, again); trace != v.Trace || broken == nil || broken.Error() != v.Broken.Error() {
			t.Errorf("%+v: the replay gives %v and\n%s, want %v and\n%s", m, broken, trace, v.Broken, v.Trace)
		}
		if !strings.Contains(v.Trace, "1. fill the large one\n\t[0 5]\n2. pour the large one into the small one\n\t[3 2]\n") {
			t.Errorf("%+v: the trace is\n%s", m, v.Trace)
		}
	}
	if v := Run(jugs{unwanted: 0}, 0).Violation; v == nil || v.Path.String() != "start" {
		t.Errorf("a start that breaks a promise: %v", v)
	}
}

func TestReplay_RefusesPathsThatDoNotExist(t *testing.T) {
	t.Parallel()
	if _, err := Replay(jugs{unwanted: -1}, Path{1, 6}); err == nil || !strings.Contains(err.Error(), "step 2") {
		t.Errorf("%v, want an error for step 2", err)
	}
	for _, text := range []string{"", "1.", "a", "-1", "1..2"} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q: %v, want an error", text, p)
		}
	}
	if p, err := ParsePath("start"); len(p) != 0 || err != nil {
		t.Errorf("start: %v, %v", p, err)
	}
}
