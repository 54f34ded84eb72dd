package coalesce

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A hijacker is a writer whose connection can be hijacked, and an unwrapping one leads to it.
type hijacker struct{ http.ResponseWriter }

func (hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

type unwrapping struct {
	http.ResponseWriter
	inner http.ResponseWriter
}

func (u unwrapping) Unwrap() http.ResponseWriter { return u.inner }

// A plainWriter has no optional methods.
type plainWriter struct{ http.ResponseWriter }

// What the client gets in another way than by whole writes is noticed, and refused once.
func TestRecorder_Refuses(t *testing.T) {
	t.Parallel()
	hijack := func(w http.ResponseWriter) { _, _, _ = http.NewResponseController(w).Hijack() }
	plain := func(w http.ResponseWriter) http.ResponseWriter { return w }
	hijacks := func(w http.ResponseWriter) http.ResponseWriter { return hijacker{w} }
	for _, test := range []struct {
		name    string
		wrap    func(http.ResponseWriter) http.ResponseWriter
		handler func(http.ResponseWriter)
		want    string
	}{
		{"nothing is written", plain, func(http.ResponseWriter) {}, ""},
		{"all is written", plain, func(w http.ResponseWriter) { w.Header().Set("Content-Length", "2"); _, _ = w.Write([]byte("ab")) }, ""},
		{"less is written", plain, func(w http.ResponseWriter) { w.Header().Set("Content-Length", "3"); _, _ = w.Write([]byte("ab")) }, becauseIncomplete},
		{"a long length", plain, func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); w.WriteHeader(200) }, becauseTooLarge},
		{"a late trailer", plain, func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+"Digest", "1") }, becauseTrailer},
		{"hijacked", hijacks, hijack, becauseHijacked},
		{"hijacked inside", func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w, hijacker{w}} }, hijack, becauseHijacked},
		{"flushed inside, and nothing hijacks", func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{plainWriter{w}, w} },
			func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, becauseFlushed},
		{"flushed inside", func(w http.ResponseWriter) http.ResponseWriter {
			return unwrapping{plainWriter{w}, struct {
				hijacker
				http.Flusher
			}{hijacker{w}, w.(http.Flusher)}}
		},
			func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, becauseFlushed},
	} {
		refusals := 0
		rec := &Recorder{method: "GET", limit: 10, unshared: func(head answerHead) string { return head.unshared(false, nil) }}
		rec.onRefuse = func() { refusals++ }
		test.handler(rec.Wrap(test.wrap(httptest.NewRecorder())))
		if rec.because == "" {
			rec.complete()
		}
		if rec.because != test.want || refusals != min(1, len(test.want)) {
			t.Errorf("%s: %q, refused %d times", test.name, rec.because, refusals)
		}
	}
}
