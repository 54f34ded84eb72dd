package meter

// Instructions that are more than their byte.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opI32Load      = 0x28
	opI32Store     = 0x36
	opI64Store32   = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32Eqz       = 0x45
	opI32LeU       = 0x4d
	opI64Eqz       = 0x50
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI64LeU       = 0x58
	opI32Clz       = 0x67
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32DivS      = 0x6d
	opI32RemU      = 0x70
	opI32And       = 0x71
	opI64Clz       = 0x79
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64DivS      = 0x7f
	opI64RemU      = 0x82
	opI64Or        = 0x84
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opF32Abs       = 0x8b
	opF32Sqrt      = 0x91
	opF64Abs       = 0x99
	opF64Sqrt      = 0x9f
	opI32WrapI64   = 0xa7
	opI64ExtendU   = 0xad
	opI64Extend32S = 0xc4
	opRefNull      = 0xd0
	opRefIsNull    = 0xd1
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVector       = 0xfd

	blockEmpty = 0x40
)

// Instructions after opMisc.
const (
	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableSize  = 16
	miscTableFill  = 17
)

// Instructions after opVector.
const (
	vectorStore       = 11 // 0 to 11 read or write memory
	vectorConst       = 12
	vectorShuffle     = 13
	vectorExtract     = 21 // 21 to 34 have a lane
	vectorReplaceLast = 34
	vectorBitselect   = 82
	vectorLoadLane    = 84 // 84 to 91 have an address and a lane
	vectorStoreLane   = 91
	vectorLoadZero    = 93 // 92 and 93 have an address
	vectorLast        = 255
)

// plain reports whether an instruction is one byte.
func plain(op byte) bool {
	switch {
	case op <= 0x01, op == opDrop, op == opSelect, op == opRefIsNull:
		return true
	}
	return op >= 0x45 && op <= opI64Extend32S
}

// The cost of an instruction, in fuel. Most cost 1.
const (
	costMemory   = 2   // The access may miss the cache.
	costDivide   = 8   // This is a division or a root.
	costVector   = 4   // This may be many machine instructions.
	costCall     = 4   // This calls a function of the guest, which has a cost in itself too.
	costImport   = 200 // This calls the host, which takes some 10 µs at most.
	costRef      = 50  // This calls the engine.
	costGrow     = 500 // This calls the engine.
	costBulk     = 20
	costTable    = 3
	costBulkByte = 4 // bits to shift: 16 bytes cost 1
)

func costPlain(op byte) int {
	switch {
	case op >= opI32DivS && op <= opI32RemU, op >= opI64DivS && op <= opI64RemU, op >= opF32Sqrt && op <= 0x98, op >= opF64Sqrt && op <= 0xa6:
		return costDivide
	}
	return 1
}

// mayTrap reports whether a plain instruction has an exit: a division, or a conversion of a float.
func mayTrap(op byte) bool {
	switch {
	case op >= opI32DivS && op <= opI32RemU, op >= opI64DivS && op <= opI64RemU:
		return true
	case op >= opI32WrapI64+1 && op <= opI32WrapI64+4, op >= opI64ExtendU+1 && op <= opI64ExtendU+4:
		return true
	}
	return false
}
