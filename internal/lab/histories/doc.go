// Package histories records what several processes do with locks on real Redis servers while these
// fail, and checks the record. It also runs ordinary HTTP traffic for hours without any fault, and
// checks that no lock is lost and nothing grows. Both are tests:
//
//	make histories           a minute of rounds on each topology, all at the same time
//	make histories DUR=1h    as many rounds as fit into an hour
//	make soak DUR=1h         an hour of traffic; writes soak.csv and soak.svg
//
// A round starts server processes (the test binary, started again) that take, re-enter, lose and
// release locks of every kind. Meanwhile the test kills, stops, empties or cuts off Redis and the
// processes. Each process reports every call and its result to the test, with the time on a clock
// that all processes of the machine share. At the end of a round, every name must become free.
//
// # The checks
//
// The history of each name must be linearizable. Each call takes effect at one moment between its
// call and its return, and a lock in a single process must allow the order of these moments.
// [Check] searches for such an order with porcupine. The lock is that of a [model]:
//
//   - A grant needs the lock to be free, or held by the same owner, or by readers if a reader asks.
//     A holder and its guests, in any process, count as one owner.
//   - A token is greater than all tokens before it.
//   - A Release that returns nil ends a hold that existed.
//   - A refusal needs another holder.
//   - The holders of a semaphore have no more permits together than it has, and a refusal needs that
//     too few are free.
//   - Once a record is stored, every caller gets it.
//
// A hold that ends without a Release that returns nil ends at the last moment at which Lease.Err
// was nil: until then its owner worked under the lock. So no grant may come before that moment,
// whether the process was stopped, Redis was down, or the lease ran out.
//
// While nothing fails, a lock is free beside a waiter for a second of its wait at most, which is what
// a busy machine may need, and so are as many permits as any waiter wants. This is checked for plain
// and fenced locks and for semaphores.
//
// Processes also send idempotent requests through idempotency, with keys that others use
// at the same time and sometimes with another payload. Their handlers answer, answer 502, panic, or
// stall beyond their lease. Of two runs of one key, both have one payload, and the second begins
// after the context of the first was last alive. With OutcomeRefuse the first has ended in order,
// with an answer that is not stored. A replay is the answer of a run of the same key and payload.
//
// # Promises when data is lost
//
// All of that holds while Redis keeps what it has confirmed: through kills with a synced
// append-only file, stops, pauses, cuts, strays, lost replies, moving slots, requested failovers of
// a cluster, and failovers with ReplicaAcks of all replicas.
//
// A server that comes back empty, or FLUSHALL, ends every hold in Redis at one moment. A grant
// after that moment excludes later grants, but not earlier ones. An earlier holder learns of the
// loss when its lease is not renewed: within WatchdogTimeout, or within its LeaseTime. [Check]
// takes these as bounds. Tokens restart at 1, and records are gone.
//
// A release that finds nothing counts as done if an earlier try of it may have run. So after a loss
// of all data, a release whose reply a fault may have hidden can return nil as well.
//
// A replica that is promoted without the last writes loses an unknown part of them, and for a while
// two masters may grant. Holds and tokens from before the last server agrees on the new master
// carry no promise. Later grants exclude each other, as before.
//
// After a kill, a lost reply, or a release that did not reach Redis, an unclaimed lock may be in
// the way for as long as a lease. So Check skips refusals for that long. It also skips a refusal
// while another caller of the same process asks for the same name: a caller without a WaitTime is
// refused if another is first. Refusals of fair locks, of RedLocks and of locks with guests have more
// such reasons, and are not checked. Nor is the order in which a fair lock is granted.
package histories
