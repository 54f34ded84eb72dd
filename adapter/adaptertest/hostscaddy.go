package adaptertest

// The reasons of Caddy's exceptions.
const (
	bodyWrapped = "Caddy wraps the body to bound its reading (`read_idle_timeout`), and net/http no longer sees Expect: 100-continue. " +
		"Then an answer waits for the body of such a request, without reqlock as well."
	flushed = "Caddy's `reverse_proxy` flushes every answer without a length. So the handlers `reqlock_idempotent` and `reqlock_coalesce` pass on only those of `text/event-stream`, and record the others whole."
)

var ofCaddy = map[string]string{
	"a refusal asks for no body":                          bodyWrapped,
	"a refusal for its length asks for no body":           bodyWrapped,
	"a key function that panics asks for no body":         bodyWrapped,
	"body keys: a body that is too long is not asked for": bodyWrapped,
	"Coalesce: a flushed answer is not shared":            flushed,
	"once: answers that cannot be replayed":               flushed,
	"once: a stream is not held back":                     flushed,
}
