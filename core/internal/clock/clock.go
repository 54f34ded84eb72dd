// Package clock measures leases and waits.
package clock

import (
	"math"
	"time"
)

// An Instant is a point in time on both clocks of the machine. The monotonic clock stops while a
// machine is suspended, and the wall clock can be set by hand. A lease has expired as soon as one
// of them says so.
type Instant struct {
	// Mono counts from the origin.
	Mono time.Duration
	// Wall counts from the epoch.
	Wall time.Duration
}

// origin is where the monotonic clock counts from. It is half a century before the start of the
// process, so that every time is after it, even in a testing/synctest bubble, whose clock begins in
// 2000. The zero Instant and the zero Moment are before all others.
var origin = time.Now().Add(-50 * 365 * 24 * time.Hour)

// At returns the instant of a reading of time.Now, which has both clocks.
func At(now time.Time) Instant {
	return Instant{Mono: now.Sub(origin), Wall: time.Duration(now.UnixNano())}
}

// Add returns i + d without overflow. Callers may pass a duration of centuries to mean forever.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{i.Mono + min(d, math.MaxInt64-i.Mono), i.Wall + min(d, math.MaxInt64-i.Wall)}
}

// Until returns the time from i to deadline, by the clock that has less time left. It is 0 or less
// if the deadline has passed.
func (i Instant) Until(deadline Instant) time.Duration {
	return min(deadline.Mono-i.Mono, deadline.Wall-i.Wall)
}

// Since returns the time from earlier to i, by the clock that moved further.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall)
}

// Later returns the later of two instants by the monotonic clock, because the wall clock may have
// been set in between.
func Later(a, b Instant) Instant {
	if a.Mono > b.Mono {
		return a
	}
	return b
}

// Drift returns how far the clocks have moved apart between earlier and i.
func (i Instant) Drift(earlier Instant) time.Duration {
	return ((i.Wall - earlier.Wall) - (i.Mono - earlier.Mono)).Abs()
}

// A Moment is a point in time on the monotonic clock alone. It is for waits and retries, never for
// the deadline of a lock. It is a third of the size of a time.Time. The zero value means none.
type Moment time.Duration

// Now returns the present moment.
func Now() Moment { return Moment(time.Since(origin)) }

// MomentOf returns the moment of a reading of time.Now.
func MomentOf(now time.Time) Moment { return Moment(now.Sub(origin)) }

// In returns the moment d from now.
func In(d time.Duration) Moment { return Now().Add(d) }

// Add returns m + d without overflow. Callers may pass a duration of centuries to mean forever.
func (m Moment) Add(d time.Duration) Moment { return m + min(Moment(d), math.MaxInt64-m) }

// Since returns the time from earlier to m.
func (m Moment) Since(earlier Moment) time.Duration { return time.Duration(m - earlier) }

// Margin returns how much earlier a lease ends for its holder than in Redis. Clocks differ in
// speed, and a holder must have stopped before another can start.
func Margin(lease time.Duration) time.Duration {
	return min(lease/100+2*time.Millisecond, lease/4)
}

// LeaseEnd returns the local deadline of a lease that Redis counts from some time after sent.
func LeaseEnd(sent Instant, lease time.Duration) Instant {
	return sent.Add(lease - Margin(lease))
}
