package worlds

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/explore"
	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

// root is the directory of the repository.
var root = filepath.Join("..", "..", "..")

// The search finds each mutant that names a world, so it checks what it claims to check. A mutant of
// a script needs no compiler. Of other mutants this test checks only that there is such a world: the
// command internal/lab/mutants compiles them and searches it.
func TestMutants_AreFoundByTheirWorlds(t *testing.T) {
	t.Parallel()
	for _, mutant := range table.All() {
		if mutant.World() == "" {
			continue
		}
		t.Run(mutant.Promise, func(t *testing.T) {
			t.Parallel()
			world := worldOf(t, mutant.World())
			if !mutant.IsScript() {
				return
			}
			world.Scripts = mutated(t, world, mutant)
			m := New(world)
			defer m.Close()
			r := explore.Run(m, 0)
			if r.Violation == nil {
				t.Fatalf("not found: %s", r)
			}
			if !strings.Contains(r.Violation.Broken.Error(), mutant.Report) {
				t.Errorf("found %v\nwant %q", r.Violation, mutant.Report)
			}
			if r.States > 100_000 {
				t.Errorf("found only after %s", r)
			}
			if trace, broken := explore.Replay(m, r.Violation.Path); broken == nil || trace != r.Violation.Trace {
				t.Errorf("the replay of %s gives %v", r.Violation.Path, broken)
			}
			t.Log(r)
		})
	}
}

func worldOf(t *testing.T, name string) World {
	t.Helper()
	for _, w := range worlds {
		if w.name == name {
			return w.small
		}
	}
	t.Fatalf("there is no world %s", name)
	return World{}
}

// mutated returns those scripts of a world that the mutant changes. Several may consist of the file
// that it breaks.
func mutated(t *testing.T, w World, mutant table.Mutant) map[string]string {
	t.Helper()
	before, after, err := mutant.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	m := New(w)
	defer m.Close()
	scripts := make(map[string]string)
	for op := opAcquire; op <= opEnter; op++ {
		for _, c := range []command{{op: op, excl: 1}, {op: op, shared: 1}} {
			if s := m.call(c).Script; s != nil && strings.Contains(s.Source, before) {
				scripts[s.Name] = strings.Replace(s.Source, before, after, 1)
			}
		}
	}
	if len(scripts) == 0 {
		t.Fatalf("the world runs no script of %s", mutant.File)
	}
	return scripts
}
