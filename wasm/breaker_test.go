package wasm

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// A testBreaker is a breaker with a clock that the test moves.
type testBreaker struct {
	breaker
	now     time.Time
	changes []breakerChange
}

func newTestBreaker(after int, first time.Duration) *testBreaker {
	b := &testBreaker{now: time.Now()}
	b.after, b.first = after, first
	b.clock = func() time.Time { return b.now }
	b.changed = func(c breakerChange) { b.changes = append(b.changes, c) }
	return b
}

var errBroken = errors.New("broken")

// call makes a call with a result. It returns false if the call was refused.
func (b *testBreaker) call(r result) bool {
	p, _ := b.admit()
	if p != passRefused {
		b.report(p, r, errBroken)
	}
	return p != passRefused
}

func TestBreaker_OpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(3, time.Second)
	for i, r := range []result{resultFailure, resultFailure, resultSuccess, resultFailure, resultNone, resultFailure} {
		if !b.call(r) || b.current() != BreakerClosed {
			t.Fatalf("call %d: the breaker is %s", i, b.current())
		}
	}
	b.call(resultFailure)
	if want := []breakerChange{{BreakerClosed, BreakerOpen, time.Second, errBroken}}; !slices.Equal(b.changes, want) {
		t.Errorf("changes %v, want %v", b.changes, want)
	}
	if p, retry := b.admit(); p != passRefused || retry != time.Second || b.refuses() != time.Second {
		t.Errorf("admit: %v, try again in %s, %s", p, retry, b.refuses())
	}
}

// A client that makes the plugin fail suspends it only if no other call succeeds for a second.
func TestBreaker_ToleratesBursts(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(10, time.Second)
	b.least = minFailing
	for range 5 {
		for range 1000 {
			b.call(resultFailure)
			b.now = b.now.Add(minFailing / 1001)
		}
		b.call(resultSuccess) // another client's
	}
	for range 9 {
		b.call(resultFailure)
		b.now = b.now.Add(minFailing)
	}
	if b.current() != BreakerClosed || len(b.changes) != 0 {
		t.Errorf("the breaker is %s", b.current())
	}
	if b.call(resultFailure); b.current() != BreakerOpen {
		t.Errorf("after 10 failures in 9 s the breaker is %s", b.current())
	}
}

// One call tries a suspended plugin; the pause doubles with each failure, up to a minute.
func TestBreaker_Probes(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(1, time.Second)
	b.call(resultFailure)
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		pause *= time.Second
		b.now = b.now.Add(pause - 1)
		if b.call(resultSuccess) {
			t.Fatalf("a call ran before the pause of %s was over", pause)
		}
		b.now = b.now.Add(1)
		if b.refuses() != 0 {
			t.Fatalf("after %s the breaker refuses", pause)
		}
		probe, _ := b.admit()
		if probe != passProbe || b.current() != BreakerHalfOpen {
			t.Fatalf("after %s: %v, %s", pause, probe, b.current())
		}
		if other, retry := b.admit(); other != passRefused || retry == 0 || b.refuses() == 0 {
			t.Fatalf("a second call beside the probe: %v", other)
		}
		b.report(probe, resultFailure, errBroken)
	}
	b.now = b.now.Add(time.Minute)
	b.call(resultSuccess)
	if !b.call(resultFailure) || b.pause != time.Second {
		t.Errorf("after a success the breaker opens for %s, want 1s", b.pause)
	}
	b.now = b.now.Add(time.Second)
	b.call(resultSuccess)
	if last := b.changes[len(b.changes)-1]; last != (breakerChange{from: BreakerHalfOpen, to: BreakerClosed}) || b.troubled.Load() {
		t.Errorf("the last change is %v", last)
	}
}

// A probe that did not reach the guest lets the next call try.
func TestBreaker_ProbeWithoutResult(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(1, time.Second)
	b.call(resultFailure)
	b.now = b.now.Add(time.Second)
	for range 3 {
		if !b.call(resultNone) || b.current() != BreakerOpen {
			t.Fatalf("the breaker is %s", b.current())
		}
	}
	if !b.call(resultSuccess) || b.current() != BreakerClosed {
		t.Errorf("the breaker is %s", b.current())
	}
}

// Calls that began before the breaker opened change nothing.
func TestBreaker_LateResults(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(1, time.Second)
	early, _ := b.admit()
	b.call(resultFailure)
	b.now = b.now.Add(time.Second - 1)
	b.report(early, resultSuccess, nil)
	b.report(early, resultFailure, errBroken)
	if b.current() != BreakerOpen || b.refuses() != 1 || len(b.changes) != 1 {
		t.Errorf("the breaker is %s for %s, changes %v", b.current(), b.refuses(), b.changes)
	}
}

func TestBreaker_Never(t *testing.T) {
	t.Parallel()
	b := newTestBreaker(0, time.Second)
	for range 1000 {
		if !b.call(resultFailure) {
			t.Fatal("a call was refused")
		}
	}
}

// A plugin that decides something, though it may be useless, works. What a client or the load
// causes says nothing about it.
func TestResultOf(t *testing.T) {
	t.Parallel()
	for want, errs := range map[result][]error{
		resultSuccess: {nil, denied(403, ""), ErrNoKey},
		resultFailure: {ErrTimeout, ErrTrap, ErrBadGuest, &exitError{code: 1}},
		resultNone:    {ErrBodyTooLarge, &unreadable{errBroken}},
	} {
		for _, err := range errs {
			if got := resultOf(err); got != want {
				t.Errorf("the result of a call with %v is %d, want %d", err, got, want)
			}
		}
	}
}
