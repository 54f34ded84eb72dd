// Package batch sends script calls to Redis. Calls that many goroutines make at the same time share
// pipelines.
//
// [Batcher.Send] sends a [Call] and returns at once. Its [Reply] arrives on a channel exactly once,
// by the call's deadline at the latest. [Batcher.Withdraw] takes back a call that is still queued.
// A caller that stays for the reply uses [Batcher.Do].
//
// # Lanes
//
// A lane is a queue and the commands in flight from it. Each pair of purpose ([Ordinary],
// [Replicated], [Renewals]) and master has its own lane, so that no purpose and no node waits for
// another. The first few calls of a lane are sent alone, at once. Further calls queue up and leave
// as one pipeline when fewer than two pipelines are in flight. A pipeline that takes much longer
// than usual does not count, so that one dead connection does not stall the lane. Up to eight may
// be in flight, including the slow ones. A pipeline whose calls have all timed out does not count
// at all. The life of a call, guarded by the mutex of its lane:
//
//	queued    -> in flight   a runner took it, alone or in a pipeline
//	queued    -> done        withdrawn, or its deadline passed: ErrUnsent
//	in flight -> done        answered, or its deadline passed: ErrUnanswered; drops a later reply
//
// A runner is a goroutine with one command or pipeline in flight at a time. A lane starts runners
// when it needs them, up to a bound, and keeps them until it is closed, so that a stack that has
// grown serves all calls. [Batcher.Do] lets its caller run one call in place of a runner, which
// saves waking a goroutine. That pays off when several goroutines wait for the reply, as with a
// lock that is handed over. Otherwise it is no faster.
//
// A command ends with its context, soon after the deadlines of its calls, and gives up its
// connection; see [Bounded]. A client that is neither a *redis.Client nor a *redis.ClusterClient
// obeys only its own timeouts. Its callers never run calls themselves, because they could not be
// answered before the client gives up.
//
// # Connections
//
// The hook that bounds commands also follows each connection that the client dials; see conns. It
// knows when a server was last heard, on any of them. A script is refused on a connection that was
// dialed before a server said READONLY, or that was not heard since another one did not answer. The
// Redis client then drops it, and the sender tries the next. What fails before a connection has
// carried a command is a [ConnectError]: nothing was sent. Connections that were dialed before the
// batcher was made are not followed.
//
// # Parcels
//
// When a pipeline has two or more calls of plain locks, up to 64 of them form one command, a
// parcel. For each lock Redis runs the script it would have run anyway. An error with one lock is
// the reply to that call alone. When Redis refuses a parcel because of its keys, its calls are sent
// again one by one. A server that refuses keys of several locks in one command gets no further
// parcel for a minute. A cluster gets none at all.
//
// # Clusters
//
// A call goes to the lane of the master that has its slot, as far as the client knows. A call that
// is answered MOVED or ASK, or is sent before the client knows the cluster, goes through a lane
// without a node, which sends each call alone.
package batch
