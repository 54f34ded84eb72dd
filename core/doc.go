// Package core provides distributed locks on Redis. They use the same keys, fields and channels as
// Java Redisson, so that both can share locks. The package knows nothing of HTTP.
//
//	locks, err := core.New(rdb, core.Options{})
//	lease, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
//	if err != nil { … }
//	defer lease.Release(ctx)
//	work(lease.Context()) // ends when the lock is lost
//
// # Architecture
//
// A Client creates Locks by name. Acquire returns a Lease. Code that carries the lease's context
// re-enters the lock. Each re-entry returns its own Lease, and the lock is free when all of them
// are released. Each kind of lock (kind.go) is a descriptor and a few scripts: reentrant, fair,
// fenced, and the two sides of a read/write lock. A Once (once.go) is a lock whose release may
// leave a record, which later callers get instead of the lock. A MultiLock (multi.go) combines
// several locks under one lease, and a RedLock (red.go) a majority of them (set.go).
//
// Inside, each lock name has an entry (entry.go) with the holds and waiters of this process. A call
// of Acquire (acquire.go) queues up there as a waiter (waiter.go). The first waiter sends the
// acquire script. If another owner holds the lock, the waiter sleeps until the hub (internal/hub)
// receives the message of a release, and tries again. A grant becomes a hold (hold.go), which lasts
// from an owner's first lease to its last and contains its leases (lease.go). If other waiters are
// queued when a hold is released, it is handed over to the first of them (handover.go). The
// watchdog (internal/watchdog) renews holds whose leases have no LeaseTime. The cleaner
// (cleaner.go) retries releases that failed. Every command is an operation of internal/redisop,
// which resends it until its outcome is known: all scripts can be repeated safely. Commands that
// are sent at the same time share pipelines (internal/batch).
//
// docs/engine.md lists the rules and the failure that each of them prevents.
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
