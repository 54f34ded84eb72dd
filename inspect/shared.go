package inspect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
)

// A sharedRun is a run of package coalesce, with what core knows of the caller that asks Redis.
type sharedRun struct {
	coalesce.Run
	core.Annotation
	// State says what the caller does, and For since when; 0: that is not known.
	State string
	For   time.Duration
}

// The states of a sharedRun.
const (
	runsHere   = "runs here"
	runsOther  = "waits for another run"
	asksServer = "asks Redis"
)

// sharedRuns finds the caller of each run among the holds and the waits that the page shows, and puts
// the runs first that most callers wait for. A run without such a caller is left out if it may belong
// to a name that the page does not show: all says that it shows all.
func sharedRuns(runs []coalesce.Run, holds []core.Hold, waits []core.Wait, all bool) (shared []sharedRun) {
	known := make(map[string]sharedRun)
	for _, w := range waits {
		if w.Kind == "once" {
			known[w.Name] = sharedRun{Annotation: w.Annotation, State: runsOther, For: w.Waited}
		}
	}
	for _, h := range holds {
		if h.Kind == "once" {
			known[h.Name] = sharedRun{Annotation: h.Annotation, State: runsHere, For: h.Held}
		}
	}
	for _, run := range runs {
		s, found := known[run.Key]
		if !found {
			s.State = asksServer
		}
		if s.Run = run; found || all {
			shared = append(shared, s)
		}
	}
	slices.SortStableFunc(shared, func(a, b sharedRun) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Key, b.Key))
	})
	return shared
}

// Shared returns the first runs that match and that callers of this process share.
func (v *view) Shared() list[sharedRun] {
	return listOf(v.shared, v.most/6, func(s sharedRun) bool { return v.matches(s.Key, s.Route, s.RequestID, s.TraceID) })
}
