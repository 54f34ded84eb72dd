package core

import (
	"github.com/reqlock/reqlock/core/internal/claim"
)

// A loss is a hold that was just marked lost. The contexts of its leases have yet to end.
type loss struct {
	hold   *hold // nil: nothing was lost
	leases *level
}

// finish ends the contexts, then frees what may be left in Redis, then reports the loss. The caller
// must not hold the mutex.
func (l loss) finish() {
	h := l.hold
	if h == nil {
		return
	}
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.endContexts(h.err)
	}
	h.entry.open()
	g, eng := h.countsLocked(), h.engine()
	eng.cleaner.add(h.kind.Release(eng.settings(), g), g, h.remainsLocked(), claim.AfterLoss(h.claim.Strays(false)))
	h.entry.removeLocked(h)
	h.entry.freedLocked(0)
	h.entry.close()
	if l.leases != nil {
		h.logLoss(l.leases, h.err)
	}
	for lease := l.leases; lease != nil; lease = lease.next {
		lease.reportLoss(h.err)
	}
}

// lose ends the hold and all its leases, and reports whether it had not ended before. Their
// contexts end before anything is freed in Redis.
func (h *hold) lose(cause error) bool {
	h.entry.open()
	l := h.endLocked(cause)
	h.entry.close()
	l.finish()
	return l.hold != nil
}

// endLocked marks the hold and its leases as lost. It returns no loss if the hold has ended before.
// The caller must call finish on the result.
func (h *hold) endLocked(cause error) loss {
	if !h.claim.Lose() {
		return loss{}
	}
	h.err = cause
	l := loss{h, h.leases}
	h.leases = nil
	for l := l.leases; l != nil; l = l.next {
		l.err = cause
		l.stopAlarmLocked()
	}
	h.cancelRenewalLocked()
	return l
}

// logLoss logs the loss of the hold once, however many leases find out. l is one of them.
func (h *hold) logLoss(l *level, cause error) {
	h.entry.open()
	logged := h.lossLogged
	h.lossLogged = true
	h.entry.close()
	if !logged {
		l.logLoss(cause)
	}
}

func finishLosses(all []loss) {
	for _, l := range all {
		l.finish()
	}
}
