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
// what the command needs. nil: none is known.
type excess struct {
	ttl    time.Duration // when it was found
	expiry int64         // when the hash expires, in ms of the server's clock; 0: nothing may be shortened any more
}

// after returns the excess that is known after a renewal.
func (x *excess) after(asked lua.Renewable, result lua.Renewal) *excess {
	switch {
	case x != nil && x.expiry == 0:
		return x
	case result.Expiry != 0:
		return &excess{result.TTL, result.Expiry}
	case asked.Seen != 0:
		return nil
	}
	return x
}

// outlast returns the lease to send for a wanted one.
func (x *excess) outlast(lease time.Duration) time.Duration {
	if x == nil {
		return lease
	}
	return max(lease, x.ttl+time.Second)
}
