// Package histories records what several processes do with locks on real Redis servers while those
// fail, and checks the record. It also runs ordinary HTTP traffic for hours, without any fault, and
// checks that nothing is lost and nothing grows. Both are tests:
//
//	make histories           a minute of rounds on each topology, all at the same time
//	make histories DUR=1h    as many rounds as fit into an hour
//	make soak DUR=1h         an hour of traffic; writes soak.csv and soak.svg
//
// A round starts server processes of its own locks (the test binary, started again), which take,
// re-enter, lose and release locks of every kind. Meanwhile the test kills, stops, empties or cuts
// off Redis and the processes. Each process writes every call and its result to the test, with the
// time on a clock that all processes of the machine share. When a round ends, every name must
// become free.
//
// # What is checked
//
// The history of each name must be linearizable: there must be one order of all calls, in which
// each takes effect at one moment between its call and its return, that a lock in one process would
// allow. [Check] uses porcupine, which searches for that order. The lock is that of a [model]:
//
//   - A grant needs the lock to be free, or held by the same owner, or by readers if a reader asks.
//   - A token is greater than all tokens before it.
//   - A Release that returns nil ends a hold that was there.
//   - A refusal needs another holder.
//   - Once a record is left, every caller gets that record.
//
// A hold that ends without a Release that returns nil ends at the last moment at which Lease.Err
// was nil: until then its owner worked under the lock. So no grant may come before that moment,
// whether the process was stopped, Redis was away, or the lease ran out.
//
// # What is promised when data is lost
//
// All of that holds while Redis keeps what it has confirmed: through kills with an append-only file
// that is synced, stops, pauses, cuts, strays, lost replies, slots that move, failovers of a cluster
// that was asked for them, and failovers with ReplicaAcks of all replicas.
//
// A server that comes back empty, or FLUSHALL, ends every hold in Redis at one moment. A grant after
// it excludes the grants after it, and not those before. A holder from before it learns of the loss
// when its lease is not renewed: a lease of the watchdog ends within WatchdogTimeout, one with a
// LeaseTime within that. [Check] takes these as bounds. Tokens begin again at 1, and records are
// gone.
//
// A replica that is promoted without the last writes loses an unknown part of them, and for a while
// two masters may grant. Nothing is promised of holds and tokens from before the last server agrees
// on the new master. Grants after it exclude each other, as before.
//
// A lock that no process claims may be in the way for as long as a lease: after a kill, a lost
// reply, or a release that did not reach Redis. So a refusal is not checked for that long after one
// of these. Nor is it while another caller of the same process asks for the same name: a caller
// without a WaitTime is refused if another is first. Refusals of fair locks and of RedLocks have more
// such reasons, and are not checked. Nor is the order in which a fair lock is granted.
package histories
