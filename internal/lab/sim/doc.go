// Package sim simulates clients of core, the network and Redis in virtual time, and checks core's
// promises against the state of the simulated servers.
//
// A seed determines a world. It has a few processes, each with a complete core.Client on its own
// go-redis client, and one Redis. Callers in these processes acquire locks of all kinds, hold them,
// re-enter them and release them. In some worlds, they also delegate them to each other. Everything
// runs in one testing/synctest bubble: its clock moves only when all goroutines are blocked, so half
// an hour of leases, watchdogs and polls takes a moment.
//
//	config.go   what a world is like: its processes, locks, time-outs, latencies, faults
//	world.go    a simulation from its start to its end
//	fleet.go    the processes
//	caller.go   what their callers do
//	faults.go   what goes wrong
//	network.go  connections: latency, loss, cuts, delayed packets
//	node.go     the server: connections, pub/sub, scripts, error replies, restarts
//	oracle.go   the invariants
//	permits.go  those of semaphores
//	guests.go   callers that enter the holds of others, and their families
//	trace.go    a log of the run
//	run         the command behind make sim
//
// # Real and simulated parts
//
// core, go-redis and the Lua scripts are real. Redis is a model: the types and commands that the
// scripts use, with the replies and errors of a real server, to which the tests of package memredis
// compare it. A script runs at a single point in time on the server's clock, which is up to 0.8%
// faster or slower than that of the clients.
//
// A packet that is delayed on its own connection arrives within CommandTimeout, as core assumes.
// What a frozen process or a paused server holds back may be delayed for any time. The connections
// of a frozen process stop, but its timers go on. Connections for subscriptions are opened without
// latency, see forPubSub; their packets have it. There is one server: no cluster, no replicas, no
// sentinel. WAIT and RedLock are not simulated.
//
// # Replay
//
// In an ordinary go test, a seed gives nearly the same run each time: the faults, the choices of
// the callers and the latencies are the same, but Go picks the order of goroutines that wake at the
// same instant. The command run builds the tests with a modified Go runtime. There, a seed gives
// exactly the same run in every process, with the same digest of its trace.
package sim
