// Package core is a library of distributed locks on Redis, which Java Redisson shares: same keys, same fields, same
// channels. It knows nothing of HTTP.
//
//	locks, err := core.New(rdb, core.Options{})
//	lease, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
//	if err != nil { … }
//	defer lease.Release(ctx)
//	work(lease.Context()) // ends the moment the lock is lost
//
// # How the parts play together
//
// A Client makes Locks by name. Acquire makes a Lease. Whoever carries the lease's context enters the lock again; each
// entry is a Lease of its own, and the lock is free when all are released. There are several kinds of lock (kind.go), each a
// descriptor and a few scripts: reentrant, fair, fenced, and the two sides of a read/write lock. A Once (once.go) is a lock whose
// release may leave a record, which is what others get in its place from then on. A MultiLock (multi.go) is several locks, and
// a RedLock (red.go) a majority of them, under one lease (set.go).
//
// Inside, a lock name is an entry (entry.go) with the holds and the waiters of this process. An Acquire (acquire.go)
// queues up there; the first in the queue asks Redis by a script, sleeps until the hub hears of a release, and asks
// again. What it is granted becomes a hold (hold.go), one passage of an owner from not holding to holding and back, with its
// leases (lease.go). A hold that is released while others wait here is handed on to the first of them (pass.go). The watchdog renews holds whose leases have no LeaseTime. What cannot be told to Redis in time, the
// cleaner (cleaner.go) tells it later. Every command goes through an exchange (exchange.go), which repeats it until its
// outcome is known: all scripts can be repeated. What is sent at the same time shares pipelines (internal/batch).
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
