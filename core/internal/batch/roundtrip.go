package batch

import "time"

// A roundTrip estimates how long the server takes to answer one call when it does nothing else. That
// is what the network costs, and it decides how many flights overlap. A flight among others says
// nothing about it, because those before it are work for Redis. So a call is measured that is alone,
// and in a crowd, where none is, the lane lets what is in flight come back once in a while. On a busy
// machine most samples are too long, because a goroutine is woken late. So the least of the latest
// counts: those of this half of a minute, and of the one before.
type roundTrip struct {
	// current and before are the least of each half. 0: it has no sample.
	current, before time.Duration
	// half is when the current half began.
	half time.Time
	// at is when the latest sample was taken.
	at time.Time
}

const (
	// sampleTime is how long a half lasts.
	sampleTime = 30 * time.Second
	// A crowd is measured about every remeasure round trips, which costs it two of them.
	remeasure                     = 250
	leastRemeasure, mostRemeasure = time.Second, 5 * time.Second
)

// reset forgets the samples of other connections.
func (t *roundTrip) reset(d time.Duration, now time.Time) {
	*t = roundTrip{current: d, half: now, at: now}
}

func (t *roundTrip) add(d time.Duration, now time.Time) {
	if now.Sub(t.half) >= sampleTime {
		t.before, t.current, t.half = t.current, 0, now
	}
	if t.at = now; t.current == 0 || d < t.current {
		t.current = d
	}
}

// least returns the estimate, 0 before the first sample.
func (t *roundTrip) least() time.Duration {
	if t.before == 0 {
		return t.current
	}
	return min(t.current, t.before)
}

// due reports whether it is time to measure again.
func (t *roundTrip) due(now time.Time) bool {
	return now.Sub(t.at) >= min(max(remeasure*t.least(), leastRemeasure), mostRemeasure)
}
