package meter

import "slices"

// write encodes the metered module.
func (m *module) write() []byte {
	size := len(m.code) + 1<<12
	for _, d := range m.data {
		size += len(d.bytes) + 16
	}
	for _, c := range m.customs {
		size += len(c.bytes) + len(c.name) + 16
	}
	out := append(make([]byte, 0, size), magic...)
	out = m.writeCustoms(out, -1)
	for place, id := range order {
		if body := m.section(id); body != nil {
			out = appendSection(out, byte(id), body)
		}
		out = m.writeCustoms(out, place)
	}
	return out
}

func appendSection(out []byte, id byte, body []byte) []byte {
	return append(appendU32(append(out, id), uint32(len(body))), body...)
}

func (m *module) writeCustoms(out []byte, place int) []byte {
	for _, c := range m.customs {
		if c.after == place {
			out = appendSection(out, sectionCustom, append(appendName(nil, c.name), m.moveNames(c)...))
		}
	}
	return out
}

// section encodes the content of a section; nil: it is not needed.
func (m *module) section(id int) []byte {
	switch id {
	case sectionType:
		return encode(slices.Concat(m.types, m.injection.types), func(b []byte, t funcType) []byte {
			b = append(appendU32(append(b, 0x60), uint32(len(t.params))), t.params...)
			return append(appendU32(b, uint32(len(t.results))), t.results...)
		})
	case sectionImport:
		host := extern{module: Module, name: Check, kind: kindFunction, index: m.hostType}
		return encode(append(slices.Clip(m.imports), host), appendImport)
	case sectionFunction:
		types := slices.Clone(m.functions)
		for _, h := range m.helpers {
			types = append(types, m.typeIndex(m.helperType(h)))
		}
		return encode(types, appendU32)
	case sectionTable:
		return encode(m.tables, appendTable)
	case sectionMemory:
		return encode(m.memories, appendLimits)
	case sectionGlobal:
		return encode(slices.Concat(m.globals, []global{counter(Slice), counter(StackSize)}), func(b []byte, g global) []byte {
			return append(append(appendGlobalType(b, g.globalType), g.init.code...), opEnd)
		})
	case sectionExport:
		stack := extern{name: Stack, kind: kindGlobal, index: m.stack}
		return encode(append(slices.Clip(m.exports), stack), m.appendExport)
	case sectionStart:
		if m.start == nil {
			return nil
		}
		return appendU32(nil, m.moved(*m.start))
	case sectionElement:
		return encode(m.elements, appendElements)
	case sectionDataCount:
		if m.dataCount == nil {
			return nil
		}
		return appendU32(nil, *m.dataCount)
	case sectionCode:
		return append(appendU32(nil, uint32(len(m.bodies)+len(m.helpers))), m.code...)
	default:
		return encode(m.data, appendData)
	}
}

// encode encodes a vector; nil: it is empty.
func encode[T any](list []T, entry func([]byte, T) []byte) []byte {
	if len(list) == 0 {
		return nil
	}
	b := appendU32(nil, uint32(len(list)))
	for _, e := range list {
		b = entry(b, e)
	}
	return b
}

// counter returns a global that begins at n.
func counter(n int64) global {
	return global{globalType{value: typeI64, mutable: true}, constant{code: appendSigned([]byte{opI64Const}, n)}}
}

func appendImport(b []byte, e extern) []byte {
	b = append(appendName(appendName(b, e.module), e.name), e.kind)
	switch e.kind {
	case kindFunction:
		return appendU32(b, e.index)
	case kindTable:
		return appendTable(b, e.table)
	case kindMemory:
		return appendLimits(b, e.memory)
	default:
		return appendGlobalType(b, e.global)
	}
}

func appendTable(b []byte, t table) []byte { return appendLimits(append(b, t.element), t.limitsType) }

func appendLimits(b []byte, l limitsType) []byte {
	if !l.bounded {
		return appendU32(append(b, 0), l.min)
	}
	return appendU32(appendU32(append(b, 1), l.min), l.max)
}

func appendGlobalType(b []byte, g globalType) []byte {
	if g.mutable {
		return append(b, g.value, 1)
	}
	return append(b, g.value, 0)
}

func (m *module) appendExport(b []byte, e extern) []byte {
	b = append(appendName(b, e.name), e.kind)
	if e.kind == kindFunction {
		return appendU32(b, m.moved(e.index))
	}
	return appendU32(b, e.index)
}

func appendElements(b []byte, e elements) []byte {
	b = appendU32(b, e.flags)
	if e.flags&elementsPassive == 0 {
		if e.flags&elementsExplicit != 0 {
			b = appendU32(b, e.table)
		}
		b = append(append(b, e.offset.code...), opEnd)
	}
	constants := e.flags&elementsConstants != 0
	if e.flags&(elementsPassive|elementsExplicit) != 0 {
		if constants {
			b = append(b, e.element)
		} else {
			b = append(b, 0)
		}
	}
	if constants {
		b = appendU32(b, uint32(len(e.constants)))
		for _, c := range e.constants {
			b = append(append(b, c.code...), opEnd)
		}
		return b
	}
	b = appendU32(b, uint32(len(e.functions)))
	for _, f := range e.functions {
		b = appendU32(b, f)
	}
	return b
}

func appendData(b []byte, d data) []byte {
	b = appendU32(b, d.flags)
	if d.flags == 2 {
		b = append(b, 0)
	}
	if d.flags != 1 {
		b = append(append(b, d.offset.code...), opEnd)
	}
	return append(appendU32(b, uint32(len(d.bytes))), d.bytes...)
}
