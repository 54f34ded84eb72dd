package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

func (w *waiter) acquiredEvent(lease *level) Event {
	at := lease.acquired // just now, unless the lease re-enters a hold or was handed over
	if w.blocked || lease != &lease.hold.first {
		at = clock.Now()
	}
	e := w.eventAt(at, lease.hold.wire, nil)
	if o := w.handedBy; o != nil {
		e.Holder, e.HolderContext = o.hold.wire, o.last.caller
		e.HandOver = o.took
	}
	return e
}

func (w *waiter) event(wire string, err error) Event { return w.eventAt(clock.Now(), wire, err) }

func (w *waiter) eventAt(at clock.Moment, wire string, err error) Event {
	e := Event{
		Name:     w.name,
		Kind:     w.kind.Name,
		Owner:    wire,
		Waited:   at.Since(w.began),
		Lease:    w.fixed,
		Err:      err,
		WaitTime: w.waitTime(),
		Blocked:  w.blocked,
	}
	if h := w.holder; h != nil {
		e.Holder, e.HolderContext = h.wire, h.first.caller
	}
	return e
}

// waitTime returns AcquireOptions.WaitTime.
func (w *waiter) waitTime() time.Duration {
	switch {
	case w.NoWait:
		return 0
	case w.Deadline == 0:
		return WaitForever
	}
	return w.Deadline.Since(w.began)
}
