package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

func TestDemonstration(t *testing.T) {
	t.Parallel()
	demotest.OnEachRedis(t, checkTimeline)
}

// checkTimeline checks that three exports of a tenant ran at once, the next three after them, and then
// the rest, and that the export of another tenant did not wait for them.
func checkTimeline(t *testing.T, output string) (missed string) {
	t.Helper()
	rows := demotest.Rows(t, output, 9)
	turns := make(map[int]int) // exports of acme, by how many they waited for
	for _, r := range rows {
		// The rows are in order. On a slow machine, the first has waited, too: for its connection.
		waited := r.Waited - rows[0].Waited
		switch {
		case r.Status == http.StatusTooManyRequests && r.Refused && r.What == "acme":
			return "the machine is slow: an export did not get its turn in time"
		case r.Status != http.StatusOK || !strings.HasSuffix(r.Bar, "##########"):
			t.Errorf("row %+v", r)
		case r.What == "acme":
			turns[(waited+250)/500]++
		case r.What != "umbrella":
			t.Errorf("row %+v", r)
		case waited >= 250:
			return fmt.Sprintf("the other tenant waited %dms", waited)
		}
	}
	if turns[0] != 3 || turns[1] != 3 || turns[2] != 2 {
		return fmt.Sprintf("exports by their turn: %v; want 3, 3 and 2", turns)
	}
	return ""
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestTerminates(t *testing.T) {
	t.Parallel()
	demotest.Terminates(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
