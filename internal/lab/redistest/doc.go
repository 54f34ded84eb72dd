// Package redistest gives tests real redis-server processes and a proxy that makes the network
// between a client and Redis fail at one chosen moment. It is the only place in this module that
// starts Redis.
//
// # Servers
//
// [Start] runs one redis-server for one test, [Run] one for a whole test binary (the caller closes
// it in TestMain). Each has its own port, data directory and log, persists nothing unless a
// directive says so, and dies with the test binary even if that crashes. Tests can kill a server
// and restart it on the same port and data ([Server.Kill], [Server.Restart], [Server.Save]),
// suspend it ([Server.Freeze], [Server.Thaw]) and pause its clients ([Server.PauseClients]). A
// missing redis-server fails the test and says how to install it. Tests that need a server are
// skipped only by go test -short ([NeedsServer]).
//
// # Topologies
//
// [StartMany] runs independent servers, [StartReplicas] a master with replicas, [StartSentinel] the
// same with three sentinels, [StartCluster] three masters with a replica each. Their servers are
// Servers: kill, freeze and restart them; AwaitMaster returns the new master. [Sentinel.Failover]
// and [Cluster.Failover] swap a running master, [Cluster.MoveSlot] moves a slot step by step. Each
// is ready when its Start returns: replicas have caught up, sentinels and nodes know each other and
// agree.
//
// # The proxy
//
// [Server.Proxy] listens on its own port and forwards bytes unchanged. It parses both directions as
// RESP2 or RESP3, so it knows which reply belongs to which command, and distinguishes published
// messages from replies. A rule picks a command, by name and number ([Proxy.On]) or by its
// arguments ([Proxy.OnMatch], [Proxy.OnEvery]), and an [Action] says what happens to it:
//
//	rule := proxy.On("EVALSHA", 2, redistest.CutAfter) // executes, then cuts
//	...
//	<-rule.Hit()
//
// [Proxy.SwallowMessages] drops published messages; [Proxy.Cut], [Proxy.Stall], [Proxy.Mute] and
// [Proxy.Restore] act on all connections.
//
// # How the proxy is built
//
// A link is a client connection and its connection to Redis. Four goroutines serve it, joined by
// two unbounded queues, so that one direction never waits for the other:
//
//	client --readRequests--> toServer --writeRequests--> Redis
//	client <--writeReplies-- toClient <--readReplies---- Redis
//
// readRequests looks up each arriving command in the rule book and adds it to the pending list.
// readReplies assigns replies to that list in order. Rules delay or hold commands and replies in
// the queue, so the order on a connection never changes. Every step that is visible from outside
// happens inside the gate, which Stall and Cut shut: after they return, no step is running and none
// follows.
//
// The proxy supports only requests and replies: MONITOR, SYNC, PSYNC and CLIENT REPLY are answered
// with an error, inline commands with a protocol error, and it does not track SUBSCRIBE inside
// MULTI.
package redistest
