package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A goModule is a module of the repository.
type goModule struct {
	dir  string // relative to the repository, with slashes; "." is the root
	file string // its go.mod
	path string
	text []byte
	mod  *modfile.File
}

// inner are the directories with modules that users do not install.
var inner = []string{"deploy", "examples", "internal", "tools"}

// published reports whether users may install the module.
func (m *goModule) published() bool {
	first, _, _ := strings.Cut(m.dir, "/")
	return !slices.Contains(inner, first)
}

// versionIn returns reqlock.Version as the version of a module.
func versionIn(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "version.go"))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^const Version = "(.*)"$`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("version.go has no constant Version")
	}
	return "v" + string(found[1]), nil
}

// findModules returns the modules, the root first, each after those that it requires.
func findModules(dir string) ([]*goModule, error) {
	files, err := tracked(dir)
	if err != nil {
		return nil, err
	}
	var modules []*goModule
	for _, file := range files {
		if filepath.Base(file) != "go.mod" || strings.Contains(file, "testdata/") {
			continue
		}
		m := &goModule{dir: filepath.ToSlash(filepath.Dir(file)), file: filepath.Join(dir, file)}
		if m.text, err = os.ReadFile(m.file); err != nil {
			return nil, err
		}
		if m.mod, err = modfile.Parse(file, m.text, nil); err != nil {
			return nil, err
		}
		m.path = m.mod.Module.Mod.Path
		modules = append(modules, m)
	}
	// A module has more of our requirements than each of those that it requires.
	slices.SortStableFunc(modules, func(a, b *goModule) int { return len(a.ours()) - len(b.ours()) })
	return modules, nil
}

// ours returns the requirements of our own modules.
func (m *goModule) ours() (all []*modfile.Require) {
	for _, r := range m.mod.Require {
		if r.Mod.Path == root || strings.HasPrefix(r.Mod.Path, root+"/") {
			all = append(all, r)
		}
	}
	return all
}

// checkVersion refuses go.mod files that require another version of our modules.
func checkVersion(modules []*goModule, version string) error {
	for _, m := range modules {
		for _, r := range m.ours() {
			if r.Mod.Version != version {
				return fmt.Errorf("%s/go.mod requires %s %s, but version.go says %s; run make release-check WRITE=1",
					m.dir, r.Mod.Path, r.Mod.Version, version)
			}
		}
	}
	return nil
}

// checkNames reports whether the exported names of the version are recorded. The next version is
// compared with them.
func checkNames(dir, version string) error {
	file := filepath.Join("tools", "api", version+".txt")
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("%s is missing; run make api WRITE=1", file)
	}
	return nil
}

// setVersion writes the version into the go.mod files. It changes nothing else in them.
func setVersion(modules []*goModule, version string) error {
	for _, m := range modules {
		lines := strings.SplitAfter(string(m.text), "\n")
		for _, r := range m.ours() {
			at := &lines[r.Syntax.Start.Line-1]
			*at = strings.Replace(*at, " "+r.Mod.Version, " "+version, 1)
		}
		if err := os.WriteFile(m.file, []byte(strings.Join(lines, "")), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tags returns the tags of a version. Each module comes after those that it requires.
func tags(modules []*goModule, version string) (all []string) {
	for _, m := range modules {
		switch {
		case m.dir == ".":
			all = append(all, version)
		case m.published():
			all = append(all, m.dir+"/"+version)
		}
	}
	return all
}
