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
// another. The life of a call, guarded by the mutex of its lane:
//
//	queued    -> in flight   a runner took it, alone or in a pipeline
//	queued    -> done        withdrawn, or its deadline passed: ErrUnsent
//	in flight -> done        answered, or its deadline passed: ErrUnanswered; drops a later reply
//
// How many flights a lane has depends on the round trip, see roundTrip. Near the server, the first
// few calls are sent alone, at once. Further calls queue up and leave as one pipeline when fewer than
// two pipelines are in flight. Far from it, calls go out at once and overlap, until there is one
// flight for each 50 us of the round trip. A flight that takes much longer than usual does not count,
// so that one dead connection does not stall the lane. A flight whose calls have all timed out does
// not count at all.
//
// A runner sends one command or pipeline at a time. [Batcher.Do] lets its caller run a call that may
// start at once, so that no goroutine is woken. Otherwise the runner's own goroutine does. It also
// takes over when the caller leaves before the reply. A lane keeps a bounded number of idle runners
// until it is closed, so that a stack that has grown serves all calls.
//
// # Lines
//
// A lane has up to four connections of its own, its lines, which it dials when several calls at a time
// need them. A call takes a line that is free, and shares the first one if none is. On a line, a
// flight is written whether those before it are answered or not; see duplex. A line takes no further
// flight when its oldest one is slow, when the server has closed it, or when another connection has
// shown that it is not to be trusted. Calls take connections of the Redis client's pool, at most
// eight at a time, while there is no line, when they are large, and when replicas must confirm them: a
// WAIT would hold up all that is behind it. A caller that may leave runs its call on a line only,
// where it can be interrupted.
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
