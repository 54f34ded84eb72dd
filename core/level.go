package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A level is the Lease of one entry into a lock. The hold count is the number of levels.
type level struct {
	Lease
	hold     *hold
	kind     *kinds.Kind
	acquired clock.Moment

	// Guarded by the shard's mutex.
	deadline clock.Instant // when a lease ends that the watchdog does not renew; see hold.renewed
	next     *level        // the next lease of hold.leases
	alarm    schedule.Entry
	watched  bool // the watchdog renews it
	alarmed  bool // the alarm may be set
}

// init makes l a lease of h. The caller adds it to the leases of h later.
func (l *level) init(h *hold, r *request, acquired clock.Moment) {
	l.Lease = Lease{backend: l, name: r.name, caller: r.ctx, fixed: r.fixed}
	l.hold, l.kind, l.acquired, l.watched = h, r.kind, acquired, r.fixed == 0
}

// newLevel returns a new level, for a re-entry.
func (h *hold) newLevel(r *request, acquired clock.Moment) *level {
	l := new(level)
	l.init(h, r, acquired)
	return l
}

func (l *level) mutex() *sync.Mutex { return &l.hold.entry.shard.mu }
func (l *level) token() uint64      { return l.hold.token }
func (l *level) shown() bool        { return l.hold.engine().opts.LogNames }

// holdIn returns the hold of the lease if it is live and of that lock; nil: it is not, or has permits.
func (l *level) holdIn(eng *engine, key string) *hold {
	if l.hold.entry.key != key || l.hold.entry.counted || l.hold.engine() != eng || l.Err() != nil {
		return nil
	}
	return l.hold
}

// duration returns the lease that is sent to Redis.
func (l *level) duration() time.Duration { return l.hold.engine().leaseTime(l.fixed) }

// leftLocked returns the time left until the local deadline.
func (l *level) leftLocked() time.Duration { return l.leftAtLocked(l.hold.engine().clock()) }

func (l *level) leftAtLocked(at clock.Instant) time.Duration {
	if l.watched {
		return at.Until(l.hold.renewed)
	}
	return at.Until(l.deadline)
}

// needsRenewalLocked reports whether the lease needs the watchdog. A lease without a LeaseTime
// does. So does a read lease with more than a renewal interval left: all readers share one TTL, and
// each renewal by Redisson sets it to Redisson's own value.
func (l *level) needsRenewalLocked(at clock.Instant) bool {
	return l.watched || l.kind.Shared && l.leftAtLocked(at) > l.hold.engine().beat()
}

// setAlarmLocked sets the alarm to when the lease expires, unless the watchdog will look at the
// lease before that. It starts a renewal within a third of WatchdogTimeout and learns the result
// within another.
func (l *level) setAlarmLocked(at clock.Instant) {
	if left := l.leftAtLocked(at); !l.watched || left <= l.hold.engine().twoBeats() {
		l.ringInLocked(left)
	}
}

// ringInLocked sets the alarm to ring after d.
func (l *level) ringInLocked(d time.Duration) {
	l.alarmed = true
	l.hold.engine().alarms.Set(&l.alarm, l, d)
}

// stopAlarmLocked cancels the alarm of a lease that has ended.
func (l *level) stopAlarmLocked() {
	if l.alarmed {
		l.hold.engine().alarms.Cancel(&l.alarm)
	}
}

// ring expires the lease if its deadline has passed. Usually the lease was prolonged since the
// alarm was set.
func (l *level) ring() {
	l.mu().Lock()
	at := l.hold.engine().clock()
	expired := l.err == nil && l.leftAtLocked(at) <= 0
	if l.err == nil && !expired {
		l.setAlarmLocked(at)
	}
	l.mu().Unlock()
	if expired {
		l.hold.engine().background.Go(l.expire)
	}
}

// expire ends the lease if its deadline has passed. Otherwise it sets the alarm again.
func (l *level) expire() {
	lost, cause := l.endIfExpired()
	lost.finish()
	if cause == nil {
		return
	}
	l.endContexts(cause)
	l.logLoss(cause)
	l.reportLoss(cause)
	h := l.hold
	h.engine().background.Go(func() {
		t, _ := h.takeTurn(context.Background())
		defer t.pass()
		h.sendCount()
	})
}

