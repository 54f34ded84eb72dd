package meter

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// A reader decodes bytes. After an error it returns zeros, and err is the first error.
type reader struct {
	b   []byte
	pos int
	err error
}

var errShort = errors.New("it ends too early")

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) done() bool { return r.err != nil || r.pos >= len(r.b) }

func (r *reader) byte() byte {
	if r.err != nil || r.pos >= len(r.b) {
		if r.err == nil {
			r.err = errShort
		}
		return 0
	}
	b := r.b[r.pos]
	r.pos++
	return b
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.pos {
		if r.err == nil {
			r.err = errShort
		}
		return nil
	}
	r.pos += n
	return r.b[r.pos-n : r.pos]
}

// u32 reads an unsigned LEB128 number.
func (r *reader) u32() uint32 {
	if r.err == nil && r.pos < len(r.b) && r.b[r.pos] < 0x80 { // most numbers are short
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail("a number has more than 32 bits")
	return 0
}

// signed reads a signed LEB128 number of 32, 33 or 64 bits.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; shift < (bits+6)/7*7; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if used := bits - shift; used < 7 { // the last byte: its other bits repeat the sign
			if sign := int8(b<<1) >> used; sign != 0 && sign != -1 {
				break
			}
		}
		if shift < 57 {
			v = v << (57 - shift) >> (57 - shift)
		}
		return v
	}
	r.fail("a number has more than %d bits", bits)
	return 0
}

// count reads the length of a vector, whose entries have at least one byte each.
func (r *reader) count(owner, what string, limit int) int {
	n := r.u32()
	if r.err == nil && int64(n) > int64(limit) {
		r.err = tooMany(owner, int(n), what, limit)
	}
	if r.err == nil && int(n) > len(r.b)-r.pos {
		r.err = errShort
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	b := r.bytes(int(r.u32()))
	if !utf8.Valid(b) {
		r.fail("a name is not valid UTF-8")
	}
	return string(b)
}

// index reads an index into a space with n entries.
func (r *reader) index(what string, n int) uint32 {
	i := r.u32()
	if r.err == nil && int64(i) >= int64(n) {
		r.fail("%s %d does not exist", what, i)
	}
	return i
}

func (r *reader) valueType() byte {
	t := r.byte()
	if r.err == nil && !isValueType(t) {
		r.fail("value type %#x is unknown", t)
	}
	return t
}

func (r *reader) refType() byte {
	t := r.byte()
	if r.err == nil && t != typeFuncref && t != typeExternref {
		r.fail("reference type %#x is unknown", t)
	}
	return t
}

const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

func isValueType(t byte) bool {
	return t >= typeV128 && t <= typeI32 || t == typeFuncref || t == typeExternref
}

// appendU32 appends an unsigned LEB128 number in its shortest form.
func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendSigned appends a signed LEB128 number in its shortest form.
func appendSigned(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}
