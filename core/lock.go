package core

import (
	"cmp"
	"context"
	"time"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A Locker is a lock, or several locks that are acquired as one.
type Locker interface {
	Name() string
	Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error)
}

// A Lock is a reentrant lock with a name. It has no state: all Locks of one client, kind and name
// are the same lock.
type Lock struct {
	c    *Client
	kind *kinds.Kind
	name string
	key  string
	err  error // why the name cannot work
}

// Lock returns the reentrant lock of a name. The name must not be empty or longer than 64 KiB.
// Otherwise it may contain anything, except that in a cluster any braces must form a hash tag, as
// in {order}:42. See also Options.NameMapper.
//
// Use each name for one kind of lock only. While a read/write lock is held, acquiring another kind
// of lock with its name returns ErrWrongKind, and vice versa. The other kinds exclude each other,
// but waiters may miss the releases of another kind.
//
// If another program takes the lock away, the holder loses its lease at the next renewal. A lease
// with a LeaseTime is not renewed: it is lost when it is next used, or when it expires. Redisson:
// getLock.
func (c *Client) Lock(name string) *Lock {
	l := c.newLock(kinds.Plain, name)
	return &l
}

// FairLock returns the lock of a name that is granted in order of arrival, across all processes.
// The waiters queue up in Redis.
//
// Dead waiters are skipped within 15s of the lock being free, thousands of them together: when it is
// the turn of one, other waiters look for all that no client listens for. In a cluster only sharded
// channels show that. A waiter that listens but leaves the free lock alone, because its process is
// frozen, is skipped in about the same time. When it goes on, it queues up again, as the last. With
// plain channels in a cluster, the dead are skipped in this way, those of one process together.
// Redisson: getFairLock.
func (c *Client) FairLock(name string) *Lock {
	l := c.newLock(kinds.Fair, name)
	return &l
}

// FencedLock returns the lock of a name whose leases have fencing tokens; see Lease.Token. The
// resource that the lock protects must remember the greatest token it has seen and reject smaller
// ones. A holder that lost the lock without noticing can then do no harm.
//
// The counter of tokens, redisson_lock_token:{name}, stays in Redis forever. After a failover to a
// replica that lacks the latest tokens, they are issued again; see Options.ReplicaAcks. If Redis
// loses all data, the counter restarts at 1, unless you set it to more than any token issued so
// far, such as the current time in nanoseconds. FencedLock is Lock with Fenced. Redisson:
// getFencedLock.
func (c *Client) FencedLock(name string) *Lock {
	l := c.newLock(kinds.Fenced, name)
	return &l
}

// Fenced returns the same lock, whose leases have fencing tokens; see FencedLock. It works for
// Lock, FairLock and the write side of a ReadWriteLock, and all of a name draw from one counter, so
// that each token is greater than all tokens before. Use Fenced for all holders of a name that
// write: a lease without a token cannot be told from an outdated one.
//
// Readers need no token, because they change nothing and many hold the lock at once: Acquire of a
// fenced read side returns ErrInvalidOptions. A reader below a fenced writer has the writer's token.
func (l *Lock) Fenced() *Lock {
	f := *l
	f.kind = l.kind.WithTokens()
	if f.kind == nil {
		f.kind = l.kind
		f.err = cmp.Or(f.err, invalid(ErrInvalidOptions, "the read side of a read/write lock has no fencing tokens; use Fenced for its write side"))
		return &f
	}
	f.c.drawsTokens()
	return &f
}

// A ReadWriteLock is held by one writer or by any number of readers.
type ReadWriteLock struct{ read, write Lock }

// ReadWriteLock returns the read/write lock of a name. The holder of the write side may also
// acquire the read side, and keeps it after releasing the write side. The reverse returns
// ErrUpgrade. Readers and writers of one process are served in order of arrival.
//
// All readers of a name share one TTL in Redis. Redisson sets it to what its own readers need, and
// clients of this package restore it every third of WatchdogTimeout. If you share read locks with
// Redisson, its lockWatchdogTimeout and the leases of its readers must therefore be longer than a
// third of our WatchdogTimeout plus a round trip to Redis. Otherwise a writer may get the lock
// while a reader holds it. Clients of this package never shorten the TTL, so their WatchdogTimeouts
// may differ. Redisson: getReadWriteLock.
func (c *Client) ReadWriteLock(name string) *ReadWriteLock {
	return &ReadWriteLock{read: c.newLock(kinds.Read, name), write: c.newLock(kinds.Write, name)}
}

// Read returns the side that readers share. Redisson: readLock.
func (l *ReadWriteLock) Read() *Lock { return &l.read }

// Write returns the side of the writer. Redisson: writeLock.
func (l *ReadWriteLock) Write() *Lock { return &l.write }

