package core

import (
	"math"
	"time"
)

// An instant is a point in time on both clocks of the machine. The monotonic clock stops while a machine is
// suspended, the wall clock is set by hand; a lease has run out when either of them says so.
type instant struct {
	mono time.Duration // since an arbitrary point of this process
	wall time.Duration // since the epoch
}

var processStart = time.Now()

// instantOf is the instant of a reading of time.Now, which has both clocks.
func instantOf(now time.Time) instant {
	return instant{mono: now.Sub(processStart), wall: time.Duration(now.UnixNano())}
}

func (i instant) add(d time.Duration) instant { return instant{i.mono + d, i.wall + d} }

// until is the time left from i to deadline, on the clock that is nearer to it; 0 or less: it has passed.
func (i instant) until(deadline instant) time.Duration {
	return min(deadline.mono-i.mono, deadline.wall-i.wall)
}

// since is the time gone by from earlier to i, on the clock that went further.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, i.wall-earlier.wall)
}

// later returns whichever of the two is later. The monotonic clock decides: the wall clock may have been set in between.
func later(a, b instant) instant {
	if a.mono > b.mono {
		return a
	}
	return b
}

// drift is how far the clocks have moved apart from earlier to i.
func (i instant) drift(earlier instant) time.Duration {
	return ((i.wall - earlier.wall) - (i.mono - earlier.mono)).Abs()
}

// A moment is a point in time on the monotonic clock alone, which will do where nobody relies on a lock: for how long to
// wait, and when to ask again. It takes a third of the room of a time.Time. 0: none.
type moment time.Duration // since processStart

func now() moment { return moment(time.Since(processStart)) }

func momentOf(now time.Time) moment { return moment(now.Sub(processStart)) }

// in is the moment a duration from now.
func in(d time.Duration) moment { return now().add(d) }

// add is the moment a duration later. One of centuries may be meant as one without end.
func (m moment) add(d time.Duration) moment { return m + min(moment(d), math.MaxInt64-m) }

// since is the time gone by from earlier to m.
func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }

// margin is what the holder's own deadline keeps away from the end of the lease in Redis: clocks tick at slightly
// different speeds, and a holder must have stopped before somebody else can start.
func margin(lease time.Duration) time.Duration {
	return min(lease/100+2*time.Millisecond, lease/4)
}

// leaseEnd is the local deadline of a lease that Redis counts from some moment after sent.
func leaseEnd(sent instant, lease time.Duration) instant {
	return sent.add(lease - margin(lease))
}
