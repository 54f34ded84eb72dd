package conformance

import (
	"slices"
	"testing"
)

// A scenario is one test of the suite.
type scenario struct {
	name  string
	run   func(e *env)
	setup []func(*setup)
}

// Run runs the suite. It returns when all tests have ended.
func Run(t *testing.T, a Adapter) {
	for _, s := range slices.Concat(
		refusals(),
		waiting,
		ownership,
		handovers,
		endings,
		maxHold,
		bodies,
		bodyKeys,
		decisions,
		failOpen,
		servers,
		processes,
		spellings,
	) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(newEnv(t, a, s.setup...))
		})
	}
}
