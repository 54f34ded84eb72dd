package idempotency

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/felixge/httpsnoop"
)

// A Recorder holds back the answer of one run until it is recorded. What cannot be recorded passes through it.
//
// It is for adapters: see Guard.Serve. Like the writer that it stands before, it is used by one goroutine at a time.
type Recorder struct {
	r      *http.Request
	limit  int64
	passed func() // called once, when the answer turns out to be one that cannot be recorded

	w        http.ResponseWriter
	before   http.Header // as it was when the handler began
	state    recorderState
	status   int         // 0: not known yet
	header   http.Header // as it was when the status became known
	length   int64       // that the header promises; -1: nothing
	overrun  bool        // more than length was to be written: as in net/http, that refuses all further writes
	body     []byte
	implicit bool // the handler has done nothing
}

type recorderState int

const (
	holding recorderState = iota // the answer is held back
	passing                      // it passes
	taken                        // the connection was hijacked
	ended                        // the answer was sent, or given up
)

// Wrap returns a writer in the place of w, which can do what w can do. It is called once. A nil Recorder returns w as it is.
func (rec *Recorder) Wrap(w http.ResponseWriter) http.ResponseWriter {
	if rec == nil {
		return w
	}
	rec.w, rec.before, rec.length = w, w.Header().Clone(), -1
	return httpsnoop.Wrap(reveal(w), httpsnoop.Hooks{
		WriteHeader: func(httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc { return rec.writeHeader },
		Write:       func(httpsnoop.WriteFunc) httpsnoop.WriteFunc { return rec.write },
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { return rec.writeString(next, s) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return rec.readFrom(next, src) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { rec.begun(); rec.pass(); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { rec.begun(); rec.pass(); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return rec.hijack(next) }
		},
	})
}

// reveal makes a writer that can flush, or be hijacked, only by what it wraps able to do so by itself: http.ResponseController
// would find the way around the Recorder.
func reveal(w http.ResponseWriter) http.ResponseWriter {
	flushes, hijacks := abilities(w)
	var flushesInside, hijacksInside bool
	for inner := w; ; {
		outer, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		inner = outer.Unwrap()
		f, h := abilities(inner)
		flushesInside, hijacksInside = flushesInside || f, hijacksInside || h
	}
	switch {
	case hijacksInside && !hijacks:
		return hijackable{flushable{w}}
	case flushesInside && !flushes:
		return flushable{w}
	}
	return w
}

// abilities are those of a writer itself.
func abilities(w http.ResponseWriter) (flushes, hijacks bool) {
	switch w.(type) {
	case interface{ FlushError() error }, http.Flusher:
		flushes = true
	}
	_, hijacks = w.(http.Hijacker)
	return flushes, hijacks
}

type flushable struct{ http.ResponseWriter }

// Unwrap leads to all else.
func (w flushable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError flushes what is inside.
func (w flushable) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

type hijackable struct{ flushable }

// Hijack hijacks what is inside.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (rec *Recorder) writeHeader(status int) {
	switch {
	case rec.state != holding:
		rec.w.WriteHeader(status)
	case rec.status != 0: // it was too late for another one
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as in net/http, and while the handler can be seen in the stack
	case status == http.StatusSwitchingProtocols:
		rec.pass()
		rec.w.WriteHeader(status)
	case status < 200:
		rec.w.WriteHeader(status) // informational, not the answer
	default:
		rec.begin(status)
	}
}

// begin takes down the head of the answer.
func (rec *Recorder) begin(status int) {
	rec.status, rec.header = status, rec.w.Header().Clone()
	if values := rec.header["Content-Length"]; len(values) > 0 {
		n, err := strconv.ParseUint(strings.TrimSpace(values[0]), 10, 63)
		if err != nil {
			delete(rec.header, "Content-Length") // so does net/http
		} else {
			rec.length = int64(n)
		}
	}
	if rec.r.Method != http.MethodHead && allowsBody(status) && rec.length > rec.limit || len(rec.header["Trailer"]) > 0 {
		rec.pass()
	}
}

// begun is begin with what net/http takes for the status of a handler that gives none.
func (rec *Recorder) begun() {
	if rec.state == holding && rec.status == 0 {
		rec.begin(http.StatusOK)
	}
}

func (rec *Recorder) write(p []byte) (int, error) {
	rec.begun()
	if err := rec.allows(len(p)); err != nil {
		return 0, err
	}
	if rec.state == holding {
		if int64(len(rec.body)+len(p)) <= rec.limit {
			rec.body = append(rec.body, p...)
			return len(p), nil
		}
		rec.pass()
	}
	return rec.w.Write(p)
}

// allows says of n bytes what net/http would say. Of what passes, the writer says the rest by itself.
func (rec *Recorder) allows(n int) error {
	if n == 0 {
		return nil
	}
	if rec.state == holding {
		if !allowsBody(rec.status) {
			return http.ErrBodyNotAllowed
		}
		rec.overrun = rec.overrun || rec.length >= 0 && int64(len(rec.body)+n) > rec.length
	}
	if rec.overrun {
		return http.ErrContentLength
	}
	return nil
}

func (rec *Recorder) writeString(next httpsnoop.WriteStringFunc, s string) (int, error) {
	rec.begun()
	if rec.state == holding {
		return rec.write([]byte(s))
	}
	if err := rec.allows(len(s)); err != nil {
		return 0, err
	}
	return next(s)
}

// readFrom reads as long as the answer is held back, and leaves the rest to the writer, which may have a faster way.
func (rec *Recorder) readFrom(next httpsnoop.ReadFromFunc, src io.Reader) (n int64, err error) {
	buf := make([]byte, 32<<10)
	for rec.state == holding || rec.overrun {
		size, err := src.Read(buf)
		if size > 0 {
			written, err := rec.write(buf[:size])
			n += int64(written)
			if err != nil {
				return n, err
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	rest, err := next(src)
	return n + rest, err
}

func (rec *Recorder) hijack(next httpsnoop.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	if rec.state == holding && rec.status != 0 {
		rec.pass() // what was written is on its way before the connection changes hands
	}
	conn, rw, err := next()
	if err == nil {
		if rec.state == holding {
			rec.passed()
		}
		rec.state = taken
	}
	return conn, rw, err
}

// pass sends what was held back, and lets all that follows pass. What was not begun yet stays so.
func (rec *Recorder) pass() {
	if rec.state != holding {
		return
	}
	rec.state = passing
	rec.passed()
	rec.pour(func() {
		rec.w.WriteHeader(rec.status)
		if len(rec.body) > 0 {
			_, _ = rec.w.Write(rec.body) // the next Write tells the handler
		}
	})
	rec.body = nil
}

// pour sends the answer with the header as it was when the answer was begun. Afterwards it is as it is: it may have trailers.
func (rec *Recorder) pour(send func()) {
	if rec.status == 0 {
		return
	}
	header := rec.w.Header()
	now := maps.Clone(header)
	replace(header, rec.header)
	send()
	replace(header, now)
}

func replace(header, by http.Header) {
	clear(header)
	maps.Copy(header, by)
}

// Bypassed tells a Recorder of an answer, with that status, that did not come by its writer. It cannot be repeated.
func (rec *Recorder) Bypassed(status int) {
	if rec.state != holding {
		return
	}
	rec.state, rec.status, rec.body = passing, status, nil
	rec.header = rec.w.Header().Clone()
	rec.passed()
}

// complete ends the answer of a handler that has returned. It says whether all of the answer is held back.
func (rec *Recorder) complete() bool {
	if rec.w == nil {
		return false // the adapter had no use for it
	}
	if rec.state == holding && rec.status == 0 {
		rec.implicit = true
		rec.begin(http.StatusOK)
	}
	if rec.state != holding {
		return false
	}
	for name := range rec.w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			rec.pass()
			return false
		}
	}
	if short := rec.length > int64(len(rec.body)); short && rec.r.Method != http.MethodHead && allowsBody(rec.status) {
		rec.pass() // net/http breaks the connection
		return false
	}
	return true
}

// release sends the answer. One that nobody has begun is left to the server, and to whoever else may have something to say.
func (rec *Recorder) release() {
	if rec.state != holding {
		return
	}
	rec.state = ended
	if rec.implicit {
		return
	}
	rec.pour(func() { send(rec.w, rec.r, rec.status, rec.body) })
}

// abandon gives way to whoever deals with a handler that did not return. What the handler had begun to send is sent, as without
// a Recorder.
func (rec *Recorder) abandon() {
	if rec.w == nil || rec.state != holding {
		return
	}
	rec.pass()
	rec.state = ended
}
