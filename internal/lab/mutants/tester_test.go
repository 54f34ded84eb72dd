package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/mutants/table"
)

// demo is a module with tests, some of which no mutant should meet.
var demo = map[string]string{
	"go.mod":        "module demo\n\ngo 1.26\n",
	"demo/word.txt": "word",
	"demo/demo.go": `package demo

import _ "embed"

//go:embed word.txt
var word string

func add(a, b int) int { return a + b }

func sub(a, b int) int { return a - b }

// Word returns the word.
func Word() string { return word }

func loop(n int) {
	for n < 0 {
	}
}
`,
	"demo/demo_test.go": `package demo

import (
	"os"
	"testing"
)

func TestAdd(t *testing.T) {
	for _, name := range []string{"small numbers", "one/two"} {
		t.Run(name, func(t *testing.T) {
			if add(2, 3) != 5 {
				t.Error("2 + 3 is not 5")
			}
		})
	}
}

func TestSub(t *testing.T) {
	if sub(3, 2) != 1 {
		t.Error("3 - 2 is not 1")
	}
}

func TestWord(t *testing.T) {
	if word != "word" {
		panic(word)
	}
}

func TestExit(t *testing.T) {
	if word == "bye" {
		os.Exit(3)
	}
}

func TestLoop(*testing.T) { loop(1) }

func TestBroken(t *testing.T) { t.Error("always") }
`,
	"core/internal/worlds/worlds_test.go": `package worlds

import (
	"testing"

	"demo/demo"
)

func TestWorlds(t *testing.T) {
	for _, name := range []string{"fair/queue", "fair/losses"} {
		t.Run(name, func(t *testing.T) {
			if name == "fair/queue" && demo.Word() != "word" {
				t.Error(demo.Word())
			}
		})
	}
}
`,
	// A simulator that finds out by reading.
	"internal/lab/sim/run/main.go": `package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	file := flag.String("overlay", "", "")
	flag.String("for", "", "")
	flag.String("recorded", "", "")
	flag.Int("processes", 0, "")
	flag.Parse()
	var overlay struct{ Replace map[string]string }
	text, _ := os.ReadFile(*file)
	_ = json.Unmarshal(text, &overlay)
	for _, replaced := range overlay.Replace {
		text, _ := os.ReadFile(replaced)
		switch {
		case strings.Contains(string(text), "a * b"):
			fmt.Fprintln(os.Stderr, "sim: seed 7 failed: exit status 1")
			os.Exit(1)
		case strings.Contains(string(text), "a + }"):
			fmt.Fprintln(os.Stderr, "sim: package sim does not compile")
			os.Exit(1)
		}
	}
}
`,
}

// newDemo returns a tester of the demo module.
func newDemo(t *testing.T) *tester {
	t.Helper()
	dir := t.TempDir()
	for file, text := range demo {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &tester{root: dir, dir: t.TempDir()}
}

func TestTester(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the demo for each case; TestSurvivor builds it twice")
	}
	d := newDemo(t)
	plus := table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a * b"}
	word := table.Mutant{File: "demo/word.txt", Old: "word", New: "bye"}
	minus := table.Mutant{File: "demo/demo.go", Old: "a - b", New: "a"}
	for name, test := range map[string]struct {
		mutant table.Mutant
		nets   []string
		every  bool
		// want are the tests that catch the mutant.
		want string
	}{
		"by a test":                    {mutant: plus, nets: []string{"demo TestAdd"}, want: "demo TestAdd/small_numbers"},
		"by a subtest":                 {mutant: plus, nets: []string{"demo TestAdd/one/two"}, want: "demo TestAdd/one/two"},
		"by every net":                 {mutant: plus, nets: []string{"demo TestAdd"}, every: true, want: "demo TestAdd/small_numbers, demo TestAdd/one/two"},
		"an embedded file, by a test":  {mutant: word, nets: []string{"demo TestWord"}, want: "demo TestWord"},
		"by the end of the process":    {mutant: word, nets: []string{"demo TestExit"}, want: "demo TestMain"},
		"an embedded file, by a world": {mutant: word, nets: []string{"world fair/queue"}, want: "core/internal/worlds TestWorlds/fair/queue"},
		"not by another world":         {mutant: word, nets: []string{"world fair/losses"}},
		"by no net":                    {mutant: minus, nets: []string{"demo TestAdd"}},
		"by the simulator":             {mutant: plus, nets: []string{"sim"}, want: "sim SEED=7"},
		"by a test and the simulator":  {mutant: plus, nets: []string{"demo TestAdd/one/two", "sim"}, every: true, want: "demo TestAdd/one/two, sim SEED=7"},
		"not by the simulator":         {mutant: minus, nets: []string{"sim"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *d
			own.every = test.every
			test.mutant.Nets = test.nets
			r, err := own.test(t.Context(), test.mutant)
			if got := strings.Join(r.caught, ", "); err != nil || got != test.want || r.whole {
				t.Errorf("caught by %q (%v), want %q", got, err, test.want)
			}
		})
	}

	t.Run("by another test of the package", func(t *testing.T) {
		t.Parallel()
		own := *d
		own.fallback = true
		minus.Nets = []string{"demo TestAdd"}
		r, err := own.test(t.Context(), minus)
		if err != nil || !r.whole || !strings.Contains(r.by(), "none of its nets") {
			t.Errorf("caught by %q (%v), want another test than the nets", r.caught, err)
		}
	})
}

