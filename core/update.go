package core

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// A change is a command that changes a hold that goes on, and what it is for.
type change struct {
	op     *redisop.Op
	counts kinds.Hold // what it sends
	lease  *level     // the lease that begins or lasts longer; nil: the count is only lowered
	lasts  time.Duration
	enters bool        // the lease begins
	record *lua.Record // what it stores; nil: nothing
}

// planCountsLocked returns the counts to send to Redis: one level for each lease, plus one of kind
// more unless it is nil. The caller has the turn. The error says why the hold has ended, or that
// the owner may not enter more.
func (h *hold) planCountsLocked(more *kinds.Kind) (kinds.Hold, error) {
	if err := h.endedLocked(); err != nil {
		return kinds.Hold{}, err
	}
	entry := claim.NoAddition
	if more != nil {
		entry = claim.AdditionOf(more.Shared)
	}
	n, ok := h.claim.Plan(entry)
	if !ok {
		return kinds.Hold{}, ErrUpgrade
	}
	return h.countsOfLocked(n), nil
}

func (h *hold) planCounts(more *kinds.Kind) (kinds.Hold, error) {
	h.entry.open()
	defer h.entry.close()
	return h.planCountsLocked(more)
}

// downgraded reports whether g turns a writer's hold into a reader's.
func (h *hold) downgraded(g kinds.Hold) bool { return claim.Downgraded(h.kind.Shared, g.Counts) }

// update sends the hold count and how long a lease is to last. more, unless nil, adds a level of that
// kind, for which the lease is. If ctx ends first, the turn is kept until the reply has arrived.
func (h *hold) update(ctx context.Context, more *kinds.Kind, l *level, lasts time.Duration) error {
	eng, until := h.engine(), redisop.Until{Context: ctx}
	_ = ctx.Done() // a nil ctx panics here, and not with the turn
	t, err := h.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer t.pass()
	g, err := h.planCounts(more)
	// An extension, but the lease was released. That release has the next turn.
	if err == nil && g.Total() == 0 {
		err = ErrReleased
	}
	if err != nil {
		return err
	}
	x := eng.ops.Op(h.kind.Update(eng.settings(), g, h.outlast(lasts)), eng.opts.CommandTimeout).Replicated()
	if more == nil { // an extension
		x.UntilSent()
	}
	u := change{op: x, counts: g, lease: l, lasts: lasts, enters: more != nil}
	answer, err := x.Run(until)
	if err == redisop.ErrLeft {
		t.giveTo(func() { h.finishUpdate(u) })
		return ended(ctx)
	}
	v := h.apply(u, answer, err, false)
	if v.Resends { // the caller does not wait for that, because its ctx may end meanwhile
		t.giveTo(h.sendCount)
	}
	return v.Err
}

// finishUpdate waits for an update whose caller has left. If Redis applied it, finishUpdate
// restores the count. It has the turn.
func (h *hold) finishUpdate(u change) {
	answer, err := u.op.Await()
	if h.apply(u, answer, err, true).Resends {
		h.sendCount()
	}
}

// apply handles the reply to a change.
func (h *hold) apply(u change, answer any, err error, callerLeft bool) claim.UpdateVerdict {
	known := claim.Update{
		Err: err, Loss: errGone, Downgrades: h.downgraded(u.counts),
		CountOnly: u.lease == nil, CallerLeft: callerLeft,
	}
	switch {
	case err == ErrWrongKind && h.overwritten():
		known.Err, known.Loss = nil, errOverwritten
	case err == nil:
		known.There, known.Err = u.op.Call().ReadUpdate(answer)
	}
	if known.There && u.lease != nil {
		known.Unproven = u.op.Unacked() // the script always writes, so there is something to confirm
	}
	h.entry.open()
	known.EndedBy = h.endedLocked()
	if u.lease != nil {
		known.LeaseEndedBy, known.Late = h.fitsLocked(u)
	}
	v := known.Verdict()
	lost := h.changeLocked(u, v)
	h.entry.close()
	lost.finish()
	return v
}

// fitsLocked returns why the lease of a change has ended or must not begin, and whether it would be
// over before it begins.
func (h *hold) fitsLocked(u change) (end error, late bool) {
	eng := h.engine()
	switch {
	case !u.enters:
		return u.lease.err, false
	case eng.state.Load() == closed: // Close has ended the other leases already
		return ErrClosed, false
	}
	ends := clock.LeaseEnd(u.op.Sent(), u.lasts)
	if u.lease.watched {
		ends = clock.Later(ends, h.renewed) // the watchdog may have renewed the hold meanwhile
	}
	return nil, eng.clock().Until(ends) <= 0
}

// changeLocked carries out the verdict on a change.
func (h *hold) changeLocked(u change, v claim.UpdateVerdict) (lost loss) {
	if v.Loss != nil {
		return h.endLocked(v.Loss)
	}
	if v.Confirms {
		h.claim.Confirm(u.counts.Counts)
	}
	if v.Admits {
		wake(h.entry.queue.Wake())
	}
	if !v.Applies {
		return loss{}
	}
	switch at := h.engine().clock(); {
	case u.enters:
		h.addLocked(u.lease, u.op.Sent(), at)
	case u.lease != nil:
		h.prolongLocked(u.lease, u.op.Sent(), at, u.lasts)
	case h.record == u.record:
		h.record = nil
	}
	return loss{}
}

// overwritten reports whether the key of the lock has another type by now, after a command has
// found a key that has. That may have been a key beside the lock's, which proves nothing.
func (h *hold) overwritten() bool {
	eng := h.engine()
	x := eng.ops.Op(h.kind.Present(h.entry.key, []string{h.wire}), eng.opts.CommandTimeout).UntilSent()
	_, err := x.Run(redisop.Until{})
	return err == ErrWrongKind
}

// sendCount sends the hold count. The caller has the turn. A failed downgrade is retried. Any other
// failure is ignored, because the next change sends the count again.
func (h *hold) sendCount() {
	if h.trySendCount().Retries {
		h.retryDowngrade()
	}
}

// trySendCount makes one attempt.
func (h *hold) trySendCount() (v claim.UpdateVerdict) {
	eng := h.engine()
	g, err := h.planCounts(nil)
	if err != nil || g.Total() == 0 {
		return v
	}
	x := eng.ops.Op(h.kind.Update(eng.settings(), g, 0), eng.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
	return h.apply(change{op: x, counts: g}, answer, err, false)
}

// retryDowngrade resends the count of a downgrade in the background until Redis accepts it.
func (h *hold) retryDowngrade() {
	eng := h.engine()
	eng.background.Go(func() {
		for failures := 0; ; failures++ {
			select {
			case <-time.After(backoff.Doubled(20*time.Millisecond, time.Second, failures)):
			case <-eng.closing:
				return
			}
			t, _ := h.takeTurn(context.Background())
			v := h.trySendCount()
			t.pass()
			if !v.Retries { // accepted, or no longer needed
				return
			}
		}
	})
}
