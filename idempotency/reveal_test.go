package idempotency

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A layer is a writer with optional methods, which note their calls. It unwraps to the next one.
type layer struct {
	http.ResponseWriter
	name  string
	calls *[]string
}

func (l layer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l layer) note(method string) { *l.calls = append(*l.calls, l.name+" "+method) }

type (
	layerFlush  struct{ l layer }
	layerError  struct{ l layer }
	layerHijack struct{ l layer }
	layerRead   struct{ l layer }
	layerPush   struct{ l layer }
)

func (f layerFlush) Flush() { f.l.note("Flush") }

func (f layerError) FlushError() error { f.l.note("FlushError"); return errFlush }

func (h layerHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.l.note("Hijack")
	return nil, nil, nil
}

func (r layerRead) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{r.l.ResponseWriter}, src)
}

func (p layerPush) Push(string, *http.PushOptions) error { p.l.note("Push"); return nil }

var errFlush = errors.New("flushed with an error")

// The bits of a layer's methods.
const (
	canFlush = 1 << iota
	canFlushError
	canHijack
	canRead
	canPush
	layerKinds
)

// with returns l with the methods of some bits.
func (l layer) with(bits int) http.ResponseWriter {
	f, e, h, r, p := layerFlush{l}, layerError{l}, layerHijack{l}, layerRead{l}, layerPush{l}
	switch bits {
	case 1:
		return struct {
			layer
			layerFlush
		}{l, f}
	case 2:
		return struct {
			layer
			layerError
		}{l, e}
	case 3:
		return struct {
			layer
			layerFlush
			layerError
		}{l, f, e}
	case 4:
		return struct {
			layer
			layerHijack
		}{l, h}
	case 5:
		return struct {
			layer
			layerFlush
			layerHijack
		}{l, f, h}
	case 6:
		return struct {
			layer
			layerError
			layerHijack
		}{l, e, h}
	case 7:
		return struct {
			layer
			layerFlush
			layerError
			layerHijack
		}{l, f, e, h}
	case 8:
		return struct {
			layer
			layerRead
		}{l, r}
	case 9:
		return struct {
			layer
			layerFlush
			layerRead
		}{l, f, r}
	case 10:
		return struct {
			layer
			layerError
			layerRead
		}{l, e, r}
	case 11:
		return struct {
			layer
			layerFlush
			layerError
			layerRead
		}{l, f, e, r}
	case 12:
		return struct {
			layer
			layerHijack
			layerRead
		}{l, h, r}
	case 13:
		return struct {
			layer
			layerFlush
			layerHijack
			layerRead
		}{l, f, h, r}
	case 14:
		return struct {
			layer
			layerError
			layerHijack
			layerRead
		}{l, e, h, r}
	case 15:
		return struct {
			layer
			layerFlush
			layerError
			layerHijack
			layerRead
		}{l, f, e, h, r}
	case 16:
		return struct {
			layer
			layerPush
		}{l, p}
	case 17:
		return struct {
			layer
			layerFlush
			layerPush
		}{l, f, p}
	case 18:
		return struct {
			layer
			layerError
			layerPush
		}{l, e, p}
	case 19:
		return struct {
			layer
			layerFlush
			layerError
			layerPush
		}{l, f, e, p}
	case 20:
		return struct {
			layer
			layerHijack
			layerPush
		}{l, h, p}
	case 21:
		return struct {
			layer
			layerFlush
			layerHijack
			layerPush
		}{l, f, h, p}
	case 22:
		return struct {
			layer
			layerError
			layerHijack
			layerPush
		}{l, e, h, p}
	case 23:
		return struct {
			layer
			layerFlush
			layerError
			layerHijack
			layerPush
		}{l, f, e, h, p}
	case 24:
		return struct {
			layer
			layerRead
			layerPush
		}{l, r, p}
	case 25:
		return struct {
			layer
			layerFlush
			layerRead
			layerPush
		}{l, f, r, p}
	case 26:
		return struct {
			layer
			layerError
			layerRead
			layerPush
		}{l, e, r, p}
	case 27:
		return struct {
			layer
			layerFlush
			layerError
			layerRead
			layerPush
		}{l, f, e, r, p}
	case 28:
		return struct {
			layer
			layerHijack
			layerRead
			layerPush
		}{l, h, r, p}
	case 29:
		return struct {
			layer
			layerFlush
			layerHijack
			layerRead
			layerPush
		}{l, f, h, r, p}
	case 30:
		return struct {
			layer
			layerError
			layerHijack
			layerRead
			layerPush
		}{l, e, h, r, p}
	case 31:
		return struct {
			layer
			layerFlush
			layerError
			layerHijack
			layerRead
			layerPush
		}{l, f, e, h, r, p}
	}
	return l
}

// TestRecorder_Interfaces compares what a handler can do with a writer, with and without a
// Recorder, for all optional methods of a writer outside another one.
func TestRecorder_Interfaces(t *testing.T) {
	t.Parallel()
	yes := func(ok bool, yes string) string {
		if ok {
			return yes
		}
		return ""
	}
	uses := map[string]func(w http.ResponseWriter) string{
		"Flusher": func(w http.ResponseWriter) string {
			f, ok := w.(http.Flusher)
			if ok {
				f.Flush()
			}
			return yes(ok, "flushes")
		},
		"Hijacker": func(w http.ResponseWriter) string {
			h, ok := w.(http.Hijacker)
			if ok {
				_, _, _ = h.Hijack()
			}
			return yes(ok, "hijacks")
		},
		"Pusher": func(w http.ResponseWriter) string {
			p, ok := w.(http.Pusher)
			if ok {
				_ = p.Push("/", nil)
			}
			return yes(ok, "pushes")
		},
		"ReaderFrom": func(w http.ResponseWriter) string {
			_, ok := w.(io.ReaderFrom)
			n, err := io.Copy(w, io.LimitReader(strings.NewReader("body"), 4))
			return yes(ok, "reads ") + fmt.Sprint(n, err)
		},
		"control flushes": func(w http.ResponseWriter) string {
			return fmt.Sprint(http.NewResponseController(w).Flush())
		},
		"control hijacks": func(w http.ResponseWriter) string {
			_, _, err := http.NewResponseController(w).Hijack()
			return fmt.Sprint(err)
		},
	}
	for outside := range layerKinds {
		for inside := range layerKinds {
			for name, use := range uses {
				var calls []string
				build := func() http.ResponseWriter {
					calls = nil
					server := struct{ http.ResponseWriter }{httptest.NewRecorder()}
					return layer{layer{server, "inner", &calls}.with(inside), "outer", &calls}.with(outside)
				}
				want, wantCalls := use(build()), calls
				rec := &Recorder{r: httptest.NewRequest("POST", "/", nil), limit: 5, onPass: func() {}}
				w := rec.Wrap(build())
				if got := use(w); got != want || !slices.Equal(calls, wantCalls) {
					t.Errorf("%05b around %05b, %s: %q by %q, without a Recorder %q by %q", outside, inside, name, got, calls, want, wantCalls)
				}
				passes := len(wantCalls) > 0 && name != "Pusher"
				if rec.recordable() == passes {
					t.Errorf("%05b around %05b, %s: the state is %d after %q", outside, inside, name, rec.state, wantCalls)
				}
			}
		}
	}
}
