package keyfuncs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each function that returns a Func is in the comment of the package and in docs/guides/keys.md,
// and each source of templates in the comment of ParseTemplate.
func TestSources_Documented(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	comments := make(map[string]string)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		comments[path] = file.Doc.Text()
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() {
				continue
			}
			comments[f.Name.Name] = f.Doc.Text()
			if returnsFunc(f) {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) < 20 {
		t.Errorf("found only the functions %q", names)
	}
	page, err := os.ReadFile("../docs/guides/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(comments["doc.go"]) {
			t.Errorf("%s is not in the comment of the package: add it to doc.go", name)
		}
		if !regexp.MustCompile("[`.]" + name + `\b`).Match(page) {
			t.Errorf("%s has no row in docs/guides/keys.md", name)
		}
	}
	for _, name := range templateNames() {
		if !strings.Contains(comments["ParseTemplate"], "\t{"+name+"} ") {
			t.Errorf("the source {%s} is not in the comment of ParseTemplate", name)
		}
	}
}

func returnsFunc(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
		return false
	}
	result, ok := f.Type.Results.List[0].Type.(*ast.Ident)
	return ok && result.Name == "Func"
}
