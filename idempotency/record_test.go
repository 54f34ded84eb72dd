package idempotency

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"testing"
)

func someRecord() *record {
	rec := &record{kind: kindAnswered, status: 201, body: []byte("body\x00\xff"), header: http.Header{
		"Link": {"<a>", "", "\xff"}, "Gone": {}, "": {"no name"},
	}}
	for i := range rec.fingerprint {
		rec.fingerprint[i] = byte(i)
	}
	return rec
}

// The format is published: the next version must read records of this one.
func TestRecord_Format(t *testing.T) {
	t.Parallel()
	rec := &record{kind: kindAnswered, status: 201, header: http.Header{"B": {"1", "22"}, "A": nil}, body: []byte("body")}
	zeros := string(make([]byte, fingerprintSize))
	for _, test := range []struct {
		rec  *record
		want string
	}{
		{rec, "RQLI\x01A" + zeros + "\xc9\x01" + "\x02" + "\x01A\x00" + "\x01B\x02\x011\x0222" + "body"},
		{&record{kind: kindUnrecorded}, "RQLI\x01N" + zeros},
		{&record{kind: kindBegun}, "RQLI\x01U" + zeros},
	} {
		if got := string(test.rec.encode()); got != test.want {
			t.Errorf("encoded\n%q, want\n%q", got, test.want)
		}
	}
}

func TestRecord_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, rec := range []*record{
		someRecord(),
		{kind: kindAnswered, status: 204, header: http.Header{}, body: []byte{}},
		{kind: kindAnswered, status: 999, header: http.Header{}, body: bytes.Repeat([]byte("x"), 1<<20)},
		{kind: kindUnrecorded, fingerprint: [fingerprintSize]byte{1}},
		{kind: kindBegun, fingerprint: [fingerprintSize]byte{2}},
	} {
		got, err := decodeRecord(rec.encode())
		if err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("decoded %+v (%v), want %+v", got, err, rec)
		}
	}
}

func TestRecord_Refused(t *testing.T) {
	t.Parallel()
	good := someRecord().encode()
	changed := func(i int, to byte) []byte {
		bad := bytes.Clone(good)
		bad[i] = to
		return bad
	}
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":              {nil, errNotARecord},
		"only the magic":       {good[:4], errNotARecord},
		"another magic":        {changed(0, 'r'), errNotARecord},
		"version 0":            {changed(4, 0), errNotARecord},
		"version 2":            {changed(4, 2), errNewerRecord},
		"version 2, shorter":   {[]byte("RQLI\x02"), errNewerRecord},
		"another kind":         {changed(5, 'X'), errNotARecord},
		"a longer marker":      {append((&record{kind: kindBegun}).encode(), 0), errNotARecord},
		"status 100":           {changed(38, 100), errNotARecord},
		"more headers than is": {changed(40, 200), errNotARecord},
	} {
		if rec, err := decodeRecord(test.data); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v, want %v", name, rec, err, test.want)
		}
	}
	for n := range len(good) - len("body\x00\xff") {
		if rec, err := decodeRecord(good[:n]); err == nil {
			t.Errorf("the first %d bytes are a record: %+v", n, rec)
		}
	}
}

// Decoding never panics, and accepts only what encode writes.
func FuzzDecodeRecord(f *testing.F) {
	f.Add(someRecord().encode())
	f.Add((&record{kind: kindBegun}).encode())
	f.Add([]byte("RQLI\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := decodeRecord(rec.encode())
		if err != nil || !reflect.DeepEqual(rec, again) {
			t.Errorf("decoded %+v, then %+v (%v)", rec, again, err)
		}
	})
}
