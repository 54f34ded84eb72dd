package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A bench is one run.
type bench struct {
	*results
	addr     string
	probe    probe
	nRounds  int
	short    bool
	grid     grid
	progress func(format string, args ...any)
}

// The scenarios, in the order they run.
var scenarios = []struct {
	flag string
	page page
	run  func(*bench) error
}{
	{s1, near, (*bench).uncontended},
	{scriptCosts, near, (*bench).compareScripts},
	{s2, near, (*bench).contended},
	{"S2two", near, (*bench).shared},
	{s3, near, (*bench).handOffs},
	{redisson, near, (*bench).besideJVM},
	{s4, near, (*bench).waiters},
	{s5, near, (*bench).keep},
	{s6, near, (*bench).web},
	{s7, near, (*bench).permits},
	{s8, near, (*bench).stampedes},
	{names, near, (*bench).names},
	{far, away, (*bench).distances},
	{pools, away, (*bench).limited},
	{slow, away, (*bench).slowMaster},
	{arrivals, away, (*bench).arrive},
}

func main() {
	do := run
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		do = func() error { return runChild(os.Args[2:]) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var (
		rounds   = flag.Int("rounds", 5, "`rounds` of each scenario; fewer than 3 give no ratios")
		short    = flag.Bool("short", false, "windows of a fraction of the time: whether it runs, not how it does")
		only     = flag.String("only", "", "comma-separated `scenarios` to run, of "+strings.Join(flags(), ", ")+"; all if empty, but for "+strings.Join(flagsOf(away), ", "))
		out      = flag.String("out", "", "`directory` for CSV and SVG files; none if empty")
		markdown = flag.String("markdown", "", "Markdown `file` in which to replace the tables of the last run")
	)
	grid := wholeGrid
	flag.Func("lines", "Far: comma-separated `lines`, such as loopback,TLS,0.2ms; all if empty", setTo(&grid.lines, parseLines))
	flag.Func("callers", "Far: comma-separated `numbers` of callers, such as 1,64; all if empty", setTo(&grid.callers, parseCallers))
	flag.Func("contenders", "Far: comma-separated `names`, such as reqlock,raw pair; all if empty", setTo(&grid.contenders, parseContenders))
	flag.DurationVar(&grid.jitter, "jitter", 0, "Far: up to this much is added to each round trip of a distance")
	flag.DurationVar(&grid.window, "window", grid.window, "Far: how long each contender runs in a round")
	flag.Parse()
	if *rounds < 1 || flag.NArg() > 0 {
		return fmt.Errorf("%d rounds and the arguments %q; want at least 1, and none", *rounds, flag.Args())
	}
	wanted, err := wantedOf(*only)
	if err != nil {
		return err
	}
	server, err := redistest.Run()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	began := time.Now()
	b := &bench{
		results: newResults(), addr: server.Addr(), probe: probe{rdb}, nRounds: *rounds, short: *short, grid: grid,
		progress: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
		},
	}
	for _, s := range scenarios {
		if !slices.Contains(wanted, s.flag) {
			continue
		}
		if err := s.run(b); err != nil {
			return fmt.Errorf("%s: %w", s.flag, err)
		}
		runtime.GC()
	}
	description, err := b.describe()
	if err != nil {
		return err
	}
	return b.report(os.Stdout, description, *out, *markdown)
}

// setTo returns what stores a flag that is parsed.
func setTo[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		if text != "" {
			*to, err = parse(text)
		}
		return err
	}
}

// flags returns the names of the scenarios on the command line.
func flags() []string { return slices.Concat(flagsOf(near), flagsOf(away)) }

func flagsOf(p page) (all []string) {
	for _, s := range scenarios {
		if s.page == p {
			all = append(all, s.flag)
		}
	}
	return all
}

// wantedOf returns the scenarios that -only names.
func wantedOf(only string) ([]string, error) {
	if only == "" {
		return flagsOf(near), nil
	}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(flags(), name) {
			return nil, fmt.Errorf("-only %s: there is no scenario %q, but %s", only, name, strings.Join(flags(), ", "))
		}
	}
	return wanted, nil
}

// rounds runs the rounds of a scenario.
func (b *bench) rounds(scenario string, round func() error) error {
	return b.repeat(b.nRounds, scenario, round)
}

// fewRounds is for scenarios that take long and vary little.
func (b *bench) fewRounds(scenario string, round func() error) error {
	return b.repeat(min(b.nRounds, leastRounds), scenario, round)
}

func (b *bench) repeat(n int, scenario string, round func() error) error {
	for i := range n {
		b.progress("%s, round %d of %d", scenario, i+1, n)
		b.round = i
		if err := round(); err != nil {
			return err
		}
	}
	return nil
}

// inTurn rotates the order of contenders each round, because a contender may suffer from what the
// one before it left behind.
func inTurn[T any](b *bench, all []T) []T {
	first := b.round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// pick returns the value for a full run or for a short one.
func (b *bench) pick(full, short time.Duration) time.Duration {
	if b.short {
		return short
	}
	return full
}
