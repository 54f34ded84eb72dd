// Package backoff has the pauses between tries that fail.
package backoff

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// Doubled returns first, doubled a number of times, but at most longest. first is positive.
func Doubled(first, longest time.Duration, times int) time.Duration {
	room := 63 - bits.Len64(uint64(first)) // more doublings would overflow
	return min(first<<min(times, room), longest)
}

// Scattered returns pause less a random part of at most a half, so that processes which failed
// together do not try again together.
func Scattered(pause time.Duration) time.Duration {
	return pause - rand.N(pause/2+1)
}
