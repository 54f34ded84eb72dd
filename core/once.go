package core

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Once is a lock whose holder may store a record on release, such as the result of its work.
// While the record lives, Acquire returns it instead of the lock, in one round trip. Waiters get
// it, all at once, the moment it is stored. The idempotency middleware is built on it.
//
//	lease, record, err := once.Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
//	switch {
//	case err != nil: …
//	case record != nil: answer(record) // the work is done
//	default:
//		result, err := work(lease.Context())
//		if err != nil {
//			lease.Release(ctx) // the next caller tries again
//		} else {
//			lease.ReleaseWith(ctx, result, 24*time.Hour)
//		}
//	}
//
// The lock is the same as that of Client.Lock for the name. The record has its own key, in the same
// slot of a cluster. Lock ignores records, so use a name for one or the other. Like a Lock, a Once
// holds no state.
type Once struct {
	lock   Lock
	record string // its key
}

// Once returns the lock with records for a name. What Lock says about names applies here as well.
// In a cluster, braces in the name must form a valid hash tag.
func (c *Client) Once(name string) *Once {
	o := &Once{lock: *c.Lock(name)}
	o.record = wire.RecordKey(o.lock.key)
	if o.lock.err == nil && c.slot(o.lock.key) != c.slot(o.record) {
		o.lock.err = invalid(ErrInvalidName, "its braces are not a valid hash tag, so in a cluster its record would be "+
			"in another slot; put the whole name in braces, or leave them out")
	}
	o.lock.kind = o.kind(lua.Record{})
	return o
}

// WithMarker returns the same lock for callers that must detect a crash. Each grant stores the
// marker in the same step, as a record that lives for ttl. ReleaseWith replaces the marker and
// Release removes it while the lock is held. If the lock is lost or its holder dies, the marker
// stays, and the next Acquire returns it. Callers must be able to tell it from a result by its
// content. It is not visible while the lock is held. ttl should be longer than any hold. A ttl below
// 1ms or an empty marker makes Acquire fail with ErrInvalidOptions.
func (o *Once) WithMarker(marker []byte, ttl time.Duration) *Once {
	marked := *o
	if err := checkRecord("marker", marker, ttl); err != nil && marked.lock.err == nil {
		marked.lock.err = err
	}
	marked.lock.kind = o.kind(lua.Record{Value: string(marker), TTL: ttl})
	return &marked
}

// kind returns the kind of the lock. An empty marker stores none.
func (o *Once) kind(marker lua.Record) *kind {
	k := *plainLock
	k.name, k.handOver = "once", nil
	k.acquire = func(_ *engine, t try) lua.Call { return lua.OnceAcquire(t.key, o.record, t.field, t.lease, marker) }
	k.look = func(key string) lua.Call { return lua.OnceLook(key, o.record) }
	k.record = func(c *engine, g holdCounts, r lua.Record) lua.Call {
		return lua.OnceRecord(g.key, o.record, g.field, g.total(), r, c.announce(wire.LockChannel(g.key)))
	}
	if marker.Value != "" {
		undo := func(unused bool) func(*engine, holdCounts) lua.Call {
			return func(c *engine, g holdCounts) lua.Call {
				return lua.OnceRelease(g.key, o.record, g.field, unused, c.announce(wire.LockChannel(g.key)))
			}
		}
		k.free, k.undo = undo(false), undo(true)
	}
	return &k
}

// Name returns the name that was given to the client.
func (o *Once) Name() string { return o.lock.name }

// A OnceLease is the lease of a Once.
type OnceLease struct{ *Lease }

// Acquire returns the record if there is one and the lock is not held. Otherwise it acquires the
// lock as Lock.Acquire does, with the same errors. Exactly one of the three results is set. A
// waiter gets the record or the lock, depending on how the holder releases. The owner that holds
// the lock re-enters it, even if an inner level has stored a record. The record is the caller's own
// copy.
//
// An Observer sees a record as a NotAcquired event whose Err matches ErrRecorded.
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

// ReleaseWith stores a record that lives for ttl and releases the lock, in one step. If the owner
// has entered the lock several times, it releases one level. The record is then stored at once but
// not visible before the last level is released. Outer levels leave it alone, unless one of them
// stores another. The errors are those of Release. On ErrLockLost nothing was written: any record
// or marker of a later holder is unchanged. If Redis could not confirm the release of the last
// level, storing the record is retried in the background until the lease would have expired.
//
// It fails with ErrInvalidOptions if the record is empty or ttl is below 1ms. It does so too if the
// owner acquired the lock as a Lock and re-entered it as a Once. The lock stays held.
func (l *OnceLease) ReleaseWith(ctx context.Context, record []byte, ttl time.Duration) error {
	err := checkRecord("record", record, ttl)
	if kind := l.backend.(*level).hold.kind; kind.record == nil {
		err = invalid(ErrInvalidOptions, "its owner holds it as a %s, which stores no records; "+
			"acquire it as a core.Once first", kind.name)
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
