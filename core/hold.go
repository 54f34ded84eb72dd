package core

import (
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/internal/lineage"
)

// A hold is the time from an owner acquiring a lock to its last release or its loss. It has one
// field in Redis. The name of that field is never used again, so a late command of an earlier hold
// finds nothing to change.
//
// A process may have a hundred thousand holds, each with its lease, so both are kept small.
type hold struct {
	entry *entry
	kind  *kinds.Kind   // what the first lease asked for; the sides of a read/write lock share a hold
	link  *lineage.Link // the lineage of the context that acquired it; nil: none
	wire  string        // the wire owner
	token uint64        // fencing token; 0: none
	item  watchdog.Item[*hold]

	// Guarded by the shard's mutex.
	next   *hold // the neighbours in the entry's holdSet
	prev   *hold
	leases *level // neither released nor expired; their number is the hold count
	claim  claim.Hold
	armed  bool // the watchdog renews the hold
	// invites says that guests may enter the hold.
	invites bool
	// The loss of the hold is in the log.
	lossLogged bool
	err        error         // held: of the last renewal; lost: the cause; released: of the release
	renewed    clock.Instant // local deadline of the leases that the watchdog renews
	// Longest lease so far. Redis drops the hold within it after the hold's last command.
	longest time.Duration
	excess  *excess     // nil: as far as is known, the hash lives for no longer than it should
	record  *lua.Record // the next command that lowers the hold count of a Once stores it
	// withdrawn says that the lease of a Once that was released last has done nothing.
	withdrawn bool
	// renews says that the lock was granted beside a stale record. pause is that of the ending.
	renews bool
	pause  time.Duration

	first level // most holds have no other lease
}

// causeLocked returns why the hold has ended.
func (h *hold) causeLocked() error {
	if h.claim.State() == claim.Released {
		return ErrReleased
	}
	return h.err
}

// endedLocked returns why the hold has ended; nil: it has not.
func (h *hold) endedLocked() error {
	if !h.claim.Ended() {
		return nil
	}
	return h.causeLocked()
}

// newHold makes the hold that w gets if Redis grants it the lock, and its first lease.
// left is what the owner's commands may leave in Redis beside the grant.
func (w *waiter) newHold(wire string, left claim.Leftovers, acquired clock.Moment) (*hold, *level) {
	h := &hold{
		entry: w.entry,
		kind:  w.kind,
		link:  w.link,
		wire:  wire,
		claim: claim.NewHold(w.kind.Shared, left),
	}
	h.item.Hold, h.item.Slot = h, uint16(h.engine().slot(w.entry.key))
	h.first.init(h, &w.request, acquired)
	return h, &h.first
}

// owner returns the owner of WithOwner that enters the hold again; 0: none.
func (h *hold) owner() uint64 {
	if h.kind.Counted {
		return 0
	}
	return ownerOf(h.link)
}

func (h *hold) engine() *engine { return h.entry.shard.engine }

// addLocked adds a lease that Redis granted. sent is when its command was sent.
func (h *hold) addLocked(l *level, sent, at clock.Instant) {
	l.next, h.leases = h.leases, l
	h.claim.Enter(l.kind.Shared)
	h.prolongLocked(l, sent, at, l.duration())
}

// prolongLocked moves the deadline of a lease, but never to an earlier time.
func (h *hold) prolongLocked(l *level, sent, at clock.Instant, d time.Duration) {
	h.longest = max(h.longest, d)
	if l.watched {
		h.renewed = clock.Later(h.renewed, clock.LeaseEnd(sent, d))
	} else {
		l.deadline = clock.Later(l.deadline, clock.LeaseEnd(sent, d))
	}
	l.setAlarmLocked(at)
	if !h.armed && l.needsRenewalLocked(at) {
		h.armed = true
		h.entry.shard.dog.Arm(&h.item, l.leftAtLocked(at))
	}
}

// dropLocked removes a lease. A hold without leases is freeing.
func (h *hold) dropLocked(l *level) {
	for at := &h.leases; *at != nil; at = &(*at).next {
		if *at == l {
			*at, l.next = l.next, nil
			h.claim.Leave(l.kind.Shared)
			break
		}
	}
	l.stopAlarmLocked()
	h.cancelRenewalLocked()
}

// cancelRenewalLocked stops the renewal if no lease needs it any more.
func (h *hold) cancelRenewalLocked() {
	if h.armed && !h.needsRenewalLocked() {
		h.armed = false
		h.entry.shard.dog.Cancel(&h.item)
	}
}

// needsRenewalLocked reports whether any lease needs the watchdog.
func (h *hold) needsRenewalLocked() bool {
	if h.leases == nil {
		return false
	}
	at := h.engine().clock()
	for l := h.leases; l != nil; l = l.next {
		if l.needsRenewalLocked(at) {
			return true
		}
	}
	return false
}

// roundingLoss is what a TTL may lose because it is sent in whole milliseconds, and because the
// server counts from the beginning of one.
const roundingLoss = 2 * time.Millisecond

// neededTTLLocked returns the TTL that the longest lease needs in Redis.
func (h *hold) neededTTLLocked() (longest time.Duration) {
	at := h.engine().clock()
	for l := h.leases; l != nil; l = l.next {
		need := l.duration()
		if !l.watched {
			need = l.leftAtLocked(at)
			need += min(clock.Margin(need)+roundingLoss, math.MaxInt64-need)
		}
		longest = max(longest, need)
	}
	return max(longest, minLease)
}

// remainsLocked returns how long Redis can keep the hold after its last command.
func (h *hold) remainsLocked() time.Duration {
	if h.family() {
		return max(h.longest, familyLasts)
	}
	return h.longest
}

// countsLocked returns the hold's counts by its current leases.
func (h *hold) countsLocked() kinds.Hold {
	return h.countsOfLocked(h.claim.Counts())
}

// countsOfLocked returns the hold's counts with the given levels.
func (h *hold) countsOfLocked(n claim.Counts) kinds.Hold {
	g := kinds.Hold{Terms: &h.kind.Terms, Key: h.entry.key, Wire: h.wire, Counts: n, Deepest: h.claim.Deepest(), Invites: h.invites}
	if g.Shared > 0 {
		g.Need = h.neededTTLLocked()
	}
	return g
}

// outlast returns the lease to send for a wanted one. The caller has the turn.
func (h *hold) outlast(lease time.Duration) time.Duration {
	h.entry.open()
	defer h.entry.close()
	lease = h.excess.outlast(lease)
	h.longest = max(h.longest, lease)
	return lease
}

// setAlarmsLocked sets the alarms of the leases that the watchdog renews and that expire within a
// duration.
func (h *hold) setAlarmsLocked(within time.Duration) {
	for l := h.leases; l != nil; l = l.next {
		if left := l.leftLocked(); l.watched && left <= within {
			l.ringInLocked(left)
		}
	}
}
