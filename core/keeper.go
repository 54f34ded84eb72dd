package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// How a hold keeps its leases.

func (h *hold) mutex() *sync.Mutex { return &h.entry.shard.mu }

func (h *hold) left(l *Lease) time.Duration { return l.leftAt(h.client().clock()) }

// leftAt is left, at some time. Locked.
func (l *Lease) leftAt(at clock.Instant) time.Duration { return at.Until(l.end()) }

// end is the local deadline. Locked.
func (l *Lease) end() clock.Instant {
	end := l.deadline
	if l.watched {
		end = l.hold.renewed
	}
	if l.tight {
		end = end.Add(-clock.Margin(l.duration()))
	}
	return end
}

// setAlarm has the lease looked at when its time is over. Most leases never need that: one that the watchdog keeps is renewed
// within a third of WatchdogTimeout, that renewal has ended within another, and then there is another look. Locked.
func (l *Lease) setAlarm(at clock.Instant) {
	if left := l.leftAt(at); !l.watched || left <= l.hold.client().twoLooks() {
		l.ringIn(left)
	}
}

// twoLooks is the longest time until the watchdog has renewed a lease, or has had to give that up.
func (c *Client) twoLooks() time.Duration { return 2 * (c.opts.WatchdogTimeout / 3) }

// ringIn sets the alarm. Locked.
func (l *Lease) ringIn(d time.Duration) {
	l.alarmed = true
	l.hold.client().alarms.Set(&l.alarm, l, d)
}

// stopAlarm is called when the lease has ended. Locked.
func (l *Lease) stopAlarm() {
	if l.alarmed {
		l.hold.client().alarms.Cancel(&l.alarm)
	}
}

// setAlarms sets the alarms of the leases that the watchdog keeps, where no more than a time is left. Locked.
func (h *hold) setAlarms(within time.Duration) {
	for l := h.leases; l != nil; l = l.next {
		if left := l.left(); l.watched && left <= within {
			l.ringIn(left)
		}
	}
}

// expire ends the lease if its time is over, and sets the alarm again if it has been prolonged.
func (h *hold) expire(l *Lease) {
	l.lock()
	if l.err != nil {
		l.unlock()
		return
	}
	if at := h.client().clock(); l.leftAt(at) > 0 {
		l.setAlarm(at)
		l.unlock()
		return
	}
	if h.leases == l && l.next == nil { // the last
		lost, _ := h.end(ErrLockLost)
		l.unlock()
		h.bury(lost)
		return
	}
	l.err = ErrLockLost
	h.drop(l)
	l.unlock()
	l.endContexts(ErrLockLost)
	l.reportLoss(ErrLockLost)
	h.client().background.Go(func() {
		_ = h.take(context.Background())
		defer h.give()
		h.sendCount()
	})
}

func (h *hold) giveBack(ctx context.Context, l *Lease) error {
	err := h.release(l)
	h.client().observeRelease(ctx, l, err)
	if err != nil {
		return opErr("release", l.label(), err)
	}
	return nil
}

func (h *hold) extend(ctx context.Context, l *Lease, d time.Duration) error {
	err := h.update(ctx, nil, d, func(sent clock.Instant) error {
		if l.err != nil {
			return l.err
		}
		h.prolong(l, sent, h.client().clock(), d)
		return nil
	})
	if err != nil {
		return opErr("extend", l.label(), err)
	}
	return nil
}

func (h *hold) stopRenewal(l *Lease) {
	l.watched, l.deadline = false, h.renewed
	l.ringIn(l.left())
	h.mayCancel()
}

func (h *hold) background(f func()) {
	if !h.client().background.Go(f) {
		f()
	}
}

// tighten has the lease end a drift earlier; see RedLock.
func (l *Lease) tighten() {
	l.lock()
	defer l.unlock()
	l.tight = true
	if l.err == nil {
		l.setAlarm(l.hold.client().clock())
	}
}
