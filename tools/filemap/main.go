// Command filemap draws how the files of a Go package depend on each other, and checks that a
// document shows the same picture.
//
//	filemap -package ../core -document ../docs/engine.md -circle 6
//
// A file depends on another if it uses a type, function, method or field of the other. Files that
// depend on each other in a circle share a box. filemap leaves out arrows that follow from others.
// It fails if a circle has more files than -circle allows, or if the picture in the document
// differs. -write replaces that picture.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	dir := flag.String("package", ".", "`directory` of the package")
	document := flag.String("document", "", "Markdown `file` with the picture; none if empty")
	circle := flag.Int("circle", 1, "`files` that a circle may have")
	write := flag.Bool("write", false, "replace the picture in the document")
	flag.Parse()
	if err := run(*dir, *document, *circle, *write); err != nil {
		fmt.Fprintln(os.Stderr, "filemap:", err)
		os.Exit(1)
	}
}

func run(dir, document string, circle int, write bool) error {
	uses, err := load(dir)
	if err != nil {
		return err
	}
	boxes := uses.circles()
	for _, box := range boxes {
		if len(box) > circle {
			return fmt.Errorf("%d files of %s depend on each other in a circle, want at most %d: %s", len(box), dir, circle, strings.Join(box, ", "))
		}
	}
	picture := uses.condense(boxes).reduce().mermaid()
	if document == "" {
		fmt.Print(picture)
		return nil
	}
	return place(document, picture, write)
}

// A graph has, for each node, the nodes that it uses.
type graph map[string]map[string]bool

func (g graph) add(from, to string) {
	if g[from] == nil {
		g[from] = make(map[string]bool)
	}
	if to != "" && to != from {
		g[from][to] = true
	}
}

// load returns the graph of a package's files, without tests.
func load(dir string) (graph, error) {
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, ".")
	if err != nil {
		return nil, err
	}
	p := pkgs[0]
	for _, err := range p.Errors {
		return nil, err
	}
	file := func(n interface{ Pos() token.Pos }) string {
		return strings.TrimSuffix(filepath.Base(p.Fset.Position(n.Pos()).Filename), ".go")
	}
	g := make(graph)
	for _, f := range p.Syntax {
		if len(f.Decls) > 0 { // not a file of documentation only
			g.add(file(f), "")
		}
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if o := p.TypesInfo.Uses[id]; o != nil && o.Pkg() == p.Types && !local(o, p.Types) {
				g.add(file(f), file(o))
			}
			return true
		})
	}
	return g, nil
}

// local reports whether an object is declared inside a function.
func local(o types.Object, p *types.Package) bool {
	v, ok := o.(*types.Var)
	return ok && !v.IsField() && o.Parent() != p.Scope()
}

// reachable returns all nodes that a path of arrows leads to. The path begins at from and does not
// take the arrow to direct, unless that is empty.
func (g graph) reachable(from, direct string) map[string]bool {
	seen := make(map[string]bool)
	var visit func(node string)
	visit = func(node string) {
		for next := range g[node] {
			if node == from && next == direct || seen[next] {
				continue
			}
			seen[next] = true
			visit(next)
		}
	}
	visit(from)
	return seen
}

// circles returns the nodes in sorted groups. The nodes of a group reach each other.
func (g graph) circles() (groups [][]string) {
	done := make(map[string]bool)
	for _, node := range slices.Sorted(maps.Keys(g)) {
		if done[node] {
			continue
		}
		group := []string{node}
		for other := range g.reachable(node, "") {
			if other != node && g.reachable(other, "")[node] {
				group = append(group, other)
			}
		}
		slices.Sort(group)
		for _, member := range group {
			done[member] = true
		}
		groups = append(groups, group)
	}
	return groups
}

// condense returns the graph of groups. A group is named after its members.
func (g graph) condense(groups [][]string) graph {
	name := make(map[string]string)
	for _, group := range groups {
		for _, member := range group {
			name[member] = strings.Join(group, ", ")
		}
	}
	condensed := make(graph)
	for from, all := range g {
		condensed.add(name[from], "")
		for to := range all {
			condensed.add(name[from], name[to])
		}
	}
	return condensed
}

// reduce leaves out arrows that follow from others. The graph must have no circle.
func (g graph) reduce() graph {
	reduced := make(graph)
	for from, all := range g {
		reduced.add(from, "")
		for to := range all {
			if !g.reachable(from, to)[to] {
				reduced.add(from, to)
			}
		}
	}
	return reduced
}

func (g graph) mermaid() string {
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	id := func(node string) string { return strings.NewReplacer(", ", "_").Replace(node) }
	nodes := slices.Sorted(maps.Keys(g))
	for _, node := range nodes {
		fmt.Fprintf(&b, "    %s[\"%s\"]\n", id(node), node)
	}
	for _, from := range nodes {
		for _, to := range slices.Sorted(maps.Keys(g[from])) {
			fmt.Fprintf(&b, "    %s --> %s\n", id(from), id(to))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

const (
	begin = "<!-- filemap: make filemap WRITE=1 draws this picture -->\n"
	end   = "<!-- end of filemap -->\n"
)

// place compares the picture between the marks of a document, or replaces it.
func place(document, picture string, write bool) error {
	data, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		return fmt.Errorf("%s has no place for the picture: put %q and %q into it", document, begin, end)
	case old == picture:
		return nil
	case !write:
		return errors.New(document + " shows other imports than the files have; make filemap WRITE=1 draws them")
	}
	return os.WriteFile(document, []byte(before+begin+picture+end+after), 0o644)
}
