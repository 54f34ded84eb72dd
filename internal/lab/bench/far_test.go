package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func redisServer(t *testing.T) string { return redistest.Start(t).Addr() }

// newShortBench returns a bench with a server, for runs that only show that they work.
func newShortBench(t *testing.T) *bench {
	t.Helper()
	b := newSilentBench()
	s := redistest.Start(t)
	b.addr, b.probe, b.nRounds, b.short, b.grid = s.Addr(), probe{s.Client(t)}, 1, true, wholeGrid
	return b
}

// Every contender runs on every kind of line, and has each metric.
func TestDistances(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	b.grid.lines, b.grid.callers = []line{loopback, secure, awayBy(time.Millisecond)}, []int{1, 40}
	if err := b.distances(); err != nil {
		t.Fatal(err)
	}
	for _, l := range b.grid.lines {
		for _, callers := range b.grid.callers {
			wantValues(t, b, far, callersOn(l, callers), b.grid.contenders, throughput, cycleP50, cycleP99)
		}
	}
	// The proxy leaves out half of the distance at most.
	if took := b.spread(series{far, callersOn(b.grid.lines[2], 1), pingFloor, cycleP50}).median; took < 1 {
		t.Errorf("two PINGs 1 ms away take %v ms", took)
	}
}

// Clients on the line with TLS speak TLS, and the shared pool has a connection for each caller.
func TestDialled(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	r, err := b.open(secure, 0)
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := dialled(r, 100)
	if err != nil {
		t.Fatal(err)
	}
	if all, _, err := r.probe.connections(); err != nil || all < 100 {
		t.Errorf("%d connections, %v", all, err)
	}
	plain := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1})
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("the port for TLS answers without it")
	}
	for _, close := range []func() error{plain.Close, rdb.Close, r.close} {
		if err := close(); err != nil {
			t.Error(err)
		}
	}
}

// The first and the last cycle of a window count by the part that is within it.
func TestRunnerCounts(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	w := window{at(100), at(200)}
	for _, test := range []struct {
		began, ended int
		cycles       float64
		last         bool
	}{
		{50, 90, 0, false},
		{90, 110, 0.5, false},
		{110, 150, 1, false},
		{160, 240, 0.5, true},
		{50, 250, 0.5, true},
		{200, 240, 0, true},
	} {
		var r runner
		if last := r.count(w, at(test.began), at(test.ended)); last != test.last || r.cycles != test.cycles || (len(r.took) == 1) != (test.cycles > 0) {
			t.Errorf("%d to %d: %v cycles, took %v, last: %t", test.began, test.ended, r.cycles, r.took, last)
		}
	}
}

// A cell fails if a peer is faster, and names it.
func TestGridChecks(t *testing.T) {
	t.Parallel()
	r := newResults()
	cell := callersOn(wholeGrid.lines[3], 64)
	for r.round = range 3 {
		for contender, rate := range map[string]float64{ours: 100, rawPair: 90, redsyncName: 80, redislockLn: 70, rueidisLock: 110} {
			r.add(far, cell, contender, throughput, rate)
			r.add(far, cell, contender, cycleP50, 1e3/rate)
		}
	}
	var got []string
	for _, c := range gridChecks() {
		if value, v := c.measure(r); v != notMeasured {
			got = append(got, fmt.Sprint(value, " ", v))
		}
	}
	want := []string{"0.909 (0.909-0.909)x (rueidislock) DOES NOT HOLD", "1.11 (1.11-1.11)x HOLDS", "0.9 (0.9-0.9)x HOLDS"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A run of the grid writes its own part of a page, its values and its plots.
func TestGridFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte(near.begins()+"as before"+near.ends()+away.begins()+away.ends()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newSilentBench()
	b.grid = wholeGrid
	b.grid.lines, b.grid.callers = wholeGrid.lines[2:4], []int{1, 64}
	for b.round = range 3 {
		for _, l := range b.grid.lines {
			for _, n := range b.grid.callers {
				for i, c := range b.grid.contenders {
					b.add(far, callersOn(l, n), c, throughput, float64(1000*n*(i+1)))
					b.add(far, callersOn(l, n), c, cycleP50, float64(i+1))
				}
			}
		}
	}
	if err := b.report(io.Discard, description{rounds: 3}, dir, page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		near.begins() + "as before" + near.ends(),
		"![Cycles a second by the number of callers](./far-throughput.svg)",
		"| 64 | 192.0k (192.0k-192.0k) | 0.5 (0.5-0.5)x | 1.50 (1.50-1.50)x | 64.0k | 128.0k | 256.0k | 320.0k | 384.0k | 3, 2 | 0, 0 | 0, 0 |",
		"4 hold, 8 do not hold, 0 have no verdict.",
		"| Far | 1 ms, 64 callers, cycles/s: at least 1 times the best peer | 0.5 (0.5-0.5)x (rueidislock) | DOES NOT HOLD |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if values, err := os.ReadFile(filepath.Join(dir, "far.csv")); err != nil || bytes.Count(values, []byte("\n")) != 1+3*2*2*2*len(b.grid.contenders) {
		t.Errorf("%d lines of values, %v", bytes.Count(values, []byte("\n")), err)
	}
	if _, err := os.Stat(filepath.Join(dir, near.csv())); err == nil {
		t.Error("the values of other scenarios were replaced")
	}
	// Title, what is better, callers, lines, and two texts in a field.
	if texts := textsOf(t, filepath.Join(dir, "far.svg")); len(texts) != 2+2+2+8 || !slices.Contains(texts, "0.5x") {
		t.Errorf("the texts of the map are %q", texts)
	}
	if texts := textsOf(t, filepath.Join(dir, "far-throughput.svg")); !slices.Contains(texts, rueidisLock) || !slices.Contains(texts, "0.2 ms") {
		t.Errorf("the texts of the curves are %q", texts)
	}
}

func TestGridFlags(t *testing.T) {
	t.Parallel()
	lines, err := parseLines("loopback,TLS,0.2ms,20ms")
	if want := []line{loopback, secure, wholeGrid.lines[2], wholeGrid.lines[5]}; !slices.Equal(lines, want) || err != nil {
		t.Errorf("%v, %v", lines, err)
	}
	if callers, err := parseCallers("1,4096"); !slices.Equal(callers, []int{1, 4096}) || err != nil {
		t.Errorf("%v, %v", callers, err)
	}
	if names, err := parseContenders("reqlock,raw pair"); !slices.Equal(names, []string{ours, rawPair}) || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	_, noLine := parseLines("loopback,tls")
	_, noTrip := parseLines("0ms")
	_, noCallers := parseCallers("0")
	_, noName := parseContenders("reqlock,")
	for _, err := range []error{noLine, noTrip, noCallers, noName} {
		if err == nil || !strings.HasPrefix(err.Error(), "-") {
			t.Errorf("a wrong flag: %v", err)
		}
	}
}
