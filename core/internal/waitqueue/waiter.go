package waitqueue

import "github.com/reqlock/reqlock/core/internal/clock"

// A Class says how a waiter stands to the others of its name.
type Class uint8

const (
	Exclusive Class = iota // asks Redis alone
	Shared                 // asks together with the Shared waiters around it
	Remote                 // Redis keeps the queue, so each asks for itself
)

// A State is where a waiter stands. moves lists how it changes.
type State uint8

const (
	New    State = iota // not in a queue yet
	Queued              // others are before it
	Ready               // at the front, and has not asked yet
	Asking              // a question to Redis is under way
	Asleep              // refused; asks again after a wake-up, or at PollAt
	Heir                // a hold of this process is being handed to it; it does not ask
	Out                 // has left the queue
)

// moves has, for each state, those that may follow.
var moves = [...][]State{
	New:    {Queued, Ready, Out},
	Queued: {Ready, Out},
	Ready:  {Asking, Asleep, Heir, Out}, // Asleep: one of this process was granted the lock just now
	Asking: {Asleep, Out},
	Asleep: {Asking, Heir, Out},
	Heir:   {Asleep, Out},
	Out:    {},
}

func (s State) String() string {
	return [...]string{"new", "queued", "ready", "asking", "asleep", "heir", "out"}[s]
}

// A Waiter is one caller that waits. The caller sets the exported fields before Join, and PollAt at any time.
type Waiter[T any] struct {
	Item     T            // what the caller knows it by
	Deadline clock.Moment // when its time is over; 0: never
	PollAt   clock.Moment // when it asks again without a wake-up
	Limit    int32        // how many may wait, itself included
	Class    Class
	Once     bool // it makes a single attempt and never waits behind others

	state   State
	counted bool   // it waits, by the count that Limit bounds: it was refused, or came behind others
	woken   bool   // the lock may have been freed since its latest question began
	wakes   uint16 // how often it was woken; wraps around
	arrival uint32 // its number; numbers wrap around
}

// State is where the waiter stands.
func (w *Waiter[T]) State() State { return w.state }

// Wakes is how often the waiter was woken to ask, and whether it has not done so yet.
func (w *Waiter[T]) Wakes() (times uint16, pending bool) { return w.wakes, w.woken }

func (w *Waiter[T]) wake() {
	w.woken = true
	w.wakes++
}

// move is the only place where a state changes. It refuses what moves does not have.
func (w *Waiter[T]) move(to State) bool {
	for _, next := range moves[w.state] {
		if next == to {
			w.state = to
			return true
		}
	}
	if Strict {
		panic("waitqueue: a waiter cannot go from " + w.state.String() + " to " + to.String())
	}
	return false
}

// Strict makes a move that the machine does not have a panic. Tests set it. A program that serves requests goes on: the waiter
// stays as it is, and asks again at PollAt.
var Strict bool

// atFront reports whether the waiter is among those that may ask.
func (w *Waiter[T]) atFront() bool { return w.state >= Ready && w.state <= Heir }

// joins reports whether a waiter of a class may ask together with w.
func (w *Waiter[T]) joins(c Class) bool { return w.Class == Shared && c == Shared }
