package core

import (
	"math/rand/v2"
	"time"
)

// A waiter for a fair lock that dies leaves its place in Redis's queue behind. Each waiter listens
// on its own channel, so an attempt that finds the lock free can see whether the first in the queue
// still listens. If not, attempts look for all that do not. Those that have not listened for
// pauses.absent are dropped, and so is a first waiter that listens but leaves the free lock alone
// for as long: it is frozen, and queues up again when it goes on. A live waiter that does not hear
// its channel tries more often than that, so it keeps its place.
const (
	absentPause = 2 * time.Second // between two checks of an absent waiter
	// fairPoll is the longest time between two attempts of a waiter that no other waiter of this
	// process is before, or that does not hear its channel.
	fairPoll = 5 * time.Second
)

// fairPoll returns how long a waiter for a fair lock sleeps at most if no other waiter polls for it.
// Others may drop one that is silent for longer.
func (eng *engine) fairPoll() time.Duration {
	return min(eng.opts.PollInterval, fairPoll, eng.opts.FairWaitTimeout/4)
}

// fairPause returns how long a waiter pauses that hears its channel and has another waiter of this
// process before it: that one finds the lock free if a message was lost. place is its place in
// Redis's queue, from 1. The pauses grow with the place, so that a crowd of any size sends about as
// many commands as a few dozen waiters.
func fairPause(poll time.Duration, place int) time.Duration {
	pause := poll + poll/8*time.Duration(place-1)
	return pause - rand.N(poll/5+1)
}
