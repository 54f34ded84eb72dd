package worlds

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/machine"
	"github.com/reqlock/reqlock/internal/lab/explore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	machine.Strict = true
	goleak.VerifyTestMain(m)
}

var (
	full   = flag.Bool("full", false, "explore the larger worlds of make explore")
	replay = flag.String("replay", "", "print the states on a path through the world that -run selects")
)

// raceDetector is true under the race detector, which makes a search ten times slower because it
// uses one goroutine.
var raceDetector bool

// hugeToken exceeds the numbers that Lua represents exactly.
const hugeToken = 1<<53 + 1000

// worlds are what TestWorlds explores: small ones whose states it searches in some seconds, and
// larger ones with -full.
var worlds = []struct {
	name        string
	small, full World
}{
	{
		"plain/handover",
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1},
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 2, Forces: 1},
	}, {
		"plain/reentry",
		World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2, Extend: true, Losses: 1},
		World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{1, 3}, Levels: 3, Extend: true, Losses: 2},
	}, {
		"plain/renewal",
		World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Losses: 1},
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Pass: true, Losses: 1},
	}, {
		"plain/renewal-levels",
		World{Kind: Plain, Clients: []int{0}, Leases: []uint8{1, 3}, Levels: 2, Renewal: 2},
		World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{1, 3}, Levels: 2, Renewal: 2, Losses: 1},
	}, {
		"plain/faults",
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Evictions: 1, Forces: 1, Crashes: 1},
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1, Evictions: 1, Forces: 1, Crashes: 1},
	}, {
		"plain/guests",
		World{Kind: Plain, Clients: []int{0, 1, 2}, Leases: []uint8{1}, Levels: 1, Guests: true, Losses: 1},
		World{Kind: Plain, Clients: []int{0, 1, 2}, Leases: []uint8{1}, Levels: 1, Guests: true, Losses: 1, Crashes: 1, Forces: 1},
	}, {
		"plain/guests-leases",
		World{Kind: Plain, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 1, Guests: true, Losses: 1},
		World{Kind: Plain, Clients: []int{0, 1, 2}, Leases: []uint8{1, 2}, Levels: 1, Guests: true, Losses: 1},
	}, {
		"plain/guests-handover",
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Guests: true, Crashes: 1},
		World{Kind: Plain, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Guests: true, Renewal: 2, Losses: 1},
	}, {
		"fenced/handover",
		World{Kind: Fenced, Token: 7, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1},
		World{Kind: Fenced, Token: 7, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 2, Evictions: 1},
	}, {
		"fenced/strays",
		World{Kind: Fenced, Token: 7, Clients: []int{0}, Leases: []uint8{1, 2}, Levels: 2, Losses: 1},
		World{Kind: Fenced, Token: 7, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2, Losses: 2},
	}, {
		"fenced/huge-tokens",
		World{Kind: Fenced, Token: hugeToken, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Losses: 1, Forces: 1},
		World{Kind: Fenced, Token: hugeToken, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 2, Pass: true, Losses: 1, Forces: 1},
	}, {
		"fair/queue",
		World{Kind: Fair, Budget: 4, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true},
		World{Kind: Fair, Budget: 6, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Losses: 1},
	}, {
		"fair/losses",
		World{Kind: Fair, Budget: 6, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Losses: 1},
		World{Kind: Fair, Budget: 8, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 2, Losses: 2},
	}, {
		"fair/held-for-long",
		World{Kind: Fair, Budget: 4, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2},
		World{Kind: Fair, Budget: 4, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Pass: true},
	}, {
		"fair/faults",
		World{Kind: Fair, Budget: 8, Clients: []int{0, 1}, Leases: []uint8{1}, Levels: 1, Evictions: 1, Forces: 1, Crashes: 1, Deaf: 1},
		World{Kind: Fair, Budget: 6, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Crashes: 1},
	}, {
		"fair/frozen",
		World{Kind: Fair, Budget: 20, Clients: []int{0, 1}, Leases: []uint8{1}, Levels: 1, Freezes: 1},
		World{Kind: Fair, Budget: 20, Clients: []int{0, 1, 2}, Leases: []uint8{1}, Levels: 1, Freezes: 1},
	}, {
		"fair/guests",
		World{Kind: Fair, Budget: 6, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Guests: true, Losses: 1, Crashes: 1},
		World{Kind: Fair, Budget: 6, Clients: []int{0, 1, 2}, Leases: []uint8{1}, Levels: 1, Guests: true},
	}, {
		"readwrite/guests",
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 2, Guests: true, Crashes: 1},
		World{Kind: ReadWrite, Clients: []int{0, 1, 2}, Leases: []uint8{1}, Levels: 2, Guests: true},
	}, {
		"readwrite/levels",
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2},
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2, Losses: 1},
	}, {
		"readwrite/strays",
		World{Kind: ReadWrite, Clients: []int{0}, Leases: []uint8{1, 2}, Levels: 2, Losses: 1},
		World{Kind: ReadWrite, Clients: []int{0}, Leases: []uint8{1, 3}, Levels: 3, Losses: 2},
	}, {
		"readwrite/three",
		World{Kind: ReadWrite, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true},
		World{Kind: ReadWrite, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1},
	}, {
		"readwrite/renewal",
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Evictions: 1},
		World{Kind: ReadWrite, Clients: []int{0, 0}, Leases: []uint8{2}, Levels: 2, Renewal: 2, Evictions: 1},
	}, {
		"readwrite/faults",
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Evictions: 1, Forces: 1, Crashes: 1},
		World{Kind: ReadWrite, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 2, Evictions: 1, Forces: 1, Crashes: 1},
	}, {
		"once/records",
		World{Kind: Once, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 2, Losses: 1},
		World{Kind: Once, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 2, Losses: 1},
	}, {
		"once/markers",
		World{Kind: Once, Marker: true, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Losses: 1, Crashes: 1},
		World{Kind: Once, Marker: true, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 2, Losses: 1, Crashes: 1, Evictions: 1},
	}, {
		"once/stale",
		World{Kind: Once, Stale: true, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 2, Losses: 1},
		World{Kind: Once, Stale: true, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 2, Losses: 1},
	}, {
		"semaphore/one",
		World{Kind: Semaphore, Permits: []uint8{1, 1}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1},
		World{Kind: Semaphore, Permits: []uint8{1, 1}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1, Forces: 1},
	}, {
		"semaphore/two",
		World{Kind: Semaphore, Permits: []uint8{2, 2}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Losses: 1},
		World{Kind: Semaphore, Permits: []uint8{2, 2}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Losses: 1, Evictions: 1, Crashes: 1},
	}, {
		"semaphore/several",
		World{Kind: Semaphore, Permits: []uint8{3, 3}, Takes: 2, Clients: []int{0, 1}, Leases: []uint8{1, 2}, Levels: 1, Extend: true, Losses: 1},
		World{Kind: Semaphore, Permits: []uint8{3, 3}, Takes: 2, Clients: []int{0, 0, 1}, Leases: []uint8{1, 2}, Levels: 1, Extend: true, Pass: true, Losses: 1},
	}, {
		"semaphore/resize",
		World{Kind: Semaphore, Permits: []uint8{2, 2}, Takes: 1, Sets: []uint8{1, 3}, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Resizes: 1},
		World{Kind: Semaphore, Permits: []uint8{2, 2}, Takes: 1, Sets: []uint8{1, 3}, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Resizes: 2, Losses: 1},
	}, {
		"semaphore/versions",
		World{Kind: Semaphore, Permits: []uint8{3, 1}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true},
		World{Kind: Semaphore, Permits: []uint8{3, 1}, Takes: 1, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Pass: true, Losses: 1},
	}, {
		"semaphore/renewal",
		World{Kind: Semaphore, Permits: []uint8{1, 1}, Takes: 1, Clients: []int{0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Losses: 1},
		World{Kind: Semaphore, Permits: []uint8{2, 2}, Takes: 2, Clients: []int{0, 0, 1}, Leases: []uint8{2}, Levels: 1, Renewal: 2, Pass: true, Losses: 1},
	}, {
		"semaphore/faults",
		World{Kind: Semaphore, Permits: []uint8{2, 1}, Takes: 1, Sets: []uint8{3}, Clients: []int{0, 1}, Leases: []uint8{1}, Levels: 1, Evictions: 1, Forces: 1, Crashes: 1, Resizes: 1},
		World{Kind: Semaphore, Permits: []uint8{2, 1}, Takes: 1, Sets: []uint8{3}, Clients: []int{0, 0, 1}, Leases: []uint8{1}, Levels: 1, Pass: true, Evictions: 1, Forces: 1, Crashes: 1, Resizes: 1},
	},
}

