// Package worlds has models of small worlds of lock clients for the search in internal/explore. They run
// the scripts of core/internal/lua on a Redis in memory.
//
// A [World] is one name, two or three owners in one or two clients, and one kind of lock. Its clients are
// abstract: they send what the engine of core sends and conclude from replies what it concludes
// (docs/engine.md), but in any order and at any time. Between any two steps a reply may be lost, or a
// command that its client has given up may be executed late; Redis may lose one key or all; a client may
// crash, or free the lock by force.
//
// Promises are checked at three places:
//
//   - script.go, for each script on each content of Redis: it changes nothing of other owners, a repeat
//     changes nothing, TTLs do not shrink while a hold stays, every key of a hold has a TTL, tokens rise,
//     releases are published, the queue of a fair lock keeps its order, and a record stays.
//   - check.go, for each state: a client that believes it holds the lock does hold it in Redis for as long
//     as it believes so, unless Redis lost the key or the lock was freed by force. Redis has nothing of a
//     hold that its client is done with.
//   - quiet.go, from each state: if no more faults happen, all who wait are served within a few ticks, and
//     then nothing is left in Redis.
//
// Time passes in ticks of 30 s. The server's clock stands still. A tick makes TTLs and all times in Redis
// earlier instead, so states that differ only in when they occur are one. Owners of one client have the
// same settings, so states that differ only in their names are one, too.
//
// The worlds leave out what does not change what scripts find: the reply to an update or a release is read
// at once, a client cleans up before the next tick, and a waiter for a fair lock asks in each tick. They
// have no replicas, no cluster, no Redisson peers, and fewer readers than those of which a release looks at
// a random part.
//
// TestWorlds searches small worlds, and with -full, as make explore does, larger ones. TestPlanted shows
// that the search finds defects. A failure has the shortest trace and a command that replays it.
package worlds
