// Package guard holds a distributed lock around an HTTP handler. It knows no framework:
// middleware/nethttp, and the adapters for others, translate to Guard.Serve and hold no rule of
// their own.
//
// The way of a request: policy.go decides which keys and how (Config.Key, Keys or Policy); name.go
// makes lock names of the keys; guard.go acquires the locks, runs the handler with a context that
// ends when a lock is lost, and releases them; problem.go answers when there is no lock to be had.
// The handler finds its lock by LeaseFrom, Release and Detach (request.go).
//
// # Ownership
//
// Each request is an owner of its own. A guard inside a guard of the same request re-enters the
// lock, as does a handler that acquires the same lock by itself with its request's context. An
// owner that came by another way, such as a server's BaseContext, is ignored: it would let all
// requests in at once.
//
// # What the client gets
//
//	lock free                          the handler's answer
//	held, WaitTime 0                   409 urn:reqlock:problem:locked, Retry-After
//	held, WaitTime or a deadline over  409 urn:reqlock:problem:wait-timeout, Retry-After
//	client gone while waiting          nothing is run
//	too many waiters                   503 urn:reqlock:problem:queue-full, Retry-After
//	Redis down, slow or refusing       503 urn:reqlock:problem:backend-unavailable, Retry-After, or the handler with FailOpen
//	client of the locks closing        503 urn:reqlock:problem:shutting-down, Retry-After
//	key missing                        400 urn:reqlock:problem:key-missing
//	key unusable                       400 urn:reqlock:problem:key-invalid
//	body cannot be read                400 urn:reqlock:problem:body-unreadable
//	body over a limit                  413 urn:reqlock:problem:body-too-large
//	no room for the body in memory     503 urn:reqlock:problem:busy, Retry-After; see SetBodyBudget
//	no route matched; wrong kind       500 urn:reqlock:problem:misconfigured, and a line in the log
//	lock lost while the handler runs   the handler's context ends with cause core.ErrLockLost
//	MaxHold over                       the handler's context ends with cause ErrMaxHold
//	CORS preflight                     as any other request, or the handler without a lock with PassPreflight
package guard
