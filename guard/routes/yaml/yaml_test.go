package yaml_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program that does not import this package compiles no YAML parser.
func TestOthersCompileNoParser(t *testing.T) {
	t.Parallel()
	const root = "github.com/reqlock/reqlock/"
	const this = root + "guard/routes/yaml"
	others := []string{"core", "guard", "guard/routes", "middleware/nethttp", "middleware/echo", "wasm"}
	args := []string{"list", "-f", "{{.ImportPath}}: {{.Deps}}", this}
	for _, name := range others {
		args = append(args, root+name)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(others)+1 {
		t.Fatalf("%d packages, want %d", len(lines), len(others)+1)
	}
	for _, line := range lines {
		name, deps, _ := strings.Cut(line, ": ")
		switch parses := strings.Contains(deps, "/go-yaml"); {
		case name == this && !parses:
			t.Errorf("this package does not depend on go-yaml, so this test checks nothing")
		case name != this && parses:
			t.Errorf("%s depends on go-yaml", name)
		}
	}
}
