package meter

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
)

// Each module is refused with a reason, before work that the limit is there to prevent.
func TestInstrument_Refuses(t *testing.T) {
	t.Parallel()
	nop := func(int) []byte { return []byte{0x01} }
	open := func(int) []byte { return []byte{opBlock, blockEmpty} }
	ends := func(int) []byte { return end }
	many := func(n int, b build) build {
		b.functions, b.bodies = make([]uint32, n), slices.Repeat([][]byte{{0, opEnd}}, n)
		return b
	}
	values := funcType{params: bytes.Repeat([]byte{typeI32}, 101)}
	for name, module := range map[string]struct {
		build  build
		reason string
	}{
		"a long function": {one(slices.Concat(locals(0), repeat(300<<10, nop), end)), "function 0 has 307202 bytes; at most 262144"},
		"many locals":     {one(slices.Concat(locals(1<<31), end)), "locals; at most 5000"},
		"many functions":  {many(100_001, one(nil)), "the module has 100001 functions; at most 100000"},
		"deep blocks":     {one(slices.Concat(locals(0), repeat(2001, open), repeat(2002, ends))), "more than 2000 blocks in each other"},
		"many parameters": {build{types: []funcType{values}}, "a type has 101 parameters; at most 100"},
		"many types":      {build{types: make([]funcType, 5001)}, "the module has 5001 types; at most 5000"},
		"a large table":   {build{table: 100_001}, "the module has 100001 table entries; at most 100000"},
		"many table elements": {func() build {
			b := one(slices.Concat(locals(0), end))
			b.table, b.elements = 1, make([]uint32, 200_001)
			return b
		}(), "an element segment has 200001 entries; at most 200000"},
		"many globals":         {build{globals: 10_001}, "the module has 10001 globals; at most 10000"},
		"many targets":         {one(slices.Concat(locals(0), []byte{opI32Const, 0, opBrTable}, appendU32(nil, 5001), make([]byte, 5002), end)), "a br_table has 5001 targets; at most 5000"},
		"the reserved import":  {build{types: []funcType{{}}, imports: []extern{{module: Module, name: Check}}}, `the import module "reqlock_meter" is reserved`},
		"an injected function": {one(slices.Concat(locals(0), []byte{opCall, 1}, end)), "function 1 does not exist"},
		"the counter":          {one(slices.Concat(locals(0), []byte{opI64Const, 0, opGlobalSet, 0}, end)), "global 0 does not exist"},
		"an unknown opcode":    {one(slices.Concat(locals(0), []byte{0x06, blockEmpty}, end)), "instruction 0x6 is not supported"},
		"an atomic":            {one(slices.Concat(locals(0), []byte{0xfe, 3, 0}, end)), "instruction 0xfe is not supported"},
		"a tail call":          {one(slices.Concat(locals(0), []byte{0x12, 0}, end)), "instruction 0x12 is not supported"},
		"code after its end":   {one(slices.Concat(locals(0), end, end)), "bytes follow its end"},
		"code without an end":  {one(slices.Concat(locals(0))), "it ends too early"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Instrument(module.build.encode(), DefaultLimits(16<<20))
			if err == nil || !strings.Contains(err.Error(), module.reason) {
				t.Errorf("%v; want %q", err, module.reason)
			}
		})
	}
}

