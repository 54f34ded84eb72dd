package claim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "rewrite the tables of docs/engine-states.md")

// docs/engine-states.md says what the machines and the verdicts say.
func TestStates_Document(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/engine-states.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := string(b)
	text := old
	for mark, table := range map[string]string{
		"waiter":    table(waiterStates) + "\n" + drawing(waiterStates),
		"phase":     table(phases),
		"hold":      table(holdStates) + "\n" + drawing(holdStates),
		"strays":    table(strayStates),
		"hand-over": handOverTable(),
	} {
		begin, end := "<!-- "+mark+": make states WRITE=1 writes this -->\n", "<!-- end -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("%s has no table of %s", path, mark)
		}
		text = head + begin + "\n" + table + "\n" + end + tail
	}
	switch {
	case text == old:
	case !*write:
		t.Errorf("%s is out of date: make states WRITE=1", path)
	default:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}

// table returns the transitions of a machine. Those with one cause and one end share a row.
func table[S state](m *machine[S]) string {
	var b strings.Builder
	b.WriteString("| From | To | When |\n|---|---|---|\n")
	done := make(map[string]bool)
	for _, t := range m.transitions {
		var from []string
		for _, other := range m.transitions {
			if other.to == t.to && other.when == t.when {
				from = append(from, other.from.String())
			}
		}
		row := fmt.Sprintf("| %s | %s | %s |\n", strings.Join(from, ", "), t.to, t.when)
		if !done[row] {
			done[row] = true
			b.WriteString(row)
		}
	}
	return b.String()
}

// drawing returns a machine as a diagram.
func drawing[S state](m *machine[S]) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, t := range m.transitions {
		fmt.Fprintf(&b, "    %s --> %s\n", t.from, t.to)
	}
	b.WriteString("```\n")
	return b.String()
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
		{"handed over, but the hold was lost meanwhile", "here", here(HandOver{Ended: ErrLockLost})},
		{"freed instead (fair: another is first)", "here", here(HandOver{Reply: FreedInstead})},
		{"not held", "here", here(HandOver{Reply: NotHeld})},
		{"not held, after a try without an answer", "here", here(HandOver{Reply: NotHeld, Stray: true})},
		{"not executed", "here", here(HandOver{Reply: NotExecuted, Err: errDown})},
		{"unknown", "here", here(HandOver{Reply: Unknown, Err: errDown, Stray: true})},
		{"unknown", "gone", HandOver{Reply: Unknown, Err: errDown, Stray: true, LeaseLeft: true}},
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
	case o.Ended != nil:
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
