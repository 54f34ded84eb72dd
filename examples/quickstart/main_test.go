package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
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
	all := make(map[string]demotest.Row)
	for _, r := range demotest.Rows(t, output, 7) {
		all[r.Name] = r
	}
	// Any request may be first. If the machine stalls for as long as a handler runs, more than one
	// may run.
	ran, refused := 0, 0
	for _, name := range []string{"A", "B", "C"} {
		switch r := all[name]; {
		case r.What == "order 42" && r.Status == http.StatusOK && strings.HasSuffix(r.Bar, "##########"):
			ran++
		case r.What == "order 42" && r.Status == http.StatusConflict && strings.HasSuffix(r.Bar, "x"):
			refused++
		default:
			t.Errorf("row %+v", r)
		}
	}
	if ran == 0 {
		t.Error("order 42 was paid by no request")
	}
	if d := all["D"]; d.What != "order 43" || d.Status != http.StatusOK {
		t.Errorf("the request for another order: %+v", d)
	}
	if refused == 0 {
		return "no payment was refused"
	}
	for _, want := range []string{
		"    HTTP/1.1 409 Conflict\n",
		"    Retry-After: 1\n",
		"    Content-Type: application/problem+json\n",
		`      "type": "urn:reqlock:problem:locked",` + "\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
	}

	var waits []int
	for _, name := range []string{"E", "F", "G"} {
		r := all[name]
		if r.What == "order 42" && r.Status == http.StatusConflict {
			return "an order was not shipped in time"
		}
		if r.What != "order 42" || r.Status != http.StatusOK || strings.Count(r.Bar, "#") < 10 {
			t.Errorf("row %+v", r)
		}
		waits = append(waits, r.Waited)
	}
	slices.Sort(waits)
	// Less than the 500ms and 1s of the others, because requests are not sent at exactly the same
	// time.
	if waits[1] < 250 || waits[2] < 750 {
		return fmt.Sprintf("waits of %v ms for handlers that run 500ms each, one after another", waits)
	}
	return ""
}

func TestReadme(t *testing.T) {
	t.Parallel()
	demotest.Demonstrate(t, checkReadme)
}

// checkReadme returns the README's lines that are not in the output, apart from what varies between
// runs.
func checkReadme(t *testing.T, output string) (missed string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	varying := regexp.MustCompile(`127\.0\.0\.1:\d+|What [A-C] got`)
	shown := regexp.MustCompile("(?s)```text\n(A shop at.*?)```").FindSubmatch(readme)
	if shown == nil {
		t.Fatal("README.md has no output of the quickstart")
	}
	output = varying.ReplaceAllString("\n"+output+"\n", "…")
	for line := range strings.Lines(string(shown[1])) {
		if !demotest.IsRow(strings.TrimSuffix(line, "\n")) && !strings.Contains(output, "\n"+varying.ReplaceAllString(line, "…")) {
			return "README.md shows a line that is not in the output: " + line
		}
	}
	return ""
}

// The commands to try by hand work.
func TestInvitation(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	url := p.Find(t, `(?m)^  curl -i -X POST (http://\S+/orders/42/pay) & curl -i -X POST http://\S+/orders/42/pay; wait$`)
	demotest.AwaitFree(t, p.Redis(t))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if a := <-demotest.Post(client, url, ""); a.Status != http.StatusOK || a.Body != "order 42 is paid\n" {
		t.Errorf("answer %+v", a)
	}
	p.Signal(t, os.Interrupt)
	p.End(t, 0)
}

func TestSignalWhileServing(t *testing.T) {
	t.Parallel()
	demotest.Signals(t,
		demotest.Probe{Path: "/orders/7/ship", Lock: "reqlock:order:7"},
		demotest.Probe{Path: "/orders/8/pay", Lock: "reqlock:order:8", Want: "order 8 is paid\n"})
}

func TestSignalDuringDemonstration(t *testing.T) {
	t.Parallel()
	demotest.SignalDuringDemonstration(t)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
