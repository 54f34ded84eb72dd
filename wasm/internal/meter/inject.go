package meter

// An injection is what the metered module has besides the guest's own parts. The host's function
// becomes the last import, so that the functions with code move up by one. All else is added behind
// what is there.
type injection struct {
	// fuel and stack are the indexes of globals.
	fuel, stack uint32
	// hostType is the type of the host's function.
	hostType    uint32
	types       []funcType
	typeIndexes map[string]uint32
	helpers     []helper
	// indexes has the function of each helper.
	indexes map[helper]uint32
	// code has all functions.
	code []byte

	mutableGlobals int
	// work is what the functions so far add up to.
	work int
}

// inject rewrites all functions, and adds the host's function, the counters and the helpers.
func (m *module) inject() error {
	m.injection = injection{
		fuel:        uint32(m.globalCount()),
		stack:       uint32(m.globalCount()) + 1,
		typeIndexes: make(map[string]uint32, len(m.types)),
		indexes:     map[helper]uint32{},
	}
	for i, t := range m.types {
		if _, ok := m.typeIndexes[t.key()]; !ok {
			m.typeIndexes[t.key()] = uint32(i)
		}
	}
	m.mutableGlobals = m.countMutable()
	m.hostType = m.typeIndex(funcType{params: []byte{typeI64, typeI64}, results: []byte{typeI64}})
	m.helperFor(helper{op: helperCheck})
	m.moveReferences()

	size := 0
	for _, b := range m.bodies {
		size += len(b)
	}
	m.code = make([]byte, 0, size*3/2)
	var w rewriter
	for i := range m.bodies {
		var err error
		if m.code, err = w.function(m, i, m.code); err != nil {
			return err
		}
	}
	for _, h := range m.helpers {
		body := m.helperBody(h)
		m.code = append(appendU32(m.code, uint32(len(body))), body...)
	}
	return nil
}

func (t funcType) key() string { return string(t.params) + ">" + string(t.results) }

// typeIndex returns the index of a type, which it adds if the module does not have it.
func (m *module) typeIndex(t funcType) uint32 {
	i, ok := m.typeIndexes[t.key()]
	if !ok {
		i = uint32(len(m.types) + len(m.injection.types))
		m.injection.types = append(m.injection.types, t)
		m.typeIndexes[t.key()] = i
	}
	return i
}

func (m *module) globalCount() int { return m.importedGlobals + len(m.globals) }

func (m *module) countMutable() int {
	n := 2
	for _, e := range m.imports {
		if e.kind == kindGlobal && e.global.mutable {
			n++
		}
	}
	for _, g := range m.globals {
		if g.mutable {
			n++
		}
	}
	return n
}

// moved returns the index of a function in the metered module.
func (m *module) moved(f uint32) uint32 {
	if int(f) < len(m.importedFunctions) {
		return f
	}
	return f + 1
}

// reference returns the function to refer to in place of f. An imported function is called through
// a helper, so that an indirect call of it costs as much as a direct one.
func (m *module) reference(f uint32) uint32 {
	if int(f) < len(m.importedFunctions) {
		return m.helperFor(helper{op: helperImport, a: f})
	}
	return m.moved(f)
}

// moveReferences replaces the functions that segments and globals refer to.
func (m *module) moveReferences() {
	move := func(c *constant) {
		if c.function >= 0 {
			c.code = appendU32(append(c.code[:0], opRefFunc), m.reference(uint32(c.function)))
		}
	}
	for i := range m.globals {
		move(&m.globals[i].init)
	}
	for _, e := range m.elements {
		for i, f := range e.functions {
			e.functions[i] = m.reference(f)
		}
		for i := range e.constants {
			move(&e.constants[i])
		}
	}
}

// helperFor returns the index of a helper's function, which it adds if it is new.
func (m *module) helperFor(h helper) uint32 {
	f, ok := m.indexes[h]
	if !ok {
		f = uint32(len(m.importedFunctions) + 1 + len(m.bodies) + len(m.helpers))
		m.helpers = append(m.helpers, h)
		m.indexes[h] = f
		m.typeIndex(m.helperType(h)) // all types are written before the code
	}
	return f
}

// appendCharge subtracts a cost from the fuel. It returns where the cost must be put.
func (m *module) appendCharge(b []byte) ([]byte, int) {
	b = appendU32(append(b, opGlobalGet), m.fuel)
	b = append(b, opI64Const)
	at := len(b)
	b = append(b, make([]byte, costSize)...)
	b = append(b, opI64Sub)
	return appendU32(append(b, opGlobalSet), m.fuel), at
}

// appendCheck calls the host if the fuel is below 0.
func (m *module) appendCheck(b []byte) []byte {
	b = appendU32(append(b, opGlobalGet), m.fuel)
	return m.appendCheckOf(b)
}

// appendStackCheck calls the host if the fuel or the stack is below 0.
func (m *module) appendStackCheck(b []byte) []byte {
	b = appendU32(append(b, opGlobalGet), m.fuel)
	b = appendU32(append(b, opGlobalGet), m.stack)
	return m.appendCheckOf(append(b, opI64Or))
}

func (m *module) appendCheckOf(b []byte) []byte {
	b = append(b, opI64Const, 0, opI64LtS, opIf, blockEmpty)
	b = appendU32(append(b, opCall), m.helperFor(helper{op: helperCheck}))
	return append(b, opEnd)
}

// appendStack adds a function's frame to what is left of the stack, or subtracts it.
func (m *module) appendStack(b []byte, op byte, size int) []byte {
	b = appendU32(append(b, opGlobalGet), m.stack)
	b = appendSigned(append(b, opI64Const), int64(size))
	return appendU32(append(b, op, opGlobalSet), m.stack)
}

// appendBlockType appends the type of a block that takes nothing.
func (m *module) appendBlockType(b []byte, results []byte) []byte {
	switch len(results) {
	case 0:
		return append(b, blockEmpty)
	case 1:
		return append(b, results[0])
	}
	return appendSigned(b, int64(m.typeIndex(funcType{results: results})))
}
