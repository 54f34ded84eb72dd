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
	for _, name := range []string{"core", "guard", "guard/routes", "middleware/nethttp", "middleware/echo", "wasm"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", root+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "/go-yaml") {
			t.Errorf("%s depends on go-yaml", name)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", root+"guard/routes/yaml").Output()
	if err != nil || !strings.Contains(string(out), "/go-yaml") {
		t.Errorf("this package does not depend on go-yaml, so this test checks nothing (%v)", err)
	}
}
