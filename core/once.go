package core

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Once is a lock whose holder may leave a record when it goes, such as the result of what it did. As long as the record
// lives, whoever comes gets it in place of the lock, in one round trip; those who wait get it the moment the holder leaves
// it, all of them at once. Idempotency stands on it.
//
//	lease, record, err := once.Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
//	switch {
//	case err != nil: …
//	case record != nil: answer(record) // somebody has done it
//	default:
//		result, err := work(lease.Context())
//		if err != nil {
//			lease.Release(ctx) // the next caller tries again
//		} else {
//			lease.ReleaseWith(ctx, result, 24*time.Hour)
//		}
//	}
//
// The lock is the one that Client.Lock has under the same name; the record stands beside it, under a key of its own in
// the same slot of a cluster. Lock knows nothing of records: use a name for one or the other. Like a Lock it holds no state.
type Once struct {
	lock   Lock
	record string // key
}

// Once returns the lock with records of a name, to which the same applies as for Lock. In a cluster the braces in a name, if
// there are any, must make a valid hash tag.
func (c *Client) Once(name string) *Once {
	o := &Once{lock: *c.Lock(name)}
	o.record = wire.RecordKey(o.lock.key)
	if o.lock.err == nil && c.slot(o.lock.key) != c.slot(o.record) {
		o.lock.err = invalid(ErrInvalidName, "its braces make no hash tag, and in a cluster its record would be on another node; put the whole name into braces, or none of it")
	}
	o.lock.kind = o.kind(lua.Record{})
	return o
}

// WithMarker returns the same lock for callers that must know of a crash. Each grant leaves the marker in the same step, as
// a record that lives for ttl: ReleaseWith replaces it, Release takes it away, and if the lock is lost, or its holder dies, it
// stays and is what the next Acquire returns. Its content must tell it from a result. Nobody sees it while the lock is
// held. ttl should outlast every hold; ttl below 1ms, or an empty marker, makes Acquire fail with ErrInvalidOptions.
func (o *Once) WithMarker(marker []byte, ttl time.Duration) *Once {
	marked := *o
	if err := checkRecord("marker", marker, ttl); err != nil && marked.lock.err == nil {
		marked.lock.err = err
	}
	marked.lock.kind = o.kind(lua.Record{Value: string(marker), TTL: ttl})
	return &marked
}

// kind is what the engine needs to know.
func (o *Once) kind(marker lua.Record) *kind {
	k := *plainLock
	k.name, k.handOver = "once", nil
	k.acquire = func(_ *engine, t try) lua.Call { return lua.OnceAcquire(t.key, o.record, t.field, t.lease, marker) }
	k.look = func(key string) lua.Call { return lua.OnceLook(key, o.record) }
	k.record = func(c *engine, g holdCounts, r lua.Record) lua.Call {
		return lua.OnceRecord(g.key, o.record, g.field, g.total(), r, c.announce(wire.LockChannel(g.key)))
	}
	if marker.Value != "" {
		k.undo = func(c *engine, g holdCounts) lua.Call {
			return lua.OnceRelease(g.key, o.record, g.field, c.announce(wire.LockChannel(g.key)))
		}
	}
	return &k
}

// Name is the name that was given to the client.
func (o *Once) Name() string { return o.lock.name }

// A OnceLease is the lease of a Once.
type OnceLease struct{ *Lease }

// Acquire returns the record, if one lives and nobody holds the lock, or else takes the lock as Lock.Acquire does, with the
// same errors. Exactly one of the three results is set. A caller that waits for the lock gets what its holder leaves: the
// record, or its turn. Whoever has the lock enters it again, also when an inner level has left a record already.
// The record is the caller's own copy.
//
// To an Observer, a record is a NotAcquired whose Err matches ErrRecorded.
func (o *Once) Acquire(ctx context.Context, opts AcquireOptions) (lease *OnceLease, record []byte, err error) {
	held, err := o.lock.Acquire(ctx, opts)
	if r := (*recorded)(nil); errors.As(err, &r) {
		return nil, []byte(r.record), nil
	}
	if err != nil {
		return nil, nil, err
	}
	return &OnceLease{held}, nil, nil
}

// ReleaseWith leaves a record that lives for ttl, and gives the lock back, in one step: one level of it, if it was entered again.
// The record is then there at once, though nobody sees it before the last level is released, and stays whatever those
// outer levels do, unless one of them leaves another. Its errors are those of Release; with ErrLockLost nothing was
// written: neither a record nor a marker of whoever has had the lock since. Where Redis could not be told, the
// last level's record is left in the background, if that succeeds before the lease would have been over.
//
// An empty record and a ttl below 1ms are ErrInvalidOptions, and so is a lock that its owner took as a Lock of the same name and
// entered again as a Once. The lock stays held.
func (l *OnceLease) ReleaseWith(ctx context.Context, record []byte, ttl time.Duration) error {
	err := checkRecord("record", record, ttl)
	if kind := l.backend.(*level).hold.kind; kind.record == nil {
		err = invalid(ErrInvalidOptions, "its owner holds it as a %s, which leaves no records; take it as a core.Once first", kind.name)
	}
	if err != nil {
		return opErr("release", l.label(), err)
	}
	return l.release(ctx, &lua.Record{Value: string(record), TTL: ttl})
}

func checkRecord(what string, record []byte, ttl time.Duration) error {
	switch {
	case len(record) == 0:
		return invalid(ErrInvalidOptions, "the %s is empty; use at least one byte", what)
	case ttl < minLease:
		return invalid(ErrInvalidOptions, "the %s would live for %s; use at least %s", what, ttl, minLease)
	}
	return nil
}
