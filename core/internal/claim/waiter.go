package claim

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/machine"
)

// A Class says which waiters of a name try together.
type Class uint8

const (
	Exclusive  Class = iota // tries alone
	Shared                  // tries together with the Shared waiters next to it
	RedisQueue              // Redis keeps the queue, so each waiter tries by itself
	Counted                 // wants permits, of which several may be free: see Waiter.Together
)

// A State is the state of a waiter.
type State uint8

const (
	New    State = iota // has not joined a queue
	Queued              // behind others
	Ready               // at the front; has not tried yet
	Asking              // an attempt in Redis is under way
	Asleep              // refused; tries again after a wake-up, or at PollAt
	Heir                // a hold of this process is being handed over to it; it does not try
	Out                 // has left the queue
)

var waiterStates = machine.New("a waiter",
	machine.Transition[State]{From: New, To: Ready, When: "it joins and no other is before it; readers also behind readers at the front, and callers for permits behind those that have not been refused; always if Redis keeps the queue"},
	machine.Transition[State]{From: New, To: Queued, When: "it joins behind others"},
	machine.Transition[State]{From: New, To: Out, When: "it tries once without queueing"},
	machine.Transition[State]{From: Queued, To: Ready, When: "all before it have left; one for permits also if all before it are heirs, or more permits are free"},
	machine.Transition[State]{From: Ready, To: Asking, When: "at once: it sends the acquire script"},
	machine.Transition[State]{From: Ready, To: Asleep, When: "another waiter of this process was just granted the lock or the last permit, or was refused just before this one's time ends, which answers both"},
	machine.Transition[State]{From: Ready, To: Heir, When: "a hold of this process is being handed over to it: it does not ask"},
	machine.Transition[State]{From: Asking, To: Asleep, When: "refused, or Redis did not answer and it outlasts that, or it enters a hold that its owner just got"},
	machine.Transition[State]{From: Asleep, To: Asking, When: "a message, a poll, a prompt of a waiter behind it, a release in this process, a new subscription, or once the end of its time. A wake-up while it was asking counts too"},
	machine.Transition[State]{From: Asleep, To: Heir, When: "a hold of this process is being handed over to it: it does not ask"},
	machine.Transition[State]{From: Heir, To: Asleep, When: "the hand-over has ended; a waiter that got the hold leaves next"},
	machine.Transition[State]{From: Queued, To: Out, When: leavesQueue},
	machine.Transition[State]{From: Ready, To: Out, When: leavesQueue},
	machine.Transition[State]{From: Asking, To: Out, When: leavesQueue},
	machine.Transition[State]{From: Asleep, To: Out, When: leavesQueue},
	machine.Transition[State]{From: Heir, To: Out, When: leavesQueue},
)

const leavesQueue = "granted; its time or its context has ended; an error that is every waiter's; its owner got the lock by another call"

func (s State) String() string {
	return [...]string{"new", "queued", "ready", "asking", "asleep", "heir", "out"}[s]
}

// Move changes the state. It refuses a change that the machine does not have, and reports whether it
// made the change.
func (s *State) Move(to State) bool { return waiterStates.Move(s, to) }

// Waits reports whether a waiter in this state is in a queue.
func (s State) Waits() bool { return s != New && s != Out }

// A Waiter is one caller that waits. The caller sets the exported fields before Join. It may set
// PollAt at any time.
type Waiter[T any] struct {
	Item     T            // the caller's own data
	Deadline clock.Moment // when it stops waiting; 0: never
	PollAt   clock.Moment // when it tries again without a wake-up
	// Every is the longest time between two attempts of the queue while the waiter is in it. 0:
	// PollAt alone counts.
	Every time.Duration
	Limit int32 // maximum number of waiters, itself included
	// Together is how many Counted waiters that have not been refused may try at the same time.
	Together int32
	Class    Class
	NoWait   bool // it makes a single attempt and never waits behind others

	state   State
	asked   clock.Moment // when its latest attempt began
	counted bool         // counts towards Limit: it was refused, or joined behind others
	woken   bool         // the lock may have been freed since its latest attempt began
	sure    bool         // Counted: it tries because a permit is free
	again   bool         // Counted: another waiter left a permit to its attempt, so if refused, it tries again
	wakes   uint16       // number of wake-ups; wraps around
	arrival uint32       // value of Queue.Arrivals after it joined; wraps around
}

// Asked returns when the latest attempt of the waiter began, or when one of its process was granted
// the lock instead.
func (w *Waiter[T]) Asked() clock.Moment { return w.asked }

// State returns the state of the waiter.
func (w *Waiter[T]) State() State { return w.state }

// Wakes returns how often the waiter was woken. pending reports whether it has not tried since.
func (w *Waiter[T]) Wakes() (times uint16, pending bool) { return w.wakes, w.woken }

// triedLast reports whether an attempt began after its deadline. There is no other.
func (w *Waiter[T]) triedLast() bool { return w.Deadline != 0 && w.asked >= w.Deadline }

// TriesLast reports whether the attempt of w that is under way is one more at the end of its time.
// It has been refused before.
func (w *Waiter[T]) TriesLast() bool { return w.counted && w.triedLast() }

func (w *Waiter[T]) wake() {
	w.woken = true
	w.wakes++
}

// refrain makes a waiter at the front sleep until pollAt: it knows that there is nothing to get now.
func (w *Waiter[T]) refrain(now, pollAt clock.Moment) {
	if w.state == Ready {
		w.move(Asleep)
	}
	if w.state == Asleep {
		w.counted, w.woken, w.asked, w.PollAt = true, false, now, pollAt
	}
}

func (w *Waiter[T]) move(to State) bool { return w.state.Move(to) }

// atFront reports whether the waiter is at the front, where waiters may try.
func (w *Waiter[T]) atFront() bool { return w.state >= Ready && w.state <= Heir }

// joins reports whether a waiter of class c may try together with w. Of those for permits, one that
// was refused tries before those behind it.
func (w *Waiter[T]) joins(c Class) bool {
	if w.Class != c {
		return false
	}
	return c == Shared || c == Counted && (w.state == Heir || !w.counted && (w.state == Ready || w.state == Asking))
}
