// Package claim decides for one lock name in one process: who tries to acquire it and when, what a
// reply of Redis means, and what may be left in Redis. It has no mutex, goroutine or clock, and does
// not talk to Redis. Package core tells it what happened, with the mutex of the name held, and
// carries out what it decides.
//
// A [Queue] has the waiters. Its caller reports one event at a time, and gets the waiters to wake:
// those for which the result of Next may have changed. The slice is valid until the next event. Only
// the first waiter tries in Redis. Shared waiters at the front try together. Each RedisQueue waiter tries
// by itself.
//
// A [Hold] has the state and the levels of an owner's stay in the lock, and its [Turn], the right to
// send a command that changes the hold.
//
// [Attempt], [Grant], [Refusal], [Failure], [Update], [Release], [HandOver], [Renewal], [Missing] and
// [Cleanup] are what is known when a reply has been read, and [Exit] before a lease is released. The
// verdict of each says what follows.
package claim
