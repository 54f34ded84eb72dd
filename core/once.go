package core

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core/internal/kinds"
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
	lock  Lock
	kind  kinds.Kind // the lock's kind, with terms
	quota quota
}

// A quota is how many names may be granted within a time. Without a key there is none.
type quota struct {
	key  string
	most int
	d    time.Duration
}

// Once returns the lock with records for a name. What Lock says about names applies here as well.
// In a cluster, braces in the name must form a valid hash tag.
func (c *Client) Once(name string) *Once {
	o := c.once(name)
	return &o
}

// once returns a Once by value, like newLock. So do marked and limited.
func (c *Client) once(name string) Once {
	o := Once{lock: c.newLock(nil, name), kind: kinds.Once}
	o.kind.RecordKey = wire.RecordKey(o.lock.key)
	if o.lock.err == nil && c.slot(o.lock.key) != c.slot(o.kind.RecordKey) {
		o.lock.err = invalid(ErrInvalidName, "its braces are not a valid hash tag, so in a cluster its record would be "+
			"in another slot; put the whole name in braces, or leave them out")
	}
	return o
}

// WithMarker returns the same lock for callers that must detect a crash. Each grant stores the
// marker in the same step, as a record that lives for ttl. ReleaseWith replaces the marker and
// Release removes it while the lock is held. If the lock is lost or its holder dies, the marker
// stays, and the next Acquire returns it. Callers must be able to tell it from a result by its
// content. It is not visible while the lock is held. ttl should be longer than any hold. A ttl below
// 1ms or an empty marker makes Acquire fail with ErrInvalidOptions.
func (o *Once) WithMarker(marker []byte, ttl time.Duration) *Once {
	marked := o.marked("marker", marker, ttl)
	marked.kind.Marks.Marker = string(marker)
	return &marked
}

// WithBinding returns the same lock for callers that must not use a name for two things. The first
// grant binds the name to the binding, such as a hash of a request, in the same step. From then on,
// Acquire fails with ErrBound for any other binding, also while the lock is held. The binding stays
// for ttl after the last grant, whether a holder releases the lock, loses it or dies. A record that
// is left with ReleaseWith takes it along when it expires, and Withdraw removes it. Callers without a
// binding ignore it. A ttl below 1ms or an empty binding makes Acquire fail with ErrInvalidOptions.
func (o *Once) WithBinding(binding []byte, ttl time.Duration) *Once {
	bound := o.marked("binding", binding, ttl)
	bound.kind.Marks.Binding = string(binding)
	return &bound
}

// marked returns o with room for a mark. what names the mark.
func (o *Once) marked(what string, mark []byte, ttl time.Duration) Once {
	marked := *o
	marked.kind.Unmark = kinds.Marked
	marked.kind.Marks.TTL = max(ttl, marked.kind.Marks.TTL)
	marked.refuse(checkRecord(what, mark, ttl))
	return marked
}

// WithoutSuccession returns the same lock for callers that want the holder's record, and do not take
// its place. A caller that has waited while the lock was held does not acquire it. If it is free
// without a record, because its holder failed or died, all callers that wait get ErrUnrecorded.
func (o *Once) WithoutSuccession() *Once {
	looking := *o
	looking.kind.Looks = true
	return &looking
}

// WithQuota returns the same lock for callers that must not use up too many names, such as one
// tenant's. A name counts towards the quota for d from its last grant. While most other names count,
// Acquire fails with ErrQuota, and the lock is free again. Records and locks that are held are found
// without the quota. It costs a grant one round trip more. A d below 1ms or a most below 1 makes
// Acquire fail with ErrInvalidOptions, and so does an empty name.
func (o *Once) WithQuota(name string, most int, d time.Duration) *Once {
	limited := o.limited(name, most, d)
	return &limited
}

func (o *Once) limited(name string, most int, d time.Duration) Once {
	limited, of := *o, o.lock.c.newLock(nil, name)
	limited.quota = quota{wire.CountedKey(of.key), most, d}
	err := of.err
	switch {
	case most < 1:
		err = invalid(ErrInvalidOptions, "the quota %q allows %d names; use at least 1", name, most)
	case d < minLease:
		err = invalid(ErrInvalidOptions, "names would count towards the quota %q for %s; use at least %s", name, d, minLease)
	}
	limited.refuse(err)
	return limited
}

// refuse makes Acquire fail with err, unless that is nil or it fails anyway.
func (o *Once) refuse(err error) {
	if o.lock.err == nil {
		o.lock.err = err
	}
}

// counts counts the name of a lock that was just granted. On an error the lock is free again.
func (o *Once) counts(ctx context.Context, l *OnceLease) error {
	if o.quota.key == "" {
		return nil
	}
	name := sha256.Sum256([]byte(o.lock.key))
	call := lua.OnceCount(o.quota.key, string(name[:16]), o.quota.most, o.quota.d)
	reply, err := l.backend.(*level).hold.engine().run(ctx, call)
	counted := false
	if err == nil {
		counted, err = call.ReadUpdate(reply)
	}
	if err == nil && !counted {
		err = ErrQuota
	}
	if err == nil {
		return nil
	}
	_ = l.Withdraw(ctx) // what it cannot free now, it frees in the background
	return opErr("acquire", l.label(), err)
}

