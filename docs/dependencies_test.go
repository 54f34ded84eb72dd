package docs_test

import (
	"os/exec"
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
