package meter

// operands follows how many values the operand stack holds. The compiler pays for each of them at
// each branch, and gives one that lives across a call a place in the frame.
type operands struct {
	height int
	// floor is where the innermost block begins. What is below it belongs to the blocks around it.
	floor int
	// dead is true if the code cannot be reached, so that the stack holds whatever it needs.
	dead bool
	// kept is how many of the lowest values have a place in the frame.
	kept int
	// placed is how many values were given a place.
	placed  int
	highest int
}

// registers is how many values the compiler surely keeps in registers, where no call is in between.
const registers = 6

// change takes values from the stack, and then puts others on it.
func (o *operands) change(pops, pushes int) {
	o.height = max(o.height-pops, o.floor)
	o.kept = min(o.kept, o.height)
	o.height += pushes
	o.highest = max(o.highest, o.height)
	o.keep(o.height - registers)
}

// keep gives the lowest n values a place.
func (o *operands) keep(n int) {
	if n > o.kept {
		o.placed += n - o.kept
		o.kept = n
	}
}

// call takes the parameters of a call and puts its results on the stack. What is below outlives the
// call.
func (o *operands) call(t funcType) {
	o.change(len(t.params), 0)
	o.keep(o.height)
	o.change(0, len(t.results))
}

// leave marks what follows as unreachable, up to the end of the block.
func (o *operands) leave() {
	o.dead = true
	o.change(o.height-o.floor, 0)
}

// effect returns how many values a plain instruction takes and leaves.
func effect(op byte) (pops, pushes int) {
	switch {
	case op <= 0x01:
		return 0, 0
	case op == opDrop:
		return 1, 0
	case op == opSelect:
		return 3, 1
	case op == opI32Eqz, op == opI64Eqz, op == opRefIsNull,
		op >= opI32Clz && op < opI32Add,
		op >= opI64Clz && op < opI64Add,
		op >= opF32Abs && op <= opF32Sqrt,
		op >= opF64Abs && op <= opF64Sqrt,
		op >= opI32WrapI64:
		return 1, 1
	}
	return 2, 1
}

// vectorBinary holds, as ranges, the vector instructions that take two values and leave one.
var vectorBinary = [][2]uint32{
	{13, 14}, {23, 23}, {26, 26}, {28, 28}, {30, 30}, {32, 32}, {34, 76}, {78, 81}, {84, 87}, {101, 102}, {107, 115}, {118, 121},
	{123, 123}, {130, 130}, {133, 134}, {139, 147}, {149, 159}, {171, 191}, {203, 223}, {228, 235}, {240, 247},
}

// vectorEffect returns how many values a vector instruction takes and leaves.
func vectorEffect(sub uint32) (pops, pushes int) {
	switch {
	case sub == vectorConst:
		return 0, 1
	case sub == vectorStore, sub > vectorLoadLane+3 && sub <= vectorStoreLane:
		return 2, 0
	case sub == vectorBitselect:
		return 3, 1
	}
	for _, r := range vectorBinary {
		if sub >= r[0] && sub <= r[1] {
			return 2, 1
		}
	}
	return 1, 1
}
