// Package worlds models small worlds of lock clients for the search in internal/lab/explore. The models
// run the scripts of core/internal/lua on a Redis in memory.
//
// A [World] is one name, two or three owners in one or two clients, and one kind of lock, or a
// semaphore. It is Redis, a network and clocks around values of package claim: the state of an owner's
// wait, its hold, and what its attempts have left. The machines of claim move them, and its verdicts say what the end of
// a message leads to, as in core. An owner does what core may do, in any order and at any time.
// Between any two steps a reply may be lost. A command that its client gave up may run late. Redis may
// lose one key or all. A client may crash, or free the lock by force. The number of permits may
// change, and clients may declare different numbers.
//
// Four files check promises:
//
//   - script.go, for each script on each content of Redis: it changes nothing of other owners, a
//     repeat changes nothing, TTLs do not shrink while a hold stays, every key of a hold has a TTL,
//     tokens rise, releases are published, the queue of a fair lock keeps its order, and a record
//     stays.
//   - permits.go, for each script of a semaphore: a grant leaves no more permits in force than there
//     are, an owner has all its permits or none, each permit is free or taken, one that has expired
//     stays expired, and waiters hear of free ones.
//   - check.go, for each state: a client that believes it holds the lock does hold it in Redis for
//     as long as it believes so, unless Redis lost the key or the lock was freed by force. Redis
//     keeps nothing of a hold once its client is done with it.
//   - quiet.go, from each state: without further faults, all waiters are served within a few ticks,
//     and then Redis is empty.
//
// Time passes in ticks of 30 s. The server's clock stands still. A tick moves TTLs and all times in
// Redis back instead, so states that differ only in when they occur are one. Owners of one client
// have the same settings, so states that differ only in owner names are one, too.
//
// owner.go has what an owner knows and sends, verdicts.go what follows from the end of a message,
// wires.go the wire owners it uses, steps.go, time.go and faults.go what may happen next.
//
// The worlds leave out whatever does not change what scripts find. A waiter may ask at any time, so
// there is no queue of a process. All leases of a side share one deadline. The client reads the reply
// to an update or a release at once. It cleans up before the next tick, and a waiter for a fair lock
// asks in each tick. The age of a declaration is exact, and the keys of a semaphore live for longer than
// a world. There are no replicas, no cluster and no Redisson peers, and too few readers for
// a release to sample them.
//
// TestWorlds searches small worlds, and with -full, as make explore does, larger ones. A failure
// prints the shortest trace and a command that replays it. TestMutants shows that the search finds
// the mutants of scripts that name a world in internal/lab/mutants/table.
package worlds
