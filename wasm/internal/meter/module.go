package meter

import (
	"errors"
	"fmt"
	"slices"
)

// A module is a decoded module. Code is decoded while it is rewritten.
type module struct {
	limits Limits

	types   []funcType
	imports []extern
	// functions are the types of the functions with code.
	functions []uint32
	tables    []table
	memories  []limitsType
	globals   []global
	exports   []extern
	start     *uint32
	elements  []elements
	dataCount *uint32
	bodies    [][]byte
	data      []data
	customs   []custom

	// importedFunctions are their types.
	importedFunctions []uint32
	importedTables    int
	importedMemories  int
	importedGlobals   int

	injection
}

type funcType struct{ params, results []byte }

// An extern is an import, or an export.
type extern struct {
	// module is empty for an export.
	module, name string
	kind         byte
	// index is the type of an imported function, or the index of an export.
	index  uint32
	table  table
	memory limitsType
	global globalType
}

const (
	kindFunction = iota
	kindTable
	kindMemory
	kindGlobal
)

type limitsType struct {
	bounded  bool
	min, max uint32
}

type table struct {
	element byte
	limitsType
}

type globalType struct {
	value   byte
	mutable bool
}

type global struct {
	globalType
	init constant
}

// A constant is one encoded constant instruction, and the function it refers to, if any.
type constant struct {
	code []byte
	// function is -1 if there is none.
	function int64
}

type elements struct {
	flags     uint32
	table     uint32
	offset    constant
	element   byte
	functions []uint32
	constants []constant
}

type data struct {
	flags  uint32
	offset constant
	bytes  []byte
}

type custom struct {
	// after is the section that it follows, to keep the order.
	after int
	name  string
	bytes []byte
}

const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
)

// order holds the sections in the order in which a module has them.
var order = []int{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal,
	sectionExport, sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

var sectionNames = []string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count",
}

var magic = []byte("\x00asm\x01\x00\x00\x00")

func (m *module) read(binary []byte) error {
	r := &reader{b: binary}
	if !slices.Equal(r.bytes(len(magic)), magic) {
		return errors.New("it is no WebAssembly module of version 1")
	}
	last := -1 // in order
	for !r.done() {
		id := int(r.byte())
		body := r.bytes(int(r.u32()))
		if r.err != nil {
			return r.err
		}
		if id == sectionCustom {
			if err := m.readCustom(body, last); err != nil {
				return fmt.Errorf("custom section: %w", err)
			}
			continue
		}
		place := slices.Index(order, id)
		switch {
		case place < 0:
			return fmt.Errorf("section %d is unknown", id)
		case place <= last:
			return fmt.Errorf("the %s section is out of order", sectionNames[id])
		}
		last = place
		if err := m.readSection(id, body); err != nil {
			return fmt.Errorf("%s section: %w", sectionNames[id], err)
		}
	}
	switch {
	case len(m.functions) != len(m.bodies):
		return fmt.Errorf("it declares %d functions and has code of %d", len(m.functions), len(m.bodies))
	case m.dataCount != nil && int(*m.dataCount) != len(m.data):
		return fmt.Errorf("it declares %d data segments and has %d", *m.dataCount, len(m.data))
	}
	return m.checkTables()
}

func (m *module) readCustom(body []byte, place int) error {
	r := &reader{b: body}
	c := custom{after: place, name: r.name()}
	c.bytes = r.bytes(len(r.b) - r.pos)
	m.customs = append(m.customs, c)
	if r.err == nil && len(m.customs) > m.limits.Exports {
		return tooMany("the module", len(m.customs), "custom sections", m.limits.Exports)
	}
	return r.err
}

