package core

import "github.com/reqlock/reqlock/core/internal/redisop"

// A residue says what Redis may still have for a wire owner without a lease. It depends only on how
// the owner's commands ended. The cleaner frees it. A wire owner is never used again, so a free
// that finds nothing does no harm.
type residue struct {
	there bool // Redis may have it now
	stray bool // a command that was given up may still create it, or renew a read level of it
}

// afterGrant returns the residue of an acquire or a hand-over that gave its owner no lease. granted
// reports whether the reply granted the lock. A try without a reply may have been executed, or may
// yet be, whatever the reply to the last one. A look leaves nothing.
func afterGrant(x *redisop.Op, granted bool) residue {
	if x.Call().Looks() {
		return residue{}
	}
	return residue{there: granted || x.Stray(), stray: x.Stray()}
}

// afterRelease returns the residue of a release. answered reports whether Redis replied that the
// hold was freed or missing. rest reports whether keys beside the hash may be left. stray is from
// hold.straysLocked.
func afterRelease(answered, rest, stray bool) residue {
	return residue{there: !answered || rest, stray: stray}
}

// afterLoss returns the residue of a hold that was lost or that Close ended. stray is from
// hold.straysLocked.
func afterLoss(stray bool) residue { return residue{there: true, stray: stray} }

func (r residue) or(other residue) residue {
	return residue{r.there || other.there, r.stray || other.stray}
}

func (r residue) none() bool { return r == residue{} }
