package coalesce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A history is what some callers of Do saw. Times are those since its test began.
type history struct {
	runs  map[string]*pastRun
	calls []pastCall
}

// A pastRun is one call of fn.
type pastRun struct {
	id, key    string
	begin, end time.Duration // end is 0 while fn runs
	// held is when the run last had the lock, as far as its lease knew. 0: it never had.
	held time.Duration
	// failed is true if fn has returned an error.
	failed bool
	// gone is when a record of the run is gone from Redis at the latest.
	gone time.Duration
}

// A pastCall is one call of Do.
type pastCall struct {
	process      int
	key          string
	asked, ended time.Duration
	// answer is the ID of the run whose result or error the caller got. "": it got neither.
	answer string
	shared bool
	failed bool // The answer is an error.
	// marked is true if another caller has changed the caller's result.
	marked bool
}

// A delay is how much later than Redis a test may see that a record is gone.
const delay = 2 * time.Second

// violations returns what breaks a promise of Do:
//
//   - An answer is of a run of the key that has ended as the answer says.
//   - A caller runs only once it has asked, and shares only what another caller has run.
//   - An answer is of a run that overlapped the wait, or whose record was still there: no later run had
//     begun when the caller asked, or joined a caller that had asked before.
//   - A run begins after the last moment at which any earlier run had the lock.
//   - The answer of a run is shared only if no other run had begun before its end.
//   - No caller sees what another has changed.
func (h *history) violations() (all []string) {
	refuse := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	byKey := make(map[string][]*pastRun)
	for _, r := range h.runs {
		byKey[r.key] = append(byKey[r.key], r)
	}
	for _, runs := range byKey {
		slices.SortFunc(runs, func(a, b *pastRun) int { return cmp.Or(cmp.Compare(a.begin, b.begin), strings.Compare(a.id, b.id)) })
		for i, b := range runs {
			for _, a := range runs[:i] {
				if a.held > b.begin {
					refuse("run %s begins at %s, and run %s had the lock until %s", b.id, b.begin, a.id, a.held)
				}
			}
		}
	}
	for _, c := range h.calls {
		if c.answer == "" {
			continue
		}
		r := h.runs[c.answer]
		switch {
		case r == nil || r.key != c.key || r.end == 0 || r.failed != c.failed:
			refuse("a call gets the answer %q, which no run has given", c.answer)
			continue
		case c.marked:
			refuse("a call sees what another one did to the result of run %s", r.id)
		case !c.shared && r.begin < c.asked:
			refuse("a call has asked after run %s, its own, had begun", r.id)
		case r.begin > c.ended:
			refuse("a call gets the answer of run %s before that begins", r.id)
		case c.asked > r.gone+delay:
			refuse("a call has asked %s after the record of run %s was gone", c.asked-r.gone, r.id)
		}
		for _, next := range byKey[c.key] {
			switch {
			case !c.shared || next.begin <= r.begin:
			case next.begin < r.end:
				refuse("a call gets the answer of run %s, which had lost its lock to run %s", r.id, next.id)
			case next.begin < c.asked && !h.joined(c, next.begin):
				refuse("a call that has asked after run %s began gets the answer of run %s", next.id, r.id)
			}
		}
	}
	return all
}

// joined reports whether a call that has asked after a time shares its answer with one of its process
// that had asked before and had not ended.
func (h *history) joined(c pastCall, before time.Duration) bool {
	return slices.ContainsFunc(h.calls, func(d pastCall) bool {
		return d.process == c.process && d.answer == c.answer && d.asked < before && d.ended > c.asked
	})
}

