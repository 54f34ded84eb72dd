package meter

import "slices"

// A build describes a module for tests. Bodies are encoded with their locals.
type build struct {
	types   []funcType
	imports []extern
	// functions are the types of the functions.
	functions []uint32
	// table is its number of entries. 0: there is no table.
	table int
	// globals is how many are mutable.
	globals int
	exports []extern
	// elements are the functions in the table.
	elements []uint32
	bodies   [][]byte
	data     []byte
}

// one describes a module that exports one function "f" of type ()->(), with a memory.
func one(body []byte) build {
	return build{
		types:     []funcType{{}},
		functions: []uint32{0},
		exports:   []extern{{name: "f", kind: kindFunction}},
		bodies:    [][]byte{body},
	}
}

func (b build) encode() []byte {
	m := &module{
		types: b.types, imports: b.imports, functions: b.functions, exports: b.exports,
		memories: []limitsType{{min: 16}},
	}
	for _, i := range b.imports {
		if i.kind == kindFunction {
			m.importedFunctions = append(m.importedFunctions, i.index)
		}
	}
	if b.table > 0 {
		m.tables = []table{{element: typeFuncref, limitsType: limitsType{min: uint32(b.table)}}}
	}
	section := func(id byte, body []byte) []byte {
		if body == nil {
			return nil
		}
		return appendSection(nil, id, body)
	}
	globals := slices.Repeat([]global{{globalType{typeI32, true}, constant{code: []byte{opI32Const, 0}}}}, b.globals)
	var elements, data []byte
	if b.elements != nil {
		elements = appendU32([]byte{1, 0, opI32Const, 0, opEnd}, uint32(len(b.elements)))
		for _, f := range b.elements {
			elements = appendU32(elements, f)
		}
	}
	if b.data != nil {
		data = append(appendU32([]byte{1, 1}, uint32(len(b.data))), b.data...)
	}
	var count []byte
	if b.data != nil {
		count = []byte{1}
	}
	return slices.Concat(magic,
		section(sectionType, encode(b.types, func(out []byte, t funcType) []byte {
			out = append(appendU32(append(out, 0x60), uint32(len(t.params))), t.params...)
			return append(appendU32(out, uint32(len(t.results))), t.results...)
		})),
		section(sectionImport, encode(b.imports, appendImport)),
		section(sectionFunction, encode(b.functions, appendU32)),
		section(sectionTable, encode(m.tables, appendTable)),
		section(sectionMemory, encode(m.memories, appendLimits)),
		section(sectionGlobal, encode(globals, func(out []byte, g global) []byte {
			return append(append(appendGlobalType(out, g.globalType), g.init.code...), opEnd)
		})),
		section(sectionExport, encode(b.exports, func(out []byte, e extern) []byte {
			return appendU32(append(appendName(out, e.name), e.kind), e.index)
		})),
		section(sectionElement, elements),
		section(sectionDataCount, count),
		section(sectionCode, encode(b.bodies, func(out []byte, body []byte) []byte {
			return append(appendU32(out, uint32(len(body))), body...)
		})),
		section(sectionData, data),
	)
}

// locals declares n locals of type i32.
func locals(n uint32) []byte {
	if n == 0 {
		return []byte{0}
	}
	return append(appendU32([]byte{1}, n), typeI32)
}

func get(i int) []byte { return appendU32([]byte{opLocalGet}, uint32(i)) }
func set(i int) []byte { return appendU32([]byte{opLocalSet}, uint32(i)) }

// repeat concatenates n pieces of code.
func repeat(n int, code func(i int) []byte) []byte {
	var b []byte
	for i := range n {
		b = append(b, code(i)...)
	}
	return b
}

var end = []byte{opEnd}
