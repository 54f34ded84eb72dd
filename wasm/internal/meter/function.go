package meter

import (
	"errors"
	"fmt"
)

// A rewriter rewrites the functions of a module, one after another.
//
// It splits code into segments. A segment begins with a check that costs what all its instructions
// cost. An instruction belongs to the segment that was last begun before it in the same block or in
// one around it. That check always runs before the instruction, and runs again before the
// instruction can run again, because only loops repeat code and each loop begins a segment.
type rewriter struct {
	m *module
	r reader
	// out is the body, without what the prologue adds.
	out []byte

	number int
	// name is for errors.
	name string

	locals int
	stack  operands
	ctrl   []frame
	// entry begins with the function.
	entry  segment
	checks []check
	// calls is true if it calls a function of the guest.
	calls bool

	// What the compiler has to do.

	// ops counts instructions.
	ops int
	// uses counts uses of locals.
	uses   int
	blocks int
	// branches counts branches and blocks.
	branches int
	// live counts operands that live at a branch, summed over all branches.
	live int
	// carried counts values that branches, blocks and calls carry.
	carried   int
	callCount int
	// callValues is the most parameters and results of one call.
	callValues int
	vectors    bool
	// traps counts instructions that may trap and so have an exit, such as loads and divisions.
	traps int
	// loopWork is the sum, over all loops, of the square of the locals used in it.
	loopWork int

	// prologue is reused.
	prologue []byte
}

// A frame is an open block.
type frame struct {
	// op is opBlock, opLoop, opIf or opElse, or 0 for the function.
	op              byte
	params, results int
	// floor is where the operand stack begins in the block around it.
	floor int
	// dead is true if the block around it cannot be reached.
	dead bool
	// uses counts uses of locals before it.
	uses    int
	segment *segment
}

// arity is how many values a branch to the block carries.
func (f *frame) arity() int {
	if f.op == opLoop {
		return f.params
	}
	return f.results
}

// A segment is the code that one check pays for.
type segment struct{ cost int }

// A check is a segment and where in the output its cost is written.
type check struct {
	at      int
	segment *segment
}

// maxSegment is the cost at which a segment ends. Larger segments need fewer checks, but charge
// more for code that is skipped.
const maxSegment = 256

// costSize is the size of a segment's cost in the output: a signed LEB128 number of up to 2^20.
const costSize = 3

func (w *rewriter) reset(m *module, index int, body []byte) {
	w.m = m
	w.r = reader{b: body}
	w.out = w.out[:0]
	w.number = index
	w.name = fmt.Sprintf("function %d", index)
	w.calls, w.vectors, w.callValues = false, false, 0
	w.ops, w.uses, w.blocks, w.branches, w.live, w.carried, w.callCount, w.traps, w.loopWork = 0, 0, 0, 0, 0, 0, 0, 0, 0
	w.stack = operands{}
	w.entry = segment{cost: costCall}
	w.ctrl = w.ctrl[:0]
	w.checks = w.checks[:0]
}

// function appends the metered form of the function with code number i to out.
func (w *rewriter) function(m *module, i int, out []byte) ([]byte, error) {
	body := m.bodies[i]
	w.reset(m, len(m.importedFunctions)+i, body)
	if len(body) > m.limits.Body {
		return nil, tooMany(w.name, len(body), "bytes", m.limits.Body)
	}
	typ := m.types[m.functions[i]]
	locals, err := w.readLocals(len(typ.params))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	w.ctrl = append(w.ctrl, frame{results: len(typ.results), segment: &w.entry})
	for len(w.ctrl) > 0 {
		if err := w.instruction(); err != nil {
			return nil, fmt.Errorf("%s: at byte %d: %w", w.name, w.r.pos, err)
		}
	}
	if w.r.pos < len(body) {
		return nil, fmt.Errorf("%s: %d bytes follow its end", w.name, len(body)-w.r.pos)
	}
	if err := w.checkWork(); err != nil {
		return nil, err
	}
	return w.assemble(typ, locals, out), nil
}

