// Package worlds has models of small worlds of lock clients for the search in internal/explore. Each
// runs the scripts of core/internal/lua, on a Redis in memory.
//
// A [World] is one name, two or three owners in two clients, and one kind of lock. Its clients are
// abstract: they send what the engine of core sends and conclude from replies what it concludes
// (docs/engine.md), but in any order and at any time. Between any two steps the network may lose a
// reply, or deliver a command late that its client has given up; Redis may lose one key or all; a
// client may crash, or free the lock by force.
//
// What must hold is checked at three places:
//
//   - script.go, for each script on each content of Redis: it changes nothing of other owners, a repeat
//     changes nothing, TTLs do not shrink, every key of a hold has a TTL, tokens rise, releases are
//     published, and the queue of a fair lock keeps its order.
//   - check.go, for each state: a client that believes to hold the lock does hold it in Redis, for as
//     long as it believes, unless Redis lost the key or the lock was freed by force.
//   - quiet.go, from each state: if no more faults happen, all who wait are served, and then nothing is
//     left in Redis.
//
// Time passes in ticks of 30 s. The server's clock stands still, and a tick makes TTLs and all times in
// Redis earlier instead: so states that differ only in when they happen are one.
package worlds
