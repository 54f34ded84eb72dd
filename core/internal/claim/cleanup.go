package claim

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/machine"
)

// A Cleanup is what is known of a wire owner that may be left in Redis. It is pending until one of
// these:
//
//	Redis has answered, and no stray can be on its way
//	the time-out of commands has passed since Redis first answered again: strays have arrived by then
//	the lease has expired, counted from the last moment at which a stray may have been held back
//
// An outage holds strays back. Redis executes commands that were given up, on connections that are
// closed by now, when the outage ends, and in any order. So both times count from the first answer
// after the outage, not from the command that was given up: an outage may outlast the lease.
type Cleanup struct {
	strays   strays
	answered time.Time     // the first answer of Redis, while strays are arriving
	expires  time.Time     // when the hold has expired in Redis
	again    time.Duration // how long a stray makes it last once Redis answers; 0: none
	failures int
}

// strays tells whether commands that were given up may still arrive at Redis.
type strays uint8

const (
	noStrays       strays = iota
	straysHeldBack        // Redis has not answered since the last of them was given up
	straysArriving        // Redis has answered: they arrive within the time-out of commands
)

func (s strays) String() string { return [...]string{"none", "held back", "arriving"}[s] }

var strayStates = machine.New("strays",
	machine.Transition[strays]{From: noStrays, To: straysHeldBack, When: "an attempt to free the lock has had no answer"},
	machine.Transition[strays]{From: straysHeldBack, To: straysHeldBack, When: "an attempt to free the lock has had no answer"},
	machine.Transition[strays]{From: straysHeldBack, To: straysArriving, When: "Redis has answered"},
	machine.Transition[strays]{From: straysArriving, To: straysHeldBack, When: "an attempt to free the lock has had no answer"},
)

func (c *Cleanup) move(to strays) bool { return strayStates.Move(&c.strays, to) }

// NewCleanup returns the clean-up of what is left, and the pause before its first attempt. lease is
// how long Redis keeps the hold. If only strays may be coming, Redis has just answered.
func NewCleanup(left Leftovers, now time.Time, lease, timeout time.Duration) (c Cleanup, pause time.Duration) {
	c.expires = now.Add(lease)
	if left.Stray {
		c.move(straysHeldBack)
		c.again = min(lease, longestLease) + timeout
	}
	if !left.There && c.move(straysArriving) {
		c.answered, pause = now, timeout
	}
	return c, pause
}

// longestLease keeps times from overflowing.
const longestLease = 50 * 365 * 24 * time.Hour

// Failures returns how many attempts have failed.
func (c *Cleanup) Failures() int { return c.failures }

// A CleanupReply is the outcome of an attempt.
type CleanupReply struct {
	Sure   bool // no try was left without an answer
	Failed bool // it is not known to have freed the lock
	Heard  bool // Redis has answered, with an error or without
	Ended  bool // the attempt has an error that repeating it would not change
}

// A CleanupVerdict says what follows from an attempt.
type CleanupVerdict struct {
	Done    bool
	GivenUp bool          // the hold has expired
	Pause   time.Duration // before the next attempt
}

// After decides what follows from an attempt.
func (c *Cleanup) After(now time.Time, timeout time.Duration, r CleanupReply) (v CleanupVerdict) {
	if !r.Sure {
		c.move(straysHeldBack)
	}
	switch {
	case r.Failed && !r.Ended:
		c.failures++
		v.Pause = min(20*time.Millisecond<<min(c.failures, 6), time.Second)
	case c.strays == noStrays:
		v.Done = true
	default:
		if c.strays == straysHeldBack {
			c.move(straysArriving)
			c.answered = now
		}
		v.Pause = timeout - now.Sub(c.answered)
		v.Done = v.Pause <= 0
	}
	if !v.Done {
		v.GivenUp = c.expired(now, r)
	}
	return v
}

// expired reports whether an attempt that failed was the last, because the hold has expired in Redis.
// A stray may be held back until Redis answers, and the hold lasts for the lease after that. Few
// clean-ups wait for that: a command that did not reach Redis leaves no stray.
func (c *Cleanup) expired(now time.Time, r CleanupReply) bool {
	if c.again > 0 && !r.Heard {
		c.expires = now.Add(c.again)
	}
	return r.Failed && now.After(c.expires)
}
