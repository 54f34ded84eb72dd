// Package keyfuncs derives the key of a lock from an HTTP request. It knows no
// lock: a [Func] takes a request and answers a string, or says why it has none.
//
// A key is put together from sources and combinators, once, at start-up:
//
//	key := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
//	key := keyfuncs.Join(keyfuncs.Header("X-Tenant"), keyfuncs.PathValue("id"))
//	key := keyfuncs.Hash(keyfuncs.Header("Idempotency-Key"))
//
// These are the sources:
//
//	Header, Cookie, Query, Host, Method   what the request says, outside of its body
//	PathValue, Pattern, Path              the route, and the path of the URL
//	JSON, FormValue, BodyHash             the body
//	ClientIP                              where the request comes from
//	Context                               what the application knows about it
//	Const                                 the same for all
//
// [Join], [Prefix], [Hash] and [FirstOf] combine them, and [Template] makes the whole key
// by a text. Whatever they do not cover is a function of the caller's own with the same
// signature. All Funcs of this package are safe for concurrent use. Those that look
// into the body replace Request.Body, so that two goroutines must not call them for
// one request at a time; the others leave the request as it is.
//
// # What a key promises
//
// Requests for one thing have one key: PathValue and Path decode all escapes, so
// /orders/42, /orders/%34%32 and /orders/%2534%2532 are the same. Requests whose
// handlers see the same value always have the same key. Requests for different things
// have different keys, but for names that differ only in escapes of escapes:
// Join keeps its parts apart whatever is in them, and so do Template and FirstOf; and
// what is ambiguous (a header sent twice, a query string that cannot be parsed, a JSON
// object with the same name twice) is refused, not guessed at.
// A value that comes from the request is never empty, is valid UTF-8 and has no
// control characters. Everything else is left as it is; what a key needs in order
// to be the name of a lock is done later, once, by the guard.
//
// Who chooses a value chooses the key. A client that can write anything into a header
// can hold the lock of somebody else's key, or have as many keys as it likes; take what
// tells clients apart from Context or ClientIP, and what tells resources apart from
// the place where the handler finds it.
//
// # Keys from the body
//
// [JSON], [FormValue] and [BodyHash] read the whole body before there is a lock, up to
// 1 MiB or [MaxBody]; a client that waits for 100 Continue gets it. What they have read stays in the request: the handler reads
// the same bytes, and the next Func that looks into the body, in the same Join or in
// another guard, does not read it again. A body that is too large is left unread as far
// as possible. A middleware that replaces the body or its headers, such as one that
// decompresses, belongs in front of the guard, and must take Content-Encoding away.
//
// # When there is no key
//
// The error says what to do with the request. Test for it with errors.Is:
//
//	ErrSkip     run the handler without a lock
//	ErrMissing  400: the client left out what the key is made of, or left it empty
//	ErrInvalid  400: it is there, but cannot be used
//	ErrNoRoute  500: the route that the key depends on is not known; the program is wrong
//	ErrBusy     503: the bodies of other requests leave no room for this one in memory
//
// A body that is too large is an *http.MaxBytesError instead, by errors.As, and 413. What
// the body itself says when it cannot be read is returned as it is.
//
// The text of these errors, as this package makes them, names the source and never
// its value. It can be shown to the client.
//
// A constructor panics on an argument that can never work, such as an empty name:
// that is a mistake in the program, found when it starts.
package keyfuncs
