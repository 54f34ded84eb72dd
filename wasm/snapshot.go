package wasm

import (
	"net/http"
	"net/url"
	"strings"
)

// exportV2 is what a guest of ABI version 2 exports: a function that returns the address of its
// declaration.
const exportV2 = "reqlock_v2"

// The bits of a declaration's wants, one for each field of a request in this order.
const (
	fieldMethod = iota
	fieldURI
	fieldSource
	fieldProtocol
	fieldHost
	fieldBody
	fields
)

const (
	declarationLen = 20 // bytes
	maxHeaders     = 64 // names in a declaration
	maxHeaderNames = 4096
	fieldLen       = 8  // bytes of a field: address and length
	headerLen      = 12 // bytes of a header: address, length and count
	bodyMissing    = 0xffffffff
)

// A declaration is what a guest wants to know about each request, and where the host writes it. It
// is read once for each instance.
type declaration struct {
	wants   uint32
	headers []string // canonical
	buffer  uint32
	size    uint32
}

func (d *declaration) has(field int) bool { return d.wants&(1<<field) != 0 }

// tables is the length of the fields and headers, before the texts.
func (d *declaration) tables() int { return fields*fieldLen + len(d.headers)*headerLen }

// readDeclaration validates a declaration in the guest's memory.
func readDeclaration(mem reader, at uint32) (*declaration, error) {
	raw, ok := mem.Read(at, declarationLen)
	if !ok {
		return nil, breach("%s returned %d, and the %d bytes there are not in its memory", exportV2, at, declarationLen)
	}
	word := func(i int) uint32 { return load32(raw, 4*i) }
	d := &declaration{wants: word(0), buffer: word(3), size: word(4)}
	if unknown := d.wants &^ (1<<fields - 1); unknown != 0 {
		return nil, breach("%s: it wants %#x, which this host does not know", exportV2, unknown)
	}
	names, ok := mem.Read(word(1), word(2))
	if !ok || len(names) > maxHeaderNames {
		return nil, breach("%s: its %d bytes of header names are not in its memory, or more than %d", exportV2, word(2), maxHeaderNames)
	}
	if len(names) > 0 {
		list, ended := strings.CutSuffix(string(names), "\x00")
		if !ended {
			return nil, breach("%s: its header names do not end with NUL", exportV2)
		}
		for name := range strings.SplitSeq(list, "\x00") {
			d.headers = append(d.headers, http.CanonicalHeaderKey(name))
		}
	}
	if len(d.headers) > maxHeaders {
		return nil, breach("%s: it wants %d headers; the limit is %d", exportV2, len(d.headers), maxHeaders)
	}
	if _, ok := mem.Read(d.buffer, d.size); !ok || int(d.size) < d.tables() {
		return nil, breach("%s: its buffer of %d bytes is not in its memory, or shorter than the %d bytes of the tables", exportV2, d.size, d.tables())
	}
	return d, nil
}

// A snapshot writes a request into a guest's buffer: the tables, then the texts. A text that does
// not fit has the address 0.
type snapshot struct {
	// buffer belongs to the guest, and base is its address.
	buffer []byte
	base   uint32
	// used is how much the tables and the texts have taken so far.
	used int
}

// write writes the parts of the request that the guest wants. The body comes last: it is the
// longest.
func (d *declaration) write(mem reader, c *call) {
	buffer, _ := mem.Read(d.buffer, d.size) // memory never shrinks
	s := snapshot{buffer: buffer, base: d.buffer, used: d.tables()}
	clear(buffer[:s.used])
	r := c.request
	if d.has(fieldMethod) {
		s.field(fieldMethod, r.Method)
	}
	if d.has(fieldURI) {
		s.uri(r.URL)
	}
	if d.has(fieldSource) {
		s.field(fieldSource, r.RemoteAddr)
	}
	if d.has(fieldProtocol) {
		s.field(fieldProtocol, r.Proto)
	}
	if d.has(fieldHost) {
		s.field(fieldHost, r.Host)
	}
	for i, name := range d.headers {
		s.header(fields*fieldLen+i*headerLen, c.headerValues(kindRequest, name))
	}
	if d.has(fieldBody) {
		s.body(c.scratch.bodies[kindRequest])
	}
}

func (s *snapshot) field(field int, text string) {
	s.entry(field*fieldLen, len(text), copy(s.room(len(text)), text))
}

// uri writes the encoded path and the query, as URL.RequestURI does, without a copy.
func (s *snapshot) uri(u *url.URL) {
	if u.Opaque != "" {
		s.field(fieldURI, u.RequestURI())
		return
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	length := len(path)
	if u.ForceQuery || u.RawQuery != "" {
		length += 1 + len(u.RawQuery)
	}
	room := s.room(length)
	if len(room) > 0 && copy(room, path) < length {
		room[len(path)] = '?'
		copy(room[len(path)+1:], u.RawQuery)
	}
	s.entry(fieldURI*fieldLen, length, len(room))
}

// header writes the values of a header with NUL between them.
func (s *snapshot) header(at int, values []string) {
	length := max(0, len(values)-1)
	for _, v := range values {
		length += len(v)
	}
	room, n := s.room(length), 0
	if length > 0 && len(room) > 0 {
		for i, v := range values {
			if i > 0 {
				room[n] = 0
				n++
			}
			n += copy(room[n:], v)
		}
	}
	s.entry(at, length, n)
	store32(s.buffer, at+8, uint32(len(values)))
}

func (s *snapshot) body(b *body) {
	if b.err != nil {
		store32(s.buffer, fieldBody*fieldLen+4, bodyMissing)
		return
	}
	s.entry(fieldBody*fieldLen, len(b.unread), copy(s.room(len(b.unread)), b.unread))
}

// room returns where the next text goes; nil: it does not fit.
func (s *snapshot) room(length int) []byte {
	if length > len(s.buffer)-s.used {
		return nil
	}
	return s.buffer[s.used : s.used+length]
}

// entry writes the address and length of a text, of which so many bytes have been written: all or
// none.
func (s *snapshot) entry(at, length, written int) {
	if written == length {
		store32(s.buffer, at, s.base+uint32(s.used))
		s.used += length
	}
	store32(s.buffer, at+4, uint32(length))
}
