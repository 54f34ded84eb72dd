// Api compares the exported names of the library with those of the last version. It fails if a name
// of that version is gone or has changed, and prints how many are new.
//
//	go run -C tools ./api            compares with the newest file in tools/api
//	go run -C tools ./api -write     writes the file of reqlock.Version, when that is released
//
// apidiff and gorelease of golang.org/x/exp compare with a tagged version or with its export data,
// which is no text. In a text file a review sees what a version adds, and what it takes away.
//
// A file has one line for each exported function, method, field and constant. Adding a line is
// compatible. An interface is one line, because a new method breaks those who implement it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/constant"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

func main() {
	write := flag.Bool("write", false, "write the file of the current version")
	flag.Parse()
	if err := run("..", "api", *write); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

const module = "github.com/reqlock/reqlock"

func run(root, dir string, write bool) error {
	lines, version, err := exported(root)
	if err != nil {
		return err
	}
	if write {
		return os.WriteFile(filepath.Join(dir, "v"+version+".txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	file, err := newest(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	old := strings.Split(strings.TrimSpace(string(text)), "\n")
	gone := missing(old, lines)
	fmt.Printf("api: %d names, %d of them new since %s\n", len(lines), len(missing(lines, old)), filepath.Base(file))
	if len(gone) > 0 {
		return fmt.Errorf("of %s, these are gone or have changed:\n  %s", filepath.Base(file), strings.Join(gone, "\n  "))
	}
	return nil
}

// newest returns the file of the newest version in dir.
func newest(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "v*.txt"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("there is no file of a version; write one with -write")
	}
	version := func(file string) string { return strings.TrimSuffix(filepath.Base(file), ".txt") }
	return slices.MaxFunc(files, func(a, b string) int { return semver.Compare(version(a), version(b)) }), nil
}

// missing returns the lines of a that b does not have.
func missing(a, b []string) []string {
	has := make(map[string]bool)
	for _, line := range b {
		has[line] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return has[line] })
}

// exported returns the sorted lines of all public packages, and the version of the module.
func exported(root string) (lines []string, version string, err error) {
	mode := packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedFiles
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: root}, "./...")
	if err != nil {
		return nil, "", err
	}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, "", p.Errors[0]
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, module), "/")
		if p.PkgPath == module {
			name, version = "reqlock", constant.StringVal(p.Types.Scope().Lookup("Version").(*types.Const).Val())
		}
		if p.Name == "main" || slices.Contains(strings.Split(name, "/"), "internal") {
			continue
		}
		lines = append(lines, ofPackage(p.Types, name)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines), version, nil
}

// ofPackage returns the lines of one package.
func ofPackage(p *types.Package, name string) (lines []string) {
	qualify := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Path()
	}
	line := func(format string, args ...any) {
		lines = append(lines, name+": "+fmt.Sprintf(format, args...))
	}
	for _, id := range p.Scope().Names() {
		object := p.Scope().Lookup(id)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Const:
			if object.Name() == "Version" || object.Name() == "Identity" {
				line("const %s %s", id, types.TypeString(object.Type(), qualify))
				continue
			}
			line("const %s %s = %s", id, types.TypeString(object.Type(), qualify), object.Val().ExactString())
		case *types.TypeName:
			lines = append(lines, ofType(object, name, qualify)...)
		case *types.Func:
			line("func %s%s", id, signature(object, qualify))
		default:
			line("%s", types.ObjectString(object, qualify))
		}
	}
	return lines
}

// signature returns a function's parameters and results without their names.
func signature(f *types.Func, qualify types.Qualifier) string {
	full := f.Signature()
	nameless := func(vars *types.Tuple) *types.Tuple {
		var list []*types.Var
		for v := range vars.Variables() {
			list = append(list, types.NewParam(v.Pos(), v.Pkg(), "", v.Type()))
		}
		return types.NewTuple(list...)
	}
	var parameters []*types.TypeParam
	for p := range full.TypeParams().TypeParams() {
		parameters = append(parameters, p)
	}
	if len(parameters) > 0 { // a type parameter can belong to one signature
		return strings.TrimPrefix(types.TypeString(full, qualify), "func")
	}
	bare := types.NewSignatureType(nil, nil, nil, nameless(full.Params()), nameless(full.Results()), full.Variadic())
	return strings.TrimPrefix(types.TypeString(bare, qualify), "func")
}

// ofType returns the lines of one type: its kind, fields and methods.
func ofType(object *types.TypeName, name string, qualify types.Qualifier) (lines []string) {
	line := func(format string, args ...any) {
		lines = append(lines, name+": "+fmt.Sprintf(format, args...))
	}
	id := object.Name()
	if object.IsAlias() {
		line("type %s = %s", id, types.TypeString(types.Unalias(object.Type()), qualify))
		return lines
	}
	switch under := object.Type().Underlying().(type) {
	case *types.Struct:
		line("type %s struct", id)
		for field := range under.Fields() {
			if field.Exported() {
				line("type %s struct, %s %s", id, field.Name(), types.TypeString(field.Type(), qualify))
			}
		}
	default:
		line("type %s %s", id, types.TypeString(under, qualify))
		if types.IsInterface(under) {
			return lines
		}
	}
	methods := types.NewMethodSet(types.NewPointer(object.Type()))
	for method := range methods.Methods() {
		if method.Obj().Exported() {
			line("method (*%s) %s%s", id, method.Obj().Name(), signature(method.Obj().(*types.Func), qualify))
		}
	}
	return lines
}
