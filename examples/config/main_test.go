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

func checkTimeline(t *testing.T, output string) (missed string) {
	t.Helper()
	rows := demotest.Rows(t, output, 6)
	for i, r := range rows {
		if r.What == "weekly" && r.Status != http.StatusOK {
			t.Errorf("another report than that of the others: %+v", r)
		}
		if i >= 3 && r.Status != http.StatusOK {
			t.Errorf("after the change: %+v", r)
		}
	}
	const mistake = "    reqlock: routes: locks.yaml:6:11: wait is \"a while\"; want a duration such as 2s or 1m30s\n"
	if !strings.Contains(output, mistake) {
		t.Errorf("no %q", mistake)
	}
	// Requests are not sent at exactly the same time.
	if rows[0].Status+rows[1].Status != http.StatusOK+http.StatusConflict {
		return fmt.Sprintf("before the change: %+v and %+v, want 200 and 409", rows[0], rows[1])
	}
	if waited := max(rows[3].Waited, rows[4].Waited); waited < 500 {
		return fmt.Sprintf("after the change, the second waited %dms for one that runs 1s", waited)
	}
	return ""
}

func TestSignalWhileServing(t *testing.T) {
	t.Parallel()
	demotest.Signals(t,
		demotest.Probe{Path: "/reports/7", Lock: "reqlock:report:7"},
		demotest.Probe{Path: "/reports/8", Lock: "reqlock:report:8", Want: "report 8 is ready\n"})
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
