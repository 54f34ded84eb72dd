package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

const root = "../../.."

// TestTable checks that the table still fits the code, without running a mutant.
func TestTable(t *testing.T) {
	t.Parallel()
	all := table.All()
	if len(all) < 60 {
		t.Errorf("there are %d mutants, want at least 60", len(all))
	}
	known := make(map[string]bool)
	// tests has the names of the tests of each package.
	tests := make(map[string]map[string]bool)
	for _, m := range all {
		if known[m.Promise] {
			t.Errorf("two mutants break the promise %q", m.Promise)
		}
		known[m.Promise] = true
		if _, _, err := m.Apply(root); err != nil {
			t.Errorf("%q: %v", m.Promise, err)
		}
		if len(m.Nets) == 0 {
			t.Errorf("%q has no net", m.Promise)
		}
		if got, want := m.Report != "", m.World() != "" && m.IsScript(); got != want {
			t.Errorf("%q: has a report: %t, want %t, as it has one if it breaks a script and names a world", m.Promise, got, want)
		}
		for _, s := range m.Nets {
			n, err := parseNet(s)
			if err != nil {
				t.Errorf("%q: %v", m.Promise, err)
				continue
			}
			if n.pkg == simulator {
				continue
			}
			if tests[n.pkg] == nil {
				tests[n.pkg] = testsOf(t, n.pkg)
			}
			if function, _, _ := strings.Cut(n.test, "/"); !tests[n.pkg][function] {
				t.Errorf("%q: there is no test %s", m.Promise, s)
			}
		}
	}
}

// testsOf returns the test functions of a package.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
	}
	return tests
}

var declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
