package adaptertest

// The reasons of Fiber's exceptions.
const (
	clientGone = "fasthttp does not notice that a client has left: its request goes on waiting, and its handler runs. Bound the wait with WaitTime."
	bodyFirst  = "fasthttp reads the body, and asks for it with 100 Continue, before any handler runs; fiber.Config.BodyLimit and ReadTimeout bound that."
	sentLater  = "Fiber sends an answer when the handler has returned. Handlers can neither flush, nor send 1xx or trailers, nor set deadlines, nor take the connection over."
	noHTTP2    = "fasthttp has no HTTP/2."
	headerText = "fasthttp keeps a header as text: nothing shows that a handler has set one again to the same value. Such a header is not recorded."
	noLength   = "fasthttp sets Content-Length by itself, so no handler promises a length."
)

var ofFiber = map[string]string{
	"refused/queue full":                                             clientGone, // those of the queue leave at the end
	"failing open/queue full":                                        clientGone,
	"a client that leaves while it waits":                            clientGone,
	"a client that leaves while it waits, with a body":               clientGone,
	"Limit: a client that leaves while it waits":                     clientGone,
	"a client that leaves while its key is derived":                  clientGone,
	"the client hangs up while the handler runs":                     clientGone,
	"Coalesce: the client of the run leaves":                         clientGone,
	"once: the client hangs up":                                      clientGone,
	"once: the client hangs up while it waits":                       clientGone,
	"refused/body cannot be read":                                    bodyFirst,
	"failing open/body cannot be read":                               bodyFirst,
	"MaxHold ends the reading of a body that never arrives":          bodyFirst,
	"MaxHold ends the reading of a body that arrives slowly":         bodyFirst,
	"MaxHold and a writer without deadlines":                         bodyFirst,
	"BufferBody: a body that arrives slowly holds no lock":           bodyFirst,
	"BufferBody and a client that aborts its upload":                 bodyFirst,
	"BufferBody and an outer limit":                                  bodyFirst,
	"a refusal asks for no body":                                     bodyFirst,
	"a refusal for its length asks for no body":                      bodyFirst,
	"a key function that panics asks for no body":                    bodyFirst,
	"body keys: a body that is too long is not asked for":            bodyFirst,
	"body keys: a client that aborts its upload":                     bodyFirst,
	"body keys: a policy's own error about an aborted body":          bodyFirst,
	"a body budget: no room for a body":                              bodyFirst,
	"Detach across a hijacked connection":                            sentLater,
	"Release before a connection is hijacked":                        sentLater,
	"Detach by a stream of events":                                   sentLater,
	"Release before a stream of events":                              sentLater,
	"Flush, ReadFrom, deadlines and trailers work":                   sentLater,
	"Coalesce: a flushed answer is not shared":                       sentLater,
	"Coalesce: a hijacked connection is not shared":                  sentLater,
	"Coalesce: the first request streams to its client":              sentLater,
	"once: answers that cannot be replayed":                          sentLater,
	"once: the writer works":                                         sentLater,
	"once: a stream is not held back":                                sentLater,
	"once: early hints":                                              sentLater,
	"once: a hijacked connection":                                    sentLater,
	"once: a panic that outer middleware answers":                    sentLater,
	"once: an answer that is shorter than promised":                  noLength,
	"once: an answer that is longer than promised":                   noLength,
	"once: an answer that goes on after a refused write":             noLength,
	"once: a header that outer middleware has set to the same value": headerText,
	"HTTP/2: 250 streams of one connection exclude each other":       noHTTP2,
	"HTTP/2: a client that leaves while it waits, with a body":       noHTTP2,
	"HTTP/2: MaxHold ends the reading of a body":                     noHTTP2,
	"HTTP/2: MaxHold ends an answer that the client does not read":   noHTTP2,
	"http.TimeoutHandler around the guard":                           "http.TimeoutHandler is net/http's.",
	"WaitTime beyond the server's WriteTimeout":                      "fasthttp's WriteTimeout begins when the answer is sent, so that no wait exceeds it.",
}
