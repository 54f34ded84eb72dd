package adaptertest

// The reasons of Caddy's exceptions.
const (
	bodyWrapped = "Caddy wraps the body to bound its reading (`read_idle_timeout`), and net/http no longer sees Expect: 100-continue. " +
		"Then an answer waits for the body of such a request, without reqlock as well."
	flushed = "Caddy's `reverse_proxy` flushes every answer without a length. So the handler `reqlock_idempotent` passes on only those of `text/event-stream`, and records the others whole."
)

var ofCaddy = map[string]string{
	"a refusal asks for no body":                          bodyWrapped,
	"a refusal for its length asks for no body":           bodyWrapped,
	"a key function that panics asks for no body":         bodyWrapped,
	"body keys: a body that is too long is not asked for": bodyWrapped,
	"once: answers that cannot be replayed":               flushed,
	"once: a stream is not held back":                     flushed,
}