func TestTester_Mistakes(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	for name, test := range map[string]struct {
		mutant table.Mutant
		want   string
	}{
		"no such file":                   {table.Mutant{File: "demo/none.go", Old: "a", New: "b"}, "none.go"},
		"the old text has changed":       {table.Mutant{File: "demo/demo.go", Old: "a / b", New: "b"}, "not there any more"},
		"it is there twice":              {table.Mutant{File: "demo/demo.go", Old: "int {", New: ""}, "there 2 times"},
		"nothing changes":                {table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a + b"}, "equals the new one"},
		"it does not compile":            {table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a +"}, "does not compile"},
		"the simulator does not compile": {table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a + }", Nets: []string{"sim"}}, "does not compile"},
		"no net":                         {table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a * b", Nets: []string{"TestAdd"}}, "a net is a package and a test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.mutant.Nets == nil {
				test.mutant.Nets = []string{"demo TestAdd"}
			}
			if r, err := d.test(t.Context(), test.mutant); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("caught by %q, error %v, want one with %q", r.caught, err, test.want)
			}
		})
	}
}

func TestBaseline(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the demo for each case; TestSurvivor builds it twice")
	}
	d := newDemo(t)
	for nets, want := range map[string]string{
		"demo TestAdd, demo TestAdd/one/two": "",
		"demo TestAdd, demo TestBroken":      "TestBroken in demo fails without a mutant",
		"demo TestNone":                      "there is no test TestNone",
		"demo TestAdd/large numbers":         "there is no test TestAdd/large numbers",
		"world fair/queue":                   "",
		"world fair/none":                    "there is no test TestWorlds/fair/none",
		"sim":                                "",
	} {
		t.Run(nets, func(t *testing.T) {
			t.Parallel()
			m := table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a * b", Nets: strings.Split(nets, ", ")}
			err := d.baseline(t.Context(), []table.Mutant{m}, 1)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

// The line of a survivor must be seen, and be an error.
func TestSurvivor(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	mutants := []table.Mutant{
		{Promise: "adds", File: "demo/demo.go", Old: "a + b", New: "a * b", Nets: []string{"demo TestAdd"}},
		{Promise: "subtracts", File: "demo/demo.go", Old: "a - b", New: "a", Nets: []string{"demo TestAdd"}},
	}
	var out bytes.Buffer
	results, err := d.all(t.Context(), &out, mutants, 2)
	if err != nil {
		t.Fatal(err)
	}
	err = summarize(&out, results, 0)
	if err == nil || !strings.Contains(err.Error(), "1 mutants survived") {
		t.Errorf("error %v, want one survivor", err)
	}
	for _, want := range []string{"caught ", "SURVIVED", "subtracts  [demo/demo.go:10]", "2 mutants, 1 caught, 1 survived"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
	if text := toMarkdown(results); !strings.Contains(text, "| adds | `demo/demo.go` | demo TestAdd/small_numbers |") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestAll_Interrupted(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := table.Mutant{File: "demo/demo.go", Old: "a + b", New: "a * b", Nets: []string{"demo TestAdd"}}
	if _, err := d.all(ctx, &bytes.Buffer{}, []table.Mutant{m, m}, 1); err == nil {
		t.Error("no error, although the run was interrupted")
	}
}

func TestParse_Death(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		log   string
		tests []string
		want  string
	}{
		"a time-out": {
			"=== RUN   TestA\n=== RUN   TestB\npanic: test timed out after 1s\n\trunning tests:\n\t\tTestB/x (1s)\n\ngoroutine 1 [running]:\n",
			[]string{"TestA", "TestB"}, "TestB/x (timed out)",
		},
		"a panic of the only test":  {"=== RUN   TestA\npanic: oh\n", []string{"TestA"}, "TestA (panicked)"},
		"a panic of one of several": {"=== RUN   TestA\npanic: oh\n", []string{"TestA", "TestB"}, "a panic outside of a test's goroutine"},
		"a goroutine that is left":  {"PASS\ngoleak: Errors on successful test run: found unexpected goroutines:\n", nil, "TestMain (a goroutine was left)"},
		"anything else":             {"PASS\n", nil, "TestMain"},
	} {
		if got := parse(strings.NewReader(test.log), func() {}).death(test.tests); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Every mutant is in some sample, and one that is spread over the table.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := table.All()
	everything := regexp.MustCompile("")
	met := make(map[string]bool)
	for day := range len(all) {
		sample := choose(all, everything, 12, day)
		own := make(map[string]bool)
		for _, m := range sample {
			own[m.Promise], met[m.Promise] = true, true
		}
		if len(own) != 12 {
			t.Fatalf("sample %d has %d different mutants, want 12", day, len(own))
		}
	}
	if len(met) != len(all) {
		t.Errorf("all samples together have %d mutants, want %d", len(met), len(all))
	}
	if got := choose(all, regexp.MustCompile("fair_pass"), 12, 0); len(got) != 4 {
		t.Errorf("%d mutants of one file, want 4", len(got))
	}
	if got := choose(all, everything, 0, 0); len(got) != len(all) {
		t.Errorf("%d mutants without a sample, want %d", len(got), len(all))
	}
}