// readLocals decodes and encodes the declaration of the locals.
func (w *rewriter) readLocals(params int) ([]byte, error) {
	groups := w.r.count("its declaration", "groups of locals", w.m.limits.Locals)
	locals := appendU32(nil, uint32(groups))
	total := params
	for range groups {
		n, t := w.r.u32(), w.r.valueType()
		if w.r.err != nil {
			return nil, w.r.err
		}
		if total += int(min(n, 1<<30)); total > w.m.limits.Locals {
			return nil, tooMany("it", total, "locals", w.m.limits.Locals)
		}
		locals = append(appendU32(locals, n), t)
	}
	w.locals = total
	return locals, w.r.err
}

// checkWork refuses a function that the compiler would need long for.
func (w *rewriter) checkWork() error {
	work := w.work()
	w.m.work += work
	switch {
	case work > w.m.limits.FunctionWork:
		return fmt.Errorf("%s, with %d instructions, %d branches and %d uses of %d locals, would take the compiler too long: %d units, at most %d are accepted; build with optimization, or split the function",
			w.name, w.ops, w.branches, w.uses, w.locals, work, w.m.limits.FunctionWork)
	case w.m.work > w.m.limits.Work:
		return fmt.Errorf("the functions up to number %d would take the compiler too long: %d units, at most %d are accepted", w.number, w.m.work, w.m.limits.Work)
	}
	return nil
}

// work estimates how long the compiler needs, in µs. The terms are those that grow fastest: values
// that many blocks carry, the search for those that need not be carried, in loops repeatedly, what
// is computed for pairs of blocks, operands that live across branches, exits of instructions that may
// trap, and counters that calls load again.
func (w *rewriter) work() int {
	locals := min(w.locals, w.uses)
	return w.ops + 15 +
		2*w.branches*locals +
		w.branches*locals/400*locals +
		w.loopWork/7 +
		w.branches*w.branches/50 +
		w.live +
		3*w.carried +
		10*w.traps +
		w.callCount*w.m.mutableGlobals +
		w.m.globalCount()/5
}

// current returns the segment that instructions belong to now.
func (w *rewriter) current() *segment { return w.ctrl[len(w.ctrl)-1].segment }

// pay adds the cost of the next instruction to the segment, or begins another segment.
func (w *rewriter) pay(cost int) {
	s := w.current()
	if s.cost+cost > maxSegment {
		s = w.begin()
	}
	s.cost += cost
}

// begin starts a segment here.
func (w *rewriter) begin() *segment {
	w.branch(1)
	w.callCount++
	w.stack.keep(w.stack.height)
	s := &segment{cost: 1}
	w.ctrl[len(w.ctrl)-1].segment = s
	var at int
	w.out, at = w.m.appendCharge(w.out)
	w.checks = append(w.checks, check{at: at, segment: s})
	w.out = w.m.appendCheck(w.out)
	return s
}

// branch counts branches, at each of which all operands live.
func (w *rewriter) branch(n int) {
	w.branches += n
	w.live += n * w.stack.height
}

// putCost writes a cost over its placeholder.
func putCost(b []byte, cost int) {
	b[0], b[1], b[2] = byte(cost)|0x80, byte(cost>>7)|0x80, byte(cost>>14)
}

// assemble appends the function: its locals, the prologue and the code.
func (w *rewriter) assemble(typ funcType, locals, out []byte) []byte {
	for _, c := range w.checks {
		putCost(w.out[c.at:], c.segment.cost)
	}
	frame := w.frameSize()
	p := append(w.prologue[:0], locals...)
	p, at := w.m.appendCharge(p)
	putCost(p[at:], w.entry.cost)
	if w.calls {
		p = w.m.appendStack(p, opI64Sub, frame)
		p = w.m.appendStackCheck(p)
		p = append(p, opBlock)
		p = w.m.appendBlockType(p, typ.results)
	} else {
		p = w.m.appendCheck(p)
	}
	w.prologue = p
	var end []byte
	if w.calls {
		end = append(w.m.appendStack(end, opI64Add, frame), opEnd)
	}
	out = appendU32(out, uint32(len(p)+len(w.out)+len(end)))
	out = append(out, p...)
	out = append(out, w.out...)
	return append(out, end...)
}