// newLock returns a lock by value, so that one that its user keeps elsewhere is not allocated.
func (c *Client) newLock(k *kinds.Kind, name string) Lock {
	l := Lock{c: c, kind: k, name: name, key: name}
	if c.opts.NameMapper != nil {
		l.key = c.opts.NameMapper(name)
	}
	if k == kinds.Fenced {
		c.drawsTokens()
	}
	switch {
	case name == "":
		l.err = invalid(ErrInvalidName, "it is empty")
	case l.key == "":
		l.err = invalid(ErrInvalidName, "Options.NameMapper returned an empty key")
	case len(l.key) > maxNameLen:
		l.err = invalid(ErrInvalidName, "it has %d bytes, the limit is %d; use a hash of it", len(l.key), maxNameLen)
	default:
		l.err = c.checkSlot(l.key)
	}
	return l
}

// drawsTokens notes that the client is used for fenced locks.
func (c *Client) drawsTokens() {
	if !c.fenced.Load() {
		c.fenced.Store(true)
	}
}

// Name returns the name that was given to the client.
func (l *Lock) Name() string { return l.name }

func (l *Lock) label() label { return l.c.label(l.name) }

// Acquire acquires the lock, or re-enters it if ctx comes from a live lease of it. Such contexts
// are those of Lease.Context, Lease.Bind, Do and RunWhileHeld, and the request's below a guard that
// holds the lock. An owner of WithOwner re-enters all that it holds. Any other call is by another
// owner, also if it has the same context as the holder's call: pass on Lease.Context to re-enter.
//
// If another owner holds the lock for longer than WaitTime, Acquire returns a *NotAcquiredError. It
// and the log say so if that owner is of the caller's own request. If ctx ends first, the error
// matches ctx's error. See the errors of this package for the others. If ctx has ended, Acquire
// never returns a lease. Redisson: lock, tryLock.
func (l *Lock) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	return l.c.acquire(ctx, l, opts)
}

// IsLocked reports whether any owner holds the lock, or this side of a read/write lock. Redisson:
// isLocked.
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	state, err := l.inspect(ctx, "")
	return l.kind.Locked(state), err
}

// IsHeld reports whether Acquire with ctx would re-enter the lock. Redisson: isHeldByCurrentThread.
func (l *Lock) IsHeld(ctx context.Context) (bool, error) {
	n, err := l.HoldCount(ctx)
	return n > 0, err
}

// HoldCount returns how many levels the hold has that Acquire with ctx would re-enter, as counted
// in Redis, or 0 if there is none. Redisson: getHoldCount.
func (l *Lock) HoldCount(ctx context.Context) (int, error) {
	wire := l.wire(ctx)
	if wire == "" && l.err == nil {
		return 0, nil
	}
	state, err := l.inspect(ctx, l.kind.Field(wire))
	return state.Count, err
}

// RemainingTTL returns the time until the lock expires if it is not renewed. 0: the lock is not
// held. Negative: it never expires, which is true of no lock of reqlock or Redisson. Redisson:
// remainTimeToLive.
func (l *Lock) RemainingTTL(ctx context.Context) (time.Duration, error) {
	state, err := l.inspect(ctx, "")
	return state.TTL, err
}

// wire returns the wire owner of the hold that ctx enters again, or "" if there is none.
func (l *Lock) wire(ctx context.Context) string {
	link := lineage.From(ctx)
	if link == nil {
		return ""
	}
	if h := l.c.heldBy(link, l.key); h != nil {
		return h.wire
	}
	e := l.c.names.open(l.key, false)
	defer e.close()
	if h := e.holds.of(link.Owner); h != nil {
		return h.wire
	}
	return ""
}

func (l *Lock) inspect(ctx context.Context, field string) (lua.State, error) {
	answer, err := l.run(ctx, lua.Inspect(l.key, field))
	if err == nil {
		var state lua.State
		if state, err = lua.ReadInspect(answer); err == nil {
			return state, nil
		}
	}
	return lua.State{}, opErr("inspect", l.label(), err)
}

func (l *Lock) run(ctx context.Context, call lua.Call) (any, error) {
	if l.err != nil {
		return nil, l.err
	}
	return l.c.run(ctx, call)
}

// Do acquires a lock, calls fn with the context of the lease, and releases the lock, even if fn
// panics. It returns Acquire's error, or else fn's error joined with Release's. If the lock was
// lost, that is ErrLockLost, even if fn did not notice.
func Do(ctx context.Context, l Locker, opts AcquireOptions, fn func(context.Context) error) (err error) {
	lease, err := l.Acquire(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = joinErrors(err, lease.Release(ctx)) }()
	return fn(lease.Context())
}
