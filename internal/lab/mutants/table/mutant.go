// Package table lists the mutants: small breakages of the library, each with the tests that must
// catch it. The command internal/lab/mutants compiles them and runs these tests. A mutant of a script
// may also name a world of core/internal/worlds. The tests of that package run such a script without
// compiling anything, and search the world for what it breaks.
package table

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Mutant is one small breakage of the library.
type Mutant struct {
	// Promise is what the mutant breaks.
	Promise string
	// File is a path from the root of the repository.
	File string
	// Old is the code that New replaces. It stands in the file exactly once.
	Old, New string
	// Nets are what must catch the mutant. A net is a package and a test, such as "core TestWire", a
	// world, such as "world fair/queue", or "sim" for the simulator.
	Nets []string
	// Report is what the search says about a mutant of a script, if a world is among its nets.
	Report string
}

// All returns all mutants.
func All() []Mutant {
	return slices.Concat(scriptMutants, permitMutants, coreMutants, clientMutants, engineMutants, httpMutants, coalesceMutants, doMutants, delegationMutants, pluginMutants, toolMutants)
}

// WorldOf returns the world that a net names. It reports false for any other net.
func WorldOf(net string) (world string, ok bool) { return strings.CutPrefix(net, "world ") }

// World returns the world that must find the mutant. It is empty if no net names one.
func (m Mutant) World() string {
	for _, net := range m.Nets {
		if world, ok := WorldOf(net); ok {
			return world
		}
	}
	return ""
}

// IsScript reports whether the mutant breaks a file of Lua.
func (m Mutant) IsScript() bool { return filepath.Ext(m.File) == ".lua" }

// Apply returns the text of the file without and with the mutation. root is that of the repository.
func (m Mutant) Apply(root string) (before, after string, err error) {
	data, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", "", err
	}
	before = string(data)
	switch n := strings.Count(before, m.Old); {
	case m.Old == "" || m.Old == m.New:
		return "", "", fmt.Errorf("%s: the old text is empty, or equals the new one", m.File)
	case n == 0:
		return "", "", fmt.Errorf("%s: the old text is not there any more: %q", m.File, m.Old)
	case n > 1:
		return "", "", fmt.Errorf("%s: the old text is there %d times, so it is not clear which is meant: %q", m.File, n, m.Old)
	}
	return before, strings.Replace(before, m.Old, m.New, 1), nil
}
