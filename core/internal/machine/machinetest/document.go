// Package machinetest keeps the tables of a document equal to the machines that they show.
package machinetest

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "rewrite the tables of docs/inside/engine-states.md")

// Document compares tables with those of a document, by their marks there. With -write it writes
// them.
func Document(t *testing.T, path string, tables map[string]string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := string(b)
	text := old
	for mark, table := range tables {
		begin, end := "<!-- "+mark+": make states WRITE=1 writes this -->\n", "<!-- end -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("%s has no table of %s", path, mark)
		}
		text = head + begin + "\n" + table + "\n" + end + tail
	}
	switch {
	case text == old:
	case !*write:
		t.Errorf("%s is out of date: make states WRITE=1", path)
	default:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}
