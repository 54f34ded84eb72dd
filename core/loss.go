package core

import (
	"slices"
	"sync"
	"time"

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
	eng.cleaner.add(h.kind.Release(eng.settings(), g), g, h.longest, claim.AfterLoss(h.claim.Strays(false)))
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

// A Loss is a lock that was lost while it was held.
type Loss struct {
	Name  string        // the lock's name, as it was given to the client
	Key   string        // its name in Redis
	Kind  string        // one of Kinds
	Owner string        // wire owner
	At    time.Time     // when the loss was found
	Held  time.Duration // until then
	Annotation
}

// mostLosses is how many losses a client remembers.
const mostLosses = 32

// losses are the latest losses, oldest first.
type losses struct {
	mu   sync.Mutex
	list []Loss
}

func (l *losses) add(loss Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == mostLosses {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, loss)
}

// latest returns the losses, newest first.
func (l *losses) latest() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.list)
	slices.Reverse(list)
	return list
}
