// Echov5 writes the adapter for Echo v5 from that for v4. They differ in the import, and in
// *echo.Context for echo.Context. What differs beyond that is in v4.go and v4_test.go, and in v5.go
// and v5_test.go, which are written by hand.
//
//	go run -C tools ./echov5            fails if middleware/echov5 is not what it would write
//	go run -C tools ./echov5 -write     writes it
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// head begins each written file, in the form by which tools know written files.
const head = "// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.\n\n"

// byHand are the files of v4 that have no like in v5.
var byHand = []string{"v4.go", "v4_test.go"}

func main() {
	write := flag.Bool("write", false, "write the adapter for Echo v5")
	flag.Parse()
	if err := run("../middleware/echo", "../middleware/echov5", *write); err != nil {
		fmt.Fprintln(os.Stderr, "echov5:", err)
		os.Exit(1)
	}
}

func run(from, to string, write bool) error {
	wanted, err := translated(from)
	if err != nil {
		return err
	}
	present, err := read(to)
	if err != nil {
		return err
	}
	var wrong []string
	for name, text := range wanted {
		if old, ok := present[name]; ok && !strings.HasPrefix(old, head) {
			return fmt.Errorf("%s is written by hand, but %s has a file of that name", filepath.Join(to, name), from)
		}
		if present[name] == text {
			continue
		}
		wrong = append(wrong, name)
		if write {
			if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	for name, text := range present {
		if _, ok := wanted[name]; ok || !strings.HasPrefix(text, head) {
			continue
		}
		wrong = append(wrong, name)
		if write {
			if err := os.Remove(filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	if len(wrong) > 0 && !write {
		slices.Sort(wrong)
		return fmt.Errorf("%s in %s are not those of %s; make echov5 WRITE=1 writes them", strings.Join(wrong, ", "), to, from)
	}
	return nil
}

// translated returns what v5 has for each file of v4.
func translated(dir string) (map[string]string, error) {
	files, err := read(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there is no Go file in " + dir)
	}
	for _, name := range byHand {
		delete(files, name)
	}
	for name, text := range files {
		if files[name], err = translate(name, text); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// read returns the texts of the Go files in dir by their names.
func read(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[filepath.Base(path)] = string(text)
	}
	return texts, nil
}

// imports are the paths that v5 replaces.
var imports = map[string]string{
	`"github.com/labstack/echo/v4"`:                `"github.com/labstack/echo/v5"`,
	`"github.com/labstack/echo/v4/middleware"`:     `"github.com/labstack/echo/v5/middleware"`,
	`"github.com/reqlock/reqlock/middleware/echo"`: `"github.com/reqlock/reqlock/middleware/echov5"`,
}

// An edit replaces the text of a node.
type edit struct {
	from, to int
	text     string
}

// translate returns what v5 has for a file of v4.
func translate(name, text string) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var edits []edit
	replace := func(n ast.Node, text string) {
		edits = append(edits, edit{set.Position(n.Pos()).Offset, set.Position(n.End()).Offset, text})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if path, ok := imports[n.Path.Value]; ok {
				replace(n.Path, path)
			}
		case *ast.SelectorExpr:
			if isContext(n.X) { // a method of the type, such as echo.Context.Get
				replace(n.X, "(*echo.Context)")
				return false
			}
			if isContext(n) {
				replace(n, "*echo.Context")
			}
		}
		return true
	})
	var out bytes.Buffer
	out.WriteString(head)
	end := 0
	for _, e := range edits {
		out.WriteString(text[end:e.from] + e.text)
		end = e.to
	}
	out.WriteString(text[end:])
	formatted, err := format.Source(out.Bytes())
	return string(formatted), err
}

// isContext reports whether n is echo.Context.
func isContext(n ast.Expr) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Context" {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "echo"
}
