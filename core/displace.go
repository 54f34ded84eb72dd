package core

import (
	"fmt"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A grant by Redis proves that every hold that excludes it is gone, whatever this client believed:
// the key was deleted, evicted, or lost in a failover. Those holds end before the grant is returned,
// so that no two leases of one client are good at the same time.

// errOutrun: the reply to an acquire was overtaken by the grant of another hold of this client.
// Which of the two Redis has now is not known, so neither counts.
var errOutrun = fmt.Errorf("%w: another owner in this process was granted it before the reply came", ErrLockLost)

// displace ends the holds that Redis cannot have beside h. The caller has the mutex and passes the
// result to finishLosses without it.
func (e *entry) displace(h *hold) (displaced []loss) {
	if h.kind.shared && e.holds.exclusive == 0 {
		return nil
	}
	for other := e.holds.first; other != nil; other = other.next {
		if other == h || other.leases == nil { // one without leases is being freed
			continue
		}
		if h.kind.shared && other.countsLocked().exclusive == 0 {
			continue
		}
		if lost, ok := other.endLocked(ErrLockLost); ok {
			displaced = append(displaced, loss{other, lost})
		}
	}
	return displaced
}

// outran reports whether one of the holds was granted after a command was sent. Then Redis may have
// executed that command before or after the grant.
func outran(displaced []loss, sent clock.Moment) bool {
	for _, x := range displaced {
		if x.hold.first.acquired > sent {
			return true
		}
	}
	return false
}
