package adaptertest

import (
	"os"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A scenario is one test of the suite.
type scenario struct {
	name  string
	run   func(fx *fixture)
	setup []func(*setup)
	// An alone scenario takes the whole machine: tests beside it would time out.
	alone bool
}

// Run runs the suite with all adapters at the same time, as parallel subtests of t. At the end it
// logs a table of the results. It needs Main as TestMain. A missing result is a failure, unless
// -run or -skip chose some of the tests.
func Run(t *testing.T, adapters ...Adapter) {
	redistest.NeedsServer(t)
	suite := wholeSuite()
	for _, a := range adapters {
		if err := a.checkExceptions(suite); err != nil {
			t.Fatal(err)
		}
	}
	results := newTable(suite, adapters)
	t.Cleanup(func() {
		t.Logf("behaviours and frameworks:\n\n%s", results)
		if hole := results.hole(); hole != "" && !chosen("test.run") && !chosen("test.skip") {
			t.Errorf("no result for %s", hole)
		}
	})
	for _, a := range adapters {
		t.Run(a.Name, func(t *testing.T) { runAll(t, a, suite, results) })
	}
}

// wholeSuite returns all tests of Run.
func wholeSuite() []scenario {
	return slices.Concat(
		refusals(),
		waiting,
		crowds,
		ownership,
		handovers,
		endings,
		maxHold,
		bodies,
		bodyKeys,
		budgets,
		decisions,
		modes,
		limits,
		delegated,
		failOpen,
		servers,
		processes,
		spellings,
		onceRuns,
		onceAnswers,
		onceWriters,
		onceFailures,
		onceProcesses,
		onceSealed,
		coalescing(),
	)
}

// runAll runs the scenarios that need the whole machine at once, and the others beside those of the
// other adapters.
func runAll(t *testing.T, a Adapter, scenarios []scenario, results *table) {
	run := func(s scenario) {
		if a.NoCoalesce != "" && isCoalescing(s.name) {
			results.except(s.name, a.Name, a.NoCoalesce)
			return
		}
		if reason := a.Exceptions[s.name]; reason != "" && os.Getenv(exceptionVariable) == "" {
			results.except(s.name, a.Name, reason)
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				mustFail(t)
			})
			return
		}
		t.Run(s.name, func(t *testing.T) {
			if !s.alone {
				t.Parallel()
			}
			t.Cleanup(func() { results.enter(s.name, a.Name, t) }) // It runs after fixture.finish.
			s.run(newFixture(t, a, s.setup...))
		})
	}
	for _, s := range scenarios {
		if s.alone {
			run(s)
		}
	}
	t.Parallel()
	for _, s := range scenarios {
		if !s.alone {
			run(s)
		}
	}
}
