package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// How a hold keeps its leases.

func (h *hold) mutex() *sync.Mutex { return &h.entry.shard.mu }

func (h *hold) leftLocked(l *Lease) time.Duration { return l.leftAtLocked(h.client().clock()) }

// leftAtLocked is left, at some time.
func (l *Lease) leftAtLocked(at clock.Instant) time.Duration { return at.Until(l.endLocked()) }

// endLocked is the local deadline.
func (l *Lease) endLocked() clock.Instant {
	end := l.deadline
	if l.watched {
		end = l.hold.renewed
	}
	if l.tight {
		end = end.Add(-clock.Margin(l.duration()))
	}
	return end
}

// setAlarmLocked has the lease looked at when its time is over. Most leases never need that: one that the watchdog keeps is renewed
// within a third of WatchdogTimeout, that renewal has ended within another, and then there is another look.
func (l *Lease) setAlarmLocked(at clock.Instant) {
	if left := l.leftAtLocked(at); !l.watched || left <= l.hold.client().twoLooks() {
		l.ringInLocked(left)
	}
}

// twoLooks is the longest time until the watchdog has renewed a lease, or has had to give that up.
func (c *Client) twoLooks() time.Duration { return 2 * (c.opts.WatchdogTimeout / 3) }

// ringInLocked sets the alarm.
func (l *Lease) ringInLocked(d time.Duration) {
	l.alarmed = true
	l.hold.client().alarms.Set(&l.alarm, l, d)
}

// stopAlarmLocked is called when the lease has ended.
func (l *Lease) stopAlarmLocked() {
	if l.alarmed {
		l.hold.client().alarms.Cancel(&l.alarm)
	}
}

// setAlarmsLocked sets the alarms of the leases that the watchdog keeps, where no more than a time is left.
func (h *hold) setAlarmsLocked(within time.Duration) {
	for l := h.leases; l != nil; l = l.next {
		if left := l.leftLocked(); l.watched && left <= within {
			l.ringInLocked(left)
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
	if at := h.client().clock(); l.leftAtLocked(at) > 0 {
		l.setAlarmLocked(at)
		l.unlock()
		return
	}
	if h.leases == l && l.next == nil { // the last
		lost, _ := h.endLocked(ErrLockLost)
		l.unlock()
		h.finishLoss(lost)
		return
	}
	l.err = ErrLockLost
	h.dropLocked(l)
	l.unlock()
	l.endContexts(ErrLockLost)
	l.reportLoss(ErrLockLost)
	h.client().background.Go(func() {
		_ = h.lockTurn(context.Background())
		defer h.unlockTurn()
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
		h.prolongLocked(l, sent, h.client().clock(), d)
		return nil
	})
	if err != nil {
		return opErr("extend", l.label(), err)
	}
	return nil
}

func (h *hold) stopRenewalLocked(l *Lease) {
	l.watched, l.deadline = false, h.renewed
	l.ringInLocked(l.leftLocked())
	h.mayCancelLocked()
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
		l.setAlarmLocked(l.hold.client().clock())
	}
}
