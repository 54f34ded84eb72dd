package core

import "sync/atomic"

// Counters counts what a client has done since New. They only grow.
type Counters struct {
	HandOvers      uint64 // locks that a release gave to a waiter of this process, in one command
	Polls          uint64 // attempts of waiters that no message woke; see Options.PollInterval
	RenewFailures  uint64 // renewals that failed, one per lock; see Observer.RenewFailed
	Lost           uint64 // leases that were lost, whether their holder or their release found out
	Forced         uint64 // locks that another process's ForceUnlock took, and that was heard of at once
	PubSubFailures uint64 // pub/sub connections lost, not opened or not permitted to subscribe
	Guests         uint64 // holds of other services that were entered; see WithDelegation
	ParentsLost    uint64 // refusals of guests, because the hold was over
	TokensIgnored  uint64 // uses of delegation tokens that Options.Delegation does not verify

	// Commands is the number of calls sent to Redis: attempts to acquire, releases, renewals and
	// queries. Calls that are sent together share a batch.
	Commands uint64
	// BatchSizes has the number of batches by size: BatchSizes[i] is that of batches of 2^i to
	// 2^(i+1)-1 calls. A call that is sent alone is a batch of one.
	BatchSizes [8]uint64
	// Errors has the number of operations that Redis failed, by class: "unreachable", "silent",
	// "permission", "out_of_memory" and so on. Errors that a retry fixed do not count. nil: none.
	Errors map[string]uint64
}

// Batches returns the number of batches.
func (c Counters) Batches() (n uint64) {
	for _, size := range c.BatchSizes {
		n += size
	}
	return n
}

// counters are the counters that the engine keeps itself.
type counters struct {
	handOvers, polls, renewFailures, lost, forced, pubsub atomic.Uint64
	guests, parentsLost, tokensIgnored                    atomic.Uint64
}
