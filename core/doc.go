// Package core is a library of distributed locks on Redis, which Java Redisson shares: same keys, same fields, same
// channels. It knows nothing of HTTP.
//
//	locks, err := core.New(rdb, core.Options{})
//	lease, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
//	if err != nil { … }
//	defer lease.Release(ctx)
//	work(lease.Context()) // ends the moment the lock is lost
//
// # How the parts work together
//
// A Client makes Locks by name. Acquire returns a Lease. Code that carries the lease's context enters the lock again; each entry is
// a Lease of its own, and the lock is free when all of them are released. Each kind of lock (kind.go) is a descriptor and a few
// scripts: reentrant, fair, fenced, and the two sides of a read/write lock. A Once (once.go) is a lock whose release may leave a
// record, which later callers get in its place. A MultiLock (multi.go) is several locks, and a RedLock (red.go) a majority of them,
// under one lease (set.go).
//
// Inside, a lock name is an entry (entry.go) with the holds and the waiters of this process. An Acquire (acquire.go) queues up
// there. The first in the queue asks Redis by a script, sleeps until the hub (internal/hub) hears of a release, and asks again. A
// grant becomes a hold (hold.go): one passage of an owner from not holding to holding and back, with its leases (lease.go). Releasing
// a hold while others wait here hands it on to the first of them (handover.go). The watchdog (internal/watchdog) renews holds whose leases
// have no LeaseTime. The cleaner (cleaner.go) repeats releases that did not get through. Every command is an operation of
// internal/redisop, which repeats it until its outcome is known: all scripts can be repeated. Commands that are sent at the same time
// share pipelines (internal/batch).
//
// docs/engine.md has the rules, and the failure that each of them prevents.
//
// # What is promised
//
// At any time one owner holds a lock, as long as Redis keeps what it has confirmed: one server that loses its data, or a
// failover to a replica that lags behind, can break that, as with any lock of this kind. A holder that is paused beyond its
// lease is told by Lease.Err, Done and Context as soon as it runs again, and cannot harm the next holder's lock.
//
// A failed or abandoned Acquire leaves nothing locked for longer than Options.CommandTimeout after Redis answers again, and
// never for longer than the lease.
package core
