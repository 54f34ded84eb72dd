package sim

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	seedFlag = flag.Uint64("seed", 0, "simulate this seed alone, and print its trace")
	fromFlag = flag.Uint64("from", 0, "the first of the fresh seeds; 0: any")
	forFlag  = flag.Duration("for", 0, "simulate fresh seeds for so long; 0: 20 seconds, under -short 3")
)

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{})
	ScriptName = scriptNames()
	debug.SetMemoryLimit(2 << 30)
	os.Exit(m.Run())
}

// silent drops go-redis's log: every outage fills it.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// scriptNames reads the scripts of core, to name them in traces.
func scriptNames() func(sha string) string {
	dir := filepath.Join("..", "..", "core", "internal", "lua")
	names := make(map[string]string)
	files, _ := filepath.Glob(filepath.Join(dir, "*.lua"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, beginning := range []string{"", "fair_queue.lua", "fenced_draw.lua"} {
			begins, _ := os.ReadFile(filepath.Join(dir, beginning))
			names[digest(string(begins)+string(text))] = strings.TrimSuffix(filepath.Base(file), ".lua")
		}
	}
	return func(sha string) string {
		if name, known := names[sha]; known {
			return name
		}
		return "script-" + sha[:8]
	}
}

// longestRun bounds the wall time of one seed, also under the race detector on a busy machine. A bubble in which a goroutine waits
// for a mutex that another holds asleep stands still for ever.
const longestRun = 10 * time.Minute

// simulate runs a seed in a bubble of its own.
func simulate(t *testing.T, seed uint64) (r Result) {
	fmt.Printf("seed %d\n", seed) // a crash prints nothing else of it
	stuck := time.AfterFunc(longestRun, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("seed %d stands still", seed))
	})
	defer stuck.Stop()
	// A sync.Pool must not bring a channel of one bubble into another. It is empty after two collections.
	runtime.GC()
	runtime.GC()
	if Deterministic { // the collector would change the order of goroutines
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	synctest.Test(t, func(*testing.T) { r = Run(seed) })
	return r
}

// report fails the test if a seed has violated an invariant.
func report(t *testing.T, r Result) {
	t.Helper()
	if len(r.Violations) == 0 {
		return
	}
	var trace strings.Builder
	r.Trace(&trace)
	t.Errorf("seed %d violates:\n\t%s\nReplay it with\n\tmake sim SEED=%d\n%s", r.Seed, strings.Join(r.Violations, "\n\t"), r.Seed, trace.String())
}

// Seeds that failed once. testdata/seeds.txt says of each what it found.
func TestSeeds_ThatFailed(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "seeds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		report(t, simulate(t, seed))
	}
}

// Seeds that were never simulated before, for a given time.
func TestSeeds_Fresh(t *testing.T) {
	budget := *forFlag
	switch {
	case budget > 0:
	case testing.Short():
		budget = 3 * time.Second
	default:
		budget = 20 * time.Second
	}
	from := *fromFlag
	if from == 0 {
		from = rand.Uint64N(1 << 40)
	}
	var total Result
	began := time.Now()
	seeds := 0
	for seed := from; time.Since(began) < budget && !t.Failed(); seed++ {
		r := simulate(t, seed)
		report(t, r)
		seeds++
		total.Simulated += r.Simulated
		total.Operations += r.Operations
		total.Commands += r.Commands
		total.Faults += r.Faults
	}
	took := time.Since(began)
	fmt.Printf("total seeds=%d simulated=%s took=%s rate=%.0f acquires=%d commands=%d faults=%d\n",
		seeds, total.Simulated, took, total.Simulated.Seconds()/took.Seconds(), total.Operations, total.Commands, total.Faults)
	if seeds == 0 {
		t.Error("no seed was simulated")
	}
}

// The seed of -seed, with all of its trace.
func TestSeed_Given(t *testing.T) {
	if *seedFlag == 0 {
		*seedFlag = 5
	} else {
		tracedLines = 1 << 30
	}
	r := simulate(t, *seedFlag)
	report(t, r)
	fmt.Printf("seed %d: %s simulated, %d acquires, %d commands, %d faults, trace %x\n", r.Seed, r.Simulated, r.Operations, r.Commands, r.Faults, r.Digest)
	if testing.Verbose() && !t.Failed() {
		r.Trace(os.Stdout)
	}
}
