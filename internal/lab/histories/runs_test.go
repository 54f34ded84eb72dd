package histories

import (
	"strings"
	"testing"
)

// Check rejects runs that break a promise, and accepts those that do not.
func TestCheckRuns(t *testing.T) {
	t.Parallel()
	run := func(id, payload string, begin, valid, end int64, ending Ending) []Run {
		r := Run{Key: "k", ID: id, Payload: payload, Asked: begin - 1, Begin: begin, What: RunBegan}
		if ending == "" {
			return []Run{r} // its process was killed
		}
		last := r
		last.What, last.Valid, last.End, last.Ending = RunEnded, valid, end, ending
		return []Run{r, last}
	}
	replay := func(id, payload, answer string) []Run {
		return []Run{{Key: "k", ID: id, Payload: payload, What: Replayed, Answer: answer}}
	}
	loss := []Fault{{What: "FLUSHALL", Loss: All, Begin: 40, End: 41}}
	for name, test := range map[string]struct {
		runs    [][]Run
		refuses bool
		faults  []Fault
		says    string // "": right
	}{
		"one after another":                     {runs: [][]Run{run("a", "50", 10, 20, 20, Freed), run("b", "50", 50, 60, 60, Answered)}},
		"after a death":                         {runs: [][]Run{run("a", "50", 10, 20, 20, Died), run("b", "50", 50, 60, 60, Answered)}},
		"after a kill":                          {runs: [][]Run{run("a", "50", 10, 0, 0, ""), run("b", "50", 50, 60, 60, Answered)}},
		"the first is late":                     {runs: [][]Run{run("a", "50", 10, 45, 90, Late), run("b", "50", 50, 60, 60, Answered)}},
		"two at a time":                         {runs: [][]Run{run("a", "50", 10, 55, 90, Late), run("b", "50", 50, 60, 60, Answered)}, says: "alive later"},
		"two at a time, after a loss":           {runs: [][]Run{run("a", "50", 10, 55, 90, Late), run("b", "50", 50, 60, 60, Answered)}, faults: loss},
		"another payload":                       {runs: [][]Run{run("a", "50", 10, 20, 20, Freed), run("b", "70", 50, 60, 60, Answered)}, says: "to which the key is bound"},
		"another payload, meanwhile":            {runs: [][]Run{run("a", "50", 10, 20, 90, Late), run("b", "70", 50, 60, 60, Answered)}, says: "to which the key is bound"},
		"another payload, after a kill":         {runs: [][]Run{run("a", "50", 10, 0, 0, ""), run("b", "70", 50, 60, 60, Answered)}, says: "to which the key is bound"},
		"another payload, after a loss":         {runs: [][]Run{run("a", "50", 10, 20, 20, Freed), run("b", "70", 50, 60, 60, Answered)}, faults: loss},
		"a replay":                              {runs: [][]Run{run("a", "50", 10, 20, 20, Answered), replay("b", "50", "a 50")}},
		"a replay of nothing":                   {runs: [][]Run{run("a", "50", 10, 20, 20, Answered), replay("b", "50", "c 50")}, says: "which no run has given"},
		"a replay of a 502":                     {runs: [][]Run{run("a", "50", 10, 20, 20, Freed), replay("b", "50", "a 50")}, says: "which no run has given"},
		"a replay of another payload":           {runs: [][]Run{run("a", "70", 10, 20, 20, Answered), replay("b", "50", "a 70")}, says: "gets the answer to 70"},
		"refuses, after an answer in order":     {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 20, Freed), run("b", "50", 50, 60, 60, Answered)}},
		"refuses, after a death":                {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 20, Died), run("b", "50", 50, 60, 60, Answered)}, says: `ended as "died"`},
		"refuses, after a kill":                 {refuses: true, runs: [][]Run{run("a", "50", 10, 0, 0, ""), run("b", "50", 50, 60, 60, Answered)}, says: `ended as ""`},
		"refuses, after a late answer":          {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 30, Late), run("b", "50", 50, 60, 60, Answered)}, says: `ended as "late"`},
		"refuses, before the answer":            {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 90, Freed), run("b", "50", 50, 60, 60, Answered)}, says: `ended as "freed"`},
		"refuses, after a death and a loss":     {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 20, Died), run("b", "50", 50, 60, 60, Answered)}, faults: loss},
		"refuses, after an answer that is kept": {refuses: true, runs: [][]Run{run("a", "50", 10, 20, 20, Answered), run("b", "50", 50, 60, 60, Answered)}, says: `ended as "answered"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &History{Faults: test.faults}
			for _, steps := range test.runs {
				for _, r := range steps {
					r.Refuses = test.refuses
					h.Runs = append(h.Runs, r)
				}
			}
			violations, tally := Check(h)
			switch {
			case test.says == "" && len(violations) > 0:
				t.Errorf("refused: %v", violations)
			case test.says != "" && (len(violations) != 1 || !strings.Contains(violations[0].Reason, test.says)):
				t.Errorf("violations %v, want one with %q", violations, test.says)
			case tally.Grants[kindOf(test.refuses)] == 0:
				t.Error("no run is counted")
			}
		})
	}
}
