// Options writes tables of the fields of configuration structs, from their doc comments, into a
// document.
//
//	go run -C tools ./options            fails if docs/reference/options.md is not what it would write
//	go run -C tools ./options -write     writes it
//
// A row has the first sentence of a field's comment, and those about its zero value, such as "0:
// 30s".
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A subject is a struct that the document describes.
type subject struct {
	dir, name string
	title     string
}

var subjects = []subject{
	{"guard", "Config", "The middleware: `guard.Config`"},
	{"idempotency", "Config", "Idempotency keys: `idempotency.Config`"},
	{"coalesce", "Config", "Shared answers: `coalesce.Config`"},
	{"core", "Options", "The lock client: `core.Options`"},
	{"core", "AcquireOptions", "One acquire: `core.AcquireOptions`"},
	{"wasm", "Config", "Plugins: `wasm.Config`"},
}

const head = `<!-- Written by make options from the doc comments. Change those. -->
# Options

You want to know what you can set, and what happens if you do not. Each table shows one struct, with what a field does and what its
zero value means. The doc comment of a field has the details. ` + "`Config` of `httplock`, `ginlock`, `echolock` and `fiberlock` is `guard.Config`." + `
`

func main() {
	write := flag.Bool("write", false, "write the document")
	flag.Parse()
	if err := run("..", "../docs/reference/options.md", *write); err != nil {
		fmt.Fprintln(os.Stderr, "options:", err)
		os.Exit(1)
	}
}

func run(root, document string, write bool) error {
	var text strings.Builder
	text.WriteString(head)
	for _, s := range subjects {
		rows, err := s.rows(root)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "\n## %s\n\n| field | type | what it does |\n|---|---|---|\n%s", s.title, strings.Join(rows, ""))
	}
	if write {
		return os.WriteFile(document, []byte(text.String()), 0o644)
	}
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if string(old) != text.String() {
		return errors.New("docs/reference/options.md is not current: run make options WRITE=1")
	}
	return nil
}

// rows returns the table's rows for the fields of the struct.
func (s subject) rows(root string) (rows []string, err error) {
	fset := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(root, s.dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == s.name {
				if structure, ok := spec.Type.(*ast.StructType); ok {
					rows = append(rows, fieldRows(fset, structure)...)
				}
			}
			return true
		})
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no struct %s with fields", s.dir, s.name)
	}
	return rows, nil
}

func fieldRows(fset *token.FileSet, structure *ast.StructType) (rows []string) {
	for _, field := range structure.Fields.List {
		var kind strings.Builder
		if err := printer.Fprint(&kind, fset, field.Type); err != nil {
			panic(err) // the parser made it
		}
		for _, name := range field.Names {
			if name.IsExported() {
				rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |\n", name.Name, oneLine(kind.String()), summary(name.Name, field.Doc.Text())))
			}
		}
	}
	return rows
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// zero matches a sentence about the zero value, such as "0: 30s, at least 10ms."
var zero = regexp.MustCompile(`(?:^|\. |; )((?:0|nil|Nil|empty|Empty|false|"")[^.;:]{0,20}(?:: | means )(?:[^.]|\.\S)+\.?)`)

// summary returns the first sentence of a comment, and that about the zero value if it is another.
func summary(name, comment string) string {
	comment = oneLine(comment)
	first := new(doc.Package).Synopsis(comment)
	for _, start := range []string{" is ", " are ", " "} {
		first = strings.TrimPrefix(first, name+start)
	}
	if first == "" {
		return ""
	}
	text := strings.ToUpper(first[:1]) + first[1:]
	if found := zero.FindStringSubmatch(comment); found != nil && !strings.Contains(first, found[1]) {
		text += " " + strings.TrimSuffix(found[1], ".") + "."
	}
	return escape(text)
}

// escape keeps a text in its cell.
func escape(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }
