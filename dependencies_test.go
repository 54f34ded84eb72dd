package reqlock_test

import (
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
