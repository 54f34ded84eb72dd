package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

func TestDemonstration(t *testing.T) {
	t.Parallel()
	demotest.OnEachRedis(t, demotest.CheckOrders)
}

func TestDocs(t *testing.T) {
	t.Parallel()
	demotest.Demonstrate(t, checkDocs)
}

// checkDocs returns a line that docs/start/first-handler.md or the README shows and the output has
// not, apart from what varies between runs.
func checkDocs(t *testing.T, output string) (missed string) {
	t.Helper()
	varying := regexp.MustCompile(`127\.0\.0\.1:\d+|What [A-C] got`)
	output = varying.ReplaceAllString("\n"+output+"\n", "…")
	shows := regexp.MustCompile("(?s)```text\n(A shop at.*?)```")
	for _, file := range []string{"../../README.md", "../../docs/start/first-handler.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown := shows.FindSubmatch(text)
		if shown == nil {
			t.Fatalf("%s has no output of the quickstart", file)
		}
		for line := range strings.Lines(string(shown[1])) {
			if !demotest.IsRow(strings.TrimSuffix(line, "\n")) && !strings.Contains(output, "\n"+varying.ReplaceAllString(line, "…")) {
				return file + " shows a line that is not in the output: " + line
			}
		}
	}
	return ""
}

// The commands to try by hand work.
func TestInvitation(t *testing.T) {
	t.Parallel()
	demotest.OrdersByHand(t)
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
