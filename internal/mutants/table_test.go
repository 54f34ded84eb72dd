package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestTable checks that the table still fits the code, without running a mutant.
func TestTable(t *testing.T) {
	t.Parallel()
	all := table()
	if len(all) < 60 {
		t.Errorf("there are %d mutants, want at least 60", len(all))
	}
	known := make(map[string]bool)
	for _, m := range all {
		if known[m.promise] {
			t.Errorf("two mutants break the promise %q", m.promise)
		}
		known[m.promise] = true
		if _, _, err := m.apply(root); err != nil {
			t.Errorf("%q: %v", m.promise, err)
		}
		if len(m.nets) == 0 {
			t.Errorf("%q has no net", m.promise)
		}
		for _, s := range m.nets {
			n, err := parseNet(s)
			if err != nil {
				t.Errorf("%q: %v", m.promise, err)
			} else if !hasTest(t, n) {
				t.Errorf("%q: there is no test %s", m.promise, s)
			}
		}
	}
}

// hasTest reports whether the package has the test function of a net.
func hasTest(t *testing.T, n net) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, n.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	function, _, _ := strings.Cut(n.test, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
