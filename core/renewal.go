package core

import (
	"errors"
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/watchdog"
)

// renew renews a batch of holds for the watchdog.
func (c *Client) renew(items []*watchdog.Item[*hold]) []watchdog.Verdict {
	holds := make([]lua.Renewable, len(items))
	for i, item := range items {
		holds[i] = item.Hold.renewable()
	}
	lease := c.leaseTime(0)
	// Hasty: during a slot's migration Redis answers TRYAGAIN to a batch, but serves each key
	// alone.
	x := c.ops.Op(lua.Renew(holds, lease), min(c.opts.CommandTimeout, c.beat())).Renewing().Hasty()
	reply, err := x.Run(redisop.Until{})
	var results []lua.Renewal
	if err == nil {
		results, err = lua.ReadRenew(reply, len(items))
	}

	verdicts := make([]watchdog.Verdict, len(items))
	failures := renewFailures{eng: c.engine}
	defer failures.log()
	for i, item := range items {
		h := item.Hold
		if holds[i].Seen != 0 && (err != nil || x.TryUnanswered()) {
			h.keepExcess()
		}
		problem := err
		if err == nil {
			problem = results[i].Err
		}
		if problem == nil && results[i].Renewed {
			problem = x.Proven()
		}
		missing := errGone
		if redisop.IsWrongType(problem) { // a renewal reads no key but the lock's
			missing, problem = errOverwritten, nil
		}
		// The script replies, so Redis reports no error, but the reply may hold one for this item.
		if redisop.HasCode(problem, "READONLY") {
			x.Redial()
		}
		switch {
		case err != nil && !redisop.IsAnswer(err), errors.Is(problem, ErrNotReplicated):
			verdicts[i] = watchdog.Unanswered
		case problem != nil:
			verdicts[i] = watchdog.Refused
		case results[i].Renewed:
			if !h.handleRenewed(x.Sent(), lease, holds[i], results[i]) {
				verdicts[i] = watchdog.Outdated
			}
		case h.handleMissing(holds[i], c.inbox.cause(h.entry.key, missing)):
			verdicts[i] = watchdog.Gone
		default:
			verdicts[i] = watchdog.Outdated
		}
		if problem != nil {
			h.watchDeadlines()
		}
		if problem != nil && (len(items) == 1 || verdicts[i] == watchdog.Unanswered) {
			failures.add(h, problem)
		}
	}
	return verdicts
}

// renewFailures are the locks of a batch that could not be renewed, for the log.
type renewFailures struct {
	eng   *engine
	locks int
	one   *level
	err   error // why it ended
}

func (f *renewFailures) add(h *hold, err error) {
	if l := h.reportRenewFailed(err); l != nil {
		f.locks++
		f.one, f.err = l, err
	}
}

func (f *renewFailures) log() {
	if f.locks > 0 {
		f.eng.logFault("reqlock: renewal failed; it is retried until the lease ends", f.one.name, f.one.hold.wire, f.locks, f.err)
	}
}

// renewable returns the renewal to send. Levels added or dropped while it is under way do no harm,
// because their own commands set the TTL. The process may have been stopped for a while, so a lease
// may expire before the reply arrives: renewable sets the alarms of those that are close.
func (h *hold) renewable() lua.Renewable {
	h.entry.open()
	defer h.entry.close()
	h.setAlarmsLocked(h.engine().beat())
	return h.renewalLocked()
}

// renewalLocked returns a renewal of the levels that Redis has for certain.
func (h *hold) renewalLocked() lua.Renewable {
	g := h.countsLocked()
	g.Counts = h.claim.Sure()
	r := h.kind.Renew(g)
	r.Lease = h.neededTTLLocked()
	if h.excess != nil && !h.claim.Turn.Taken() { // no command is under way that needs more
		r.Seen = h.excess.expiry
	}
	return r
}

// handleRenewed moves the local deadline of the leases that the watchdog renews. It returns false
// if the hold is to be renewed again at once.
func (h *hold) handleRenewed(sent clock.Instant, lease time.Duration, asked lua.Renewable, result lua.Renewal) bool {
	h.entry.open()
	defer h.entry.close()
	known := claim.Renewal{
		Watched:  asked.Lease >= lease,
		Known:    len(asked.Timeouts),
		Shared:   int(h.claim.Counts().Shared),
		Shortens: h.excess != nil,
	}
	if h.family() { // the hash lives for as long as all of them need
		result.Expiry = 0
	}
	h.excess = h.excess.after(asked, result)
	h.longest = max(h.longest, result.TTL)
	if h.claim.State() == claim.Held {
		h.err = nil
	}
	known.Excess = h.excess != nil
	v := known.Verdict()
	if v.Prolongs {
		h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, lease))
		h.setAlarmsLocked(h.engine().twoBeats())
	}
	return !v.Again
}

// keepExcess is called if a renewal that shortens the TTL may still arrive at Redis. The excess
// stays, so that outlast keeps moving the time at which the hash expires.
func (h *hold) keepExcess() {
	h.entry.open()
	defer h.entry.close()
	h.excess.expiry = 0
}

// handleMissing marks the hold lost, unless its last lease was just released. It returns false if
// the hold has another field by now and is to be renewed again.
func (h *hold) handleMissing(asked lua.Renewable, cause error) bool {
	h.entry.open()
	v := claim.Missing{State: h.claim.State(), Same: h.renewalLocked().Field == asked.Field}.Verdict()
	h.entry.close()
	if v == claim.IsLost {
		h.lose(cause)
	}
	return v != claim.RenewAgain
}

// watchDeadlines sets the alarms of all leases that the watchdog renews: they may expire before a
// renewal succeeds.
func (h *hold) watchDeadlines() {
	h.entry.open()
	defer h.entry.close()
	h.setAlarmsLocked(math.MaxInt64)
}

// reportRenewFailed calls the Observer, and returns a lease of the hold; nil: it has none any more.
func (h *hold) reportRenewFailed(err error) *level {
	eng := h.engine()
	h.entry.open()
	l := h.leases
	if h.claim.State() == claim.Held {
		h.err = err
	}
	h.entry.close()
	if l == nil {
		return nil
	}
	eng.counters.renewFailures.Add(1)
	notify(l.caller, eng.opts.Observer.RenewFailed, func() Event { return l.event(err) })
	return l
}
