package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

const (
	// netTimeout bounds the nets of one package.
	netTimeout = 3 * time.Minute
	// wholeTimeout bounds all tests of one package.
	wholeTimeout = 15 * time.Minute
	// simTime is how long the simulator runs.
	simTime = time.Minute
)

// A tester builds and runs tests.
type tester struct {
	root string
	// dir is for temporary files.
	dir string
	// every runs all nets of a mutant, not only up to the first that catches it.
	every bool
	// fallback runs all tests of the packages of its nets, if none of them catches a mutant.
	fallback bool
}

func newTester(every, fallback bool) (*tester, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMOD: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	return &tester{root: filepath.Dir(strings.TrimSpace(string(out))), dir: dir, every: every, fallback: fallback}, nil
}

func (t *tester) close() { _ = os.RemoveAll(t.dir) }

// baseline runs all nets without a mutant. Each must exist and pass, or a mutant would be caught by
// a test that fails anyway, or by none.
func (t *tester) baseline(ctx context.Context, mutants []table.Mutant, workers int) error {
	var nets []string
	for _, m := range mutants {
		if _, _, err := m.Apply(t.root); err != nil {
			return err
		}
		nets = append(nets, m.Nets...)
	}
	slices.Sort(nets)
	packages, tests, err := netsByPackage(slices.Compact(nets))
	if err != nil {
		return err
	}
	return parallel(ctx, workers, len(packages), func(ctx context.Context, i int) error {
		return t.pass(ctx, packages[i], tests[packages[i]])
	})
}

// pass is baseline for one package.
func (t *tester) pass(ctx context.Context, pkg string, tests []string) error {
	if pkg == simulator {
		seed, err := t.simulate(ctx, "", simTime/6)
		if err == nil && seed != "" {
			err = fmt.Errorf("the simulator finds a violation without a mutant: make sim SEED=%s", seed)
		}
		return err
	}
	binary, err := t.build(ctx, pkg, "", quick...)
	if err != nil {
		return err
	}
	o, err := t.run(ctx, binary, pkg, tests, 2*netTimeout, true)
	switch {
	case err != nil:
		return err
	case len(o.failed) > 0:
		return fmt.Errorf("%s in %s fails without a mutant:\n%s", strings.Join(o.failed, ", "), pkg, o.log)
	}
	for _, test := range tests {
		if !o.ran[spelled(test)] {
			return fmt.Errorf("there is no test %s in %s", test, pkg)
		}
	}
	return nil
}

// test finds out which test catches a mutant.
func (t *tester) test(ctx context.Context, m table.Mutant) (result, error) {
	began := time.Now()
	r := result{Mutant: m}
	before, text, err := m.Apply(t.root)
	if err != nil {
		return r, err
	}
	r.line = strings.Count(before[:strings.Index(before, m.Old)], "\n") + 1
	overlay, remove, err := t.overlay(m.File, text)
	if err != nil {
		return r, err
	}
	defer remove()
	packages, tests, err := netsByPackage(m.Nets)
	if err != nil {
		return r, err
	}
	try := func(pkg string, tests []string, timeout time.Duration, flags ...string) error {
		binary, err := t.build(ctx, pkg, overlay, flags...)
		if err != nil {
			return err
		}
		defer os.Remove(binary)
		o, err := t.run(ctx, binary, pkg, tests, timeout, t.every)
		for _, test := range o.failed {
			r.caught = append(r.caught, pkg+" "+test)
		}
		return err
	}
	for _, pkg := range packages {
		if pkg == simulator {
			seed, err := t.simulate(ctx, overlay, simTime)
			if err != nil {
				return r, err
			}
			if seed != "" {
				r.caught = append(r.caught, simulator+" SEED="+seed)
			}
		} else if err := try(pkg, tests[pkg], netTimeout, quick...); err != nil {
			return r, err
		}
		if len(r.caught) > 0 && !t.every {
			break
		}
	}
	for _, pkg := range packages {
		if len(r.caught) > 0 || !t.fallback {
			break
		}
		if pkg == simulator {
			continue
		}
		if err := try(pkg, nil, wholeTimeout); err != nil {
			return r, err
		}
		r.whole = len(r.caught) > 0
	}
	r.took = time.Since(began)
	return r, nil
}

// overlay writes the files that tell go to compile text in place of a file.
func (t *tester) overlay(file, text string) (overlay string, remove func(), err error) {
	dir, err := os.MkdirTemp(t.dir, "overlay")
	if err != nil {
		return "", nil, err
	}
	mutated := filepath.Join(dir, filepath.Base(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, file): mutated}})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(mutated, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", nil, err
	}
	return overlay, func() { _ = os.RemoveAll(dir) }, nil
}

