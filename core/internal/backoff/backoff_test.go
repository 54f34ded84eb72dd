package backoff

import (
	"math"
	"testing"
	"time"
)

func TestDoubled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		first, longest time.Duration
		times          int
		want           time.Duration
	}{
		{time.Second, time.Minute, 0, time.Second},
		{time.Second, time.Minute, 1, 2 * time.Second},
		{time.Second, time.Minute, 5, 32 * time.Second},
		{time.Second, time.Minute, 6, time.Minute},
		{time.Second, time.Minute, math.MaxInt, time.Minute},
		{time.Minute, time.Second, 0, time.Second},
		{1, math.MaxInt64, 61, 1 << 61},
		{1, math.MaxInt64, 62, 1 << 62},
		{1, math.MaxInt64, 63, 1 << 62},
		{3, math.MaxInt64, 63, 3 << 61},
	} {
		if got := Doubled(test.first, test.longest, test.times); got != test.want {
			t.Errorf("%v doubled %d times, at most %v: %v, want %v", test.first, test.times, test.longest, got, test.want)
		}
	}
}

// Each part of the range is reached, and nothing outside it.
func TestScattered(t *testing.T) {
	t.Parallel()
	const pause = 8 * time.Nanosecond
	seen := make(map[time.Duration]bool)
	for range 10_000 {
		seen[Scattered(pause)] = true
	}
	for d := range seen {
		if d < pause/2 || d > pause {
			t.Errorf("a pause of %v, want %v to %v", d, pause/2, pause)
		}
	}
	if len(seen) != 5 {
		t.Errorf("pauses %v, want all from 4ns to 8ns", seen)
	}
	if got := Scattered(0); got != 0 {
		t.Errorf("no pause became %v", got)
	}
}
