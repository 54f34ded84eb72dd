// Package redisson tests reqlock against Java Redisson: locks and permits held and waited for from
// both sides. The tests need a JVM and Maven, so they have a build tag. make interop installs missing
// tools and runs them.
//
// The other side is the program in peer. It is built for each version of Redisson and started for
// each topology, and again by tests that kill it. It reads requests and writes answers, one per
// line, with many in flight. A request names the thread that executes it, because threads own locks
// there. A topology is a way to run Redis and to connect to it; both sides use the same one.
//
// By default the versions are one of Redisson 4 and one of Redisson 3; -redisson names others.
// version_test.go lists what versions lack or do differently.
//
// The lock kinds are a table, and so is the matrix of who holds and who waits. A test covers all
// rows and topologies. The last output is the matrix, with the time each lock took from one side to
// the other, or the reason why there is none: a lock on one server is not tested again on several
// independent masters, and a RedLock needs more than one server.
package redisson
