package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Locker is anything that can be acquired: a lock, or several of them as one.
type Locker interface {
	Name() string
	Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error)
}

// A Lock is a reentrant lock with a name. It holds no state of its own: all Locks of one client and name are one lock.
type Lock struct {
	c    *Client
	kind *kind
	name string
	key  string
	err  error // why the name cannot work
}

// Lock returns the reentrant lock of a name. The name is not empty and no longer than 64 KiB; what else is in it is yours,
// except for braces in a cluster: there they must make a hash tag, as in {order}:42, or be left out. See also
// Options.NameMapper. A name stands for one kind of lock. Redis tells a read/write lock from the other kinds, and asking for the
// wrong one is ErrWrongKind while it is held. The others exclude each other, but may not hear of each other's releases.
//
// A lease of the lock is told of its loss, if another program takes the lock away: with its next renewal, or, with a LeaseTime, when
// it is next used or its time is over. Redisson: getLock.
func (c *Client) Lock(name string) *Lock { return c.newLock(plainLock, name) }

// FairLock returns the lock of a name that is granted in the order in which it was asked for, by all processes together. Each waiter
// stands in a queue in Redis. One that dies is passed over within 15s of the lock being free: when it is its turn, others see that
// nothing listens on its channel. In a cluster only sharded channels show that. With others it is passed over after
// Options.FairWaitTimeout, counted from the end of the lease that the holder had when it queued up, and as much again for each waiter
// before it. Redisson: getFairLock.
func (c *Client) FairLock(name string) *Lock { return c.newLock(fairLock, name) }

// FencedLock returns the lock of a name whose leases have fencing tokens; see Lease.Token. What the lock protects remembers
// the greatest token it has seen, and refuses smaller ones: then a holder that lost the lock without noticing can do no
// harm. The counter, redisson_lock_token:{name}, stays in Redis for ever. Where a replica that has not heard of the latest tokens
// takes over, they are given again: see Options.ReplicaAcks. After a loss of all data it begins at 1, unless it is set to more
// than was ever given, such as the nanoseconds of a clock. Redisson: getFencedLock.
func (c *Client) FencedLock(name string) *Lock { return c.newLock(fencedLock, name) }

// A ReadWriteLock is held by one writer, or else by any number of readers.
type ReadWriteLock struct{ read, write *Lock }

// ReadWriteLock returns the read/write lock of a name. A holder of the write side may enter the read
// side, and keeps that when it releases the write side; the other way round is ErrUpgrade. Readers and
// writers of one process take turns as they come.
//
// All readers of a name share one time to live in Redis, and Redisson sets it to what its own readers
// need. Clients set it back every third of WatchdogTimeout. Beside Redisson, its lockWatchdogTimeout
// and the leases of its readers must therefore be longer than a third of our WatchdogTimeout plus a
// round trip to Redis, or a writer may get in beside a reader. Clients of this package never shorten
// that time, so their WatchdogTimeouts may differ. Redisson: getReadWriteLock.
func (c *Client) ReadWriteLock(name string) *ReadWriteLock {
	return &ReadWriteLock{read: c.newLock(readLock, name), write: c.newLock(writeLock, name)}
}

// Read is the side that readers share. Redisson: readLock.
func (l *ReadWriteLock) Read() *Lock { return l.read }

// Write is the side of the writer. Redisson: writeLock.
func (l *ReadWriteLock) Write() *Lock { return l.write }

func (c *Client) newLock(k *kind, name string) *Lock {
	l := &Lock{c: c, kind: k, name: name, key: name}
	if c.opts.NameMapper != nil {
		l.key = c.opts.NameMapper(name)
	}
	switch {
	case name == "":
		l.err = invalid(ErrInvalidName, "it is empty")
	case l.key == "":
		l.err = invalid(ErrInvalidName, "Options.NameMapper has made it empty")
	case len(l.key) > maxNameLen:
		l.err = invalid(ErrInvalidName, "it has %d bytes, at most %d are taken; use a hash of it", len(l.key), maxNameLen)
	default:
		l.err = c.checkSlot(l.key)
	}
	return l
}

// Name is the name that was given to the client.
func (l *Lock) Name() string { return l.name }

func (l *Lock) label() label { return l.c.label(l.name) }

// Acquire takes the lock, or enters it again if the owner in ctx holds it. When somebody else holds it for longer than
// WaitTime, the error is a *NotAcquiredError; when ctx ends first, it matches ctx's error; see the errors of this package
// for the others. A caller whose ctx has ended is never left with the lock. Redisson: lock, tryLock.
func (l *Lock) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	return l.c.acquire(ctx, l, opts)
}

// IsLocked reports whether anybody holds the lock, or this side of it. Redisson: is.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	state, err := l.inspect(ctx, "")
	return l.kind.locked(state), err
}

