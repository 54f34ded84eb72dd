package claim

// A Grant is what is known when a reply that grants the lock to a waiter has been read.
type Grant struct {
	Asks      bool  // the waiter is still asking: nothing has removed it
	OwnerHas  bool  // another call of its owner was granted the lock first
	Removed   error // why another goroutine has removed it; nil: none has
	CallerErr error // why its caller's context has ended; nil: it has not
	Forced    bool  // ForceUnlock took the lock from it
	Late      bool  // its lease is over
	Outrun    bool  // another hold of this process was granted after the command was sent
}

// A GrantVerdict says what follows from a grant.
type GrantVerdict struct {
	Err error // what Acquire returns; nil: the lease, unless Sleeps
	// Sleeps means that the waiter enters its owner's hold. Its own grant is cleaned up.
	Sleeps bool
	// Displaces means that the other holds that exclude this one are lost: Redis has granted it.
	Displaces bool
}

// Verdict decides.
func (g Grant) Verdict() (v GrantVerdict) {
	switch {
	case g.Asks && g.OwnerHas && g.CallerErr == nil:
		v.Sleeps = true
	case g.Removed != nil:
		v.Err = g.Removed
	case g.CallerErr != nil:
		v.Err = g.CallerErr
	case g.Forced:
		v.Err = ErrForced
	case g.Late:
		v.Err = ErrLate
	default:
		v.Displaces = true
		if g.Outrun {
			v.Err = ErrOutrun
		}
	}
	return v
}