func (m *module) readSection(id int, body []byte) error {
	r := &reader{b: body}
	switch id {
	case sectionType:
		m.types = vector(r, "types", m.limits.Types, m.readType)
	case sectionImport:
		m.imports = vector(r, "imports", m.limits.Imports, m.readImport)
	case sectionFunction:
		m.functions = vector(r, "functions", m.limits.Functions, func(r *reader) uint32 { return r.index("type", len(m.types)) })
	case sectionTable:
		m.tables = vector(r, "tables", m.limits.Tables, readTable)
	case sectionMemory:
		m.memories = vector(r, "memories", 1, readLimits)
	case sectionGlobal:
		m.globals = vector(r, "globals", m.limits.Globals, m.readGlobal)
	case sectionExport:
		m.exports = vector(r, "exports", m.limits.Exports, m.readExport)
	case sectionStart:
		start := r.index("function", m.functionCount())
		m.start = &start
	case sectionElement:
		m.elements = vector(r, "segments", m.limits.Segments, m.readElements)
		entries := 0
		for _, e := range m.elements {
			entries += len(e.functions) + len(e.constants)
		}
		if entries > m.limits.Elements {
			return tooMany("all segments", entries, "entries", m.limits.Elements)
		}
	case sectionDataCount:
		n := r.u32()
		m.dataCount = &n
	case sectionCode:
		m.bodies = vector(r, "functions", m.limits.Functions, func(r *reader) []byte { return r.bytes(int(r.u32())) })
	case sectionData:
		m.data = vector(r, "segments", m.limits.Segments, m.readData)
	}
	if r.err == nil && r.pos < len(r.b) {
		r.fail("it has %d bytes too many", len(r.b)-r.pos)
	}
	return r.err
}

// vector reads a vector of entries.
func vector[T any](r *reader, what string, limit int, entry func(*reader) T) []T {
	n := r.count("the module", what, limit)
	list := make([]T, 0, n)
	for range n {
		list = append(list, entry(r))
		if r.err != nil {
			return nil
		}
	}
	return list
}

func (m *module) readType(r *reader) funcType {
	if form := r.byte(); r.err == nil && form != 0x60 {
		r.fail("a type of form %#x is no function type", form)
	}
	values := func(what string) []byte {
		list := make([]byte, r.count("a type", what, m.limits.Values))
		for i := range list {
			list[i] = r.valueType()
		}
		return list
	}
	return funcType{params: values("parameters"), results: values("results")}
}

func (m *module) readImport(r *reader) extern {
	e := extern{module: r.name(), name: r.name(), kind: r.byte()}
	switch e.kind {
	case kindFunction:
		e.index = r.index("type", len(m.types))
		m.importedFunctions = append(m.importedFunctions, e.index)
	case kindTable:
		e.table = readTable(r)
		m.importedTables++
	case kindMemory:
		e.memory = readLimits(r)
		m.importedMemories++
	case kindGlobal:
		e.global = readGlobalType(r)
		m.importedGlobals++
	default:
		r.fail("imports of kind %d are not supported", e.kind)
	}
	if e.module == Module {
		r.fail("the import module %q is reserved", Module)
	}
	return e
}

func readLimits(r *reader) limitsType {
	var l limitsType
	switch flags := r.byte(); flags {
	case 0:
		l.min = r.u32()
	case 1:
		l.bounded, l.min, l.max = true, r.u32(), r.u32()
	default:
		r.fail("limits of kind %#x, as of shared or 64-bit memory, are not supported", flags)
	}
	return l
}

func readTable(r *reader) table {
	return table{element: r.refType(), limitsType: readLimits(r)}
}

func readGlobalType(r *reader) globalType {
	g := globalType{value: r.valueType()}
	switch flag := r.byte(); flag {
	case 0, 1:
		g.mutable = flag == 1
	default:
		r.fail("mutability %#x is unknown", flag)
	}
	return g
}

func (m *module) readGlobal(r *reader) global {
	return global{globalType: readGlobalType(r), init: m.readConstant(r)}
}