func TestWorlds(t *testing.T) {
	t.Parallel()
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			world, limit, flags := w.small, 0, ""
			if *full {
				world, flags = w.full, " -full"
			} else if raceDetector || testing.Short() {
				limit = 2000
			}
			m := New(world)
			defer m.Close()
			if *replay != "" {
				showReplay(t, m, *replay)
				return
			}
			r := explore.Run(m, limit)
			if v := r.Violation; v != nil {
				t.Fatalf("%s\nafter %s\nto see this again: go test ./core/internal/worlds -run 'TestWorlds/%s$'%s -replay %s", v, r, w.name, flags, v.Path)
			}
			if *full {
				fmt.Printf("%-20s %s\n", w.name, r)
			}
			t.Log(r)
		})
	}
}

func showReplay(t *testing.T, m *Model, path string) {
	t.Helper()
	p, err := explore.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	trace, broken := explore.Replay(m, p)
	t.Log("\n" + trace)
	if broken != nil {
		t.Error(broken)
	}
}

// Every kind has a world. Those of fair and write locks with tokens need none: the same files of Lua
// grant them, behind the file that draws the token, which the fenced worlds run.
func TestWorlds_AllKinds(t *testing.T) {
	t.Parallel()
	covered := []*kinds.Kind{kinds.FencedFair, kinds.FencedWrite}
	for _, w := range worlds {
		m := New(w.small)
		covered = append(covered, m.kind(false), m.kind(true))
		m.Close()
	}
	for _, k := range kinds.All() {
		if !slices.Contains(covered, k) {
			t.Errorf("no world has the kind %q: add it to Kind in world.go, and to worlds", k.Name)
		}
	}
}
