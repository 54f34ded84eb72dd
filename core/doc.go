// Package core gives you locks that many processes share through Redis: reentrant, fair, read/write
// and fenced. A lock renews itself while you hold it, and tells you when it is lost. Its keys and
// channels are those of Java Redisson, so both can share locks. The package knows nothing of HTTP.
//
//	locks, err := core.New(rdb, core.Options{})
//	lease, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
//	if err != nil { … }
//	defer lease.Release(ctx)
//	work(lease.Context()) // ends when the lock is lost
//
// # Locks, leases and owners
//
// A [Client] creates locks by name. Acquire returns a [Lease]. Code that carries the lease's
// context re-enters the lock of that name, and no other. Each re-entry returns its own Lease, and the lock is free when all of
// them are released. A [Once] is a lock whose release may leave a record, which later callers get
// instead of the lock. A [MultiLock] combines several locks under one lease, and a [RedLock] a
// majority of them. [Do] acquires, runs a function and releases; [RunWhileHeld] does that again
// after a loss.
//
// docs/inside/engine.md explains how the package works inside.
//
// # Guarantees
//
// At any time one owner holds a lock, as long as Redis keeps what it has confirmed. A server that
// loses its data, or a failover to a replica that lags behind, can break this, as with any lock of
// this kind. A holder that is paused beyond its lease finds out through Lease.Err, Done and Context
// as soon as it runs again, and cannot harm the next holder's lock.
//
// A failed or abandoned Acquire leaves nothing locked for longer than Options.CommandTimeout after
// Redis answers again, and never for longer than the lease.
package core
