package claim

import (
	"math"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/machine"
)

// A streak of hand-overs within this process ends after streakMoves of them, or after streakTime.
// Then the lock is freed, and other processes that listen for the release have the first chance to
// acquire it. The waiters here pause for a moment, or until they hear that another process has freed
// it. Without the pause, a process that is a few microseconds faster would keep the lock for
// seconds.
const (
	streakMoves = 64
	streakTime  = 20 * time.Millisecond
)

// A phase says whether the waiters at the front may try.
type phase uint8

const (
	running  phase = iota // they may
	yielding              // they pause: a streak has ended, and the release is under way
	pausing               // they pause until mark: other processes listen and have the first chance
)

var phases = machine.New("a name",
	machine.Transition[phase]{From: running, To: yielding, When: "a streak of hand-overs ends: the release is under way, and the waiters here pause"},
	machine.Transition[phase]{From: yielding, To: pausing, When: "the release was published to other processes, or nothing can tell whether it was: they have the first chance, 2 ms"},
	machine.Transition[phase]{From: yielding, To: running, When: "only this process listens, or a waiter of it is granted the lock"},
	machine.Transition[phase]{From: pausing, To: running, When: "another process has released the lock, the 2 ms are over, or a waiter of this process is granted the lock"},
	machine.Transition[phase]{From: running, To: running, When: "a release, a message or a grant without a streak"},
)

func (p phase) String() string { return [...]string{"running", "yielding", "pausing"}[p] }

// Listeners says whether other processes listened to a release.
type Listeners uint8

const (
	NoListeners Listeners = iota
	OtherListeners
	UnknownListeners // Redis cannot count them
)

// A rotation shares a lock between this process and others. Its fields depend on the phase.
type rotation struct {
	mark   clock.Moment // running: when the streak began; pausing: when the pause ends
	moves  uint8        // hand-overs of the streak; stays at 255
	echoes uint8        // yielding, pausing: messages to come that this process published itself
	phase  phase
}

func (r *rotation) move(to phase) bool { return phases.Move(&r.phase, to) }

// streakOver reports whether enough hand-overs have taken place here.
func (r *rotation) streakOver(now clock.Moment) bool {
	return r.moves >= streakMoves || r.moves > 0 && now.Since(r.mark) >= streakTime
}

// handedOver counts a hand-over.
func (r *rotation) handedOver(now clock.Moment) {
	if r.moves == 0 {
		r.mark = now
	}
	if r.moves < math.MaxUint8 {
		r.moves++
	}
}

// yield begins a pause at the end of a streak. echoes is how many messages of the release this
// process will receive itself.
func (r *rotation) yield(echoes int) {
	if r.move(yielding) {
		r.echoes = uint8(echoes)
	}
}

// freed handles the outcome of a release. It reports whether the waiters at the front pause.
func (r *rotation) freed(until clock.Moment, others Listeners) (pauses bool) {
	r.moves = 0
	if r.phase == yielding && others != NoListeners && r.move(pausing) {
		r.mark = until
		return true
	}
	r.move(running)
	return false
}

// heard handles a message. It reports whether waiters should try. During a pause, this process's own
// messages are ignored. A message from another process ends the pause, because that process has
// freed the lock.
func (r *rotation) heard() bool {
	if r.phase != running && r.echoes > 0 {
		r.echoes--
		return false
	}
	r.move(running)
	return true
}

// pausesFor returns how long the waiters at the front pause unless they are woken. over reports
// whether a pause ends now.
func (r *rotation) pausesFor(now clock.Moment) (pause time.Duration, over bool) {
	switch r.phase {
	case yielding:
		return Forever, false
	case pausing:
		if left := r.mark.Since(now); left > 0 {
			return left, false
		}
		r.move(running)
		return 0, true
	}
	return 0, false
}
