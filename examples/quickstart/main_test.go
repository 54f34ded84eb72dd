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
