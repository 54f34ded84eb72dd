package claim

// A Way is how a lease is released in Redis.
type Way uint8

const (
	AlreadyOver Way = iota // nothing to send: the hold has ended
	LowersCount            // other leases remain
	HandsOver              // the last lease; a waiter gets the lock
	FreesHold              // the last lease
)

// An Exit is what is known when a lease has left its hold and Redis is to be told.
type Exit struct {
	WasOver   bool   // the hold has ended
	Counts    Counts // one for each lease that remains
	Deepest   int32  // Hold.Deepest: a hand-over would leave the time-out keys of read levels
	HandsOver bool   // the kind has a hand-over, and the client is open

	Heir        bool      // the queue has an heir
	SameKind    bool      // it wants what the hold is
	Queued      bool      // Redis keeps the queue
	HeirEarlier Leftovers // what the heir's attempts have left there; without a place it cannot be the next
}

// Verdict decides.
func (e Exit) Verdict() Way {
	switch {
	case e.WasOver:
		return AlreadyOver
	case e.Counts.Total() > 0:
		return LowersCount
	case e.HandsOver && e.Deepest == 0 && e.Heir && e.SameKind && (!e.Queued || e.HeirEarlier.There):
		return HandsOver
	}
	return FreesHold
}
