package claim

// An Attempt is what is known of an attempt that has ended, whether or not its caller still waits.
type Attempt struct {
	Granted    bool      // the reply grants the lock
	Unanswered bool      // a try had no answer
	Looks      bool      // it only asked for a record, so it leaves nothing
	Earlier    Leftovers // what earlier attempts have left with the wire owner
	// Keeps means that the next attempt has the same wire owner: Redis keeps the queue, and the caller
	// has not left.
	Keeps bool
}

// An AttemptVerdict says what an attempt leaves in Redis. A lease that the attempt gives takes it
// along.
type AttemptVerdict struct {
	Kept  Leftovers // stays with the wire owner
	Clean Leftovers // is cleaned up
}

// Verdict decides. A wire owner that no other attempt will use is cleaned up at once.
func (a Attempt) Verdict() (v AttemptVerdict) {
	left := a.Earlier
	if !a.Looks {
		left = left.Or(AfterAcquire(a.Granted, a.Unanswered))
	}
	if a.Keeps {
		v.Kept = left
	} else {
		v.Clean = left
	}
	return v
}

// Leftovers returns what goes with the lease that the attempt gives.
func (v AttemptVerdict) Leftovers() Leftovers { return v.Kept.Or(v.Clean) }