// slow lists code that takes a compiler far longer than its size suggests: n pieces of code that
// use l locals.
var slow = map[string]func(n, l int) build{
	"loops in each other": func(n, l int) build {
		return one(slices.Concat(locals(uint32(l)), repeat(n, func(i int) []byte {
			return slices.Concat([]byte{opLoop, blockEmpty}, get(i%l), set((i+1)%l))
		}), repeat(n, func(int) []byte { return []byte{opLocalGet, 0, opBrIf, 0, opEnd} }), end))
	},
	"blocks in each other": func(n, l int) build {
		return one(slices.Concat(locals(uint32(l)), repeat(n, func(int) []byte { return []byte{opBlock, blockEmpty} }), repeat(n, func(i int) []byte {
			return slices.Concat(get(i%l), []byte{opBrIf, 0}, get(i%l), set((i+1)%l), end)
		}), end))
	},
	"ifs, then a use of each local": func(n, l int) build {
		return one(slices.Concat(locals(uint32(l)), repeat(n, func(i int) []byte {
			return slices.Concat(get(i%l), []byte{opIf, blockEmpty, opI32Const, 1}, set(i%l), end)
		}), repeat(l, func(i int) []byte { return append(get(i), 0x1a) }), end))
	},
	"loads in ifs": func(n, l int) build {
		return one(slices.Concat(locals(uint32(l)), repeat(n, func(i int) []byte {
			return slices.Concat(get(i%l), []byte{opIf, blockEmpty}, get(i*3%l), []byte{opI32Load, 0}, appendU32(nil, uint32(i)), []byte{0x1a, opEnd})
		}), end))
	},
	"branches to the end": func(n, l int) build {
		return one(slices.Concat(locals(uint32(l)), repeat(n, func(i int) []byte {
			return slices.Concat([]byte{opI32Const, 1}, set(i%l), get(i%l), []byte{opBrIf, 0})
		}), end))
	},
	"loops below many operands": func(n, l int) build {
		b := one(slices.Concat(locals(0), repeat(l, load), repeat(n, func(int) []byte {
			return []byte{opLoop, blockEmpty, opGlobalGet, 0, opBrIf, 0, opEnd}
		}), repeat(l-1, func(int) []byte { return []byte{opI32Add} }), []byte{opGlobalSet, 0, opEnd}))
		b.globals = 1
		return b
	},
	"indirect calls": func(n, _ int) build {
		b := one(slices.Concat(locals(0), repeat(2*n, func(int) []byte { return []byte{opI32Const, 0, opCallIndirect, 0, 0} }), end))
		b.table = 1
		return b
	},
	"calls with many values": func(n, _ int) build {
		hundred := bytes.Repeat([]byte{typeI32}, 100)
		body := append([]byte{0}, repeat(100, get)...)
		return build{
			types:     []funcType{{hundred, hundred}},
			functions: []uint32{0, 0},
			bodies:    [][]byte{slices.Concat(body, repeat(n, func(int) []byte { return []byte{opCall, 1} }), end), slices.Concat(body, end)},
		}
	},
	"calls beside many globals": func(n, l int) build {
		b := one(slices.Concat(locals(0), repeat(n, func(int) []byte { return []byte{opCall, 0} }), end))
		b.globals = l
		return b
	},
}

// What would take the compiler minutes is refused at once.
func TestInstrument_RefusesSlowCode(t *testing.T) {
	t.Parallel()
	for name, shape := range slow {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := Instrument(shape(20_000, 4000).encode(), DefaultLimits(16<<20))
			if err == nil || !strings.Contains(err.Error(), "accepted") {
				t.Error(err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("after %s", took)
			}
			if _, err := Instrument(shape(50, 20).encode(), DefaultLimits(16<<20)); err != nil {
				t.Errorf("a small one: %v", err)
			}
		})
	}
}

// load pushes a value that the compiler cannot compute again.
func load(i int) []byte {
	return appendU32([]byte{opI32Const, 0, opI32Load, 0}, uint32(i))
}

// What the estimate lets through is compiled in little time and memory. These are operands beside
// loops just below the limit: without the estimate of operands, ten times as many passed.
func TestInstrument_BoundsTheCompiler(t *testing.T) {
	shape, largest := slow["loops below many operands"], 0
	var code []byte
	for n := 50; n < 2000; n += 50 {
		metered, err := Instrument(shape(n, n).encode(), DefaultLimits(16<<20))
		if err != nil {
			break
		}
		code, largest = metered, n
	}
	if largest < 100 || largest > 1000 {
		t.Fatalf("%d operands beside %d loops are accepted", largest, largest)
	}
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := r.CompileModule(ctx, code); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
		t.Errorf("%d operands beside %d loops take the compiler %d MiB", largest, largest, took)
	}
}
