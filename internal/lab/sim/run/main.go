// Command run simulates many seeds, or replays one.
//
//	go run ./internal/lab/sim/run -for 1h
//	go run ./internal/lab/sim/run -seed 42
//
// It builds the tests of package sim with a modified Go runtime, so that a seed gives the same run
// every time. Whatever the runtime draws at random within a bubble then comes from the bubble: the
// order of select, of maps, of simultaneous timers, and math/rand/v2. Goroutines of a bubble are
// not preempted. The changes are an -overlay, and the Go installation stays unchanged. Each seed
// has its own process, with one thread and no garbage collector.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	seed := flag.Uint64("seed", 0, "replay only this seed, and print its trace")
	times := flag.Int("times", 1, "with -seed: replay it so many times, and check that the runs are equal")
	length := flag.Duration("for", 2*time.Minute, "how long to simulate fresh seeds")
	from := flag.Uint64("from", rand.Uint64N(1<<40)+1, "the first fresh seed")
	recorded := flag.String("recorded", "internal/lab/sim/testdata/seeds.txt", "simulate the seeds in this `file` first; empty: none")
	processes := flag.Int("processes", runtime.NumCPU(), "how many seeds to simulate at a time")
	extra := flag.String("overlay", "", "also build with this overlay `file`, which breaks core")
	flag.Parse()

	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &campaign{dir: dir, next: *from}
	if err := c.build(ctx, *extra); err != nil {
		return err
	}
	if *seed != 0 {
		return c.replay(ctx, *seed, *times)
	}
	if *recorded != "" {
		if c.recorded, err = readSeeds(filepath.Join(c.root, *recorded)); err != nil {
			return err
		}
	}
	fmt.Printf("Simulating %d recorded seeds, then fresh ones from %d.\n", len(c.recorded), *from)
	if err := c.search(ctx, *length, *processes); err != nil {
		return err
	}
	return c.replay(ctx, *from, 3) // a seed that fails must be replayable
}

// readSeeds reads a file with a seed in each line and comments after #.
func readSeeds(file string) (seeds []uint64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

// A campaign simulates seeds.
type campaign struct {
	// dir is for temporary files.
	dir string
	// root is the directory of the repository.
	root   string
	binary string

	mu       sync.Mutex
	recorded []uint64
	// next is the next fresh seed.
	next  uint64
	total figures
}

// figures sum up simulations.
type figures struct {
	seeds, acquires, commands, faults int
	simulated                         time.Duration
}

// seed returns the next seed. ok is false after the end, once all recorded seeds were returned.
func (c *campaign) seed(end time.Time) (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recorded) > 0 {
		seed, c.recorded = c.recorded[0], c.recorded[1:]
		return seed, true
	}
	c.next++
	return c.next - 1, time.Now().Before(end)
}

// search simulates seeds until one fails. It prints the trace of that one, and the totals.
func (c *campaign) search(ctx context.Context, length time.Duration, processes int) (failed error) {
	began := time.Now()
	searching, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			for searching.Err() == nil {
				seed, ok := c.seed(began.Add(length))
				if !ok {
					return
				}
				output, err := c.simulate(searching, seed)
				c.mu.Lock()
				if err == nil {
					c.total.add(output)
				} else if searching.Err() == nil {
					fmt.Print(output)
					failed = fmt.Errorf("seed %d failed: %w; replay it with make sim SEED=%d", seed, err, seed)
					cancel()
				}
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	t, took := c.total, time.Since(began)
	fmt.Printf("%d seeds: %s simulated in %s, %.0f simulated seconds per second; %d acquires, %d commands, %d faults.\n",
		t.seeds, t.simulated.Round(time.Second), took.Round(time.Second), t.simulated.Seconds()/took.Seconds(),
		t.acquires, t.commands, t.faults)
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}

// replay simulates one seed, and prints its trace if that is done only once.
func (c *campaign) replay(ctx context.Context, seed uint64, times int) error {
	if times == 1 {
		output, err := c.simulate(ctx, seed, "-test.v")
		fmt.Print(output)
		return err
	}
	results := make(map[string]bool)
	for range times {
		output, err := c.simulate(ctx, seed)
		if err != nil {
			fmt.Print(output)
			return err
		}
		results[resultLine.FindString(output)] = true
	}
	if len(results) > 1 {
		return fmt.Errorf("%d runs of seed %d had %d different traces", times, seed, len(results))
	}
	fmt.Printf("%d runs of seed %d had the same trace.\n", times, seed)
	return nil
}

// resultLine is what the test prints for a seed.
var resultLine = regexp.MustCompile(`seed \d+: (\S+) simulated, (\d+) acquires, (\d+) commands, (\d+) faults, trace \w+`)

// add adds a simulation to the totals.
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

// longestSeed bounds the wall time of a seed. Without a defect it takes a second or two.
const longestSeed = 10 * time.Minute

// simulate simulates a seed in its own process.
func (c *campaign) simulate(ctx context.Context, seed uint64, args ...string) (output string, err error) {
	args = append(args, "-test.run=^TestSeed_Given$", "-test.timeout="+longestSeed.String(), "-seed="+strconv.FormatUint(seed, 10))
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Dir = filepath.Join(c.root, "internal", "lab", "sim")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOTRACEBACK=all")
	text, err := cmd.CombinedOutput()
	return string(text), err
}
