// Package idempotency runs a request with an Idempotency-Key once, and answers every repeat with
// the first result. It follows draft-ietf-httpapi-idempotency-key-header-07, knows no framework,
// and builds on package guard, which handles waiting, limits, shutdown, Redis outages and clients
// that leave.
//
//	once := httplock.Idempotent(locks, idempotency.Config{Scope: keyfuncs.Context(userKey)})
//	mux.Handle("POST /payments", once(pay))
//
// ginlock.Idempotent and echolock.Idempotent do the same for Gin and Echo.
//
// # What the client gets
//
//	first request                      the handler's answer
//	repeat                             the same answer, with Idempotent-Replayed: true
//	repeat, first still running        409 urn:reqlock:problem:locked, Retry-After;
//	                                   with WaitTime the replay, or wait-timeout
//	key with another request           422 urn:reqlock:problem:key-reused
//	repeat waits, first leaves no      409 urn:reqlock:problem:run-failed, Retry-After; the next
//	answer                             repeat runs
//	Config.MaxKeys used up             429 urn:reqlock:problem:key-quota, Retry-After
//	answer could not be recorded       409 urn:reqlock:problem:not-replayable
//	first run died, OutcomeRefuse      409 urn:reqlock:problem:outcome-unknown
//	key missing, Optional not set      400 urn:reqlock:problem:key-missing
//	key malformed or given twice       400 urn:reqlock:problem:key-invalid
//	Scope returns ""                   400 urn:reqlock:problem:key-missing
//	body over MaxRequestBody           413 urn:reqlock:problem:body-too-large
//	record of a newer version, or one  503 urn:reqlock:problem:record-unreadable, Retry-After,
//	that Config.Codec cannot open      and a log line
//	Codec fails, OutcomeRefuse         503 urn:reqlock:problem:record-unwritable, Retry-After,
//	                                   and a log line
//
// and the answers of package guard.
//
// # What runs how often
//
// At most one run of a name is under way at any time, unless its lock is lost. A run that ends with
// an answer that Config.Store keeps is the last one for Config.TTL. A key is bound to the request of
// its first run for as long, whatever that run leaves. A run that died, or whose answer Redis could
// not store, is repeated with OutcomeRerun, and never with OutcomeRefuse.
//
// # The handler
//
// Its context ends when the lock is lost and when a deadline or Config.MaxHold is over, but not
// when the client hangs up: the client will repeat the request, and should find a result. Once the
// answer cannot be recorded, as with a stream, a client that hangs up does end the context.
// guard.Release and guard.Detach give up the key, and nothing is recorded.
//
// The answer is held back until the handler returns, or flushes, or writes more than
// Config.MaxResponseBody.
package idempotency
