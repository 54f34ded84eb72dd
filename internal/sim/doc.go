// Package sim simulates clients of core, the network and Redis in virtual time, and checks what core promises against the truth.
//
// A world follows from a seed. It has a few processes, each with a whole core.Client on a go-redis of its own, callers that take
// locks of all kinds, hold them, enter them again and release them, and one Redis. All of it runs in one bubble of testing/synctest:
// time passes only when everything is at rest, so that half an hour of leases, watchdogs and polls takes a moment.
//
//	config.go    what a world is like: its processes, locks, time-outs, latencies, faults
//	crew.go      the callers
//	chaos.go     the faults
//	network.go   connections: latency, loss, cuts, late packets
//	node.go      the server: connections, pub/sub, scripts, refusals, restarts
//	store.go     its data and commands; script.go runs Lua
//	oracle.go    the invariants
//	trace.go     what has happened, for people
//	run          the command behind make sim
//
// # What is real and what is not
//
// core, go-redis and the Lua scripts are real. Redis is a model: the types and commands that the scripts use, with the errors and
// replies of a real server, which TestStore_AgreesWithRedis and TestScripter_Refuses compare. A script runs at one point in
// time, by the server's clock, which is up to 0.8 % faster or slower than that of the clients.
//
// A packet that is late on its own line arrives within CommandTimeout, as core takes for granted. What a whole process or the whole
// server holds back may be as late as it likes. A frozen process is one whose connections are; its timers go on. Connections for
// subscriptions are made without latency, see forPubSub; what they carry has it. There is one server: no cluster, no replicas, no
// sentinel. WAIT and RedLock are not simulated, and nothing checks that a Release takes a marker of a Once away.
//
// # The same run again
//
// In an ordinary go test a seed gives nearly the same run again: the faults, the callers' choices and the latencies are the same, but
// the order of goroutines that wake at one instant is Go's. A binary of package run has a changed Go runtime, and there a seed gives
// exactly the same run in every process, down to the digest of its trace.
package sim
