// Package redistest gives tests real redis-server processes and a proxy that makes the network between a client and Redis
// fail at one chosen moment. It is the only place in this module that starts Redis.
//
// # Servers
//
// [Start] runs one redis-server for one test, [Run] one for a whole test binary (the caller closes it in TestMain). Each
// has a port, a data directory and a log of its own, keeps nothing on disk unless a directive says so, and dies with the
// test binary whatever happens to that. A server can be killed and started again on the same port and data ([Server.Kill],
// [Server.Restart], [Server.Save]), stopped in its tracks ([Server.Freeze], [Server.Thaw]) and told to answer nobody for a
// while ([Server.PauseClients]). A missing redis-server fails the test and says how to install it. Only go test -short
// skips tests, all that need a server ([NeedsServer]).
//
// # Topologies
//
// [StartMany] runs independent servers, [StartReplicas] a master with replicas, [StartSentinel] the same under the eyes of
// three sentinels, [StartCluster] three masters with a replica each. Their servers are Servers: kill, freeze and restart
// them; AwaitMaster tells who has taken over. [Sentinel.Failover] and [Cluster.Failover] swap a master that runs,
// [Cluster.MoveSlot] moves a slot step by step. Each is ready when its Start returns: replicas have caught up, sentinels
// and nodes know each other and agree.
//
// # The proxy
//
// [Server.Proxy] listens on a port of its own and passes bytes on unchanged. It reads both directions as RESP, so it knows
// which reply belongs to which command, and tells published messages from replies, in RESP2 and in RESP3. A rule picks a
// command, by name and number ([Proxy.On]) or by its arguments ([Proxy.OnMatch], [Proxy.OnEvery]), and an [Action] says
// what becomes of it:
//
//	rule := proxy.On("EVALSHA", 2, redistest.CutAfter) // Redis runs the second EVALSHA from now, nobody hears of it
//	...
//	<-rule.Hit()
//
// [Proxy.SwallowMessages] loses published messages; [Proxy.Cut], [Proxy.Stall], [Proxy.Mute] and [Proxy.Restore] act on all
// connections.
//
// # How the proxy is built
//
// A link is one client connection with its connection to Redis. Four goroutines serve it, joined by two unbounded queues,
// so that one direction never waits for the other:
//
//	client --readRequests--> toServer --writeRequests--> Redis
//	client <--writeReplies-- toClient <--readReplies---- Redis
//
// readRequests asks the rule book about each command as it arrives and notes it as pending; readReplies takes replies off
// the pending list in order. What a rule delays or holds, it delays or holds in the queue: nothing overtakes anything on
// one connection. Every step that changes what the outside can see happens inside the gate, which Stall and Cut shut:
// once they have returned, no step is under way and none follows.
//
// The proxy does not understand what is not request and reply: MONITOR, SYNC, PSYNC and CLIENT REPLY are answered with an
// error, inline commands with a protocol error, and SUBSCRIBE inside MULTI is not followed.
package redistest
