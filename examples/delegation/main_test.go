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

// checkTimeline checks that a call without a token waits in vain for its own caller, that calls
// with one enter through three services, and that another payment of the order waits for all of
// them.
func checkTimeline(t *testing.T, output string) (missed string) {
	t.Helper()
	rows := demotest.Rows(t, output, 3)
	alone, first, second := rows[0], rows[1], rows[2]
	if alone.Status != http.StatusConflict || !alone.Refused {
		t.Errorf("row %+v", alone)
	}
	for _, want := range []string{
		`"type": "urn:reqlock:problem:wait-timeout",`,
		"    paid, billed, booked\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
	}
	if second.Status == http.StatusConflict && second.Refused {
		return "the machine is slow: the other payment did not get its turn in time"
	}
	for _, r := range []demotest.Row{first, second} {
		if r.Status != http.StatusOK || strings.Count(r.Bar, "#") < 9 {
			t.Errorf("row %+v", r)
		}
	}
	// The first runs for 450ms, and the second comes after 150.
	if second.Waited < 200 {
		return fmt.Sprintf("the other payment waited %dms", second.Waited)
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
