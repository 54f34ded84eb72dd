package meter

import "fmt"

// A helper is a function that stands for an instruction of the guest, with the same operands and
// results. An instruction that would work long on the guest's memory is carried out in pieces. As
// only the guest itself changes its memory, it cannot tell the difference.
type helper struct {
	op   byte // an instruction after opMisc, or one of those below
	a, b uint32
}

const (
	helperCheck  = 100 // calls the host
	helperImport = 101 // calls imported function a
)

// piece is how many bytes of memory are filled or copied between two checks.
const piece = 64 << 10

// checkHelper refuses a helper that the compiler would not refuse, though it would refuse the
// instruction.
func (m *module) checkHelper(h helper) error {
	tables, memories := m.importedTables+len(m.tables), m.importedMemories+len(m.memories)
	switch h.op {
	case miscMemoryFill, miscMemoryCopy, miscMemoryInit:
		memory := h.a
		if h.op == miscMemoryInit {
			memory = h.b
		}
		if memory != 0 || h.op == miscMemoryCopy && h.b != 0 || memories == 0 {
			return fmt.Errorf("memory %d does not exist", max(memory, h.b))
		}
		if h.op == miscMemoryInit && (m.dataCount == nil || h.a >= *m.dataCount) {
			return fmt.Errorf("data segment %d does not exist", h.a)
		}
	case miscTableInit:
		if int(h.a) >= len(m.elements) || int(h.b) >= tables {
			return fmt.Errorf("element segment %d or table %d does not exist", h.a, h.b)
		}
	case miscTableCopy, miscTableGrow, miscTableFill:
		if int(h.a) >= tables || int(h.b) >= tables {
			return fmt.Errorf("table %d does not exist", max(h.a, h.b))
		}
	}
	return nil
}

func (m *module) helperType(h helper) funcType {
	switch h.op {
	case helperCheck:
		return funcType{}
	case helperImport:
		return m.types[m.importedFunctions[h.a]]
	case miscTableGrow:
		return funcType{params: []byte{m.tableType(h.a), typeI32}, results: []byte{typeI32}}
	case miscTableFill:
		return funcType{params: []byte{typeI32, m.tableType(h.a), typeI32}}
	}
	return funcType{params: []byte{typeI32, typeI32, typeI32}}
}

// tableType returns the element type of a table.
func (m *module) tableType(index uint32) byte {
	if n := int(index) - m.importedTables; n >= 0 {
		return m.tables[n].element
	}
	for _, e := range m.imports {
		if e.kind == kindTable {
			if index == 0 {
				return e.table.element
			}
			index--
		}
	}
	return 0
}

// helperBody returns the body of a helper.
func (m *module) helperBody(h helper) []byte {
	c := &assembler{m: m}
	c.op(0) // no locals
	switch h.op {
	case helperCheck:
		c.global(opGlobalGet, m.fuel).global(opGlobalGet, m.stack)
		c.call(uint32(len(m.importedFunctions))).global(opGlobalSet, m.fuel)
	case helperImport:
		c.charge(costImport)
		for i := range m.types[m.importedFunctions[h.a]].params {
			c.local(opLocalGet, i)
		}
		c.call(h.a)
	case miscMemoryFill:
		c.inMemory(0)
		c.unless(func() { c.bulk(h) })
		c.pieces(func() {
			c.local(opLocalGet, 0).local(opLocalGet, 1).i32(piece).misc(miscMemoryFill, 0)
			c.advance(0)
		})
		c.bulk(h)
	case miscMemoryCopy:
		c.inMemory(0)
		c.inMemory(1)
		c.op(opI32And)
		c.unless(func() { c.bulk(h) })
		c.local(opLocalGet, 0).local(opLocalGet, 1).op(opI32LeU)
		c.op(opIf, blockEmpty)
		c.pieces(func() {
			c.local(opLocalGet, 0).local(opLocalGet, 1).i32(piece).misc(miscMemoryCopy, 0, 0)
			c.advance(0)
			c.advance(1)
		})
		c.op(opElse) // from the end, because the front of the target is the end of the source
		c.pieces(func() {
			c.local(opLocalGet, 0).remaining().op(opI32Add)
			c.local(opLocalGet, 1).remaining().op(opI32Add)
			c.i32(piece).misc(miscMemoryCopy, 0, 0)
		})
		c.op(opEnd)
		c.bulk(h)
	case miscMemoryInit:
		c.inMemory(0)
		c.local(opLocalGet, 1).op(opI64ExtendU).local(opLocalGet, 2).op(opI64ExtendU, opI64Add)
		c.i64(int64(len(m.data[h.a].bytes))).op(opI64LeU)
		c.op(opI32And)
		c.unless(func() { c.bulk(h) })
		c.pieces(func() { // if the segment was dropped, the first piece traps
			c.local(opLocalGet, 0).local(opLocalGet, 1).i32(piece).misc(miscMemoryInit, h.a, 0)
			c.advance(0)
			c.advance(1)
		})
		c.bulk(h)
	case miscTableGrow:
		c.chargeCount(1, 0)
		// Below the limit, and no overflow.
		c.local(opLocalGet, 1).op(opI64ExtendU).misc(miscTableSize, h.a).op(opI64ExtendU, opI64Add)
		c.i64(int64(m.limits.TableSize)).op(opI64GtU)
		c.op(opIf, typeI32)
		c.i32(-1)
		c.op(opElse)
		c.local(opLocalGet, 0).local(opLocalGet, 1).misc(miscTableGrow, h.a)
		c.op(opEnd)
	default: // on tables, whose size is limited
		c.chargeCount(2, 0)
		c.instruction(h)
	}
	c.op(opEnd)
	return c.b
}

