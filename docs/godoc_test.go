package docs_test

import (
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notPublic are the directories without packages for users.
var notPublic = regexp.MustCompile(`^(cmd|deploy|docs|examples|tools|adapter/tutorial)(/|$)|(^|/)(internal|testdata|\.[a-z]+)(/|$)`)

// publicPackages returns the packages for users of all modules, by directory.
func publicPackages(t *testing.T) map[string]*doc.Package {
	t.Helper()
	sources := make(map[string][]*ast.File)
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.ToSlash(filepath.Dir(path))
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && notPublic.MatchString(filepath.ToSlash(path)):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_wasip1.go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err == nil && file.Name.Name != "main" {
			sources[dir] = append(sources[dir], file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[string]*doc.Package)
	for dir, files := range sources {
		p, err := doc.NewFromFiles(set, files, "github.com/reqlock/reqlock/"+dir)
		if err != nil {
			t.Fatal(err)
		}
		packages[dir] = p
	}
	return packages
}

// The page of each package begins with what it does. It has an example, but for the root, which only
// has the version. Each name has a first sentence that one reads once. golangci-lint checks that a comment begins with its name.
func TestGodoc(t *testing.T) {
	t.Parallel()
	packages := publicPackages(t)
	if len(packages) < 18 {
		t.Errorf("found only %d packages", len(packages))
	}
	for dir, p := range packages {
		if !strings.HasPrefix(p.Doc, "Package "+p.Name+" ") {
			t.Errorf("%s: the comment of the package does not begin with its name", dir)
		}
		if dir != "." && !hasExample(p) {
			t.Errorf("%s has no example", dir)
		}
		for name, text := range comments(p) {
			first := p.Synopsis(text)
			if first == "" {
				t.Errorf("%s.%s has no comment", dir, name)
			}
			if n := len(strings.Fields(first)); n > 28 {
				t.Errorf("%s.%s: the first sentence has %d words, want at most 28: %s", dir, name, n, first)
			}
		}
	}
}

// comments returns the comments of a package's functions, methods and types, and its own.
func comments(p *doc.Package) map[string]string {
	found := map[string]string{"": p.Doc}
	for _, f := range p.Funcs {
		found[f.Name] = f.Doc
	}
	for _, typ := range p.Types {
		found[typ.Name] = typ.Doc
		for _, f := range typ.Funcs {
			found[f.Name] = f.Doc
		}
		for _, m := range typ.Methods {
			if m.Name != "Error" && m.Name != "String" && m.Name != "Unwrap" {
				found[typ.Name+"."+m.Name] = m.Doc
			}
		}
	}
	return found
}

func hasExample(p *doc.Package) bool { return len(examples(p)) > 0 }

// examples returns all examples of a package.
func examples(p *doc.Package) []*doc.Example {
	all := slices.Clone(p.Examples)
	for _, f := range p.Funcs {
		all = append(all, f.Examples...)
	}
	for _, typ := range p.Types {
		all = append(all, typ.Examples...)
		for _, f := range typ.Funcs {
			all = append(all, f.Examples...)
		}
		for _, m := range typ.Methods {
			all = append(all, m.Examples...)
		}
	}
	return all
}

// functions returns all functions of a package but methods.
func functions(p *doc.Package) []*doc.Func {
	all := slices.Clone(p.Funcs)
	for _, typ := range p.Types {
		all = append(all, typ.Funcs...)
	}
	return all
}

// notCalled are the functions that services do not call: adapters, hosts of configuration, and tools
// do.
var notCalled = map[string]string{
	"core":        "HoldersOf LogNameOf ClientOf NameOf KeyPatternsOf OwnerOfPermit Kinds", // what reads the keys of others
	"guard":       "Interruption ReleaseBy RouteLease SetStatus",
	"coalesce":    "Open",                                                                // adapters do
	"idempotency": "ConfigOf DefaultHeaders DefaultStore New Open OpenWith WithoutRoute", // the defaults, and adapters
}

// The page of each function that services call shows a call. The functions of adapters for handlers
// are those of guard and idempotency.
func TestExamples(t *testing.T) {
	t.Parallel()
	packages := publicPackages(t)
	for _, dir := range []string{"core", "coalesce", "delegation", "guard", "idempotency", "keyfuncs", "embedded", "middleware/nethttp"} {
		p := packages[dir]
		var code strings.Builder
		for _, e := range examples(p) {
			if err := format.Node(&code, token.NewFileSet(), e.Code); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range functions(p) {
			elsewhere := dir == "middleware/nethttp" && f.Name != "New" && slices.ContainsFunc([]string{"guard", "idempotency"}, func(owner string) bool {
				return slices.ContainsFunc(functions(packages[owner]), func(o *doc.Func) bool { return o.Name == f.Name })
			})
			called := strings.Contains(code.String(), p.Name+"."+f.Name)
			exempt := slices.Contains(strings.Fields(notCalled[dir]), f.Name)
			if called == exempt && !elsewhere {
				t.Errorf("%s.%s: called in an example: %v, exempt: %v", dir, f.Name, called, exempt)
			}
		}
	}
}
