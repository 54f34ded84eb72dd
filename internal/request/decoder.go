package request

import (
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
)

// A Decoder decodes its Data, a record of an answer, from the front.
type Decoder struct {
	Data []byte
	// Bad is true after data that no encoder writes.
	Bad bool
}

// Number decodes a number of at most limit.
func (d *Decoder) Number(limit uint64) uint64 {
	n, size := binary.Uvarint(d.Data)
	if size <= 0 || n > limit {
		d.Bad = true
		return 0
	}
	d.Data = d.Data[size:]
	return n
}

// count decodes a number of things that take at least a byte each.
func (d *Decoder) count() int { return int(d.Number(uint64(len(d.Data)))) }

// Text decodes what AppendText encodes.
func (d *Decoder) Text() string {
	n := d.count()
	if n > len(d.Data) {
		d.Bad = true
		return ""
	}
	text := string(d.Data[:n])
	d.Data = d.Data[n:]
	return text
}

// Header decodes what AppendHeader encodes.
func (d *Decoder) Header() http.Header {
	header := make(http.Header)
	for n := d.count(); n > 0 && !d.Bad; n-- {
		name, values := d.Text(), []string{}
		for m := d.count(); m > 0 && !d.Bad; m-- {
			values = append(values, d.Text())
		}
		header[name] = values
	}
	return header
}

// AppendHeader encodes a header. Equal headers are equal then.
func AppendHeader(out []byte, header http.Header) []byte {
	out = binary.AppendUvarint(out, uint64(len(header)))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		out = AppendText(out, name)
		out = binary.AppendUvarint(out, uint64(len(header[name])))
		for _, value := range header[name] {
			out = AppendText(out, value)
		}
	}
	return out
}

// AppendText encodes a text.
func AppendText(out []byte, text string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}
