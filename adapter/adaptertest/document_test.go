package adaptertest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "rewrite the list of adapter/CONFORMANCE.md")

// adapter/CONFORMANCE.md lists the tests that do not hold in every host. The suite itself
// makes the list true: a test that is no exception fails there if it does not hold.
func TestDocument(t *testing.T) {
	t.Parallel()
	const path, mark = "../CONFORMANCE.md", "<!-- the list: go test ./adapter/adaptertest -run TestDocument -write -->\n"
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(document), mark)
	if !found {
		t.Fatalf("%s lacks the line %s", path, mark)
	}
	want := before + mark + "\n" + exceptionsOfHosts(t)
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

// exceptionsOfHosts counts the tests that hold in every host, and lists the others by reason and host.
func exceptionsOfHosts(t *testing.T) string {
	all := Hosts()
	suite := wholeSuite()
	var none, reasons []string
	hosts, tests := make(map[string][]string), make(map[string][]string)
	for _, h := range all {
		if len(h.Exceptions) == 0 {
			none = append(none, h.Name)
		}
	}
	everywhere := len(suite)
	for _, s := range suite {
		holds := true
		for _, h := range all {
			reason := h.Exceptions[s.name]
			if reason == "" {
				continue
			}
			holds = false
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			hosts[reason] = appendNew(hosts[reason], h.Name)
			tests[reason] = appendNew(tests[reason], s.name)
		}
		if !holds {
			everywhere--
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The suite has %d tests. %d of them hold in every host, and all of them in %s. These are the others, by reason:\n",
		len(suite), everywhere, strings.Join(none, ", "))
	for _, reason := range reasons {
		fmt.Fprintf(&text, "\n**%s.** %s\n\n", strings.Join(hosts[reason], ", "), reason)
		for _, name := range tests[reason] {
			fmt.Fprintf(&text, "- %s\n", name)
		}
	}
	for _, h := range all {
		if err := (Adapter{Name: h.Name, Exceptions: h.Exceptions}).checkExceptions(suite); err != nil {
			t.Error(err)
		}
		source, err := os.ReadFile("../../" + h.Dir + "/conformance_test.go")
		if err != nil || !strings.Contains(string(source), "adaptertest.Run(t") && !strings.Contains(string(source), "Run(t, ") {
			t.Errorf("%s does not run the suite (%v)", h.Dir, err)
		}
	}
	return text.String()
}

// appendNew appends a text that is not there yet.
func appendNew(texts []string, text string) []string {
	if slices.Contains(texts, text) {
		return texts
	}
	return append(texts, text)
}

// Each adapter is that of a host, so that the list counts it.
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
