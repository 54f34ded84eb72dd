package idempotency

import (
	"context"
	"time"
)

// KeyFrom returns the idempotency key of the request of ctx, without quotes. false: ctx is not that
// of an idempotent handler, or the request has no key.
func KeyFrom(ctx context.Context) (string, bool) {
	a := attemptFrom(ctx)
	if a == nil {
		return "", false
	}
	return a.key, true
}

// DownstreamKey returns a key for a request to another service, such as DownstreamKey(ctx,
// "stripe", "charge"). It is the same whenever the handler runs again for the same key of the same
// caller, so that the other service detects the repeat. Other parts give another key, and so does
// another Config.Route. It has 64 characters and does not reveal the client's key. "": the request
// has no key; see KeyFrom.
func DownstreamKey(ctx context.Context, parts ...string) string {
	a := attemptFrom(ctx)
	if a == nil {
		return ""
	}
	s := newSum("downstream")
	s.add(a.name)
	s.add(parts...)
	return s.hex()
}

// NoStore prevents the result of this run from being stored, whatever Config.Store says: the key is
// free when the handler returns, as after Outcome(ctx).NothingDone. Outside an idempotent handler it
// does nothing.
func NoStore(ctx context.Context) { Outcome(ctx).NothingDone() }

// StoreFor keeps the result of this run, if it is stored, for d instead of Config.TTL or ErrorTTL.
// Less than 1ms means NoStore. If an earlier run of the key left no answer, d has no effect where it
// is shorter than Config.TTL. Outside an idempotent handler it does nothing.
func StoreFor(ctx context.Context, d time.Duration) {
	if d < time.Millisecond {
		NoStore(ctx)
		return
	}
	if a := attemptFrom(ctx); a != nil {
		a.keepFor.Store(int64(d))
	}
}
