package meter

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Bulk instructions that run in pieces leave the same memory as whole ones, and trap before they
// write anything.
func TestBulk(t *testing.T) {
	t.Parallel()
	const size = 16 << 16
	original, metered := bulkModule(t, false), bulkModule(t, true)
	for _, c := range []struct {
		name    string
		d, s, n uint64
	}{
		{"copy", 0, 1, size - 1},
		{"copy", 1, 0, size - 1},
		{"copy", 100, 0, 3*piece + 7},
		{"copy", 0, 100, 3*piece + 7},
		{"copy", 5, 5, 2 * piece},
		{"copy", 1, 0, size}, // beyond the memory
		{"copy", 0, 1, size},
		{"copy", size, size, 0},
		{"copy", size + 1, 0, 0},
		{"copy", 0xffff0000, 0, 2 * piece},
		{"fill", 3, 0xab, 2*piece + 1},
		{"fill", 3, 0xcd, piece},
		{"fill", 0, 0xef, size},
		{"fill", 1, 0x12, size},
		{"fill", size - 1, 0x12, 0xffffffff},
		{"copy", 7, 70000, 2 * piece},
		{"init", 9, 3, 3*piece - 100},
		{"init", size - piece, 0, 2 * piece}, // beyond the memory
		{"init", 0, 1, 4 * piece},            // beyond the segment
		{"init", 0, 4 * piece, 0},
		{"init", 0, 4*piece + 1, 0},
		{"drop", 0, 0, 0},
		{"init", 0, 0, 2 * piece},
		{"init", 0, 0, 0},
	} {
		ctx := context.Background()
		_, want := original.ExportedFunction(c.name).Call(ctx, c.d, c.s, c.n)
		_, got := metered.ExportedFunction(c.name).Call(ctx, c.d, c.s, c.n)
		if (want == nil) != (got == nil) {
			t.Errorf("%+v: metered %v, original %v", c, got, want)
		}
		a, readable := original.Memory().Read(0, size)
		b, _ := metered.Memory().Read(0, size)
		if !readable || !bytes.Equal(a, b) {
			t.Errorf("%+v leaves another memory", c)
		}
		for i := range a { // another pattern for the next one
			a[i] = byte(i * i >> 3)
		}
		copy(b, a)
	}
}

func bulkModule(t *testing.T, meter bool) api.Module {
	t.Helper()
	operands := slices.Concat(get(0), get(1), get(2))
	body := func(code ...byte) []byte { return slices.Concat(locals(0), operands, code, end) }
	data := make([]byte, 4*piece)
	for i := range data {
		data[i] = byte(i * 7)
	}
	code := build{
		types:     []funcType{{params: []byte{typeI32, typeI32, typeI32}}},
		functions: []uint32{0, 0, 0, 0},
		exports:   []extern{{name: "fill"}, {name: "copy", index: 1}, {name: "init", index: 2}, {name: "drop", index: 3}},
		bodies: [][]byte{
			body(opMisc, miscMemoryFill, 0), body(opMisc, miscMemoryCopy, 0, 0), body(opMisc, miscMemoryInit, 0, 0),
			slices.Concat(locals(0), []byte{opMisc, miscDataDrop, 0}, end),
		},
		data: data,
	}.encode()
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { _ = r.Close(ctx) })
	if meter {
		var err error
		if code, err = Instrument(code, DefaultLimits(1<<20)); err != nil {
			t.Fatal(err)
		}
		check := func(_ context.Context, s []uint64) { s[0] = Slice }
		pair := []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}
		if _, err := r.NewHostModuleBuilder(Module).NewFunctionBuilder().WithGoFunction(api.GoFunc(check), pair, pair[:1]).Export(Check).Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	m, err := r.Instantiate(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(ctx) })
	return m
}