// An assembler writes a helper's code.
type assembler struct {
	m *module
	b []byte
}

func (c *assembler) op(ops ...byte) *assembler {
	c.b = append(c.b, ops...)
	return c
}

func (c *assembler) local(op byte, index int) *assembler {
	c.b = appendU32(append(c.b, op), uint32(index))
	return c
}

func (c *assembler) global(op byte, index uint32) *assembler {
	c.b = appendU32(append(c.b, op), index)
	return c
}

func (c *assembler) call(function uint32) *assembler {
	c.b = appendU32(append(c.b, opCall), function)
	return c
}

func (c *assembler) i32(v int64) *assembler {
	c.b = appendSigned(append(c.b, opI32Const), v)
	return c
}

func (c *assembler) i64(v int64) *assembler {
	c.b = appendSigned(append(c.b, opI64Const), v)
	return c
}

func (c *assembler) misc(op byte, immediates ...uint32) *assembler {
	c.b = append(c.b, opMisc, op)
	for _, i := range immediates {
		c.b = appendU32(c.b, i)
	}
	return c
}

// instruction carries out the helper's instruction on its parameters.
func (c *assembler) instruction(h helper) {
	c.local(opLocalGet, 0).local(opLocalGet, 1).local(opLocalGet, 2)
	switch h.op {
	case miscMemoryFill, miscTableFill:
		c.misc(h.op, h.a)
	default:
		c.misc(h.op, h.a, h.b)
	}
}

// bulk carries out a memory instruction on what is left, which is a piece or traps.
func (c *assembler) bulk(h helper) {
	c.chargeCount(2, costBulkByte)
	c.instruction(h)
}

func (c *assembler) charge(cost int) {
	var at int
	c.b, at = c.m.appendCharge(c.b)
	putCost(c.b[at:], cost)
	c.b = c.m.appendCheck(c.b)
}

// chargeCount charges for a count in a parameter, shifted to the right.
func (c *assembler) chargeCount(param int, shift int64) {
	c.global(opGlobalGet, c.m.fuel)
	c.local(opLocalGet, param).op(opI64ExtendU).i64(shift).op(opI64ShrU)
	c.op(opI64Sub).global(opGlobalSet, c.m.fuel)
	c.b = c.m.appendCheck(c.b)
}

// inMemory pushes whether the range at a parameter, whose length is parameter 2, is in memory.
func (c *assembler) inMemory(param int) {
	c.local(opLocalGet, param).op(opI64ExtendU).local(opLocalGet, 2).op(opI64ExtendU, opI64Add)
	c.op(opMemorySize, 0, opI64ExtendU).i64(16).op(opI64Shl, opI64LeU)
}

// unless runs code and returns if the top of the stack is 0.
func (c *assembler) unless(code func()) {
	c.op(opI32Eqz, opIf, blockEmpty)
	code()
	c.op(opReturn, opEnd)
}

// pieces runs code for each piece while parameter 2, the bytes that are left, is more than a piece.
// It leaves a rest of at least 1 byte.
func (c *assembler) pieces(code func()) {
	c.op(opBlock, blockEmpty, opLoop, blockEmpty)
	c.local(opLocalGet, 2).i32(piece).op(opI32LeU, opBrIf, 1)
	c.charge(piece >> costBulkByte)
	c.local(opLocalGet, 2).i32(piece).op(opI32Sub).local(opLocalSet, 2)
	code()
	c.op(opBr, 0, opEnd, opEnd)
}

// remaining pushes the bytes that are left after the current piece.
func (c *assembler) remaining() *assembler { return c.local(opLocalGet, 2) }

// advance moves the address in a parameter behind the piece.
func (c *assembler) advance(param int) {
	c.local(opLocalGet, param).i32(piece).op(opI32Add).local(opLocalSet, param)
}
