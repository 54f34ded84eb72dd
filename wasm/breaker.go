package wasm

import (
	"sync"
	"sync/atomic"
	"time"
)

// A BreakerState says whether a plugin is called. String returns a short name for metrics.
type BreakerState int32

// The states of a breaker:
//
//	closed    --BreakAfter failures in a row, for minFailing--> open
//	open      --the pause is over, a call comes--> half-open
//	half-open --the call succeeds--> closed
//	half-open --the call fails--> open, for twice as long
//	half-open --the call never reached the guest--> open, its pause over
const (
	BreakerClosed   BreakerState = iota // calls run
	BreakerOpen                         // calls are refused with ErrSuspended
	BreakerHalfOpen                     // one call tries the plugin, the others are refused
)

// String returns "closed", "open" or "half_open".
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerOpen:
		return "open"
	case BreakerHalfOpen:
		return "half_open"
	}
	return "unknown"
}

// minFailing is how long calls must fail without a success between them, lest a client suspends a
// plugin that serves others: it can send many requests on which the plugin fails between two of
// theirs.
const minFailing = time.Second

// maxPause is the longest time that a breaker stays open, unless Config.BreakFor is longer.
const maxPause = time.Minute

// A breaker suspends a program whose calls keep failing by its own fault: each costs up to
// Config.Timeout of a processor, and a new instance.
type breaker struct {
	// after is how many failures in a row open the breaker. 0: it never opens.
	after int
	// least is the time from the first of them to the last. It is minFailing, except in tests.
	least time.Duration
	// first is the first pause.
	first   time.Duration
	changed func(c breakerChange)
	clock   func() time.Time

	// troubled is false while the breaker is closed and the last call succeeded, as nearly always.
	// Then calls need no mutex.
	troubled atomic.Bool

	mu    sync.Mutex
	state BreakerState
	// failures counts failures in a row, and failing is the time of the first of them.
	failures int
	failing  time.Time
	// pause is the last pause, and until is when it ends.
	pause time.Duration
	until time.Time
}

type breakerChange struct {
	from, to BreakerState
	// pause is how long the breaker stays open.
	pause time.Duration
	// cause is the failure that opened the breaker.
	cause error
}

// A pass is what a breaker decides about a call.
type pass int

const (
	passRefused pass = iota
	passCall         // This is an ordinary call.
	passProbe        // This call tries a suspended plugin. It must end with result.
)

// admit decides about a call. If it is refused, retry is when to try again.
func (b *breaker) admit() (p pass, retry time.Duration) {
	if !b.troubled.Load() {
		return passCall, 0
	}
	now := b.clock()
	b.mu.Lock()
	switch {
	case b.state == BreakerClosed:
		p = passCall
	case b.state == BreakerHalfOpen:
		retry = b.first
	case now.Before(b.until):
		retry = b.until.Sub(now)
	default:
		b.state, p = BreakerHalfOpen, passProbe
	}
	b.mu.Unlock()
	if p == passProbe {
		b.changed(breakerChange{from: BreakerOpen, to: BreakerHalfOpen})
	}
	return p, retry
}

// refuses returns when to try again if admit would refuse a call now; 0: it would not.
func (b *breaker) refuses() time.Duration {
	if !b.troubled.Load() {
		return 0
	}
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case BreakerOpen:
		return max(0, b.until.Sub(now))
	case BreakerHalfOpen:
		return b.first
	}
	return 0
}

// A result is what a call says about the plugin.
type result int

const (
	resultNone    result = iota // The guest did not run.
	resultSuccess               // The guest works.
	resultFailure               // The guest failed by its own fault, and lost its instance.
)

// report counts the result of a call. cause is the error of a failure.
func (b *breaker) report(p pass, r result, cause error) {
	if r == resultSuccess && !b.troubled.Load() || b.after == 0 {
		return
	}
	now := b.clock()
	b.mu.Lock()
	change := breakerChange{from: b.state}
	switch {
	case p == passProbe:
		b.probedLocked(r, now)
	case b.state != BreakerClosed: // the call began before the breaker opened
	case r == resultSuccess:
		b.closeLocked()
	case r == resultFailure:
		b.failedLocked(now)
	}
	change.to = b.state
	if r == resultFailure {
		change.pause, change.cause = b.pause, cause
	}
	b.mu.Unlock()
	if change.to != change.from {
		b.changed(change)
	}
}

// failedLocked counts a failure of an ordinary call.
func (b *breaker) failedLocked(now time.Time) {
	b.troubled.Store(true)
	if b.failures == 0 {
		b.failing = now
	}
	if b.failures++; b.failures >= b.after && now.Sub(b.failing) >= b.least {
		b.openLocked(b.first, now)
	}
}

// probedLocked ends the try of a suspended plugin.
func (b *breaker) probedLocked(r result, now time.Time) {
	switch r {
	case resultNone:
		b.state = BreakerOpen
	case resultSuccess:
		b.closeLocked()
	case resultFailure:
		b.openLocked(min(2*b.pause, max(maxPause, b.first)), now)
	}
}

func (b *breaker) openLocked(pause time.Duration, now time.Time) {
	b.state, b.pause, b.until = BreakerOpen, pause, now.Add(pause)
}

func (b *breaker) closeLocked() {
	b.state, b.failures, b.pause = BreakerClosed, 0, 0
	b.troubled.Store(false)
}

func (b *breaker) current() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
