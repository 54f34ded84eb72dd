package idempotency

import (
	"encoding/binary"
	"net/http"
)

// A decoder decodes its data from the front.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) number(limit uint64) uint64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 || n > limit {
		d.bad = true
		return 0
	}
	d.data = d.data[size:]
	return n
}

// count decodes a number of things that take at least a byte each.
func (d *decoder) count() int { return int(d.number(uint64(len(d.data)))) }

func (d *decoder) text() string {
	n := d.count()
	if n > len(d.data) {
		d.bad = true
		return ""
	}
	text := string(d.data[:n])
	d.data = d.data[n:]
	return text
}

func (d *decoder) header() http.Header {
	header := make(http.Header)
	for n := d.count(); n > 0 && !d.bad; n-- {
		name, values := d.text(), []string{}
		for m := d.count(); m > 0 && !d.bad; m-- {
			values = append(values, d.text())
		}
		header[name] = values
	}
	return header
}
