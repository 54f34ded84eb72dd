package histories

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Run is what became of an idempotent request: its handler began, its handler ended, or it was
// answered with the result of another one. Times are those of a Call.
type Run struct {
	Process int
	// Key is the idempotency key.
	Key string
	// Refuses is true if the handler answers OutcomeRefuse.
	Refuses bool
	Payload string
	// ID is the request's.
	ID    string
	What  RunStep
	Asked int64
	// Begin is when the handler began.
	Begin int64
	// Valid is when the handler's context was last alive. 0: it never was.
	Valid int64 `json:",omitempty"`
	// End is when the handler was about to end. 0: its process was killed.
	End    int64  `json:",omitempty"`
	Ending Ending `json:",omitempty"`
	// Answer is what a replay answered.
	Answer string `json:",omitempty"`
}

// A RunStep is a moment of an idempotent request.
type RunStep string

const (
	RunBegan RunStep = "began"
	RunEnded RunStep = "ended" // This step has all that RunBegan has, too.
	Replayed RunStep = "replayed"
)

// An Ending says how a handler ended. A process that is killed leaves none.
type Ending string

const (
	Answered Ending = "answered" // a result to repeat
	Freed    Ending = "freed"    // a 502 while its context was alive
	Died     Ending = "died"     // a panic
	Late     Ending = "late"     // a 502 after its context had ended
)

// answerOf is the answer of a run.
func (r Run) answerOf() string { return r.ID + " " + r.Payload }

// checkRuns checks the promises of idempotent requests, and counts runs as grants. Without a loss of
// data between two runs of a key:
//
//   - Both have the same payload.
//   - The second begins after the last moment at which the context of the first was alive.
//   - With OutcomeRefuse, the first has ended in order, with an answer that is not stored.
//
// A replay has the answer of a run of the same key and payload.
func checkRuns(h *History, tally *Tally) (violations []Violation) {
	byKey := make(map[string][]Run)
	answers := make(map[string]Run)
	ended := make(map[string]Run)
	for _, r := range h.Runs {
		if r.What == RunEnded {
			ended[r.ID] = r
			answers[r.Key+" "+r.answerOf()] = r
		}
	}
	refuse := func(key, format string, args ...any) {
		violations = append(violations, Violation{Name: key, Reason: fmt.Sprintf(format, args...)})
	}
	for _, r := range h.Runs {
		switch r.What {
		case RunBegan:
			if end, ok := ended[r.ID]; ok {
				r = end
			}
			byKey[r.Key] = append(byKey[r.Key], r)
			tally.Grants[kindOf(r.Refuses)]++
		case Replayed:
			tally.Records[kindOf(r.Refuses)]++
			of, ok := answers[r.Key+" "+r.Answer]
			switch {
			case !ok || of.Ending != Answered:
				refuse(r.Key, "request %s gets the answer %q, which no run has given", r.ID, r.Answer)
			case of.Payload != r.Payload:
				refuse(r.Key, "request %s with the payload %s gets the answer to %s", r.ID, r.Payload, of.Payload)
			}
		}
	}
	for key, runs := range byKey {
		slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Begin, b.Begin) })
		for i, b := range runs {
			for _, a := range runs[:i] {
				if why := h.excludes(a, b); why != "" {
					refuse(key, "run %s of %s begins after run %s of %s, %s", b.ID, b.Payload, a.ID, a.Payload, why)
				}
			}
		}
	}
	slices.SortFunc(violations, func(a, b Violation) int { return strings.Compare(a.Name, b.Name) })
	return violations
}

func kindOf(refuses bool) string {
	if refuses {
		return "refuse"
	}
	return "rerun"
}

// excludes returns why run b of a key must not have begun, after run a; "": it may.
func (h *History) excludes(a, b Run) string {
	for _, f := range h.Faults {
		if f.Loss != Nothing && (span{f.Begin, f.End}).overlaps(a.Asked, b.Begin) {
			return ""
		}
	}
	switch {
	case a.Payload != b.Payload:
		return "to which the key is bound"
	case a.Valid > b.Begin:
		return "whose context was alive later"
	case b.Refuses && (a.Ending != Freed || a.End > b.Begin):
		return fmt.Sprintf("which has ended as %q", a.Ending)
	}
	return ""
}
