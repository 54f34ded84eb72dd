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
	"github.com/reqlock/reqlock/internal/request"
)

// A Recorder holds back the answer of one run until it is recorded. An answer that cannot be
// recorded passes through.
//
// It is for adapters; see Guard.Serve. One goroutine uses it at a time, as with the writer it
// wraps.
type Recorder struct {
	r     *http.Request
	limit int64
	// onPass is called once, if the answer cannot be recorded.
	onPass func()

	w http.ResponseWriter
	// outer is the header as the handler found it, with the values themselves. before is a copy of
	// it, without what the handler has set again.
	outer, before http.Header
	state         recorderState
	status        int // 0: not yet known
	// header is the header at the moment when the status became known.
	header http.Header
	// length is that of Content-Length. -1: there is none.
	length int64
	// The handler wrote more than length: as in net/http, all further writes fail.
	overrun bool
	body    []byte
}

// A recorderState is how far the answer has come. It only goes forward.
type recorderState int

const (
	recorderIdle    recorderState = iota // the handler has written nothing
	recorderHolding                      // the answer is held back
	// The handler returned without an answer: the server will send it.
	recorderImplicit
	recorderFailed   // the handler left an error and no answer
	recorderPassing  // the answer passes through
	recorderHijacked // the connection was hijacked
	recorderEnded    // the answer was sent
)

// move changes the state, unless that would go back, and reports whether it did.
func (rec *Recorder) move(to recorderState) bool {
	if to <= rec.state {
		return false
	}
	rec.state = to
	return true
}

// recordable reports whether nothing of the answer was sent.
func (rec *Recorder) recordable() bool { return rec.state < recorderPassing }

