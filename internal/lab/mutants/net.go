package main

import (
	"fmt"
	"strings"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

// A net is a test, or a group of tests, that should catch a mutant.
type net struct {
	// pkg is a directory from the root, or simulator.
	pkg string
	// test is such as TestX, or TestX/name of a subtest. The simulator has none.
	test string
}

const (
	// simulator is the net that runs internal/lab/sim/run.
	simulator = "sim"
	// worlds is the package whose test searches the worlds.
	worlds = "core/internal/worlds"
)

// parseNet reads a package and a test, separated by a space, or a world, or the simulator.
func parseNet(s string) (net, error) {
	if world, ok := table.WorldOf(s); ok {
		return net{worlds, "TestWorlds/" + world}, nil
	}
	pkg, test, ok := strings.Cut(s, " ")
	if s != simulator && (!ok || pkg == "" || test == "") {
		return net{}, fmt.Errorf("a net is a package and a test, such as \"core TestWire\", a world, such as \"world fair/queue\", or %q, not %q", simulator, s)
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
