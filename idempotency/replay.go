package idempotency

import (
	"net/http"
	"slices"

	"github.com/reqlock/reqlock/internal/request"
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
	encoder := request.Encodes(h)
	for name, values := range p.rec.header {
		// Without values, net/http neither sends the header nor guesses it.
		h[name] = slices.Clone(values)
	}
	h.Set(replayedHeader, "true")
	request.Send(w, r, p.rec.status, p.rec.body, encoder)
}