// The checker accepts what Do promises, and finds each kind of breach.
func TestHistory(t *testing.T) {
	t.Parallel()
	run := func(id string, begin, held, end time.Duration) *pastRun {
		return &pastRun{id: id, key: "k", begin: begin * time.Second, held: held * time.Second, end: end * time.Second, gone: (end + 1) * time.Second}
	}
	call := func(process int, answer string, asked, ended time.Duration) pastCall {
		return pastCall{process: process, key: "k", answer: answer, asked: asked * time.Second, ended: ended * time.Second}
	}
	shares := func(c pastCall) pastCall {
		c.shared = true
		return c
	}
	failed := func(c pastCall) pastCall {
		c.failed = true
		return c
	}
	marked := func(c pastCall) pastCall {
		c.marked = true
		return c
	}
	own := call(0, "a", 1, 21)
	for name, test := range map[string]struct {
		runs  []*pastRun
		calls []pastCall
		says  string // "": right
	}{
		"a run":                       {calls: []pastCall{own}},
		"a run and a share":           {calls: []pastCall{own, shares(call(1, "a", 15, 22))}},
		"a record":                    {calls: []pastCall{own, shares(call(1, "a", 22, 23))}},
		"no answer":                   {calls: []pastCall{call(1, "", 40, 50)}},
		"a later run":                 {runs: []*pastRun{run("b", 30, 40, 41)}, calls: []pastCall{own, shares(call(1, "a", 22, 23)), call(1, "b", 25, 42)}},
		"after a lost run":            {runs: []*pastRun{run("b", 22, 40, 41)}, calls: []pastCall{own, shares(call(1, "b", 5, 42))}},
		"joins one that asked before": {runs: []*pastRun{run("b", 22, 40, 41)}, calls: []pastCall{own, shares(call(1, "a", 21, 24)), shares(call(1, "a", 23, 24))}},

		"an answer of nothing":          {calls: []pastCall{shares(call(1, "b", 15, 22))}, says: "which no run has given"},
		"an error that was a result":    {calls: []pastCall{failed(shares(call(1, "a", 15, 22)))}, says: "which no run has given"},
		"an answer of a run under way":  {runs: []*pastRun{run("b", 30, 40, 0)}, calls: []pastCall{shares(call(1, "b", 25, 35))}, says: "which no run has given"},
		"another's changes":             {calls: []pastCall{marked(shares(call(1, "a", 15, 22)))}, says: "another one did"},
		"a run of its own before":       {calls: []pastCall{call(1, "a", 15, 22)}, says: "its own, had begun"},
		"an answer before the run":      {calls: []pastCall{shares(call(1, "a", 5, 6))}, says: "before that begins"},
		"an old answer":                 {calls: []pastCall{shares(call(1, "a", 60, 61))}, says: "was gone"},
		"an answer after the next run":  {runs: []*pastRun{run("b", 22, 22, 22)}, calls: []pastCall{shares(call(1, "a", 23, 24))}, says: "after run b began"},
		"it joined in another process":  {runs: []*pastRun{run("b", 22, 22, 22)}, calls: []pastCall{shares(call(0, "a", 21, 24)), shares(call(1, "a", 23, 24))}, says: "after run b began"},
		"two runs at a time":            {runs: []*pastRun{run("b", 15, 30, 31)}, calls: []pastCall{own}, says: "had the lock until"},
		"the answer of a lost run":      {runs: []*pastRun{run("b", 19, 20, 20), run("c", 17, 18, 30)}, calls: []pastCall{shares(call(1, "c", 16, 32))}, says: "had lost its lock to run b"},
		"the answer of a run elsewhere": {runs: []*pastRun{{id: "b", key: "j", begin: 1, end: 2}}, calls: []pastCall{shares(call(1, "b", 0, 3))}, says: "which no run has given"},
	} {
		first := run("a", 10, 17, 20)
		if strings.HasPrefix(name, "two runs") {
			first.held = 20 * time.Second
		}
		h := &history{runs: map[string]*pastRun{"a": first}, calls: test.calls}
		for _, r := range test.runs {
			h.runs[r.id] = r
		}
		all := h.violations()
		if test.says == "" && len(all) > 0 || test.says != "" && (len(all) != 1 || !strings.Contains(all[0], test.says)) {
			t.Errorf("%s: %q, want %q", name, all, test.says)
		}
	}
}
