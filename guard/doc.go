// Package guard runs an HTTP handler under a lock that is derived from the request. It has the
// [Config] of all adapters, the answers that clients get, and what a
// handler does with its lock: [LeaseFrom], [Release] and [Detach]. It knows no framework: the
// adapters, such as middleware/nethttp, only translate to Guard.Serve.
//
// # Ownership
//
// A guard inside a guard of the same request re-enters the locks that the outer one holds, at any
// depth, and so does a handler that acquires a lock of that name with its request's context. Any
// other name is another lock: goroutines of one request exclude each other. After Release and
// Detach, the request's context no longer re-enters. The guard ignores leases and owners from
// outside the request, such as a server's BaseContext: all requests would share them, and run at
// once.
//
// A permit of Config.Limit is not re-entered: each guard with a limit takes one, and so does a handler
// that acquires the semaphore. If guards inside each other wait for different locks or limits, put
// them in the same order on all routes. Requests that take them in two orders may wait for each other,
// until the WaitTime of one is over.
//
// # What the client gets
//
//	lock free                          the handler's answer
//	held, WaitTime 0                   409 urn:reqlock:problem:locked, Retry-After
//	held, WaitTime or a deadline over  409 urn:reqlock:problem:wait-timeout, Retry-After
//	Limit others inside, and WaitTime
//	or a deadline over                 429 urn:reqlock:problem:limit, Retry-After
//	the caller's hold over (Delegates) 409 urn:reqlock:problem:parent-lost
//	client gone while waiting          nothing is run
//	too many waiters                   503 urn:reqlock:problem:queue-full, Retry-After
//	Redis down, slow or refusing       503 urn:reqlock:problem:backend-unavailable, Retry-After,
//	                                   or the handler with FailOpen
//	client of the locks closing        503 urn:reqlock:problem:shutting-down, Retry-After
//	key missing                        400 urn:reqlock:problem:key-missing
//	key unusable                       400 urn:reqlock:problem:key-invalid
//	body cannot be read                400 urn:reqlock:problem:body-unreadable
//	body over a limit                  413 urn:reqlock:problem:body-too-large
//	no room for the body in memory     503 urn:reqlock:problem:busy, Retry-After;
//	                                   see SetBodyBudget
//	no route matched; wrong kind;
//	core.ErrMisconfigured              500 urn:reqlock:problem:misconfigured, and a log line
//	lock lost while the handler runs   the handler's context ends with cause core.ErrLockLost
//	MaxHold over                       the handler's context ends with cause ErrMaxHold
//	CORS preflight                     as any other request,
//	                                   or the handler without a lock with PassPreflight
package guard
