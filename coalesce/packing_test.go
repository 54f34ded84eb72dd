package coalesce

import (
	"bytes"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/idempotency"
)

// A body that becomes smaller is deflated in Redis, unless it is sealed. Requests of other processes get it
// as it was.
func TestServe_Packs(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`{"sold":7,"tenant":"t1"},`, 1<<10)
	noise := make([]byte, 25<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, test := range map[string]struct {
		body  string
		codec idempotency.Codec
		// least and most bound how many bytes the record takes in Redis.
		least, most int64
	}{
		"a text":        {body: text, most: 2 << 10},
		"noise":         {body: string(noise), least: 25 << 10, most: 30 << 10},
		"a sealed text": {body: text, codec: sealed(t, 1), least: 25 << 10, most: 30 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2, Config{Codec: test.codec})
			first, other := s.begin(0), s.get(1)
			s.gather(1)
			s.finish(write(test.body))
			for i, answer := range []<-chan *httptest.ResponseRecorder{first, other} {
				if w := receive(t, "an answer", answer); w.Body.String() != test.body || isShared(w) != (i == 1) {
					t.Errorf("answer %d of %d bytes", w.Code, w.Body.Len())
				}
			}
			keys := s.rdb.Keys(bg, "*:record").Val()
			if len(keys) != 1 {
				t.Fatalf("records %q", keys)
			}
			if size := s.rdb.MemoryUsage(bg, keys[0]).Val(); size < test.least || size > test.most {
				t.Errorf("the record takes %d bytes in Redis", size)
			}
		})
	}
}

// A record whose body is not what it says is read as none.
func TestUnpack(t *testing.T) {
	t.Parallel()
	body := []byte(strings.Repeat("0123456789", 1000))
	packed := pack(body)
	if got, err := unpack(packed, len(body)); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for name, test := range map[string]struct {
		data []byte
		size int
	}{
		"shorter than it says": {packed, len(body) + 1},
		"longer than it says":  {packed, len(body) - 1},
		"cut":                  {packed[:len(packed)-1], len(body)},
		"not deflated":         {body, len(body)},
		"nothing":              {nil, 1},
	} {
		if _, err := unpack(test.data, test.size); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
