package core

import "github.com/reqlock/reqlock/core/internal/redisop"

// A residue says what Redis may have of a wire owner that has no lease, or has one no more. It follows from how the owner's commands
// ended, and from nothing else. The cleaner frees it. A wire owner is never used again, so freeing what is not there does no harm.
type residue struct {
	there bool // Redis may have it now
	stray bool // a command that was given up may still put it there
}

// afterGrant is what an acquire or a hand-over may have left for an owner that does not get the lock by it. granted: the reply
// says that Redis has it. Tries that were not answered may have been executed, or may yet be, whatever the last reply says.
func afterGrant(x *redisop.Op, granted bool) residue {
	return residue{there: granted || x.Stray(), stray: x.Stray()}
}

// afterRelease is what a release may have left. answered: Redis says that it is freed, or that it was gone. rest: something beside
// the hash may still be there. stray: a try to acquire it had no answer.
func afterRelease(answered, rest, stray bool) residue {
	return residue{there: !answered || rest, stray: stray}
}

// afterLoss is what a hold may have left that was found lost, or was given up.
func afterLoss(stray bool) residue { return residue{there: true, stray: stray} }

func (r residue) or(other residue) residue {
	return residue{r.there || other.there, r.stray || other.stray}
}

func (r residue) none() bool { return r == residue{} }
