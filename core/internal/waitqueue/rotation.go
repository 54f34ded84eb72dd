package waitqueue

import (
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A streak of hand-overs within this process ends after streakMoves of them, or streakTime. Then the lock is freed, and other
// processes that listen for that have the first chance of it: the waiters here rest until they hear that another process has
// freed it again, or for a moment. Without that rest chance would decide, and the process that is a few microseconds faster would
// have the lock for seconds.
const (
	streakMoves = 64
	streakTime  = 20 * time.Millisecond
)

// A phase is whose turn it is.
type phase uint8

const (
	running  phase = iota // those at the front ask as they like
	offering              // a streak has ended and the release is on its way: they rest
	resting               // others listen and have the first chance: they rest until mark
)

// Listeners says whether other processes listen for the release of a lock.
type Listeners uint8

const (
	NoListeners Listeners = iota
	OtherListeners
	UnknownListeners // Redis cannot count them
)

// A rotation shares a lock between this process and others.
type rotation struct {
	mark   clock.Moment // running: the first hand-over of the streak; resting: the end of the rest
	moves  uint8        // hand-overs of the streak; 255: so many, or more
	echoes uint8        // messages that are this process's own; offering, resting
	phase  phase
}

// streakOver reports whether the lock was handed on here for long enough.
func (r *rotation) streakOver(now clock.Moment) bool {
	return r.moves >= streakMoves || r.moves > 0 && now.Since(r.mark) >= streakTime
}

// handedOn counts a hand-over.
func (r *rotation) handedOn(now clock.Moment) {
	if r.moves == 0 {
		r.mark = now
	}
	if r.moves < math.MaxUint8 {
		r.moves++
	}
}

// offer begins a rest at the end of a streak. echoes is how many messages of the release this process will hear.
func (r *rotation) offer(echoes int) { r.phase, r.echoes = offering, uint8(echoes) }

// freed takes the outcome of a release. It reports whether those at the front rest until others had their chance.
func (r *rotation) freed(until clock.Moment, others Listeners) (rests bool) {
	r.moves = 0
	if r.phase == offering && others != NoListeners {
		r.phase, r.mark = resting, until
		return true
	}
	r.phase = running
	return false
}

// heard reports whether a message is a reason to ask. This process's own is none during a rest. Another's ends the rest: others
// have had the lock and freed it.
func (r *rotation) heard() bool {
	if r.phase != running && r.echoes > 0 {
		r.echoes--
		return false
	}
	r.phase = running
	return true
}

// restsFor is how long those at the front rest, unless they are woken. over: a rest ends now, in which no other process came.
func (r *rotation) restsFor(now clock.Moment) (rest time.Duration, over bool) {
	switch r.phase {
	case offering:
		return Forever, false
	case resting:
		if left := r.mark.Since(now); left > 0 {
			return left, false
		}
		r.phase = running
		return 0, true
	}
	return 0, false
}