// frameSize estimates the stack that one call takes. The compiler keeps values on the stack while
// it calls, and does not share their places: it needs one for each operand that outlives a call, and
// may need one for each instruction, and one for each local in each block. Usually it needs far
// fewer for locals. The values of the largest call stand below them.
func (w *rewriter) frameSize() int {
	size := 8
	if w.vectors {
		size = 16
	}
	return 64 + size*(w.locals+w.stack.placed+w.callValues) + w.ops + w.blocks*min(w.locals, w.uses)/8
}

// instruction rewrites one instruction.
func (w *rewriter) instruction() error {
	r := &w.r
	op := r.byte()
	if r.err != nil {
		return r.err
	}
	w.ops++
	switch {
	case plain(op):
		w.pay(costPlain(op))
		w.out = append(w.out, op)
		if mayTrap(op) {
			w.traps++
		}
		if w.stack.change(effect(op)); op == opUnreachable {
			w.stack.leave()
		}
	case op >= opLocalGet && op <= opLocalTee:
		w.pay(1)
		w.uses++
		w.out = appendU32(append(w.out, op), r.u32())
		w.variable(op, opLocalGet)
	case op == opGlobalGet || op == opGlobalSet:
		w.pay(1)
		w.out = appendU32(append(w.out, op), r.index("global", w.m.globalCount()))
		w.variable(op, opGlobalGet)
	case op >= opI32Load && op <= opI64Store32:
		w.pay(costMemory)
		w.out = append(w.out, op)
		w.address()
		w.traps++
		if op < opI32Store {
			w.stack.change(1, 1)
		} else {
			w.stack.change(2, 0)
		}
	default:
		return w.special(op)
	}
	return r.err
}

// variable counts the operand of an instruction on a local, a global or a table, which are numbered
// from the one that gets.
func (w *rewriter) variable(op, get byte) {
	switch op - get {
	case 0:
		w.stack.change(0, 1)
	case 1:
		w.stack.change(1, 0)
	case 2:
		w.stack.change(1, 1)
	}
}

// address copies the alignment and offset of a memory access.
func (w *rewriter) address() {
	w.out = appendU32(w.out, w.r.u32())
	w.out = appendU32(w.out, w.r.u32())
}

// special rewrites an instruction that is not among the most frequent ones.
func (w *rewriter) special(op byte) error {
	r := &w.r
	switch op {
	case opBlock, opLoop, opIf:
		return w.open(op)
	case opElse:
		return w.alternative()
	case opEnd:
		return w.close()
	case opBr, opBrIf:
		w.pay(1)
		if op == opBrIf {
			w.stack.change(1, 0)
		}
		w.branch(1)
		w.out = appendU32(append(w.out, op), w.label())
		if op == opBr {
			w.stack.leave()
		}
	case opBrTable:
		return w.brTable()
	case opReturn: // the prologue may have put a block around the code, which ends with an epilogue
		w.pay(1)
		w.carried += w.ctrl[0].arity()
		w.out = appendU32(append(w.out, opBr), uint32(len(w.ctrl)-1))
		w.stack.leave()
	case opCall:
		w.call()
	case opCallIndirect:
		w.calls = true
		w.traps += 4 // the index, the null, the type
		w.pay(2 * costCall)
		t := r.index("type", len(w.m.types))
		w.stack.change(1, 0)
		if r.err == nil {
			w.called(t)
		}
		w.out = appendU32(append(w.out, op), t)
		w.out = appendU32(w.out, r.u32())
	case opSelectTyped:
		w.pay(1)
		if n := r.u32(); r.err == nil && n != 1 {
			return fmt.Errorf("a select has %d types", n)
		}
		w.out = append(w.out, op, 1, r.valueType())
		w.stack.change(3, 1)
	case opTableGet, opTableSet:
		w.traps++
		w.pay(costMemory)
		w.out = appendU32(append(w.out, op), r.u32())
		if op == opTableGet {
			w.stack.change(1, 1)
		} else {
			w.stack.change(2, 0)
		}
	case opMemorySize, opMemoryGrow:
		w.pay(costOfMemory(op))
		if r.byte() != 0 {
			return errors.New("several memories are not supported")
		}
		w.out = append(w.out, op, 0)
		if op == opMemoryGrow {
			w.stack.change(1, 0)
		}
		w.stack.change(0, 1)
	case opI32Const:
		w.pay(1)
		w.out = appendSigned(append(w.out, op), r.signed(32))
		w.stack.change(0, 1)
	case opI64Const:
		w.pay(1)
		w.out = appendSigned(append(w.out, op), r.signed(64))
		w.stack.change(0, 1)
	case opF32Const:
		w.pay(1)
		w.out = append(append(w.out, op), r.bytes(4)...)
		w.stack.change(0, 1)
	case opF64Const:
		w.pay(1)
		w.out = append(append(w.out, op), r.bytes(8)...)
		w.stack.change(0, 1)
	case opRefNull:
		w.pay(1)
		w.out = append(w.out, op, r.refType())
		w.stack.change(0, 1)
	case opRefFunc:
		w.pay(costRef)
		w.out = appendU32(append(w.out, op), w.m.reference(r.index("function", w.m.functionCount())))
		w.stack.change(0, 1)
	case opMisc:
		return w.misc()
	case opVector:
		return w.vector()
	default:
		return fmt.Errorf("instruction %#x is not supported", op)
	}
	return r.err
}