// simulate runs the simulator with fresh seeds. It returns the seed that failed; empty: none.
func (t *tester) simulate(ctx context.Context, overlay string, length time.Duration) (seed string, err error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./internal/lab/sim/run", "-processes=1", "-recorded=", "-for="+length.String(),
		"-overlay="+overlay)
	cmd.Dir = t.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its processes then
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if m := failedSeed.FindSubmatch(text); m != nil {
		return string(m[1]), nil
	}
	if err != nil {
		return "", fmt.Errorf("the simulator fails: %w\n%s", err, text)
	}
	return "", nil
}

var failedSeed = regexp.MustCompile(`(?m)^sim: seed (\d+) failed`)

// quick compiles in half the time what a mutant changes. Tests of speed and of allocations do not
// suit it.
var quick = []string{"-gcflags=./...=-N -l -dwarf=false", "-ldflags=-s -w"}

// build compiles the tests of a package. A mutant that does not compile is a mistake in the table.
func (t *tester) build(ctx context.Context, pkg, overlay string, flags ...string) (binary string, err error) {
	out, err := os.CreateTemp(t.dir, "*.test")
	if err != nil {
		return "", err
	}
	_ = out.Close()
	args := append([]string{"test", "-c", "-vet=off", "-o", out.Name()}, flags...)
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = t.root
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile: %w\n%s", pkg, err, text)
	}
	return out.Name(), nil
}

// An outcome is that of some tests.
type outcome struct {
	failed []string
	ran    map[string]bool
	log    string
}

// run runs tests of a package; nil: all of them. Unless every is set, it ends them after the first
// failure. The tests have a directory for temporary files of their own, since they cannot remove
// theirs then.
func (t *tester) run(ctx context.Context, binary, pkg string, tests []string, timeout time.Duration, every bool) (o outcome, err error) {
	temp, err := os.MkdirTemp(t.dir, "t")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(temp)
	args := []string{"-test.v", "-test.count=1", "-test.timeout=" + timeout.String(), "-test.run=" + pattern(tests)}
	if !every {
		args = append(args, "-test.failfast")
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = filepath.Join(t.root, pkg), append(os.Environ(), "TMPDIR="+temp)
	cmd.WaitDelay = 5 * time.Second // a helper process may have the output open
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return o, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		_ = in.Close()
	}()
	p := parse(out, func() {
		if !every { // the lines of its subtests follow at once
			time.AfterFunc(time.Second, func() { _ = cmd.Process.Kill() })
		}
	})
	failure := <-ended
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	if failure != nil && !errors.Is(failure, exec.ErrWaitDelay) && len(p.failed) == 0 { // a panic outside of a test, or of TestMain
		p.failed = []string{p.death(tests)}
	}
	return p.outcome, nil
}

// A parser reads what tests print with -test.v.
type parser struct {
	outcome
	// panicked is the first line of a panic.
	panicked string
	// running is the first test of those that were running at a time-out.
	running string
}

var (
	started  = regexp.MustCompile(`^\s*=== RUN\s+(\S+)$`)
	failed   = regexp.MustCompile(`^\s*--- FAIL: (\S+) \(`)
	inFlight = regexp.MustCompile(`^\s+(\S+) \(\d[\dhms.]*\)$`)
)

// parse reads until the end, and calls first at the first failure.
func parse(out io.Reader, first func()) *parser {
	p := &parser{outcome: outcome{ran: make(map[string]bool)}}
	var log bytes.Buffer
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if log.Len() < 1<<20 {
			log.WriteString(line + "\n")
		}
		if m := started.FindStringSubmatch(line); m != nil {
			p.ran[m[1]] = true
		}
		if m := inFlight.FindStringSubmatch(line); m != nil && p.panicked != "" && p.running == "" {
			p.running = m[1]
		}
		if strings.HasPrefix(line, "panic: ") && p.panicked == "" {
			p.panicked = line
		}
		m := failed.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if len(p.failed) == 0 {
			first()
		}
		// A test fails with its subtests, which tell more and come after it.
		p.failed = slices.DeleteFunc(p.failed, func(known string) bool { return strings.HasPrefix(m[1], known+"/") })
		p.failed = append(p.failed, m[1])
	}
	p.log = log.String()
	return p
}

// death names the cause of an end that no test reported.
func (p *parser) death(tests []string) string {
	switch {
	case p.running != "":
		return p.running + " (timed out)"
	case p.panicked != "" && len(tests) == 1:
		return tests[0] + " (panicked)"
	case p.panicked != "":
		return "a panic outside of a test's goroutine"
	case strings.Contains(p.log, "found unexpected goroutines"):
		return "TestMain (a goroutine was left)"
	}
	return "TestMain"
}

// spelled returns the name of a test as it is printed: blanks become underscores.
func spelled(test string) string { return strings.ReplaceAll(test, " ", "_") }

// pattern returns the -test.run of some tests.
func pattern(tests []string) string {
	var patterns []string
	for _, test := range tests {
		var elements []string
		for element := range strings.SplitSeq(spelled(test), "/") {
			elements = append(elements, "^"+regexp.QuoteMeta(element)+"$")
		}
		patterns = append(patterns, strings.Join(elements, "/"))
	}
	return strings.Join(patterns, "|")
}
