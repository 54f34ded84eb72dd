package meter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/reqlock/reqlock/wasm/internal/meter"
)

// fuzzLimits let an input be compiled in milliseconds.
func fuzzLimits() meter.Limits {
	l := meter.DefaultLimits(64 << 10)
	l.FunctionWork, l.Work, l.TableSize, l.Functions = 20_000, 100_000, 10_000, 500
	return l
}

// Any bytes are refused or metered in bounded time. The compiler accepts the metered module if it
// accepts the original, and both do the same.
func FuzzInstrument(f *testing.F) {
	for _, pattern := range []string{"../../testdata/*.wasm", filepath.Join(spectest(f), "v2", "testdata", "*[a-z].0.wasm")} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 20 {
			f.Fatalf("%d files, %v", len(files), err)
		}
		for _, file := range files {
			if code, err := os.ReadFile(file); err != nil {
				f.Fatal(err)
			} else if len(code) < 2<<10 {
				f.Add(code)
			}
		}
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		began := time.Now()
		metered, err := meter.Instrument(code, fuzzLimits())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("metering took %s", took)
		}
		if err != nil {
			return
		}
		if len(metered) > 40*len(code)+4096 {
			t.Errorf("%d bytes became %d", len(code), len(metered))
		}
		// A guest that cannot be stopped also stops the fuzzer, which would never show the input.
		stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("an input of %d bytes takes too long: %x", len(code), code)) })
		defer stuck.Stop()
		compare(t, code, metered)
	})
}

// compare runs the functions that take no parameters in both modules.
func compare(t *testing.T, code, metered []byte) {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(16))
	defer func() { _ = r.Close(ctx) }()
	budget := &budget{}
	if err := budget.instantiate(ctx, r); err != nil {
		t.Fatal(err)
	}
	original, err := compile(ctx, r, code)
	meteredCode, meteredErr := compile(ctx, r, metered)
	if err != nil && (strings.Contains(err.Error(), "section custom") || strings.Contains(err.Error(), "custom section")) {
		return // names that are damaged are dropped, and so are sections without a name, which wazero cannot read
	}
	if (err == nil) != (meteredErr == nil) {
		t.Fatalf("compiling: metered %v, original %v", meteredErr, err)
	}
	grows := bytes.Contains(code, []byte{0xfc, 15}) // table.grow fails where the limit is
	if err != nil || grows || len(original.ImportedFunctions()) > 0 {
		return
	}
	b, meteredErr := start(ctx, r, meteredCode)
	if errors.Is(meteredErr, errSpent) {
		return // it may run for ever
	}
	a, err := start(ctx, r, original)
	if (err == nil) != (meteredErr == nil) {
		t.Fatalf("starting: metered %v, original %v", meteredErr, err)
	}
	if err != nil {
		return
	}
	for _, name := range exported(original) {
		budget.spent = 0
		got, meteredErr := call(ctx, b, name)
		if errors.Is(meteredErr, errSpent) {
			return
		}
		want, err := call(ctx, a, name)
		if (err == nil) != (meteredErr == nil) || !slices.Equal(got, want) {
			t.Fatalf("%s: metered %v, %v; original %v, %v", name, got, meteredErr, want, err)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(content(a), content(b)) {
			t.Fatalf("%s leaves another memory", name)
		}
	}
}

// exported returns the names of the exported functions that take no parameters.
func exported(m wazero.CompiledModule) []string {
	var names []string
	for name, f := range m.ExportedFunctions() {
		if len(f.ParamTypes()) == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func content(m api.Module) []byte {
	if reflect.ValueOf(m.Memory()).IsNil() { // wazero returns a nil pointer
		return nil
	}
	b, _ := m.Memory().Read(0, m.Memory().Size())
	return b
}

// compile converts a panic of wazero to an error.
func compile(ctx context.Context, r wazero.Runtime, code []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return r.CompileModule(ctx, code)
}

func start(ctx context.Context, r wazero.Runtime, m wazero.CompiledModule) (_ api.Module, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return r.InstantiateModule(ctx, m, wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

func call(ctx context.Context, m api.Module, name string) ([]uint64, error) {
	return m.ExportedFunction(name).Call(ctx)
}

// A budget is a host that ends a guest after some checks.
type budget struct{ spent int }

var errSpent = errors.New("the budget is spent")

func (b *budget) instantiate(ctx context.Context, r wazero.Runtime) error {
	check := func(_ context.Context, s []uint64) {
		if b.spent++; b.spent > 100 || int64(s[1]) < 0 {
			panic(errSpent)
		}
		s[0] = meter.Slice
	}
	pair := []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}
	_, err := r.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(check), pair, pair[:1]).Export(meter.Check).Instantiate(ctx)
	return err
}
