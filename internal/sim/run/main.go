// Command run simulates many seeds, or replays one.
//
//	go run ./internal/sim/run -for 1h
//	go run ./internal/sim/run -seed 42
//	go run ./internal/sim/run -defects
//
// It builds the tests of package sim with a changed Go runtime, so that a seed gives the same run every time: what the runtime draws
// at random within a bubble (the order of select, of maps, of timers of one instant, math/rand/v2) comes from the bubble, and nothing
// preempts its goroutines. The changes go in by -overlay; the Go installation stays as it is. Each seed has a process of its own,
// with one processor and without a garbage collector.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 0, "replay this seed, and print its trace")
	times := flag.Int("times", 1, "replay it so many times, and say whether the runs were the same")
	length := flag.Duration("for", 2*time.Minute, "simulate fresh seeds for so long")
	from := flag.Uint64("from", rand.Uint64N(1<<40)+1, "the first of them")
	processes := flag.Int("processes", runtime.NumCPU(), "how many to run at a time")
	plant := flag.Bool("defects", false, "plant the defects of defects.go one by one, and print how long each takes to be found")
	only := flag.String("defect", "", "plant this defect")
	flag.Parse()
	c := &campaign{next: *from, processes: *processes}
	var err error
	if c.dir, err = os.MkdirTemp("", "sim"); err == nil {
		err = c.run(*seed, *times, *length, *plant, *only)
		_ = os.RemoveAll(c.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A campaign is a run of the command.
type campaign struct {
	dir       string
	binary    string
	processes int

	mu    sync.Mutex
	next  uint64
	total figures
}

// figures sum up what was simulated.
type figures struct {
	seeds, acquires, commands, faults int
	simulated                         time.Duration
}

func (c *campaign) run(seed uint64, times int, length time.Duration, plant bool, only string) (err error) {
	if plant {
		return c.plantAll(length)
	}
	var planted []edit
	if only != "" {
		d, err := findDefect(only)
		if err != nil {
			return err
		}
		planted = d.edits
	}
	if err := c.build(planted); err != nil {
		return err
	}
	if seed != 0 {
		return c.replay(seed, times)
	}
	began := time.Now()
	output, err := c.search(length)
	took := time.Since(began)
	if err != nil {
		fmt.Print(output)
	}
	t := c.total
	fmt.Printf("%d seeds: %s simulated in %s, %.0f simulated seconds a second; %d acquires, %d commands, %d faults\n",
		t.seeds, t.simulated.Round(time.Second), took.Round(time.Second), t.simulated.Seconds()/took.Seconds(), t.acquires, t.commands, t.faults)
	if err == nil {
		err = c.replay(c.next-1, 3) // it must be the same run again, or a seed that fails could not be replayed
	}
	return err
}

// replay runs one seed.
func (c *campaign) replay(seed uint64, times int) error {
	lines := make(map[string]bool)
	for range times {
		output, err := c.simulate(context.Background(), seed, "-test.v")
		if err != nil || times == 1 {
			fmt.Print(output)
			return err
		}
		lines[resultLine.FindString(output)] = true
		fmt.Println(resultLine.FindString(output))
	}
	if len(lines) > 1 {
		return fmt.Errorf("sim: %d runs of seed %d were of %d kinds", times, seed, len(lines))
	}
	return nil
}

// search simulates fresh seeds until one fails, and returns what that printed.
func (c *campaign) search(length time.Duration) (output string, failed error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for range c.processes {
		all.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				c.mu.Lock()
				seed := c.next
				c.next++
				c.mu.Unlock()
				printed, err := c.simulate(ctx, seed)
				c.mu.Lock()
				if err == nil {
					c.total.add(printed)
				} else if ctx.Err() == nil {
					output, failed = printed, fmt.Errorf("sim: seed %d: %w", seed, err)
					cancel()
				}
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	return output, failed
}

// resultLine is what a test prints of a seed.
var resultLine = regexp.MustCompile(`seed \d+: (\S+) simulated, (\d+) acquires, (\d+) commands, (\d+) faults, trace \w+`)

func (f *figures) add(output string) {
	words := resultLine.FindStringSubmatch(output)
	if words == nil {
		return
	}
	simulated, _ := time.ParseDuration(words[1])
	f.simulated += simulated
	f.seeds++
	for i, n := range []*int{&f.acquires, &f.commands, &f.faults} {
		one, _ := strconv.Atoi(words[2+i])
		*n += one
	}
}

// simulate runs one seed in a process of its own.
func (c *campaign) simulate(ctx context.Context, seed uint64, args ...string) (output string, err error) {
	args = append([]string{"-test.run=^TestSeed_Given$", "-seed=" + strconv.FormatUint(seed, 10)}, args...)
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Dir = filepath.Join("internal", "sim")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOTRACEBACK=all")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// build makes the test binary, with edits of this module beside those of the runtime.
func (c *campaign) build(planted []edit) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	runtimeDir := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime")
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	replace := make(map[string]string)
	for _, e := range runtimeChanges {
		e.file = filepath.Join(runtimeDir, e.file)
		if err := change(replace, c.dir, e); err != nil {
			return err
		}
	}
	for _, e := range append(planted, edit{"internal/sim/world.go", "var Deterministic = false", "var Deterministic = true"}) {
		e.file = filepath.Join(here, filepath.FromSlash(e.file))
		if err := change(replace, c.dir, e); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	c.binary = filepath.Join(c.dir, "sim.test")
	cmd := exec.Command("go", "test", "-c", "-overlay", file, "-o", c.binary, "./internal/sim")
	cmd.Stdout, cmd.Stderr = io.Writer(os.Stderr), os.Stderr
	return cmd.Run()
}

// change puts an edited file into the overlay. It edits what the overlay has already.
func change(replace map[string]string, dir string, e edit) error {
	from := e.file
	if already, ok := replace[e.file]; ok {
		from = already
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if strings.Count(string(text), e.old) != 1 {
		return fmt.Errorf("sim: %s does not have %q once; adapt internal/sim/run to it", e.file, e.old)
	}
	// The name must stay the same between runs: it is part of what the build cache knows a file by.
	changed := filepath.Join(dir, strings.ReplaceAll(e.file, string(filepath.Separator), "_"))
	replace[e.file] = changed
	return os.WriteFile(changed, []byte(strings.Replace(string(text), e.old, e.text, 1)), 0o600)
}

// An edit replaces a text that a file has once.
type edit struct{ file, old, text string }

// runtimeChanges make bubbles deterministic.
var runtimeChanges = []edit{
	{"synctest.go", "	total   int // total goroutines\n", "	random uint64\n	total   int // total goroutines\n"},
	{"synctest.go", "// changegstatus is called when", `// next draws from the bubble's own random numbers: SplitMix64.
//
//go:nosplit
func (bubble *synctestBubble) next() uint64 {
	bubble.random += 0x9e3779b97f4a7c15
	z := bubble.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// changegstatus is called when`},
	{"synctest.go", "	gp.bubble = bubble\n	defer func() {", "	gp.bubble = bubble\n	gp.m.p.ptr().schedtick = 0 // every 61st looks at the global queue first\n	defer func() {"},
	{"rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if bubble := getg().bubble; bubble != nil {\n		return bubble.next()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	{"rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
	{"select.go", "		j := cheaprandn(uint32(norder + 1))\n", "		j := bubbleRandn(uint32(norder + 1))\n"},
	{"select.go", "// selectgo implements the select statement.\n", "func bubbleRandn(n uint32) uint32 {\n	if getg().bubble != nil {\n		return randn(n)\n	}\n	return cheaprandn(n)\n}\n\n// selectgo implements the select statement.\n"},
	{"time.go", "			t.rand = cheaprand()\n", "			t.rand = bubbleRandn(1 << 31)\n"},
	{"proc.go", "	if gp == nil || gp == mp.g0 {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {", "	if gp == nil || gp == mp.g0 || gp.bubble != nil {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {"},
}
