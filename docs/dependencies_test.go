package docs_test

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Metrics have modules of their own, so the dependencies of users of core and httplock stay the
// same.
func TestMetricsStayOut(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"go.mod", "go.sum"} {
		for _, module := range []string{"go.opentelemetry.io/", "github.com/prometheus/"} {
			if strings.Contains(read(t, file), module) {
				t.Errorf("%s has %s", file, module)
			}
		}
	}
}

// Each module is in a list of the Makefile, whose targets test, vet and tidy what the lists have.
func TestMakefileKnowsAllModules(t *testing.T) {
	t.Parallel()
	listed := []string{".", "tools"}
	for line := range strings.Lines(read(t, "Makefile")) {
		if name, dirs, ok := strings.Cut(line, " = "); ok && (name == "MODULES" || name == "INNER") {
			listed = append(listed, strings.Fields(dirs)...)
		}
	}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if dir := filepath.ToSlash(filepath.Dir(path)); entry.Name() == "go.mod" && !slices.Contains(listed, dir) {
			t.Errorf("the module %s is in no list of the Makefile: add it to MODULES, and to PUBLISHED if users import it", dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A program with the net/http middleware compiles few modules, and none that only the command or a
// plugin needs.
func TestMiddlewareCompilesFewModules(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"github.com/cespare/xxhash/v2", "github.com/felixge/httpsnoop", "github.com/google/uuid", "github.com/redis/go-redis/v9",
		"github.com/reqlock/reqlock", "go.uber.org/atomic", "golang.org/x/sys",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}",
		"./core", "./keyfuncs", "./middleware/nethttp").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	for _, module := range slices.Compact(modules) {
		if !slices.Contains(allowed, module) {
			t.Errorf("the net/http middleware depends on %s", module)
		}
	}
}
