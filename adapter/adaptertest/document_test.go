package adaptertest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "rewrite the table of docs/reference/conformance.md")

// docs/reference/conformance.md has a row for each test and a column for each host. The suite
// itself makes each cell true: a test that is no exception fails there if it does not hold.
func TestDocument(t *testing.T) {
	t.Parallel()
	const path, mark = "../../docs/reference/conformance.md", "<!-- the table: go test ./adapter/adaptertest -run TestDocument -write -->\n"
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(document), mark)
	if !found {
		t.Fatalf("%s lacks the line %s", path, mark)
	}
	want := before + mark + "\n" + tableOfHosts(t)
	if *write {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if string(document) != want {
		t.Errorf("%s is out of date: go test ./adapter/adaptertest -run TestDocument -write", path)
	}
}

func tableOfHosts(t *testing.T) string {
	all := Hosts()
	suite := wholeSuite()
	var text strings.Builder
	var reasons []string
	line := func(first string, cell func(Host) string) {
		fmt.Fprintf(&text, "| %s |", first)
		for _, h := range all {
			fmt.Fprintf(&text, " %s |", cell(h))
		}
		text.WriteByte('\n')
	}
	line("", func(h Host) string { return h.Name })
	line("---", func(Host) string { return "---" })
	for _, s := range suite {
		line(strings.ReplaceAll(s.name, "|", `\|`), func(h Host) string {
			reason := h.Exceptions[s.name]
			if reason == "" {
				return "✓"
			}
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			return fmt.Sprintf("(%d)", slices.Index(reasons, reason)+1)
		})
	}
	for i, reason := range reasons {
		fmt.Fprintf(&text, "\n%d. %s", i+1, reason)
	}
	text.WriteString("\n")
	for _, h := range all {
		if err := (Adapter{Name: h.Name, Exceptions: h.Exceptions}).checkExceptions(suite); err != nil {
			t.Error(err)
		}
		source, err := os.ReadFile("../../" + h.Dir + "/conformance_test.go")
		if err != nil || !strings.Contains(string(source), "adaptertest.Run(t") && !strings.Contains(string(source), "Run(t, ") {
			t.Errorf("%s does not run the suite (%v)", h.Dir, err)
		}
	}
	return cmp.Or(text.String(), "no hosts")
}

// Each adapter is that of a host, so that the table has a column for it.
func TestHosts_HaveEachAdapter(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir("../../middleware")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !slices.ContainsFunc(Hosts(), func(h Host) bool { return h.Adapter == folder.Name() }) {
			t.Errorf("middleware/%s is the adapter of no host: add one to hosts.go", folder.Name())
		}
	}
}

func TestExceptions_Refused(t *testing.T) {
	t.Parallel()
	for want, exceptions := range map[string]map[string]string{
		`Other: the exception from "once: early hints" has no reason`: {"once: early hints": ""},
		`Other: there is no test "no such test"`:                      {"no such test": "because"},
	} {
		err := Adapter{Name: "Other", Exceptions: exceptions}.checkExceptions(wholeSuite())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", exceptions, err, want)
		}
	}
}

func TestTable_Exceptions(t *testing.T) {
	t.Parallel()
	results := newTable([]scenario{{name: "one"}, {name: "two"}}, []Adapter{{Name: "Mine"}})
	results.except("one", "Mine", "it cannot")
	results.except("two", "Mine", "it cannot")
	if got := results.String(); strings.Count(got, "no (1)") != 2 || !strings.Contains(got, "\n(1) it cannot") || results.hole() != "" {
		t.Errorf("hole %q in\n%s", results.hole(), got)
	}
}