// endIfExpired ends the lease if its deadline has passed. With its last lease the hold is lost,
// which is the loss. Otherwise cause says why this lease alone has ended; nil: it has not.
func (l *level) endIfExpired() (_ loss, cause error) {
	l.mu().Lock()
	defer l.mu().Unlock()
	if l.err != nil {
		return loss{}, nil
	}
	if at := l.hold.engine().clock(); l.leftAtLocked(at) > 0 {
		l.setAlarmLocked(at)
		return loss{}, nil
	}
	cause = l.expiredLocked()
	if l.hold.leases == l && l.next == nil {
		return l.hold.endLocked(cause), nil
	}
	l.err = cause
	l.hold.dropLocked(l)
	return loss{}, cause
}

func (l *level) detachLocked(e ending) {
	l.hold.dropLocked(l)
	l.hold.withdrawn, l.hold.pause = e.withdrawn, e.pause
	if e.record != nil {
		l.hold.record = e.record
	}
}

func (l *level) giveBack(context.Context) error {
	err := l.hold.release(l)
	eng := l.hold.engine()
	switch {
	case isLoss(err):
		l.countLoss(err)
		l.hold.logLoss(l, err)
	case err != nil:
		eng.logFault("reqlock: the lock could not be released yet; retrying until its lease ends", l.name, l.hold.wire, 1, err)
	}
	notify(l.caller, eng.opts.Observer.Released, func() Event { return l.event(err) })
	if err != nil {
		return opErr("release", l.label(), err)
	}
	return nil
}

func (l *level) extend(ctx context.Context, d time.Duration) error {
	if err := l.hold.update(ctx, nil, l, d); err != nil {
		return opErr("extend", l.label(), err)
	}
	return nil
}

func (l *level) renewedLocked() bool { return l.watched }

func (l *level) stopRenewalLocked() {
	l.watched, l.deadline = false, l.hold.renewed
	l.ringInLocked(l.leftLocked())
	l.hold.cancelRenewalLocked()
}

func (l *level) background(f func()) {
	if !l.hold.engine().background.Go(f) {
		f()
	}
}

// abandon releases a lease whose caller has left before Acquire returned it.
func (l *level) abandon() {
	l.background(func() {
		l.mu().Lock()
		if l.err != nil {
			l.mu().Unlock()
			return
		}
		l.err = ErrReleased
		l.detachLocked(ending{})
		l.mu().Unlock()
		l.endContexts(ErrReleased)
		_ = l.hold.release(l) // the cleaner retries it
	})
}

// reportLoss counts a loss before the release, and calls the Observer.
func (l *level) reportLoss(cause error) {
	eng := l.hold.engine()
	if isLoss(cause) {
		l.countLoss(cause)
	}
	notify(l.caller, eng.opts.Observer.Lost, func() Event { return l.event(cause) })
}

// logLoss logs the loss, with the route of the request that it hit.
func (l *level) logLoss(cause error) {
	eng := l.hold.engine()
	n, ok := eng.lostLines.Count(kindOfLoss(cause).Error(), 1)
	if !ok {
		return
	}
	line := []any{"lock", eng.logged(l.name), "owner", l.hold.wire, "cause", lossText(cause), "held", clock.Now().Since(l.acquired).Round(time.Millisecond), "locks", n}
	for name, value := range eng.annotate(l.caller).all {
		line = append(line, name, value)
	}
	eng.opts.Logger.Warn("reqlock: lock lost while it was held", line...)
}

// countLoss records a loss for Client.Losses and Counters.
func (l *level) countLoss(cause error) {
	h := l.hold
	eng := h.engine()
	eng.counters.lost.Add(1)
	eng.losses.add(Loss{
		Name:       l.name,
		Key:        h.entry.key,
		Kind:       l.kind.Name,
		Owner:      h.wire,
		At:         time.Now(),
		Held:       clock.Now().Since(l.acquired),
		Cause:      lossText(cause),
		Annotation: eng.annotate(l.caller),
	})
}

func (l *level) event(err error) Event {
	return Event{
		Name:  l.name,
		Kind:  l.kind.Name,
		Owner: l.hold.wire,
		Held:  clock.Now().Since(l.acquired),
		Lease: l.fixed,
		Err:   err,
	}
}
