package meter

// The parts of the custom section "name" that are kept.
const (
	namesOfModule    = 0
	namesOfFunctions = 1
)

// moveNames returns the content of a custom section. Names of functions, which traps show, move
// with their functions. Other names are dropped.
func (m *module) moveNames(c custom) []byte {
	if c.name != "name" {
		return c.bytes
	}
	var out []byte
	for r := (&reader{b: c.bytes}); !r.done(); {
		part, body := r.byte(), r.bytes(int(r.u32()))
		if r.err != nil {
			break
		}
		switch part {
		case namesOfModule:
			out = appendSection(out, part, body)
		case namesOfFunctions:
			if moved, ok := m.moveFunctionNames(body); ok {
				out = appendSection(out, part, moved)
			}
		}
	}
	return out
}

func (m *module) moveFunctionNames(body []byte) ([]byte, bool) {
	r := &reader{b: body}
	n := r.count("the module", "names", m.limits.Functions+m.limits.Imports)
	out := appendU32(nil, uint32(n))
	for range n {
		out = appendName(appendU32(out, m.moved(r.index("function", m.functionCount()))), r.name())
	}
	return out, r.err == nil && r.pos == len(body)
}
