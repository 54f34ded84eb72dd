package coalesce

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"sync"
)

// Redis gets a body deflated if a sample of it becomes smaller by an eighth or more. A text of 1 MiB
// takes some milliseconds, and far less room in Redis and in the network.
const (
	packFrom   = 4 << 10 // Smaller bodies are not worth the time.
	mostPacked = 1 << 30 // Redis takes none that is larger.
	packSample = 2 << 10
)

var (
	errNotPacked = errors.New("reqlock: coalesce: the body of an answer in Redis is not as long as the record says")
	deflaters    = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // It fails only for an unknown level.
		return w
	}}
)

// pack returns a body deflated. nil: that is not worth it.
func pack(body []byte) []byte {
	if len(body) < packFrom || len(body) > mostPacked || len(deflate(body[:packSample])) > packSample*7/8 {
		return nil
	}
	return deflate(body)
}

func deflate(body []byte) []byte {
	var out bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&out)
	_, _ = w.Write(body) // A Buffer takes everything.
	_ = w.Close()
	return out.Bytes()
}

// unpack returns a body of so many bytes that pack has deflated.
func unpack(data []byte, size int) ([]byte, error) {
	in, body := flate.NewReader(bytes.NewReader(data)), make([]byte, size)
	if _, err := io.ReadFull(in, body); err != nil {
		return nil, errNotPacked
	}
	if n, err := in.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, errNotPacked
	}
	return body, nil
}
