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
	waited := 0 // of the previous transfer from or to bob
	for _, r := range demotest.Rows(t, output, 5) {
		if r.Status != http.StatusOK {
			t.Errorf("row %+v", r)
		}
		if strings.HasSuffix(r.What, "from dave to erin") {
			continue
		}
		// Half of a handler's time, because requests are not sent at exactly the same time.
		if waited > 0 && r.Waited < waited+150 {
			missed = fmt.Sprintf("%s waited %dms, the one before it %dms", r.Name, r.Waited, waited)
		}
		waited = max(1, r.Waited)
	}
	for _, want := range []string{
		"\n  before  alice 100, bob 100, carol 100, dave 100, erin 100; sum 500\n",
		"\n  after   alice 90, bob 115, carol 95, dave 60, erin 140; sum 500",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
	}
	return missed
}

// Each account of a transfer makes it wait.
func TestSignalWhileServing(t *testing.T) {
	t.Parallel()
	holder := demotest.Probe{
		Path: "/transfers", JSON: `{"from": "alice", "to": "bob", "amount": 1}`,
		Lock: "reqlock:account:bob", Want: "alice has paid 1 to bob\n",
	}
	for _, account := range []string{"carol", "dave"} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			demotest.Signals(t, demotest.Probe{
				Path: "/transfers", JSON: `{"from": "dave", "to": "carol", "amount": 1}`, Lock: "reqlock:account:" + account,
			}, holder)
		})
	}
}

func TestInvalidTransfers(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	url := p.URL(t) + "/transfers"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"unknown account": {`{"from": "alice", "to": "mallory", "amount": 1}`, 404, "no such account"},
		"to itself":       {`{"from": "alice", "to": "alice", "amount": 1}`, 400, "the same account"},
		"negative amount": {`{"from": "alice", "to": "bob", "amount": -1}`, 400, "positive"},
		"too much":        {`{"from": "alice", "to": "bob", "amount": 1000}`, 422, "alice has only 90"},
		"a number":        {`{"from": 1, "to": "bob", "amount": 1}`, 400, "want {"},
		"without account": {`{"from": "alice", "amount": 1}`, 400, "urn:reqlock:problem:key-missing"},
		"account twice":   {`{"from": "alice", "to": "bob", "to": "carol", "amount": 1}`, 400, "urn:reqlock:problem:key-invalid"},
	} {
		if a := <-demotest.Post(client, url, test.body); a.Status != test.status || !strings.Contains(a.Body, test.want) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
