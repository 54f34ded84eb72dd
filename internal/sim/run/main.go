// Command run simulates many seeds, one process for each processor, or replays one.
//
//	go run ./internal/sim/run -for 1h
//	go run ./internal/sim/run -seed 42
//
// It builds the tests of package sim with a changed Go runtime, so that a seed gives the same run every time: what the runtime draws
// at random within a bubble (the order of select, of maps, of timers of one instant, math/rand/v2) comes from the bubble, and nothing
// preempts its goroutines. Each process has one processor, and no garbage collector while a seed runs. The changes go in by
// -overlay; the Go installation stays as it is.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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
	from := flag.Uint64("from", rand.Uint64N(1<<40), "the first of them")
	processes := flag.Int("processes", runtime.NumCPU(), "how many to run at a time")
	overlaid := flag.String("overlay", "", "a JSON file with an overlay of its own, as go build takes it, such as a defect to be found")
	flag.Parse()
	if err := run(*seed, *times, *length, *from, *processes, *overlaid); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seed uint64, times int, length time.Duration, from uint64, processes int, overlaid string) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(dir, overlaid)
	if err != nil {
		return err
	}
	if seed != 0 {
		return simulate(binary, os.Stdout, "-test.run=^TestSeed_Given$", "-test.v", "-seed="+strconv.FormatUint(seed, 10), "-times="+strconv.Itoa(times))
	}
	var all sync.WaitGroup
	errs := make([]error, processes)
	outputs := make([]output, processes)
	for i := range processes {
		all.Go(func() {
			errs[i] = simulate(binary, &outputs[i], "-test.run=^TestSeeds_Fresh$", "-test.timeout=0", "-for="+length.String(),
				"-from="+strconv.FormatUint(from+uint64(i), 10), "-stride="+strconv.Itoa(processes))
		})
	}
	all.Wait()
	return summarize(outputs, errs)
}

// simulate runs the tests with one processor each.
func simulate(binary string, to io.Writer, args ...string) error {
	cmd := exec.Command(binary, args...)
	cmd.Dir = filepath.Join("internal", "sim")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOTRACEBACK=all")
	cmd.Stdout, cmd.Stderr = to, to
	return cmd.Run()
}

// An output keeps what a process has printed since its last seed began, and its figures.
type output struct {
	text  strings.Builder
	total string
}

func (o *output) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "seed ") && len(b) < 40 {
		o.text.Reset()
	}
	return o.text.Write(b)
}

// summarize prints failures, and the figures of all processes together.
func summarize(outputs []output, errs []error) (failed error) {
	sums := make(map[string]float64)
	for i := range outputs {
		for lines := bufio.NewScanner(strings.NewReader(outputs[i].text.String())); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "total ") {
				continue
			}
			for _, word := range strings.Fields(lines.Text())[1:] {
				name, value, _ := strings.Cut(word, "=")
				if d, err := time.ParseDuration(value); err == nil {
					sums[name] += d.Seconds()
				} else if n, err := strconv.ParseFloat(value, 64); err == nil {
					sums[name] += n
				}
			}
		}
		if errs[i] != nil {
			fmt.Println(outputs[i].text.String())
			failed = fmt.Errorf("sim: a seed has failed: %w", errs[i])
		}
	}
	processes := float64(len(outputs))
	fmt.Printf("%.0f seeds: %s simulated in %s by %.0f processes, %.0f simulated seconds a second; %.0f acquires, %.0f commands, %.0f faults\n",
		sums["seeds"], seconds(sums["simulated"]), seconds(sums["took"]/processes), processes, sums["simulated"]/max(1, sums["took"])*processes,
		sums["acquires"], sums["commands"], sums["faults"])
	return failed
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Second) }

// build makes the test binary.
func build(dir, overlaid string) (binary string, err error) {
	replace := make(map[string]string)
	if overlaid != "" {
		var given struct{ Replace map[string]string }
		text, err := os.ReadFile(overlaid)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(text, &given); err != nil {
			return "", err
		}
		replace = given.Replace
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	for i, c := range runtimeChanges {
		file := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", c.file)
		if err := change(replace, dir, i, file, c); err != nil {
			return "", err
		}
	}
	world, err := filepath.Abs(filepath.Join("internal", "sim", "world.go"))
	if err != nil {
		return "", err
	}
	if err := change(replace, dir, len(runtimeChanges), world, edit{old: "var Deterministic = false", text: "var Deterministic = true"}); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "sim.test")
	cmd := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./internal/sim")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return binary, cmd.Run()
}

// change puts an edited file into the overlay. It edits what the overlay has already.
func change(replace map[string]string, dir string, n int, file string, e edit) error {
	from := file
	if already, ok := replace[file]; ok {
		from = already
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if strings.Count(string(text), e.old) != 1 {
		return fmt.Errorf("sim: %s does not have %q once; adapt internal/sim/run to this Go", file, e.old)
	}
	changed := filepath.Join(dir, fmt.Sprintf("%d-%s", n, filepath.Base(file)))
	replace[file] = changed
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