// Wrap returns a writer that replaces w, with the same optional interfaces. Call it once. A nil
// Recorder returns w.
func (rec *Recorder) Wrap(w http.ResponseWriter) http.ResponseWriter {
	if rec == nil {
		return w
	}
	rec.w, rec.outer, rec.before, rec.length = w, maps.Clone(w.Header()), w.Header().Clone(), -1
	return httpsnoop.Wrap(request.Reveal(w, rec.hijack), httpsnoop.Hooks{
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

func (rec *Recorder) writeHeader(status int) {
	switch {
	case !rec.recordable():
		rec.w.WriteHeader(status)
	case rec.state != recorderIdle: // too late for another status
	case status < 100 || status > 999:
		// As in net/http, with the handler in the stack.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status == http.StatusSwitchingProtocols:
		rec.pass()
		rec.w.WriteHeader(status)
	case status < 200:
		rec.w.WriteHeader(status) // informational, not the answer
	default:
		rec.begin(status)
	}
}

// begin records the head of the answer.
func (rec *Recorder) begin(status int) {
	rec.move(recorderHolding)
	rec.status, rec.header = status, rec.w.Header().Clone()
	setAgain(rec.outer, rec.w.Header(), rec.before, rec.header)
	if values := rec.header["Content-Length"]; len(values) > 0 {
		n, err := strconv.ParseUint(strings.TrimSpace(values[0]), 10, 63)
		if err != nil {
			delete(rec.header, "Content-Length") // as net/http does
		} else {
			rec.length = int64(n)
		}
	}
	if rec.r.Method != http.MethodHead && request.AllowsBody(status) && rec.length > rec.limit || len(rec.header["Trailer"]) > 0 {
		rec.pass()
	}
}

// begun calls begin with 200, as net/http does, if the handler has not given a status.
func (rec *Recorder) begun() {
	if rec.state == recorderIdle {
		rec.begin(http.StatusOK)
	}
}

func (rec *Recorder) write(p []byte) (int, error) {
	rec.begun()
	if err := rec.allows(len(p)); err != nil {
		return 0, err
	}
	if rec.state == recorderHolding {
		if int64(len(rec.body)+len(p)) <= rec.limit {
			rec.body = append(rec.body, p...)
			return len(p), nil
		}
		rec.pass()
	}
	return rec.w.Write(p)
}

// allows returns the error of net/http for writing n bytes. Once the answer passes through, the
// writer does its own checks.
func (rec *Recorder) allows(n int) error {
	if n == 0 {
		return nil
	}
	if rec.state == recorderHolding {
		if !request.AllowsBody(rec.status) {
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
	if rec.state == recorderHolding {
		return rec.write([]byte(s))
	}
	if err := rec.allows(len(s)); err != nil {
		return 0, err
	}
	return next(s)
}

// readFrom reads while the answer is held back, and leaves the rest to the writer, which may be
// faster.
func (rec *Recorder) readFrom(next httpsnoop.ReadFromFunc, src io.Reader) (n int64, err error) {
	buf := make([]byte, 32<<10)
	for rec.recordable() || rec.overrun {
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

func (rec *Recorder) hijack(next request.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	if rec.state == recorderHolding {
		rec.pass() // It sends first what was written.
	}
	conn, rw, err := next()
	if err == nil {
		if rec.recordable() {
			rec.onPass()
		}
		rec.move(recorderHijacked)
	}
	return conn, rw, err
}

// pass sends the held part of the answer, and lets the rest pass through.
func (rec *Recorder) pass() {
	if !rec.move(recorderPassing) {
		return
	}
	rec.onPass()
	rec.pour(func() {
		rec.w.WriteHeader(rec.status)
		if len(rec.body) > 0 {
			_, _ = rec.w.Write(rec.body) // the next Write returns the error to the handler
		}
	})
	rec.body = nil
}

// pour sends the answer with the header from when it was begun. Then it restores the current
// header, which may have trailers, but keeps what writers below have added: one that delays the
// header sends it later.
func (rec *Recorder) pour(send func()) {
	if rec.status == 0 {
		return
	}
	header := rec.w.Header()
	now := maps.Clone(header)
	replace(header, rec.header)
	send()
	for name, values := range header {
		if _, known := rec.header[name]; !known && name != "Content-Length" { // that is send's
			now[name] = values
		}
	}
	replace(header, now)
}

func replace(header, by http.Header) {
	clear(header)
	maps.Copy(header, by)
}

// Holds reports whether the Recorder holds back what the handler has written so far.
func (rec *Recorder) Holds() bool { return rec.state == recorderHolding }

// Fits reports whether the Recorder can hold back a body of that length.
func (rec *Recorder) Fits(length int64) bool { return length <= rec.limit }

// Bypassed records that an answer with that status was sent past the Recorder. It cannot be
// replayed. What the Recorder holds back is dropped.
func (rec *Recorder) Bypassed(status int) {
	if !rec.move(recorderPassing) {
		return
	}
	rec.status, rec.header, rec.body = status, rec.w.Header().Clone(), nil
	rec.onPass()
}

// Failed records that the handler has ended with an error. If it has answered nothing so far, nor
// has the framework, what the client gets is up to middleware further out: the result is not
// stored, and guard.Outcome has no status. A nil Recorder does nothing.
func (rec *Recorder) Failed() {
	if rec != nil && rec.state == recorderIdle {
		rec.move(recorderFailed)
	}
}

// complete ends the answer of a handler that has returned, and reports whether it is held back
// whole.
func (rec *Recorder) complete() bool {
	if rec.w == nil {
		return false // the adapter did not call Wrap
	}
	if rec.state == recorderIdle {
		rec.begin(http.StatusOK)
		rec.move(recorderImplicit)
	}
	if !rec.recordable() || rec.state == recorderFailed {
		return false
	}
	for name := range rec.w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			rec.pass()
			return false
		}
	}
	if short := rec.length > int64(len(rec.body)); short && rec.r.Method != http.MethodHead && request.AllowsBody(rec.status) {
		rec.pass() // net/http breaks the connection
		return false
	}
	return true
}

// release sends the answer. An implicit one is left to the server and outer middleware.
func (rec *Recorder) release() {
	if !rec.recordable() {
		return
	}
	held := rec.state == recorderHolding
	rec.move(recorderEnded)
	if held {
		rec.pour(func() { request.Send(rec.w, rec.r, rec.status, rec.body, request.Encodes(rec.before)) })
	}
}

// abandon sends what the handler had begun to send, as without a Recorder, if the handler panicked
// or ended its goroutine.
func (rec *Recorder) abandon() {
	if rec.w == nil || !rec.recordable() {
		return
	}
	rec.pass()
	rec.move(recorderEnded)
}