func costOfMemory(op byte) int {
	if op == opMemoryGrow {
		return costGrow
	}
	return 1
}

// open begins a block, and with a loop a segment.
func (w *rewriter) open(op byte) error {
	w.pay(1)
	if op == opIf {
		w.stack.change(1, 0)
	}
	w.blocks++
	w.branch(1)
	w.out = append(w.out, op)
	params, results, err := w.blockType()
	if err != nil {
		return err
	}
	if len(w.ctrl) > w.m.limits.Nesting {
		return fmt.Errorf("more than %d blocks in each other are not accepted", w.m.limits.Nesting)
	}
	w.carried += params + results
	w.ctrl = append(w.ctrl, frame{
		op: op, params: params, results: results,
		floor: w.stack.floor, dead: w.stack.dead, uses: w.uses, segment: w.current(),
	})
	w.stack.change(params, 0)
	w.stack.floor, w.stack.dead = w.stack.height, false
	w.stack.change(0, params)
	if op == opLoop {
		w.begin()
	}
	return w.r.err
}

func (w *rewriter) close() error {
	f := w.ctrl[len(w.ctrl)-1]
	if err := w.endBlock(&f); err != nil {
		return err
	}
	if f.op == opLoop {
		locals := min(w.locals, w.uses-f.uses)
		w.loopWork += locals * locals
	}
	w.stack.floor, w.stack.dead = f.floor, f.dead
	w.stack.change(0, f.results)
	w.ctrl = w.ctrl[:len(w.ctrl)-1]
	w.out = append(w.out, opEnd)
	return nil
}

// endBlock takes what a block leaves from the operand stack.
func (w *rewriter) endBlock(f *frame) error {
	if n := w.stack.height - w.stack.floor; n != f.results && !(w.stack.dead && n < f.results) {
		return fmt.Errorf("a block ends with %d values on the stack, and its type has %d", n, f.results)
	}
	w.stack.change(w.stack.height-w.stack.floor, 0)
	return nil
}

// blockType copies the type of a block and returns how many values it takes and leaves.
func (w *rewriter) blockType() (params, results int, err error) {
	r := &w.r
	t := r.signed(33)
	switch {
	case r.err != nil:
		return 0, 0, r.err
	case t >= 0:
		if t >= int64(len(w.m.types)) {
			return 0, 0, fmt.Errorf("type %d does not exist", t)
		}
		w.out = appendSigned(w.out, t)
		return len(w.m.types[t].params), len(w.m.types[t].results), nil
	}
	b := byte(t & 0x7f)
	switch {
	case t < -64 || b != blockEmpty && !isValueType(b):
		return 0, 0, fmt.Errorf("block type %d is unknown", t)
	case b != blockEmpty:
		results = 1
	}
	w.out = append(w.out, b)
	return 0, results, nil
}