// asLock returns the lock, of the kind that o describes.
func (o *Once) asLock() *Lock {
	l := o.lock
	l.kind = &o.kind
	return &l
}

// Name returns the name that was given to the client.
func (o *Once) Name() string { return o.lock.name }

// A OnceLease is the lease of a Once.
type OnceLease struct{ *Lease }

// Acquire returns the record if there is one and the lock is not held. Otherwise it acquires the lock
// as Lock.Acquire does, with the same errors. Exactly one of the three results is set. See
// Record for one that goes stale. A waiter gets the record or the lock, depending on how the holder
// releases. The owner that holds the lock re-enters it, even if an inner level has stored a record.
// Callers that wait in one process share the bytes of a record, so do not change them.
//
// An Observer sees a record as a NotAcquired event whose Err matches ErrRecorded.
func (o *Once) Acquire(ctx context.Context, opts AcquireOptions) (lease *OnceLease, record []byte, err error) {
	held, err := o.asLock().Acquire(ctx, opts)
	if r := (*recorded)(nil); errors.As(err, &r) {
		return nil, r.record, nil
	}
	if err != nil {
		return nil, nil, err
	}
	lease = &OnceLease{held}
	if err := o.counts(ctx, lease); err != nil {
		return nil, nil, err
	}
	return lease, nil, nil
}

// Record returns the record in one round trip, and takes no lock. It returns nil if there is none, or
// if the lock is held, because a record is not final then, unless the holder renews it. It fails with
// ErrBound like Acquire.
func (o *Once) Record(ctx context.Context) ([]byte, error) {
	call := o.kind.Look(&o.kind.Terms, o.lock.key)
	reply, err := o.lock.run(ctx, call)
	if err != nil {
		return nil, opErr("inspect", o.lock.label(), err)
	}
	if record, ok := call.ReadRecord(reply); ok {
		return []byte(record), nil
	}
	answer, err := call.ReadAcquire(reply)
	if err == nil && answer.Bound {
		err = ErrBound
	}
	if err != nil {
		return nil, opErr("inspect", o.lock.label(), err)
	}
	return nil, nil
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
	return l.ReleaseRecord(ctx, Record{Value: record, TTL: ttl})
}

// ReleaseWithSpare is ReleaseWith for a record that Redis may refuse, such as one over its limit for
// a value. With the last level, the spare is then stored in its place, and the error still says why
// the record was refused. Redis may close the connection on a record over 1 MiB before it says why:
// if no try has an answer within Options.CommandTimeout, the spare is stored after that. An empty
// spare is none.
func (l *OnceLease) ReleaseWithSpare(ctx context.Context, record, spare []byte, ttl time.Duration) error {
	return l.ReleaseRecord(ctx, Record{Value: record, Spare: spare, TTL: ttl})
}

// A Record is what the holder of a Once leaves.
type Record struct {
	Value []byte
	// TTL is how long Acquire returns it in place of the lock, at least 1ms.
	TTL time.Duration
	// Stale is how much longer it lives. Meanwhile Acquire grants the lock to one caller, whose lease
	// Renews, and returns the old record to the others while that one holds the lock. A new record
	// replaces the old one, and Release leaves the old one alone. The lock must have neither marker nor
	// binding; callers with these get the old record until its end. 0: the record is never stale.
	Stale time.Duration
	// Spare is stored in place of Value, for TTL, if Redis refuses that; see ReleaseWithSpare. Empty:
	// nothing is.
	Spare []byte
}

// ReleaseRecord is ReleaseWith for a record that goes stale, or has a spare. A Stale below 0, or one
// for a lock with a marker or a binding, is ErrInvalidOptions.
func (l *OnceLease) ReleaseRecord(ctx context.Context, r Record) error {
	err := checkRecord("record", r.Value, r.TTL)
	kind := l.backend.(*level).hold.kind
	switch {
	case kind.Record == nil:
		err = invalid(ErrInvalidOptions, "its owner holds it as a %s, which stores no records; "+
			"acquire it as a core.Once first", kind.Name)
	case r.Stale < 0:
		err = invalid(ErrInvalidOptions, "the record would be stale for %s; use 0 or a time", r.Stale)
	case r.Stale > 0 && kind.Marks.TTL > 0:
		err = invalid(ErrInvalidOptions, "the record of a lock with a marker or a binding cannot go stale; leave out one of them")
	}
	if err != nil {
		return opErr("release", l.label(), err)
	}
	return l.release(ctx, ending{record: &lua.Record{Value: string(r.Value), TTL: r.TTL, Stale: r.Stale, Spare: string(r.Spare)}})
}

// Renews reports whether the lock was granted beside a stale record. The record may be gone before the
// lease ends.
func (l *OnceLease) Renews() bool { return l.backend.(*level).hold.renews }

// Postpone releases the lock like Release, for a holder that could not renew a stale record. Acquire
// returns the old record for d, or to its end if that is sooner, and grants the lock after that.
// Without a stale record, or with a d of 0, it is Release.
func (l *OnceLease) Postpone(ctx context.Context, d time.Duration) error {
	return l.release(ctx, ending{pause: max(0, d)})
}

// Withdraw releases the lock like Release, for a holder that has changed nothing. If its grant has
// bound the name, the name is free for something else. A binding of an earlier holder stays.
func (l *OnceLease) Withdraw(ctx context.Context) error {
	return l.release(ctx, ending{withdrawn: true})
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
