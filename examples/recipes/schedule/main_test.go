package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/examples/internal/demotest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// Two instances run. One makes the reports; when it ends, the other goes on, and no report is made
// twice. On a slow machine, one report may stand for several.
func TestSchedule(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var programs []*demotest.Program
	for range 2 {
		p := demotest.Start(t, redis.URL())
		p.Until(t, "Serving until Ctrl-C.")
		programs = append(programs, p)
	}
	first := await(t, programs[0], 2, 1)
	maker := 0
	if !strings.HasSuffix(first[0], programs[0].Process()) {
		maker = 1
	}
	programs[maker].Signal(t, syscall.SIGTERM)
	programs[maker].End(t, 0)
	lines := await(t, programs[1-maker], 4, 2)
	var before time.Time
	for i, line := range lines {
		due, err := time.Parse(time.TimeOnly, line[:8])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && due.Sub(before) < every && due.Hour() != 0 {
			t.Errorf("a report was due at %s and the next at %s", lines[i-1], line)
		}
		before = due
	}
	programs[1-maker].Signal(t, os.Interrupt)
	programs[1-maker].End(t, 0)
}

// await returns the reports once there are enough of them, by as many processes.
func await(t *testing.T, p *demotest.Program, reports, makers int) (lines []string) {
	t.Helper()
	demotest.Await(t, "no report", func(context.Context) bool {
		a := p.Ask(t, "GET", "/reports", "")
		lines = strings.Split(strings.TrimSpace(a.Body), "\n")
		by := make(map[string]bool)
		for _, line := range lines {
			_, process, _ := strings.Cut(line, " by ")
			by[process] = true
		}
		return len(lines) >= reports && len(by) == makers
	})
	return lines
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