func (w *rewriter) alternative() error {
	f := &w.ctrl[len(w.ctrl)-1]
	if f.op != opIf {
		return errors.New("an else without its if")
	}
	if err := w.endBlock(f); err != nil {
		return err
	}
	w.stack.dead = false
	w.stack.change(0, f.params)
	f.op = opElse
	f.segment = w.ctrl[len(w.ctrl)-2].segment // as at the if
	w.out = append(w.out, opElse)
	return nil
}

// label reads the target of a branch.
func (w *rewriter) label() uint32 {
	depth := w.r.index("label", len(w.ctrl))
	if w.r.err == nil {
		w.carried += w.ctrl[len(w.ctrl)-1-int(depth)].arity()
	}
	return depth
}

func (w *rewriter) brTable() error {
	w.pay(costCall)
	n := w.r.count("a br_table", "targets", w.m.limits.Targets)
	w.stack.change(1, 0)
	w.branch(1 + n/10) // targets are cheaper than branches
	w.carried += n
	w.out = appendU32(append(w.out, opBrTable), uint32(n))
	for range n + 1 {
		w.out = appendU32(w.out, w.label())
	}
	w.stack.leave()
	return w.r.err
}

func (w *rewriter) call() {
	f := w.r.index("function", w.m.functionCount())
	if w.r.err != nil {
		return
	}
	imported := len(w.m.importedFunctions)
	if int(f) < imported {
		w.pay(costImport)
		w.called(w.m.importedFunctions[f])
	} else {
		w.calls = true
		w.pay(costCall)
		w.called(w.m.functions[int(f)-imported])
	}
	w.out = appendU32(append(w.out, opCall), w.m.moved(f))
}

// called counts a call of a function of a type.
func (w *rewriter) called(typ uint32) {
	t := w.m.types[typ]
	w.stack.call(t)
	w.callCount++
	w.callValues = max(w.callValues, len(t.params)+len(t.results))
	w.carried += len(t.params) + len(t.results)
}

func (w *rewriter) misc() error {
	r := &w.r
	sub := r.u32()
	if r.err != nil {
		return r.err
	}
	switch {
	case sub < miscMemoryInit: // float to integer
		w.pay(costMemory)
		w.out = append(w.out, opMisc, byte(sub))
		w.stack.change(1, 1)
		return nil
	case sub == miscDataDrop || sub == miscElemDrop || sub == miscTableSize:
		w.pay(costBulk)
		w.out = appendU32(append(w.out, opMisc, byte(sub)), r.u32())
		if sub == miscTableSize {
			w.stack.change(0, 1)
		}
		return r.err
	case sub > miscTableFill:
		return fmt.Errorf("instruction 0xfc %#x is not supported", sub)
	}
	h := helper{op: byte(sub)}
	switch sub {
	case miscMemoryFill, miscTableGrow, miscTableFill:
		h.a = r.u32()
	default:
		h.a, h.b = r.u32(), r.u32()
	}
	if r.err != nil {
		return r.err
	}
	if err := w.m.checkHelper(h); err != nil {
		return err
	}
	w.pay(costBulk)
	w.out = appendU32(append(w.out, opCall), w.m.helperFor(h))
	w.stack.call(w.m.helperType(h))
	return nil
}

func (w *rewriter) vector() error {
	r := &w.r
	sub := r.u32()
	if r.err == nil && sub > vectorLast {
		return fmt.Errorf("instruction 0xfd %#x is not supported", sub)
	}
	w.pay(costVector)
	w.vectors = true
	w.out = appendU32(append(w.out, opVector), sub)
	w.stack.change(vectorEffect(sub))
	switch {
	case sub <= vectorStore, sub >= vectorStoreLane+1 && sub <= vectorLoadZero:
		w.address()
	case sub == vectorConst, sub == vectorShuffle:
		w.out = append(w.out, r.bytes(16)...)
	case sub >= vectorExtract && sub <= vectorReplaceLast:
		w.out = append(w.out, r.byte())
	case sub >= vectorLoadLane && sub <= vectorStoreLane:
		w.address()
		w.out = append(w.out, r.byte())
	}
	return r.err
}
