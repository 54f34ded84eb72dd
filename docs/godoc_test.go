package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
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

func hasExample(p *doc.Package) bool {
	n := len(p.Examples)
	for _, f := range p.Funcs {
		n += len(f.Examples)
	}
	for _, typ := range p.Types {
		n += len(typ.Examples)
		for _, f := range typ.Funcs {
			n += len(f.Examples)
		}
		for _, m := range typ.Methods {
			n += len(m.Examples)
		}
	}
	return n > 0
}
