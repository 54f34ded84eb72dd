// Package keyfuncs derives the key of a lock from an HTTP request. A [Func]
// takes a request and returns its key, or an error that says why there is none.
//
// Sources and combinators make a key function once, at start-up:
//
//	key := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
//	key := keyfuncs.Join(keyfuncs.Header("X-Tenant"), keyfuncs.PathValue("id"))
//	key := keyfuncs.Hash(keyfuncs.Header("Idempotency-Key"))
//
// These are the sources:
//
//	Header, Cookie, Query, Host, Method   parts of the request outside its body
//	PathValue, Pattern, Path              the route, and the path of the URL
//	JSON, FormValue, BodyHash             the body
//	ClientIP                              the address of the client
//	Context, Value                        a value that the application put there
//	Claim                                 a claim of a verified token
//	Const                                 the same for all requests
//
// [Join], [Prefix], [Hash], [UUID] and [FirstOf] combine them, and [Template] describes a whole key in
// a text. For everything else, write a function with the same signature. All Funcs of this
// package are safe for concurrent use by different requests. Those that read the body
// replace Request.Body, so two goroutines must not call them for one request at the same
// time; the others do not change the request.
//
// # What a key promises
//
// Requests for one thing have one key: PathValue and Path decode all escapes, so
// /orders/42, /orders/%34%32 and /orders/%2534%2532 are the same. Requests whose
// handlers see the same value always have the same key. Requests for different things
// have different keys, except for names that differ only in escapes of escapes:
// Join, Template and FirstOf keep any parts apart, and an ambiguous request (a header sent
// twice, a query string that cannot be parsed, a JSON object with a duplicate name) is
// refused, not guessed at. A value from the request is never empty, is valid UTF-8 and has
// no control characters. It is otherwise unchanged: the guard turns the key into the name
// of a lock.
//
// A client that chooses a value chooses the key. If it can write anything into a header, it
// can hold the lock of another client's key, and use as many keys as it likes. Take the part
// that identifies the client from Context or ClientIP, and the part that identifies the
// resource from where the handler takes it.
//
// # Keys from the body
//
// [JSON], [FormValue] and [BodyHash] read the whole body before the lock is acquired, up to
// 1 MiB or [MaxBody]; a client that waits for 100 Continue gets it. The bytes stay in the
// request: the handler reads them again, and the next Func that needs the body, in the same
// Join or in another guard, does not read from the client. A body that is too large is left
// unread as far as possible. A middleware that replaces the body or its headers, such as one
// that decompresses, belongs outside the guard, and must remove Content-Encoding.
//
// # When there is no key
//
// The error says what to do with the request. Test for it with errors.Is:
//
//	ErrSkip     run the handler without a lock
//	ErrMissing  400: a part of the request that the key needs is missing or empty
//	ErrInvalid  400: the part is there, but cannot be used
//	ErrNoRoute  500: no route has matched yet, or it lacks the wildcard; a mistake in the program
//	ErrBusy     503: the bodies of other requests leave no room for this one in memory
//
// A body that is too large is an *http.MaxBytesError instead (use errors.As), which guards
// answer with 413. Errors of reading the body are returned unchanged.
//
// The texts of this package's errors name the source and never its value. Clients may see
// them.
//
// A constructor panics on an argument that can never work, such as an empty name:
// that is a mistake in the program, found when it starts.
package keyfuncs
