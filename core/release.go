package core

import (
	"cmp"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
)

// A releasePlan is how to release a lease in Redis.
type releasePlan struct {
	way    claim.Way
	counts kinds.Hold
	ending
	handover *handover
	err      error // why the hold had ended already
}

// planReleaseLocked decides how to release l, which was dropped. The caller has the turn.
func (h *hold) planReleaseLocked(l *level) (p releasePlan) {
	g, err := h.planCountsLocked(nil)
	if p.err = err; err == ErrReleased { // a concurrent release of another lease freed the hold for both
		p.err = h.err
	}
	known := claim.Exit{WasOver: err != nil, Counts: g.Counts, Deepest: h.claim.Deepest(), HandsOver: h.handsOver()}
	heir := h.heirLocked(&known)
	p.way, p.counts, p.ending = known.Verdict(), g, ending{h.record, h.withdrawn, h.pause}
	switch p.way {
	case claim.HandsOver:
		p.handover = h.handOverLocked(l, g, heir)
	case claim.FreesHold:
		h.entry.freeingLocked()
	}
	return p
}

// release releases a dropped lease in Redis: it lowers the count, or frees the hold with its last
// lease. It waits for the turn for up to CommandTimeout.
func (h *hold) release(l *level) error {
	eng := h.engine()
	t, candidate := h.tryTurn()
	if candidate == nil { // the common case
		return h.releaseWith(t, l)
	}
	timeout := time.NewTimer(eng.opts.CommandTimeout)
	defer timeout.Stop()
	select {
	case <-candidate.Called:
		return h.releaseWith(h.turn(), l)
	case <-timeout.C:
	}
	later := func() {
		<-candidate.Called
		_ = h.releaseWith(h.turn(), l) // the caller has its error; the cleaner or the next change repairs Redis
	}
	if !eng.background.Go(later) {
		later() // the client is closed, so commands fail fast
	}
	return redisop.ErrTimeout
}

// releaseWith releases a dropped lease in Redis, with the turn.
func (h *hold) releaseWith(t turn, l *level) error {
	defer t.pass()
	h.entry.open()
	p := h.planReleaseLocked(l)
	h.entry.close()
	switch p.way {
	case claim.LowersCount:
		return h.lower(p.counts, p.record)
	case claim.HandsOver:
		ended, err := p.handover.run()
		p.handover.op.Recycle()
		if ended {
			return err
		}
	case claim.AlreadyOver:
		return p.err
	}
	return h.free(l, p.counts, p.ending)
}

// lower sends the count of the remaining leases, with the record r unless it is nil. The caller has
// the turn.
func (h *hold) lower(g kinds.Hold, r *lua.Record) error {
	eng := h.engine()
	call := h.kind.Update(eng.settings(), g, 0)
	if r != nil {
		call = h.kind.Record(eng.settings(), g, *r)
	}
	x := eng.ops.Op(call, eng.opts.CommandTimeout).UntilSent()
	answer, err := x.Run(redisop.Until{})
	v := h.apply(change{op: x, counts: g, record: r}, answer, err, false)
	if v.Retries {
		h.retryDowngrade()
	}
	return v.Err
}

// surelyTaken is how long a record may be that no Redis refuses for its length: the least value of
// proto-max-bulk-len. Redis closes the connection on a longer one than it takes, so that its error
// rarely arrives: the try looks like one in an outage.
const surelyTaken = 1 << 20

// free frees the hold in Redis. The caller has the turn. l is its last lease. On return the hold has
// ended, whatever Redis replied. The cleaner frees what may be left.
func (h *hold) free(l *level, g kinds.Hold, e ending) error {
	eng, r := h.engine(), e.record
	var call lua.Call
	if r != nil {
		call = h.kind.Record(eng.settings(), g, *r)
	} else {
		call = h.kind.Free(eng.settings(), g, lua.Removal{Binding: e.withdrawn, Pause: e.pause})
	}
	x := eng.ops.Op(call, eng.opts.CommandTimeout).UntilSent()
	defer x.Recycle()
	began := eng.at(x.TryBegun())
	there, leftovers, receivers, err := eng.sendRelease(x)
	var refused error
	if r != nil && r.Spare != "" && err != nil && (x.Failed() || len(r.Value) > surelyTaken) {
		spare := lua.Record{Value: r.Spare, TTL: r.TTL}
		call = h.kind.Record(eng.settings(), g, spare) // for the cleaner, too
		if x.Failed() {
			refused, r = err, &spare
			x.Replace(call)
			there, leftovers, receivers, err = eng.sendRelease(x)
		}
	}
	known := claim.Release{Err: err, Loss: errGone, There: there, Leftovers: leftovers, Unanswered: x.TryUnanswered(), Records: r != nil, Failed: x.Failed()}
	if known.WrongKind = err == ErrWrongKind; known.WrongKind && h.overwritten() {
		known = claim.Release{Loss: errOverwritten, Unanswered: x.TryUnanswered(), Records: r != nil}
	}

	h.entry.open()
	defer h.entry.close()
	known.EndedBy, known.LeaseLeft, known.Strays = h.endedLocked(), l.leftLocked() > 0, h.claim.Strays(known.Err == nil)
	known.RecordOld = r != nil && eng.clock().Since(began) >= r.TTL
	v := known.Verdict()
	if v.WasOver { // lost while the release was under way
		return v.Err
	}
	if v.Deliver {
		h.entry.deliverLocked(h, r, began)
	}
	if !v.Clean.None() {
		eng.cleaner.add(h.cleanUpCall(v, call, g, e), g, h.remainsLocked(), v.Clean)
	}
	h.endReleasedLocked(v.Err)
	h.entry.removeLocked(h)
	h.entry.freedLocked(receivers)
	return cmp.Or(v.Err, refused)
}

// cleanUpCall returns what the cleaner sends after a release, which sent call.
func (h *hold) cleanUpCall(v claim.ReleaseVerdict, call lua.Call, g kinds.Hold, e ending) lua.Call {
	switch v.Call {
	case claim.PlainCall:
		call = h.kind.Release(h.engine().settings(), g)
		if alone, ok := call.HashAlone(); ok && v.Alone {
			return alone
		}
	case claim.GoneCall:
		call = h.kind.Free(h.engine().settings(), g, lua.Removal{Gone: true, Binding: e.withdrawn})
	}
	return call
}

// endReleasedLocked ends a hold whose last lease was released. err is the result of the release.
func (h *hold) endReleasedLocked(err error) {
	h.claim.Release()
	h.err = err
}
