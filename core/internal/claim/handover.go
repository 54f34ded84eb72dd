package claim

// A HandOverReply is the outcome of a hand-over in Redis.
type HandOverReply uint8

const (
	HandedOver   HandOverReply = iota
	FreedInstead               // another process is first in Redis's queue
	NotHeld                    // the hold was lost
	NotExecuted                // and never will be
	Unknown                    // a try may have been executed, or may yet be
)

func (r HandOverReply) String() string {
	return [...]string{"handed over", "freed instead", "not held", "not executed", "unknown"}[r]
}

// A HandOver is what is known when the reply to a hand-over has been read: of the command, of the
// hold whose last lease was released, and of the heir, the waiter that was to get the lock.
type HandOver struct {
	Reply      HandOverReply
	Err        error // the command's error; only with NotExecuted and Unknown
	Unproven   error // why the replicas may not have it, so that HandedOver does not count
	Unanswered bool  // a try had no answer

	EndedBy   error // why the hold has ended meanwhile; nil: it has not
	HoldStray bool  // an acquire of the hold may still arrive
	LeaseLeft bool  // the released lease would still last

	Here    bool      // the heir still waits
	Queued  bool      // Redis keeps the queue, and the heir has a place there
	Earlier Leftovers // what its earlier attempts have left with the same wire owner
	Forced  bool      // ForceUnlock took the lock from it
	Late    bool      // its lease is over
	Fewer   bool      // the waiter behind the heir wants fewer permits than it
}

// A HandOverVerdict says what follows from a hand-over.
type HandOverVerdict struct {
	Accepted bool  // the heir is the holder
	HeirErr  error // what the heir's Acquire returns; nil: see Dismiss, or it waits on
	Dismiss  error // what all who had joined get; nil: they wait on
	Over     bool  // the hold has ended; otherwise a release must free it
	Err      error // what Release returns, if Over
	// HeirLeftovers are what Redis may have of the heir's wire owner, if the heir holds the lock or
	// keeps that wire owner.
	HeirLeftovers Leftovers
	// KeepsOn means that the heir has a place in Redis's queue, so it keeps its wire owner: its next
	// attempt uses it, or the clean-up when it leaves, which frees a hold as well.
	KeepsOn bool
	// CleanHeir and CleanHold say what a clean-up must free in Redis.
	CleanHeir, CleanHold Leftovers
	// Wake means that the first waiter tries. It could not while it was an heir. Behind one that wanted
	// more permits, it could not take those that were free.
	Wake bool
}

// Verdict decides.
func (o HandOver) Verdict() (v HandOverVerdict) {
	switch {
	case o.Reply == Unknown:
		v.Dismiss = o.Err
	case o.Reply != HandedOver:
	case o.Unproven != nil:
		v.Dismiss = o.Unproven
	case !o.Here:
	case o.Forced:
		v.HeirErr = ErrForced
	case o.Late:
		v.HeirErr = ErrLate
	default:
		v.Accepted = true
	}
	v.KeepsOn = o.Here && o.Queued && !v.Accepted
	switch left := AfterAcquire(o.Reply == HandedOver, o.Unanswered); {
	case v.Accepted:
		v.HeirLeftovers = o.Earlier.Or(Leftovers{Stray: o.Unanswered})
	case v.KeepsOn:
		v.HeirLeftovers = o.Earlier.Or(left)
	default:
		v.CleanHeir = left
	}
	switch {
	case o.EndedBy != nil:
		v.Over, v.Err = true, o.EndedBy
	case o.Reply == NotExecuted:
		return v
	default:
		v.Over, v.Err = true, o.Err
		// After a retry, a missing hold may mean that an earlier try handed it over.
		if o.Reply == NotHeld && !(o.Unanswered && o.LeaseLeft) {
			v.Err = ErrLockLost
		}
	}
	// While a hand-over without an answer may still arrive, the hold is freed again: nothing is assumed
	// of a command that was given up, and a release that finds nothing does no harm.
	v.CleanHold = AfterRelease(o.Err == nil, false, o.HoldStray || o.Unanswered && o.Err != nil)
	v.Wake = !v.Accepted && o.Reply != FreedInstead || v.Accepted && o.Fewer
	return v
}