// IsHeld reports whether the owner in ctx holds the lock. Redisson: isHeldByCurrentThread.
func (l *Lock) IsHeld(ctx context.Context) (bool, error) {
	n, err := l.HoldCount(ctx)
	return n > 0, err
}

// HoldCount is how often the owner in ctx has entered the lock, as Redis has it; 0 where it does not hold it.
// Redisson: getHoldCount.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	field := l.field(ctx)
	if field == "" && l.err == nil {
		return 0, nil
	}
	state, err := l.inspect(ctx, l.kind.field(field))
	return state.Count, err
}

// RemainingTTL is what is left until the lock ends by itself unless it is renewed; 0: nobody holds it; negative: it has no
// end, which no lock of reqlock or Redisson has. Redisson: remainTimeToLive.
func (l *Lock) RemainingTTL(ctx context.Context) (time.Duration, error) {
	state, err := l.inspect(ctx, "")
	return state.TTL, err
}

// field is the wire owner of the hold that the owner in ctx has, or empty.
func (l *Lock) field(ctx context.Context) string {
	o := ownerFrom(ctx)
	if o == 0 {
		return ""
	}
	e := l.c.names.lock(l.key)
	defer e.unlock()
	if h := e.holds.of(o); h != nil {
		return h.field
	}
	return ""
}

func (l *Lock) inspect(ctx context.Context, field string) (lua.State, error) {
	answer, err := l.ask(ctx, lua.Inspect(l.key, field))
	if err == nil {
		var state lua.State
		if state, err = lua.ReadInspect(answer); err == nil {
			return state, nil
		}
	}
	return lua.State{}, opErr("inspect", l.label(), err)
}

// ForceUnlock frees the lock, no matter who holds it, and reports whether it was held. Holders in this client are told first
// (ErrLockLost), also those whose Acquire has not returned yet. Holders elsewhere find out with their next renewal. A lease with a
// LeaseTime is not renewed: elsewhere, it finds out when it is entered again, extended or released, or else when its time is over;
// the same goes for a lease here when another program, or a JVM, frees its lock by force. Until then two may believe to hold the
// lock. A lock that is taken in the meantime stays taken. Of a read/write lock, ForceUnlock frees all readers, or the writer with
// what it has of the read side; not those of the other side. Redisson: forceUnlock.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	fields, err := l.holders(ctx)
	if err == nil && len(fields) > 0 {
		l.lose(fields)
		call := l.kind.force(l.c.engine, l.key, l.bothSides(fields))
		var answer any
		if answer, err = l.ask(ctx, call); err == nil {
			_, err = call.ReadFlag(answer) // 0: they have released it since, or this is the echo of a try whose reply was lost
		}
	}
	if err != nil {
		return false, opErr("force-unlock", l.label(), err)
	}
	l.c.names.wake(l.key)
	return len(fields) > 0, nil
}

// holders are the fields in Redis of those who hold the lock, or this side of it.
func (l *Lock) holders(ctx context.Context) ([]string, error) {
	answer, err := l.ask(ctx, lua.Holders(l.key))
	if err != nil {
		return nil, err
	}
	fields, err := lua.ReadHolders(answer)
	if l.kind.shared && slices.ContainsFunc(fields, wire.IsWriteField) {
		return nil, err // the readers are a writer
	}
	return slices.DeleteFunc(fields, func(f string) bool { return !l.kind.holds(f) }), err
}

// bothSides adds the read side of writers: a writer that loses the lock loses both.
func (l *Lock) bothSides(fields []string) []string {
	if l.kind != writeLock {
		return fields
	}
	for _, f := range fields {
		fields = append(fields, wire.OwnerOf(f))
	}
	return fields
}

// lose ends the holds of this client that have these fields, and the grants of them that are on
// their way: Redis has executed an acquire or a hand-over, and its reply has not been read.
func (l *Lock) lose(fields []string) {
	e := l.c.names.lock(l.key)
	taken := e.forceLocked(func(field string) bool { return slices.Contains(fields, l.kind.field(field)) })
	e.unlock()
	for _, h := range taken {
		h.lose(ErrLockLost)
	}
}

func (l *Lock) ask(ctx context.Context, call lua.Call) (any, error) {
	if l.err != nil {
		return nil, l.err
	}
	return l.c.ask(ctx, call)
}

// Do acquires a lock, calls fn with the context of the lease, and releases the lock, also when fn panics. The error is
// Acquire's; or else fn's, joined with that of the release: a lock that was lost on the way is ErrLockLost, even if fn
// did not notice.
func Do(ctx context.Context, l Locker, opts AcquireOptions, fn func(context.Context) error) (err error) {
	lease, err := l.Acquire(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(ctx)) }()
	return fn(lease.Context())
}
