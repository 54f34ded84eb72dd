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
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

var (
	seedFlag = flag.Uint64("seed", 0, "simulate only this seed, and print its trace")
	fromFlag = flag.Uint64("from", 0, "the first fresh seed; 0: a random one")
	forFlag  = flag.Duration("for", 0, "how long to simulate fresh seeds; 0: 20s, or 500ms under -short")
)

// The simulator uses each kind of lock.
func TestLockKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range core.Kinds() {
		if kind == "read" || kind == "write" {
			kind = "rw"
		}
		if !slices.Contains(lockKinds, kind) {
			t.Errorf("no world has the kind %q: add it to lockKinds in config.go, and to locker", kind)
		}
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{})
	ScriptName = scriptNames()
	debug.SetMemoryLimit(2 << 30)
	runtime.GOMAXPROCS(1) // the race detector of Go 1.26 crashes if two threads run timers of one bubble
	os.Exit(m.Run())
}

// silent drops go-redis's log, which every outage fills.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// scriptNames returns a ScriptName for the scripts of core.
func scriptNames() func(sha string) string {
	dir := filepath.Join("..", "..", "..", "core", "internal", "lua")
	names := make(map[string]string)
	files, _ := filepath.Glob(filepath.Join(dir, "*.lua"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, beginning := range []string{"", "fair_queue.lua", "fenced_draw.lua", "permit_clock.lua"} {
			begins, _ := os.ReadFile(filepath.Join(dir, beginning))
			names[memredis.SHA(string(begins)+string(text))] = strings.TrimSuffix(filepath.Base(file), ".lua")
		}
	}
	return func(sha string) string {
		if name, known := names[sha]; known {
			return name
		}
		return "script-" + sha[:8]
	}
}

// longestRun bounds the wall time of a seed, also under the race detector on a busy machine. If a
// goroutine in a bubble waits for a mutex whose owner sleeps, the bubble is stuck forever.
const longestRun = 10 * time.Minute

// simulate runs a seed in its own bubble.
func simulate(t *testing.T, seed uint64) (r Result) {
	fmt.Printf("seed %d\n", seed) // a crash prints the seed nowhere else
	stuck := time.AfterFunc(longestRun, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("seed %d is stuck", seed))
	})
	defer stuck.Stop()
	// A sync.Pool must not move a channel from one bubble to another. Two collections empty it.
	runtime.GC()
	runtime.GC()
	if Deterministic { // a collection changes the order of goroutines
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	synctest.Test(t, func(*testing.T) { r = Run(seed) })
	return r
}

// report fails the test if a seed violates an invariant.
func report(t *testing.T, r Result) {
	t.Helper()
	if len(r.Violations) == 0 {
		return
	}
	var trace strings.Builder
	r.Trace(&trace)
	t.Errorf("seed %d has violations:\n\t%s\nReplay it with\n\tmake sim SEED=%d\n%s",
		r.Seed, strings.Join(r.Violations, "\n\t"), r.Seed, trace.String())
}

// Seeds that failed before. testdata/seeds.txt says what each of them found. Under -short, every
// fourth one runs.
func TestSeeds_ThatFailed(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "seeds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n++; testing.Short() && n%4 != 0 {
			continue
		}
		report(t, simulate(t, seed))
	}
}

// In the worlds of some seeds, callers enter the holds of others.
func TestSeeds_WithGuests(t *testing.T) {
	guests := 0
	for _, seed := range []uint64{9, 20} {
		r := simulate(t, seed)
		report(t, r)
		guests += r.Guests
	}
	if guests < 20 {
		t.Errorf("%d calls entered as guests, want 20 or more", guests)
	}
}

// Fresh seeds, as many as fit into -for.
func TestSeeds_Fresh(t *testing.T) {
	budget := *forFlag
	switch {
	case budget > 0:
	case testing.Short():
		budget = 500 * time.Millisecond
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
	fmt.Printf("%d seeds: %s simulated in %s, %.0f simulated seconds per second; %d acquires, %d commands, %d faults\n",
		seeds, total.Simulated.Round(time.Second), took.Round(time.Second), total.Simulated.Seconds()/took.Seconds(),
		total.Operations, total.Commands, total.Faults)
	if seeds == 0 {
		t.Error("no seed was simulated")
	}
}

// The seed given by -seed, with its whole trace.
func TestSeed_Given(t *testing.T) {
	if *seedFlag == 0 {
		*seedFlag = 5
	} else {
		tracedLines = 1 << 30
	}
	r := simulate(t, *seedFlag)
	report(t, r)
	fmt.Printf("seed %d: %s simulated, %d acquires, %d commands, %d faults, trace %x\n",
		r.Seed, r.Simulated, r.Operations, r.Commands, r.Faults, r.Digest)
	if testing.Verbose() && !t.Failed() {
		r.Trace(os.Stdout)
	}
}
