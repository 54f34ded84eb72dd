package claim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core/internal/machine/machinetest"
)

// docs/inside/engine-states.md says what the machines and the verdicts say.
func TestStates_Document(t *testing.T) {
	t.Parallel()
	machinetest.Document(t, "../../../docs/inside/engine-states.md", map[string]string{
		"waiter":    waiterStates.Table() + "\n" + waiterStates.Drawing(),
		"phase":     phases.Table(),
		"hold":      holdStates.Table() + "\n" + holdStates.Drawing(),
		"strays":    strayStates.Table(),
		"hand-over": handOverTable(),
	})
}

// handOverTable returns the verdicts on a hand-over whose commands were all answered, or not at all.
func handOverTable() string {
	here := func(o HandOver) HandOver {
		o.Here, o.LeaseLeft = true, true
		return o
	}
	var b strings.Builder
	b.WriteString("| Reply | Waiter | Releaser's hold | Cleaned up | Release returns | Acquire returns |\n|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		reply, waiter string
		o             HandOver
	}{
		{"handed over", "here", here(HandOver{})},
		{"handed over", "here, the lease is over", here(HandOver{Late: true})},
		{"handed over", "here, forced", here(HandOver{Forced: true})},
		{"handed over, too few replicas", "here", here(HandOver{Unproven: errReplica})},
		{"handed over", "gone", HandOver{LeaseLeft: true}},
		{"handed over, but the hold was lost meanwhile", "here", here(HandOver{EndedBy: ErrLockLost})},
		{"freed instead (fair: another is first)", "here", here(HandOver{Reply: FreedInstead})},
		{"not held", "here", here(HandOver{Reply: NotHeld})},
		{"not held, after a try without an answer, and the lease would still last", "here", here(HandOver{Reply: NotHeld, Unanswered: true})},
		{"not executed", "here", here(HandOver{Reply: NotExecuted, Err: errDown})},
		{"unknown", "here", here(HandOver{Reply: Unknown, Err: errDown, Unanswered: true})},
		{"unknown", "gone", HandOver{Reply: Unknown, Err: errDown, Unanswered: true, LeaseLeft: true}},
	} {
		v := row.o.Verdict()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.reply, row.waiter, endOf(row.o, v), cleanedUp(v), releaseReturns(v), acquireReturns(row.o, v))
	}
	return b.String()
}

func endOf(o HandOver, v HandOverVerdict) string {
	switch {
	case !v.Over:
		return "freed by a plain release"
	case o.EndedBy != nil:
		return "lost"
	}
	return "released"
}

func cleanedUp(v HandOverVerdict) string {
	switch {
	case !v.CleanHeir.None() && !v.CleanHold.None():
		return "both holds"
	case !v.CleanHeir.None():
		return "the waiter's hold"
	case !v.CleanHold.None():
		return "the releaser's hold"
	}
	return "nothing"
}

func releaseReturns(v HandOverVerdict) string {
	switch {
	case !v.Over:
		return "what that release returns"
	case v.Err == nil:
		return "nil"
	case v.Err == ErrLockLost:
		return "ErrLockLost"
	}
	return "the error"
}

func acquireReturns(o HandOver, v HandOverVerdict) string {
	switch {
	case v.Accepted:
		return "the lease"
	case !o.Here:
		return "its own error"
	case v.HeirErr == ErrLate:
		return "ErrLockLost: late"
	case v.HeirErr == ErrForced:
		return "ErrLockLost: forced"
	case v.Dismiss == errReplica:
		return "ErrNotReplicated"
	case v.Dismiss != nil:
		return "the error; waits on if it outlasts that"
	case v.Wake:
		return "asks for itself"
	}
	return "waits on"
}
