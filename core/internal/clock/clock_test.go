package clock

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Both clocks count, and the one that moved further wins.
func TestInstant_EitherClock(t *testing.T) {
	t.Parallel()
	start := Instant{Mono: time.Hour, Wall: 9000 * time.Hour}
	for name, test := range map[string]struct{ mono, wall, since, drift time.Duration }{
		"together":                    {10 * time.Second, 10 * time.Second, 10 * time.Second, 0},
		"the machine was suspended":   {time.Second, time.Minute, time.Minute, 59 * time.Second},
		"the wall clock was set back": {time.Minute, -time.Hour, time.Minute, 61 * time.Minute},
	} {
		at := Instant{start.Mono + test.mono, start.Wall + test.wall}
		if got := at.Since(start); got != test.since {
			t.Errorf("%s: Since = %s, want %s", name, got, test.since)
		}
		if got := at.Drift(start); got != test.drift {
			t.Errorf("%s: Drift = %s, want %s", name, got, test.drift)
		}
		if got, want := at.Until(start.Add(time.Hour)), time.Hour-test.since; got != want {
			t.Errorf("%s: Until = %s, want %s", name, got, want)
		}
	}
}

func TestLater(t *testing.T) {
	t.Parallel()
	early, late := Instant{1, 9}, Instant{2, 3} // the wall clock was set back in between
	if Later(early, late) != late || Later(late, early) != late {
		t.Error("the monotonic clock does not decide")
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, next := At(now), At(now.Add(time.Second))
	if next.Since(first) != time.Second || next.Drift(first) != 0 {
		t.Errorf("a second later: %s, with a drift of %s", next.Since(first), next.Drift(first))
	}
}

// A holder stops before Redis grants the lock to another, and no lease is so short that it ends
// before it begins.
func TestLeaseEnd(t *testing.T) {
	t.Parallel()
	for lease, margin := range map[time.Duration]time.Duration{
		time.Millisecond:       250 * time.Microsecond,
		8 * time.Millisecond:   2 * time.Millisecond,
		100 * time.Millisecond: 3 * time.Millisecond,
		30 * time.Second:       302 * time.Millisecond,
	} {
		if got := Margin(lease); got != margin {
			t.Errorf("Margin(%s) = %s, want %s", lease, got, margin)
		}
		sent := At(time.Now())
		if got, want := sent.Until(LeaseEnd(sent, lease)), lease-margin; got != want {
			t.Errorf("a lease of %s ends after %s, want %s", lease, got, want)
		}
	}
}

// A duration of centuries does not overflow.
func TestMoment_Add(t *testing.T) {
	t.Parallel()
	m := Now()
	if got := m.Add(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("Add = %d, want the last moment", got)
	}
	if got := m.Add(time.Second).Since(m); got != time.Second {
		t.Errorf("a second later is %s later", got)
	}
	if got := In(time.Hour).Since(Now()); got > time.Hour || got < time.Hour-time.Minute {
		t.Errorf("an hour from now is in %s", got)
	}
	now := time.Now()
	if MomentOf(now.Add(time.Second)).Since(MomentOf(now)) != time.Second {
		t.Error("MomentOf does not keep distances")
	}
}

// Setting the wall clock does not move the monotonic one.
func TestOrigin_IsMonotonic(t *testing.T) {
	t.Parallel()
	if !strings.Contains(origin.String(), " m=") {
		t.Errorf("origin is %s, without a reading of the monotonic clock", origin)
	}
}

// In a bubble, whose clock begins in 2000, times are later than none, and both clocks count.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := At(time.Now())
		if Later(Instant{}, first) != first || Now() <= 0 {
			t.Errorf("the present, %v, is not after the zero Instant", first)
		}
		time.Sleep(time.Minute)
		if next := At(time.Now()); next.Since(first) != time.Minute || next.Drift(first) != 0 {
			t.Errorf("a minute later: %s, with a drift of %s", next.Since(first), next.Drift(first))
		}
	})
}

// A lease of centuries ends after all others.
func TestInstant_AddForever(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	now := At(time.Now())
	for _, d := range []time.Duration{century, 2 * century, math.MaxInt64} {
		end := LeaseEnd(now, d)
		if left := now.Until(end); left < century-2*365*24*time.Hour {
			t.Errorf("%v: %v left", d, left)
		}
		if Later(Instant{}, end) != end || Later(now, end) != end {
			t.Errorf("%v: the end is before the beginning", d)
		}
	}
}
