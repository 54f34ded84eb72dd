package meter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/reqlock/reqlock/wasm/internal/meter"
)

// limits are those of the host, except for a br_table with 24,000 targets in the suite.
var limits = func() meter.Limits {
	l := meter.DefaultLimits(16 << 20)
	l.Targets = 30_000
	return l
}()

// The test-suite of the WebAssembly specification, which wazero's module brings, has the same
// results with metered modules as with the original ones.
func TestSpec(t *testing.T) {
	t.Parallel()
	var compared, checks atomic.Int64
	t.Cleanup(func() {
		if t.Logf("%d commands compared, %d checks", compared.Load(), checks.Load()); !testing.Short() && (compared.Load() < 60_000 || checks.Load() < 1000) {
			t.Error("too few")
		}
	})
	for suite, features := range map[string]api.CoreFeatures{"v1": api.CoreFeaturesV1, "v2": api.CoreFeaturesV2} {
		scripts, err := filepath.Glob(filepath.Join(spectest(t), suite, "testdata", "*.json"))
		if err != nil || len(scripts) < 70 {
			t.Fatalf("%d scripts, %v", len(scripts), err)
		}
		for i, script := range scripts {
			if testing.Short() && i%8 != 0 { // a sample, which has scripts of all parts of the specification
				continue
			}
			t.Run(suite+"/"+strings.TrimSuffix(filepath.Base(script), ".json"), func(t *testing.T) {
				t.Parallel()
				commands, calls := runScript(t, script, features)
				compared.Add(int64(commands))
				checks.Add(int64(calls))
			})
		}
	}
}

// spectest returns the folder of the suite.
func spectest(t testing.TB) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "internal", "integration_test", "spectest")
}

type command struct {
	Type, Name, Filename, As, Text string
	Line                           int
	ModuleType                     string `json:"module_type"`
	Action                         struct {
		Type, Module, Field string
		Args                []struct {
			Type     string
			LaneType string `json:"lane_type"`
			Value    any
		}
	}
}

// A world runs a script with either the original modules or the metered ones.
type world struct {
	runtime wazero.Runtime
	metered bool
	named   map[string]api.Module
	current api.Module
	checks  int // calls of the host
}

func newWorld(t *testing.T, features api.CoreFeatures, metered bool) *world {
	t.Helper()
	ctx := context.Background()
	w := &world{
		runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features)),
		metered: metered,
		named:   map[string]api.Module{},
	}
	t.Cleanup(func() { _ = w.runtime.Close(ctx) })
	if err := w.host(ctx); err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(filepath.Join(spectest(t), "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.runtime.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName("spectest")); err != nil {
		t.Fatal(err)
	}
	return w
}

var errStack = errors.New("stack overflow")

// host provides the function that metered modules call.
func (w *world) host(ctx context.Context) error {
	_, err := w.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) {
			w.checks++
			if int64(s[1]) < 0 {
				panic(errStack)
			}
			s[0] = meter.Slice
		}), []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(meter.Check).Instantiate(ctx)
	return err
}

func (w *world) instantiate(code []byte, name string) (m api.Module, err error) {
	defer func() {
		if cause := recover(); cause != nil { // wazero panics on some modules
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	if w.metered {
		code, err = meter.Instrument(code, limits)
		if err != nil {
			return nil, err
		}
	}
	return w.runtime.InstantiateWithConfig(context.Background(), code, wazero.NewModuleConfig().WithName(name))
}

// runScript compares both worlds, and returns how many commands it ran and how often a guest called
// the host.
func runScript(t *testing.T, script string, features api.CoreFeatures) (commands, checks int) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct{ Commands []command }
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	original, metered := newWorld(t, features, false), newWorld(t, features, true)
	for i, c := range parsed.Commands {
		switch {
		case c.ModuleType == "text": // tests a parser of the text format
			continue
		case c.Type == "register": // always follows its module
			continue
		case c.Type == "module" && i+1 < len(parsed.Commands) && parsed.Commands[i+1].Type == "register":
			c.As = parsed.Commands[i+1].As
		}
		want, got := original.run(t, script, c), metered.run(t, script, c)
		if got != want {
			t.Errorf("line %d, %s: metered: %s; original: %s", c.Line, c.Type, got, want)
		}
		commands++
	}
	return commands, metered.checks
}

// run runs a command and returns what is comparable of the outcome.
func (w *world) run(t *testing.T, script string, c command) string {
	t.Helper()
	switch {
	case c.Filename != "":
		code, err := os.ReadFile(filepath.Join(filepath.Dir(script), c.Filename))
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.instantiate(code, c.As)
		if c.Type == "module" {
			w.current = m
			if c.Name != "" {
				w.named[c.Name] = m
			}
		}
		if c.Type == "assert_uninstantiable" && err != nil {
			return trap(err)
		}
		return fmt.Sprintf("failed: %v", err != nil)
	}
	m := w.current
	if c.Action.Module != "" {
		m = w.named[c.Action.Module]
	}
	if m == nil {
		t.Fatalf("line %d: no module", c.Line)
	}
	if c.Action.Type == "get" {
		return fmt.Sprint(m.ExportedGlobal(c.Action.Field).Get())
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, values(t, a.Type, a.LaneType, a.Value)...)
	}
	results, err := m.ExportedFunction(c.Action.Field).Call(context.Background(), args...)
	if err != nil {
		if w.metered { // the suite goes on with an instance that has trapped
			m.ExportedGlobal(meter.Stack).(api.MutableGlobal).Set(meter.StackSize)
		}
		return trap(err)
	}
	return fmt.Sprint(results)
}

// trap returns the reason of a trap.
func trap(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	for _, reason := range []string{"stack overflow", "out of bounds", "unreachable", "divide by zero", "overflow", "indirect", "null", "invalid conversion"} {
		if strings.Contains(text, reason) {
			return "trap: " + reason
		}
	}
	return "trap: " + text
}

// values decodes an argument.
func values(t *testing.T, typ, lane string, value any) []uint64 {
	t.Helper()
	if typ != "v128" {
		return []uint64{number(t, typ, value.(string))}
	}
	bits := map[string]int{"i8": 8, "i16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}[lane]
	var out [2]uint64
	for i, v := range value.([]any) {
		at := i * bits
		out[at/64] |= number(t, lane, v.(string)) << (at % 64)
	}
	return out[:]
}

func number(t *testing.T, typ, value string) uint64 {
	t.Helper()
	switch {
	case typ == "externref" && value != "null":
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n + 1 // 0 is null
	case value == "null":
		return 0
	case strings.HasPrefix(value, "nan") && typ == "f32":
		return 0x7fc00000
	case strings.HasPrefix(value, "nan"):
		return math.Float64bits(math.NaN())
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
