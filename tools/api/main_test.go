package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linesOf returns the lines of a package with that source.
func linesOf(t *testing.T, source string) []string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: importer.Default()}).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ofPackage(p, "p")
}

func TestLines(t *testing.T) {
	t.Parallel()
	got := linesOf(t, `
const Limit = 3
const Version = "1"
const hidden = 1
var Err error
type Alias = int
type S struct { A int; b int; Embedded }
type Embedded struct{}
func (Embedded) Deep(n int) {}
func (s *S) M(a, b string, rest ...int) (err error) { return nil }
type I interface { F(x int) }
type N int
func F[T any](x T) T { return x }
func hiddenToo() {}
`)
	want := []string{
		"p: const Limit untyped int = 3", "p: const Version untyped string", "p: var Err error", "p: type Alias = int", "p: type S struct",
		"p: type S struct, A int", "p: type S struct, Embedded Embedded", "p: method (*S) Deep(int)", "p: method (*S) M(string, string, ...int) error",
		"p: type Embedded struct", "p: method (*Embedded) Deep(int)", "p: type I interface{F(x int)}", "p: type N int", "p: func F[T any](x T) T",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	before := linesOf(t, "func F(a int) {}\nfunc G() {}\ntype I interface{ A() }")
	for source, want := range map[string]int{
		"func F(b int) {}\nfunc G() {}\nfunc H() {}\ntype I interface{ A() }": 0,
		"func F(a string) {}\nfunc G() {}\ntype I interface{ A() }":           1,
		"func F(a int) {}\ntype I interface{ A() }":                           1,
		"func F(a int) {}\nfunc G() {}\ntype I interface{ A(); B() }":         1,
	} {
		if gone := missing(before, linesOf(t, source)); len(gone) != want {
			t.Errorf("%s: gone %q, want %d", source, gone, want)
		}
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := newest(dir); err == nil {
		t.Error("an empty directory has a newest file")
	}
	for _, name := range []string{"v0.9.0.txt", "v0.10.0.txt", "v0.2.0.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if file, err := newest(dir); err != nil || filepath.Base(file) != "v0.10.0.txt" {
		t.Errorf("the newest is %s (%v)", file, err)
	}
}
