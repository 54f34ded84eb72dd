package meter

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// However a function fills its frame, endless recursion ends after little memory. It is not
// parallel, because it measures what the process allocates.
func TestStack(t *testing.T) {
	hundred := bytes.Repeat([]byte{typeI32}, 100)
	drops := func(n int) []byte { return repeat(n, func(int) []byte { return []byte{opDrop} }) }
	stores := func(n int) []byte { return repeat(n, func(int) []byte { return []byte{opGlobalSet, 0} }) }
	values := func(body []byte) build {
		return build{
			types:     []funcType{{}, {results: hundred}},
			globals:   1,
			functions: []uint32{0, 1},
			exports:   []extern{{name: "f"}},
			bodies:    [][]byte{slices.Concat(locals(0), body, end), slices.Concat(locals(0), repeat(100, load), end)},
		}
	}
	for name, b := range map[string]build{
		"results of calls":     values(slices.Concat(repeat(50, func(int) []byte { return []byte{opCall, 1} }), []byte{opCall, 0}, stores(5000))),
		"operands":             values(slices.Concat(repeat(5000, load), []byte{opCall, 0}, stores(5000))),
		"results below a call": values(slices.Concat([]byte{opCall, 1, opCall, 0}, drops(50), stores(50))),
	} {
		code, err := Instrument(b.encode(), DefaultLimits(16<<20))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if took := overflow(t, code); took > 16<<20 {
			t.Errorf("%s: the stack took %d MiB until the recursion was stopped", name, took>>20)
		}
	}
}

var errStack = errors.New("the stack is full")

// overflow calls f until its stack is full, and returns what that has allocated.
func overflow(t *testing.T, code []byte) uint64 {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	check := func(_ context.Context, s []uint64) {
		if int64(s[1]) < 0 {
			panic(errStack)
		}
		s[0] = Slice
	}
	pair := []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}
	if _, err := r.NewHostModuleBuilder(Module).NewFunctionBuilder().WithGoFunction(api.GoFunc(check), pair, pair[:1]).Export(Check).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := r.Instantiate(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = m.ExportedFunction("f").Call(ctx)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errStack) {
		t.Errorf("the recursion ended with %v", err)
	}
	return after.TotalAlloc - before.TotalAlloc
}
