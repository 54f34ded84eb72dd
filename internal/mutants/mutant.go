package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A mutant is one small breakage of the library.
type mutant struct {
	promise  string // what it breaks
	file     string // from the root of the repository
	old, new string // code; old stands in the file exactly once
	nets     []string
}

// table returns all mutants.
func table() []mutant {
	var all []mutant
	for _, part := range [][]mutant{scriptMutants, coreMutants, clientMutants, engineMutants, httpMutants, pluginMutants, toolMutants} {
		all = append(all, part...)
	}
	return all
}

// apply returns the mutated text of the file, and the line of the mutation.
func (m mutant) apply(root string) (text string, line int, err error) {
	data, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", 0, err
	}
	switch n := strings.Count(string(data), m.old); {
	case m.old == "" || m.old == m.new:
		return "", 0, fmt.Errorf("%s: the old text is empty, or equals the new one", m.file)
	case n == 0:
		return "", 0, fmt.Errorf("%s: the old text is not there any more: %q", m.file, m.old)
	case n > 1:
		return "", 0, fmt.Errorf("%s: the old text is there %d times, so it is not clear which is meant: %q", m.file, n, m.old)
	}
	before, after, _ := strings.Cut(string(data), m.old)
	return before + m.new + after, strings.Count(before, "\n") + 1, nil
}

// A net is a test, or a group of tests, that should catch a mutant.
type net struct {
	pkg  string // directory from the root, or simulator
	test string // such as TestX, or TestX/name of a subtest; empty for the simulator
}

// simulator is the net that runs internal/sim/run.
const simulator = "sim"

// parseNet reads a package and a test, separated by a space, or the simulator.
func parseNet(s string) (net, error) {
	pkg, test, ok := strings.Cut(s, " ")
	if s != simulator && (!ok || pkg == "" || test == "") {
		return net{}, fmt.Errorf("a net is a package and a test, such as \"core TestWire\", or %q, not %q", simulator, s)
	}
	return net{pkg, test}, nil
}

// netsByPackage groups nets by package, in the order of the first net of each.
func netsByPackage(nets []string) (packages []string, tests map[string][]string, err error) {
	tests = make(map[string][]string)
	for _, s := range nets {
		n, err := parseNet(s)
		if err != nil {
			return nil, nil, err
		}
		if tests[n.pkg] == nil {
			packages = append(packages, n.pkg)
		}
		tests[n.pkg] = append(tests[n.pkg], n.test)
	}
	return packages, tests, nil
}

// A result is what became of one mutant.
type result struct {
	mutant
	line   int
	caught []string // the tests that failed; none: it survived
	whole  bool     // caught, but by none of its nets
	took   time.Duration
	err    error // why it could not be tested
}

func (r result) String() string {
	verdict := "caught  "
	switch {
	case r.err != nil:
		return fmt.Sprintf("MISTAKE %s  [%s]  %v", r.promise, r.file, r.err)
	case len(r.caught) == 0:
		verdict = "SURVIVED"
	}
	return fmt.Sprintf("%s %6.1f s  %s  [%s:%d]  %s", verdict, r.took.Seconds(), r.promise, r.file, r.line, r.by())
}

// by names the tests that caught the mutant.
func (r result) by() string {
	switch {
	case len(r.caught) == 0:
		return "by no test"
	case r.whole:
		return "by none of its nets, but by " + r.tests()
	}
	return "by " + r.tests()
}

// tests names the first tests that caught the mutant.
func (r result) tests() string {
	const most = 3
	if more := len(r.caught) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(r.caught[:most], ", "), more)
	}
	return strings.Join(r.caught, ", ")
}

// toMarkdown returns the table for the docs.
func toMarkdown(results []result) string {
	var b strings.Builder
	b.WriteString("| Promise | Broken in | Caught by | Seconds |\n|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %.0f |\n", r.promise, r.file, r.tests(), r.took.Seconds())
	}
	return b.String()
}
