package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build builds the tests of package sim with a modified runtime. extra is an overlay file with more
// changes; empty: none.
func (c *campaign) build(ctx context.Context, extra string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	goroot, gomod, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	c.root = filepath.Dir(gomod)
	o, err := readOverlay(extra)
	if err != nil {
		return err
	}
	for _, e := range runtimeChanges {
		e.file = filepath.Join(goroot, "src", "runtime", e.file)
		if err := o.change(c.dir, e); err != nil {
			return err
		}
	}
	world := filepath.Join(c.root, "internal", "lab", "sim", "world.go")
	if err := o.change(c.dir, edit{world, "var Deterministic = false", "var Deterministic = true"}); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	file := filepath.Join(c.dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	c.binary = filepath.Join(c.dir, "sim.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", c.binary, "./internal/lab/sim")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.root, os.Stderr, os.Stderr
	// The order of a map whose keys are pointers depends on their addresses.
	cmd.Env = append(os.Environ(), "GOEXPERIMENT=norandomizedheapbase64")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("package sim does not compile: %w", err)
	}
	return nil
}

// An overlay is the file that go build's -overlay reads.
type overlay struct{ Replace map[string]string }

func readOverlay(file string) (overlay, error) {
	o := overlay{Replace: make(map[string]string)}
	if file == "" {
		return o, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("%s: %w", file, err)
	}
	return o, nil
}

// change adds an edit to the overlay. A file may have several.
func (o overlay) change(dir string, e edit) error {
	from := e.file
	if edited, ok := o.Replace[e.file]; ok {
		from = edited
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if strings.Count(string(text), e.old) != 1 {
		return fmt.Errorf("%s does not contain %q once; adapt internal/lab/sim/run to it", e.file, e.old)
	}
	// The build cache knows a file by its base name, too. It must not differ between runs.
	edited := filepath.Join(dir, strings.ReplaceAll(e.file, string(filepath.Separator), "_"))
	o.Replace[e.file] = edited
	return os.WriteFile(edited, []byte(strings.Replace(string(text), e.old, e.text, 1)), 0o600)
}

// An edit replaces a text that a file contains once.
type edit struct{ file, old, text string }

// runtimeChanges make bubbles deterministic. Random numbers of the runtime, and of math/rand/v2,
// come from the bubble, or from one source for all other goroutines. Goroutines in a bubble are not
// preempted.
var runtimeChanges = []edit{
	{
		file: "synctest.go",
		old:  "\ttotal   int // total goroutines\n",
		text: "\trandom uint64\n\ttotal   int // total goroutines\n",
	},
	{
		file: "synctest.go",
		old:  "// changegstatus is called when",
		text: `// splitMix64 draws the next random number.
//
//go:nosplit
func splitMix64(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// changegstatus is called when`,
	},
	{ // every 61st tick looks at the global queue first
		file: "synctest.go",
		old:  "\tgp.bubble = bubble\n\tdefer func() {",
		text: "\tgp.bubble = bubble\n\tgp.m.p.ptr().schedtick = 0\n\tdefer func() {",
	},
	{
		file: "rand.go",
		old:  "\tmp := getg().m\n\tc := &mp.chacha8\n",
		text: `	if bubble := getg().bubble; bubble != nil {
		return splitMix64(&bubble.random)
	}
	mp := getg().m
	if getg() != mp.g0 {
		return splitMix64(&randomOutside)
	}
	c := &mp.chacha8
`,
	},
	{
		file: "rand.go",
		old:  "// rand returns a random uint64 from the per-m chacha8 state.\n",
		text: `// randomOutside is the state for goroutines outside of bubbles, such as the main one, which draws
// when packages are initialized. That of an m would depend on which m they run.
var randomOutside uint64

// rand returns a random uint64 from the per-m chacha8 state.
`,
	},
	{
		file: "rand.go",
		old:  "\tglobalRand.state.Init(*seed)\n",
		text: "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n",
	},
	{
		file: "select.go",
		old:  "\t\tj := cheaprandn(uint32(norder + 1))\n",
		text: "\t\tj := bubbleRandn(uint32(norder + 1))\n",
	},
	{
		file: "select.go",
		old:  "// selectgo implements the select statement.\n",
		text: `func bubbleRandn(n uint32) uint32 {
	if getg().bubble != nil {
		return randn(n)
	}
	return cheaprandn(n)
}

// selectgo implements the select statement.
`,
	},
	{
		file: "time.go",
		old:  "\t\t\tt.rand = cheaprand()\n",
		text: "\t\t\tt.rand = bubbleRandn(1 << 31)\n",
	},
	{ // no preemption
		file: "proc.go",
		old:  "\tif gp == nil || gp == mp.g0 {\n\t\treturn false\n\t}\n\tif readgstatus(gp)&^_Gscan == _Gsyscall {",
		text: `	if gp == nil || gp == mp.g0 || gp.bubble != nil {
		return false
	}
	if readgstatus(gp)&^_Gscan == _Gsyscall {`,
	},
}
