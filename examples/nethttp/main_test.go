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
	answers, waited := make(map[int]int), 0 // for the same report
	for _, r := range demotest.Rows(t, output, 5) {
		if r.Refused != strings.HasSuffix(r.Bar, "x") || r.Refused == strings.HasSuffix(r.Bar, "####################") {
			t.Errorf("row %+v", r)
		}
		switch r.What {
		case "daily":
			answers[r.Status]++
			waited = max(waited, r.Waited)
		case "weekly":
			if r.Status != http.StatusOK {
				t.Errorf("another report than that of the others: %+v", r)
			}
		}
	}
	if n := answers[http.StatusOK] + answers[http.StatusConflict] + answers[http.StatusServiceUnavailable]; n != 4 || answers[http.StatusOK] == 0 {
		t.Errorf("answers %v", answers)
	}
	if answers[http.StatusOK] != 2 || answers[http.StatusConflict] != 1 || answers[http.StatusServiceUnavailable] != 1 {
		return fmt.Sprintf("answers %v; want 200 twice, 409 and 503 once each", answers)
	}
	// Half of the previous handler's time, because the request is sent a little later.
	if waited < 500 {
		return fmt.Sprintf("the second waited %dms for one that runs 1s", waited)
	}
	const headers = "    Retry-After: 1\n    Content-Type: application/problem+json\n    Cache-Control: no-store\n\n    {\n"
	for _, want := range []string{
		"    HTTP/1.1 503 Service Unavailable\n" + headers + `      "type": "urn:reqlock:problem:queue-full",` + "\n",
		"    HTTP/1.1 409 Conflict\n" + headers + `      "type": "urn:reqlock:problem:wait-timeout",` + "\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
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
