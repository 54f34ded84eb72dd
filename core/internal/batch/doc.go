// Package batch carries script calls to Redis: those that many goroutines make at the same time share pipelines.
//
// A [Call] is sent with [Batcher.Send], which returns at once; its [Reply] comes on a channel, exactly once, by the call's
// deadline at the latest. A call whose caller has left is taken back with [Batcher.Withdraw] if it is still queued. A caller
// that does not leave uses [Batcher.Do].
//
// # Lanes
//
// A lane is a queue and the commands under way from it. There is one for each purpose ([Ordinary], [Replicated],
// [Renewals]) and master, so that no purpose waits for another and no node for another. The first few calls of a lane go
// alone, at once. Beyond them calls queue up, and what is queued goes out as one pipeline as soon as fewer than two are
// under way. A pipeline that takes much longer than usual does not count: one dead connection must not keep the others
// from Redis. Up to eight may be under way, those that do not count included. One whose calls have all been given up does not
// count at all. The life of a call, guarded by the mutex of its lane:
//
//	queued -> flying     taken by a runner, alone or in a pipeline
//	queued -> over       withdrawn; or its deadline has passed: ErrUnsent
//	flying -> over       answered; or its deadline has passed: ErrUnanswered, and what Redis says later is dropped
//
// A runner is a goroutine with one command, or pipeline, under way at a time. Runners are started when they are needed, up
// to a bound, and stay until the lane is closed: a stack that has grown once serves all calls. [Batcher.Do] lends a runner's
// place to its caller, for that one call: no goroutine wakes another then. It is for calls for whose reply several goroutines
// wait, as with a lock that is handed on; else it is no faster.
//
// A command ends with its context, soon after the deadlines of its calls, and gives its connection up; see [Bounded]. Only a
// client that is neither a *redis.Client nor a *redis.ClusterClient goes by its own time-outs. It lends no places: a caller there
// could not be answered before the client gives up.
//
// # Parcels
//
// In a pipeline the calls of plain locks, if there are two or more, are not a command each: up to 64 of them are one command, a
// parcel, by which Redis runs for each lock the script that it would have run anyway. What is wrong with one lock is the
// reply to that call alone. Where a parcel is refused as a whole, because of its keys, its calls are sent again one by one.
// A server that does not take keys of several locks in a command gets no other parcel for a minute; a cluster gets none at all.
//
// # Clusters
//
// A call goes to the lane of the master that has its slot, as far as the client knows. What is answered MOVED or ASK, and
// what is sent before the client knows the cluster, goes through a lane without a node, each call by itself.
package batch
