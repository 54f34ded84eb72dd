package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// An excess is what a renewal has found: the hold's hash lives for much longer than its leases need,
// so a dead holder would keep the lock for that long. The clock of Redis was set back, or a replica
// with a slower clock was promoted, or a longer lease of the hold has ended.
//
// The next renewal shortens the TTL if the hash still expires at the same time. Each command that
// prolongs a lease moves that time, see outlast, so a renewal that arrives after it changes
// nothing. While such a command is under way, the excess is not sent: the renewal would not know
// what the command needs.
type excess struct {
	ttl    time.Duration // when it was found
	expiry int64         // of the hash, in ms of the server's clock; 0: nothing may be shortened any more
}

// noteExcessLocked takes note of a renewal. It reports whether the excess is new.
func (h *hold) noteExcessLocked(asked lua.Renewable, result lua.Renewal) bool {
	was := h.excess
	switch {
	case was != nil && was.expiry == 0:
		return false
	case result.Expiry != 0:
		h.excess = &excess{result.TTL, result.Expiry}
		h.longest = max(h.longest, result.TTL)
		return was == nil
	case asked.Seen != 0:
		h.excess = nil
	}
	return false
}

// keepExcess is called if a renewal that shortens the TTL may still arrive at Redis. The excess
// stays, so that outlast keeps moving the time at which the hash expires.
func (h *hold) keepExcess() {
	h.lock()
	defer h.unlock()
	h.excess.expiry = 0
}

// outlast returns the lease to send for a wanted one. The caller has the turn.
func (h *hold) outlast(lease time.Duration) time.Duration {
	h.lock()
	defer h.unlock()
	if h.excess != nil {
		lease = max(lease, h.excess.ttl+time.Second)
		h.longest = max(h.longest, lease)
	}
	return lease
}
