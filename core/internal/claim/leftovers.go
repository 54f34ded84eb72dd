package claim

// Leftovers are what Redis may still have for a wire owner without a lease. They depend only on how
// the owner's commands ended. A clean-up frees them. A wire owner is never used again, so a clean-up
// that finds nothing does no harm.
type Leftovers struct {
	There bool // Redis may have it now
	Stray bool // a command that was given up may still create it, or renew a read level of it
}

// AfterAcquire returns what is left by an acquire or a hand-over that gave its owner no lease.
// granted reports whether the reply granted the lock. stray reports whether a try had no reply: it
// may have been executed, or may yet be, whatever the reply to the last one.
func AfterAcquire(granted, stray bool) Leftovers {
	return Leftovers{There: granted || stray, Stray: stray}
}

// AfterRelease returns what is left by a release. answered reports whether Redis replied that the
// hold was freed or missing. leftovers reports whether keys beside the hash may be left. stray is what
// Hold.Strays returns.
func AfterRelease(answered, leftovers, stray bool) Leftovers {
	return Leftovers{There: !answered || leftovers, Stray: stray}
}

// AfterLoss returns what is left by a hold that was lost or that Close ended. stray is what
// Hold.Strays returns.
func AfterLoss(stray bool) Leftovers { return Leftovers{There: true, Stray: stray} }

// Queueing returns what is left once an attempt was sent that may get a place in Redis's queue. Its
// caller may leave before the reply.
func (l Leftovers) Queueing() Leftovers { return l.Or(Leftovers{There: true}) }

// Or is the only place that merges what commands of one wire owner have left.
func (l Leftovers) Or(other Leftovers) Leftovers {
	return Leftovers{There: l.There || other.There, Stray: l.Stray || other.Stray}
}

// None reports whether nothing is left.
func (l Leftovers) None() bool { return l == Leftovers{} }
