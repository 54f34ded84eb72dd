// Package clock measures leases and waits.
package clock

import (
	"math"
	"time"
)

// An Instant is a point in time on both clocks of the machine. The monotonic clock stops while a machine is
// suspended, and the wall clock can be set by hand. A lease has expired when either of them says so.
type Instant struct {
	Mono time.Duration // since origin
	Wall time.Duration // since the epoch
}

// origin is where the monotonic clock counts from. It lies half a century before the process, so that every time is after it: that
// of a testing/synctest bubble begins in 2000. The zero Instant and the zero Moment are before all others.
var origin = time.Now().Add(-50 * 365 * 24 * time.Hour)

// At is the instant of a reading of time.Now, which has both clocks.
func At(now time.Time) Instant {
	return Instant{Mono: now.Sub(origin), Wall: time.Duration(now.UnixNano())}
}

// Add is the instant a duration later.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// Until is the time left from i to deadline, on the clock that is nearer to it; 0 or less: it has passed.
func (i Instant) Until(deadline Instant) time.Duration {
	return min(deadline.Mono-i.Mono, deadline.Wall-i.Wall)
}

// Since is the time gone by from earlier to i, on the clock that went further.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall)
}

// Later returns the later of two instants. The monotonic clock decides: the wall clock may have been set in between.
func Later(a, b Instant) Instant {
	if a.Mono > b.Mono {
		return a
	}
	return b
}

// Drift is how far the clocks have moved apart from earlier to i.
func (i Instant) Drift(earlier Instant) time.Duration {
	return ((i.Wall - earlier.Wall) - (i.Mono - earlier.Mono)).Abs()
}

// A Moment is a point in time on the monotonic clock alone. It is for what no lock relies on: how long to wait, and when to
// ask again. It is a third of the size of a time.Time. 0: none.
type Moment time.Duration // since origin

// Now is the present moment.
func Now() Moment { return Moment(time.Since(origin)) }

// MomentOf is the moment of a reading of time.Now.
func MomentOf(now time.Time) Moment { return Moment(now.Sub(origin)) }

// In is the moment a duration from now.
func In(d time.Duration) Moment { return Now().Add(d) }

// Add is the moment a duration later. One of centuries may be meant as one without end.
func (m Moment) Add(d time.Duration) Moment { return m + min(Moment(d), math.MaxInt64-m) }

// Since is the time gone by from earlier to m.
func (m Moment) Since(earlier Moment) time.Duration { return time.Duration(m - earlier) }

// Margin is how much earlier a lease ends for its holder than in Redis. Clocks tick at slightly different speeds, and a holder
// must have stopped before another can start.
func Margin(lease time.Duration) time.Duration {
	return min(lease/100+2*time.Millisecond, lease/4)
}

// LeaseEnd is the local deadline of a lease that Redis counts from some moment after sent.
func LeaseEnd(sent Instant, lease time.Duration) Instant {
	return sent.Add(lease - Margin(lease))
}
