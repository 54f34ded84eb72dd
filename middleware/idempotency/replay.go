package idempotency

import (
	"net/http"
	"slices"
	"strconv"
)

// replayedHeader marks an answer that was given before, as with most services that take idempotency keys.
const replayedHeader = "Idempotent-Replayed"

// replay answers with a record.
func replay(w http.ResponseWriter, r *http.Request, rec *record) {
	h := w.Header()
	for name, values := range rec.header {
		h[name] = slices.Clone(values) // without values it is not sent, nor guessed
	}
	h.Set(replayedHeader, "true")
	send(w, r, rec.status, rec.body)
}

// send sends a whole answer, whose header is there.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	_, declared := h["Content-Length"]
	_, encoded := h["Transfer-Encoding"]
	if allowsBody(status) && !declared && !encoded && (r.Method != http.MethodHead || len(body) > 0) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if allowsBody(status) && len(body) > 0 {
		_, _ = w.Write(body) // a client that has left asks again
	}
}

// allowsBody says whether an answer of that status can have a body.
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