// readConstant reads one constant instruction and its end.
func (m *module) readConstant(r *reader) constant {
	c := constant{function: -1}
	op := r.byte()
	c.code = append(c.code, op)
	switch op {
	case opI32Const:
		c.code = appendSigned(c.code, r.signed(32))
	case opI64Const:
		c.code = appendSigned(c.code, r.signed(64))
	case opF32Const:
		c.code = append(c.code, r.bytes(4)...)
	case opF64Const:
		c.code = append(c.code, r.bytes(8)...)
	case opGlobalGet:
		c.code = appendU32(c.code, r.index("global", m.importedGlobals+len(m.globals)))
	case opRefNull:
		c.code = append(c.code, r.refType())
	case opRefFunc:
		c.function = int64(r.index("function", m.functionCount()))
	case opVector:
		if sub := r.u32(); r.err == nil && sub != vectorConst {
			r.fail("instruction 0xfd %#x is no constant", sub)
		}
		c.code = appendU32(c.code, vectorConst)
		c.code = append(c.code, r.bytes(16)...)
	default:
		r.fail("instruction %#x is no constant", op)
	}
	if end := r.byte(); r.err == nil && end != opEnd {
		r.fail("a constant has more than one instruction")
	}
	return c
}

func (m *module) functionCount() int { return len(m.importedFunctions) + len(m.functions) }

func (m *module) readExport(r *reader) extern {
	e := extern{name: r.name(), kind: r.byte()}
	switch e.kind {
	case kindFunction:
		e.index = r.index("function", m.functionCount())
	case kindTable:
		e.index = r.index("table", m.importedTables+len(m.tables))
	case kindMemory:
		e.index = r.index("memory", m.importedMemories+len(m.memories))
	case kindGlobal:
		e.index = r.index("global", m.importedGlobals+len(m.globals))
	default:
		r.fail("exports of kind %d are not supported", e.kind)
	}
	return e
}

// The flags of an element segment.
const (
	elementsPassive   = 1 // The segment is passive, or, with elementsExplicit, only declared.
	elementsExplicit  = 2 // The segment names a table, unless it is passive, and a type.
	elementsConstants = 4 // The segment has constants in place of functions.
)

func (m *module) readElements(r *reader) elements {
	e := elements{flags: r.u32(), element: typeFuncref}
	if e.flags > 7 {
		r.fail("an element segment of kind %d is not supported", e.flags)
		return e
	}
	if e.flags&elementsPassive == 0 {
		if e.flags&elementsExplicit != 0 {
			e.table = r.index("table", m.importedTables+len(m.tables))
		}
		e.offset = m.readConstant(r)
	}
	if e.flags&(elementsPassive|elementsExplicit) != 0 {
		switch {
		case e.flags&elementsConstants != 0:
			e.element = r.refType()
		case r.byte() != 0:
			r.fail("an element segment holds something other than functions")
		}
	}
	n := r.count("an element segment", "entries", m.limits.Elements)
	for range n {
		if e.flags&elementsConstants != 0 {
			e.constants = append(e.constants, m.readConstant(r))
		} else {
			e.functions = append(e.functions, r.index("function", m.functionCount()))
		}
		if r.err != nil {
			break
		}
	}
	return e
}

func (m *module) readData(r *reader) data {
	d := data{flags: r.u32()}
	switch d.flags {
	case 0, 2:
		if d.flags == 2 {
			r.index("memory", m.importedMemories+len(m.memories))
		}
		d.offset = m.readConstant(r)
	case 1:
	default:
		r.fail("a data segment of kind %d is not supported", d.flags)
	}
	d.bytes = r.bytes(int(r.u32()))
	return d
}

// checkTables bounds the entries of all tables, and the number of tables and memories with imports.
func (m *module) checkTables() error {
	entries := 0
	count := func(t table) { entries += int(min(t.min, 1<<31-1)) }
	for _, i := range m.imports {
		if i.kind == kindTable {
			count(i.table)
		}
	}
	for _, t := range m.tables {
		count(t)
	}
	switch {
	case m.importedTables+len(m.tables) > m.limits.Tables:
		return tooMany("the module", m.importedTables+len(m.tables), "tables", m.limits.Tables)
	case m.importedMemories+len(m.memories) > 1:
		return tooMany("the module", m.importedMemories+len(m.memories), "memories", 1)
	case entries > m.limits.TableSize:
		return tooMany("the module", entries, "table entries", m.limits.TableSize)
	}
	return nil
}
