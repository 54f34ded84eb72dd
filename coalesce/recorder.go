package coalesce

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/felixge/httpsnoop"
	"github.com/reqlock/reqlock/internal/request"
)

// A Recorder copies the answer of one run, which goes to the client at once. It is for adapters; see
// Guard.Serve. One goroutine uses it at a time, as with the writer that it wraps.
type Recorder struct {
	method string
	limit  int64
	// unshared returns why an answer with that head is not shared; "": it is.
	unshared func(answerHead) string
	// onRefuse is called once, if the answer is not shared.
	onRefuse func()

	w      http.ResponseWriter // nil: the adapter has not called Wrap.
	before http.Header         // the header as the handler found it
	head   answerHead          // status 0: not yet known
	// length is that of Content-Length. -1: there is none.
	length  int64
	body    []byte
	account request.Account
	because string // why the answer is not shared; "": it may be.
}

// Wrap returns a writer that replaces w. Call it once. A nil Recorder returns w.
func (rec *Recorder) Wrap(w http.ResponseWriter) http.ResponseWriter {
	if rec == nil {
		return w
	}
	rec.w, rec.before, rec.length = w, w.Header().Clone(), -1
	return httpsnoop.Wrap(request.Reveal(w, rec.hijack), httpsnoop.Hooks{
		WriteHeader: func(httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc { return rec.writeHeader },
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(p []byte) (int, error) { return rec.write(next, p) }
		},
		WriteString: func(httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { return rec.write(rec.w.Write, []byte(s)) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return rec.readFrom(next, src) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { rec.begun(); rec.refuse(becauseFlushed); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { rec.begun(); rec.refuse(becauseFlushed); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) { return rec.hijack(next) }
		},
	})
}

func (rec *Recorder) hijack(next request.HijackFunc) (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := next()
	if err == nil {
		rec.refuse(becauseHijacked)
	}
	return conn, rw, err
}

// refuse lets the answer pass without sharing it.
func (rec *Recorder) refuse(because string) {
	if rec.because == "" {
		rec.because, rec.body = because, nil
		rec.account.Close()
		rec.onRefuse()
	}
}

// Failed says that the handler has failed. If it has not answered, others do, and that answer is not
// shared. It is for adapters.
func (rec *Recorder) Failed() {
	if rec.head.status == 0 {
		rec.refuse(becauseIncomplete)
	}
}

// Bypassed says that an answer with that status went past the Recorder, or will. It is not shared. 0:
// the status is not known. It is for adapters.
func (rec *Recorder) Bypassed(status int) {
	rec.refuse(becauseIncomplete)
	if rec.head.status == 0 {
		rec.head.status = status
	}
}

// Fits reports whether a body of that length can be shared. It is for adapters.
func (rec *Recorder) Fits(length int64) bool { return length <= rec.limit }

// Shares reports whether others may get the answer. Once false, it stays so. It is for adapters.
func (rec *Recorder) Shares() bool { return rec.because == "" }

func (rec *Recorder) writeHeader(status int) {
	if rec.head.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		rec.begin(status)
	}
	rec.w.WriteHeader(status)
}

// begin records the head of the answer.
func (rec *Recorder) begin(status int) {
	rec.head.status, rec.head.header = status, rec.w.Header().Clone()
	if values := rec.head.header["Content-Length"]; len(values) > 0 {
		n, err := strconv.ParseUint(strings.TrimSpace(values[0]), 10, 63)
		if err != nil {
			delete(rec.head.header, "Content-Length") // as net/http does
		} else {
			rec.length = int64(n)
		}
	}
	because := rec.unshared(rec.head)
	if because == "" && rec.hasBody() && rec.length > rec.limit {
		because = becauseTooLarge
	}
	if because != "" {
		rec.refuse(because)
	}
}

// begun calls begin with 200, as net/http does, if the handler has not given a status.
func (rec *Recorder) begun() {
	if rec.head.status == 0 {
		rec.begin(http.StatusOK)
	}
}

func (rec *Recorder) hasBody() bool {
	return rec.method != http.MethodHead && request.AllowsBody(rec.head.status)
}

// write writes to the client. If that has left, the handler goes on for the others.
func (rec *Recorder) write(next httpsnoop.WriteFunc, p []byte) (int, error) {
	rec.begun()
	n, err := next(p)
	ofHandler := errors.Is(err, http.ErrContentLength) || errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrHijacked)
	if rec.because != "" || ofHandler {
		return n, err
	}
	if rec.append(p); rec.because != "" {
		return n, err
	}
	return len(p), nil
}

func (rec *Recorder) append(p []byte) {
	need := len(rec.body) + len(p)
	if int64(need) > rec.limit {
		rec.refuse(becauseTooLarge)
		return
	}
	if need > cap(rec.body) {
		size := max(need, min(2*cap(rec.body), int(rec.limit)))
		if int64(need) <= rec.length && rec.length <= rec.limit {
			size = int(rec.length)
		}
		if rec.account.Grow(cap(rec.body), size) != nil {
			rec.refuse(becauseBusy)
			return
		}
		rec.body = append(make([]byte, 0, size), rec.body...)
	}
	rec.body = append(rec.body, p...)
}

// readFrom reads while the answer is copied, and leaves the rest to the writer, which may be faster.
func (rec *Recorder) readFrom(next httpsnoop.ReadFromFunc, src io.Reader) (n int64, err error) {
	buf := make([]byte, 32<<10)
	for rec.because == "" {
		size, err := src.Read(buf)
		if size > 0 {
			written, err := rec.write(rec.w.Write, buf[:size])
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

// complete ends the answer of a handler that has returned.
func (rec *Recorder) complete() {
	if rec.w == nil {
		rec.refuse(becauseIncomplete)
		return
	}
	rec.begun()
	for name := range rec.w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			rec.refuse(becauseTrailer)
			return
		}
	}
	if rec.hasBody() && rec.length > int64(len(rec.body)) {
		rec.refuse(becauseIncomplete) // net/http breaks the connection
	}
}

// answer returns what others get of an answer that is complete and shared.
func (rec *Recorder) answer() *answer {
	header := changed(rec.before, rec.head.header)
	for name := range header {
		if request.OfConnection(name, rec.head.header) {
			delete(header, name)
		}
	}
	return &answer{status: rec.head.status, header: header, body: rec.body, account: &rec.account}
}
