// Package redisson holds the tests of reqlock against Java Redisson: one lock, held and waited for from both sides. They need
// a JVM and Maven, so they have a build tag of their own; make interop installs what is missing and runs them.
//
// The other side is the program in peer, which is built for each version of Redisson and started for each topology, and again by
// tests that kill it. It reads requests and
// writes answers, one a line, many at a time; a request names the thread that does it, since a thread is who owns a lock
// there. A topology is a way to run Redis and to connect to it: both sides use the same one.
//
// By default the versions are one of Redisson 4 and one of Redisson 3; -redisson names others. What a version lacks, or does in
// another way, is in version_test.go.
//
// The kinds of locks are a table, and so is the matrix of who holds and who waits; a test goes over all rows and all
// topologies. The last thing that is printed is the matrix, with the time that the lock took from one side to the other, or
// with why there is nothing to measure: a lock that is on one server is no other where there are several masters that know
// nothing of each other, and there is no RedLock of one server.
package redisson
