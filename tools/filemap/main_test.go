package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parse returns the graph of lines such as "a b": a uses b.
func parse(text string) graph {
	g := make(graph)
	for line := range strings.Lines(text) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		g.add(from, to)
		g.add(to, "")
	}
	return g
}

func TestMermaid(t *testing.T) {
	for text, want := range map[string]string{
		"a b\nb c":                "a-->b b-->c",
		"a b\nb c\na c":           "a-->b b-->c",             // a --> c follows
		"a b\nb a\nb c":           "a_b-->c",                 // a circle
		"a b\nb c\nc a\nd a":      "d-->a_b_c",               // of three
		"a b\na c\nb d\nc d":      "a-->b a-->c b-->d c-->d", // two ways, both shown
		"a b\nb a\nb c\nc d\na d": "a_b-->c c-->d",
	} {
		g := parse(text)
		var got []string
		for line := range strings.Lines(g.condense(g.circles()).reduce().mermaid()) {
			if strings.Contains(line, "-->") {
				got = append(got, strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("text")
	if err := place(file, "new\n", true); err == nil {
		t.Error("no error for a document without marks")
	}
	write("text\n" + begin + "old\n" + end + "more\n")
	if err := place(file, "new\n", false); err == nil {
		t.Error("no error for another picture")
	}
	if err := place(file, "new\n", true); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "text\n"+begin+"new\n"+end+"more\n" {
		t.Errorf("the document is %q", got)
	}
	if err := place(file, "new\n", false); err != nil {
		t.Errorf("after -write: %v", err)
	}
}

// The tool fails if a circle is too large, and names its files.
func TestRun_Circle(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"a.go":   "package m\n\ntype A struct{ b *B }\n\nfunc (a *A) f() {}\n",
		"b.go":   "package m\n\ntype B struct{ a *A }\n\nfunc (b *B) g() { b.a.f() }\n",
		"c.go":   "package m\n\nfunc h(a *A) { local := a; local.f() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(dir, "", 2, false); err != nil {
		t.Error(err)
	}
	if err := run(dir, "", 1, false); err == nil || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("a circle of two: %v", err)
	}
}
