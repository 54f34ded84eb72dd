package core

import "time"

// pauses are the durations of an engine that no option sets. Tests set other ones.
type pauses struct {
	// firstChance is how long the waiters of this process pause after a streak of hand-overs, so that
	// other processes can get the lock first.
	firstChance time.Duration
	// linger is how long a channel stays subscribed after its last waiter has left. A hot lock gets
	// its next waiter within that time. For any other lock, a longer subscription would only wake
	// this process for releases that it does not wait for, its own included.
	linger time.Duration
	// absent is how long a waiter for a fair lock may be silent before others drop it; see fairpause.go.
	absent time.Duration
	// listening is how long a client without holds still listens to its own channel. A client that
	// locks now and then need not subscribe each time.
	listening time.Duration
	// stray is how long a mark in Redis tells a try of a CountDown that arrives late from the first,
	// at least.
	stray time.Duration
}

// defaultPauses are the pauses of every client.
var defaultPauses = pauses{
	firstChance: 2 * time.Millisecond,
	linger:      2 * time.Millisecond,
	absent:      7 * time.Second,
	listening:   time.Minute,
	stray:       time.Minute,
}
