package idempotency

import (
	"net/http"
	"slices"
	"strconv"
)

// replayedHeader marks a replayed answer, as it does in most services that take idempotency keys.
const replayedHeader = "Idempotent-Replayed"

// A replay answers a repeat with the record of the first run. It is the error of a lock that has
// such a record, and package guard lets it answer.
type replay struct{ rec *record }

func (p *replay) Error() string { return ErrReplayed.Error() }
func (p *replay) Unwrap() error { return ErrReplayed }

// Status returns the status of the answer, for guard.Outcome.
func (p *replay) Status() int { return p.rec.status }

func (p *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	encoder := encodes(h)
	for name, values := range p.rec.header {
		// Without values, net/http neither sends the header nor guesses it.
		h[name] = slices.Clone(values)
	}
	h.Set(replayedHeader, "true")
	send(w, r, p.rec.status, p.rec.body, encoder)
}

// encodes reports whether middleware further out has declared an encoding. It encodes what is
// written, so the length is not known.
func encodes(header http.Header) bool { return header.Get("Content-Encoding") != "" }

// send sends a whole answer. Its header is set already, but for Content-Length. encoder means that
// middleware further out encodes the body.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte, encoder bool) {
	h := w.Header()
	_, declared := h["Content-Length"]
	_, encoded := h["Transfer-Encoding"]
	if allowsBody(status) && !encoder && !declared && !encoded && (r.Method != http.MethodHead || len(body) > 0) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if allowsBody(status) && len(body) > 0 {
		_, _ = w.Write(body) // a client that left will repeat
	}
}

// allowsBody reports whether an answer with that status can have a body.
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
