package batch

import "time"

// A roundTrip estimates how long the server takes to answer one call when it does nothing else. That
// is what the network costs, and it decides how many flights overlap. A flight among others says
// nothing about it, because those before it are work for Redis. So a call is measured that is alone,
// and in a crowd, where none is, the lane lets what is in flight come back once in a while.
type roundTrip struct {
	samples [3]time.Duration // the latest; a goroutine that is woken late makes one too long
	next    int
	at      time.Time // of the latest
}

// remeasure is how long a measurement is used.
const remeasure = 5 * time.Second

// reset forgets the samples of another connection.
func (t *roundTrip) reset(d time.Duration, now time.Time) {
	t.samples, t.at = [3]time.Duration{d, d, d}, now
}

func (t *roundTrip) add(d time.Duration, now time.Time) {
	t.samples[t.next], t.at = d, now
	t.next = (t.next + 1) % len(t.samples)
}

// least returns the estimate, 0 before the first sample.
func (t *roundTrip) least() time.Duration { return min(t.samples[0], t.samples[1], t.samples[2]) }

// due reports whether it is time to measure again.
func (t *roundTrip) due(now time.Time) bool { return now.Sub(t.at) >= remeasure }
