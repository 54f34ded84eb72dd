// Package waitqueue decides who of one process asks Redis for a lock, and when.
//
// A Queue is a pure state machine. It has no mutex, no goroutine and no clock, and does not talk to Redis. Its caller tells it
// what happened, one event at a time. Each event returns the waiters to wake: those for whom Next may have another answer now. A
// slice of waiters is good until the next event.
//
// Only the first waiter asks Redis. Shared waiters ask together, and Remote ones each for itself.
package waitqueue

import (
	"math"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A Queue is the waiters of one name in this process, first come, first served.
type Queue[T any] struct {
	waiters []*Waiter[T] // those at the front are a prefix, but for Remote ones
	rotation
	arrivals uint32
	one      [1]*Waiter[T] // where waiters begins: most names never have a second one
}

// Init makes the queue ready for use.
func (q *Queue[T]) Init() { q.waiters = q.one[:0] }

// Waiters returns all of them in order. It is read only.
func (q *Queue[T]) Waiters() []*Waiter[T] { return q.waiters }

// Len is how many there are.
func (q *Queue[T]) Len() int { return len(q.waiters) }

// Arrivals numbers the waiters that have joined so far. See Dismiss.
func (q *Queue[T]) Arrivals() uint32 { return q.arrivals }

// An Admission is the answer to a waiter that wants to join.
type Admission uint8

const (
	Admitted Admission = iota
	Behind             // it makes a single attempt, and others are first
	Full               // as many wait as its Limit allows
)

// Join puts a waiter last.
func (q *Queue[T]) Join(w *Waiter[T]) Admission {
	front := true
	if n := len(q.waiters); n > 0 {
		last := q.waiters[n-1]
		front = w.Class == Remote || last.atFront() && last.joins(w.Class)
		switch {
		case w.Once && !front:
			return Behind
		case !w.Once && q.waiting() >= int(w.Limit):
			return Full
		}
	}
	q.arrivals++
	w.arrival, w.counted = q.arrivals, !front
	if front {
		w.move(Ready)
	} else {
		w.move(Queued)
	}
	q.waiters = append(q.waiters, w)
	return Admitted
}

// waiting is how many wait, without those that were at the front at once and have not been refused yet.
func (q *Queue[T]) waiting() int {
	n := len(q.waiters)
	for _, w := range q.waiters {
		if !w.atFront() {
			break
		}
		if !w.counted {
			n--
		}
	}
	return n
}

// A Step is what a waiter does next.
type Step uint8

const (
	Ask    Step = iota // call Asks, and ask Redis
	Sleep              // until woken, or for the duration
	GiveUp             // its time is over; call Leave
	Gone               // it is out
)

// Forever is how long to sleep if only a wake-up can change anything.
const Forever time.Duration = math.MaxInt64

// Next returns what a waiter does now.
func (q *Queue[T]) Next(w *Waiter[T], now clock.Moment) (Step, time.Duration) {
	left := Forever
	if w.Deadline != 0 {
		left = w.Deadline.Since(now)
	}
	switch w.state {
	case New, Out:
		return Gone, 0
	case Queued, Asking, Heir:
		if left <= 0 {
			return GiveUp, 0
		}
		return Sleep, left
	}
	// Ready or Asleep
	if left > 0 && w.Class != Remote {
		rest, over := q.restsFor(now)
		if rest > 0 {
			return Sleep, min(left, rest)
		}
		if over {
			q.Wake() // all of them sleep until now
		}
	}
	switch {
	case w.state == Ready: // it asks once, also if it came to the front too late
		return Ask, 0
	case left <= 0:
		return GiveUp, 0
	case w.woken, w.PollAt <= now:
		return Ask, 0
	}
	return Sleep, min(left, w.PollAt.Since(now))
}

// Asks begins a question. What wakes the waiter from now on may be newer than the answer, so it asks again after that.
func (q *Queue[T]) Asks(w *Waiter[T]) {
	if w.move(Asking) {
		w.woken = false
	}
}

// Refused takes the answer that another has the lock. The waiter waits from now on. Where that is one more than a waiter behind
// it allows, the last one goes.
func (q *Queue[T]) Refused(w *Waiter[T], pollAt clock.Moment) (tooMany []*Waiter[T]) {
	q.Sleeps(w, pollAt)
	if w.counted || w.state == Out {
		return nil
	}
	w.counted = true
	for n := len(q.waiters); n > 1; n-- {
		last := q.waiters[n-1]
		if !last.counted || q.waiting() <= int(last.Limit) {
			break
		}
		q.waiters[n-1] = nil
		q.waiters = q.waiters[:n-1]
		last.move(Out)
		tooMany = append(tooMany, last)
	}
	return tooMany
}

// Sleeps ends a question that had no answer, or one that is not needed.
func (q *Queue[T]) Sleeps(w *Waiter[T], pollAt clock.Moment) {
	if w.state != Out && w.move(Asleep) {
		w.PollAt = pollAt
	}
}

// Leave takes a waiter out, wherever it stands. Those who come to the front by that ask at once: the wake-up that w got may have
// been meant for them.
func (q *Queue[T]) Leave(w *Waiter[T]) (wake []*Waiter[T]) {
	if w.state == Out || !w.move(Out) {
		return nil
	}
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	return q.promote()
}

// promote brings to the front those that may be there.
func (q *Queue[T]) promote() (promoted []*Waiter[T]) {
	from := -1
	for i, w := range q.waiters {
		if i > 0 && w.state == Queued && !q.waiters[i-1].joins(w.Class) {
			return q.slice(from, i)
		}
		if w.state == Queued {
			w.move(Ready)
			if from < 0 {
				from = i
			}
		}
	}
	return q.slice(from, len(q.waiters))
}

func (q *Queue[T]) slice(from, to int) []*Waiter[T] {
	if from < 0 {
		return nil
	}
	return q.waiters[from:to]
}

// Granted takes w out with the lock; it may be out already. The one behind it need not ask, unless both share
// the lock: there will be a wake-up when the holder releases or loses it. It sleeps until pollAt, and is returned as next.
func (q *Queue[T]) Granted(w *Waiter[T], pollAt clock.Moment) (next *Waiter[T], wake []*Waiter[T]) {
	q.phase = running
	wake = q.Leave(w)
	if len(q.waiters) == 0 {
		return nil, wake
	}
	first := q.waiters[0]
	if first.Class == Remote || w.joins(first.Class) {
		return nil, wake
	}
	if first.state == Ready {
		first.move(Asleep)
	}
	if first.state == Asleep {
		first.woken, first.PollAt = false, pollAt
	}
	return first, wake
}

// Dismiss takes out those that had joined when arrivals was read, but for those to keep.
func (q *Queue[T]) Dismiss(arrivals uint32, keep func(*Waiter[T]) bool) (out, wake []*Waiter[T]) {
	stay := q.waiters[:0:0]
	for _, w := range q.waiters {
		if int32(w.arrival-arrivals) > 0 || keep(w) {
			stay = append(stay, w)
		} else if w.move(Out) {
			out = append(out, w)
		}
	}
	q.waiters = stay
	return out, q.promote()
}

// Message takes one that was published on the channel of the name.
func (q *Queue[T]) Message() (wake []*Waiter[T]) {
	if !q.heard() {
		return nil
	}
	return q.Wake()
}

// Wake has those at the front ask again: the lock may be free.
func (q *Queue[T]) Wake() (wake []*Waiter[T]) {
	for n, w := range q.waiters {
		switch {
		case w.Class == Remote && n > 0: // Redis says whose turn it is; where it cannot, that is the first of us at best
			return q.waiters[:n]
		case !w.atFront():
			return q.waiters[:n]
		}
		w.wake()
		if w.Class == Remote {
			return q.waiters[:1]
		}
	}
	return q.waiters
}

// Call has one waiter ask again: a message was for it alone.
func (q *Queue[T]) Call(w *Waiter[T]) { w.wake() }

// Successor returns the waiter to whom a hold may be handed, or nil if the hold is to be freed. A streak of hand-overs ends after a
// while, so that other processes get their turn. Where Redis keeps the queue it sees to that.
func (q *Queue[T]) Successor(now clock.Moment) *Waiter[T] {
	if len(q.waiters) == 0 {
		return nil
	}
	w := q.waiters[0]
	switch {
	case w.state != Ready && w.state != Asleep:
		return nil
	case w.Class != Remote && q.streakOver(now):
		return nil
	}
	return w
}

// Offer begins a hand-over to the waiter. It is offered one hold at a time.
func (q *Queue[T]) Offer(w *Waiter[T]) { w.move(Heir) }

// OfferEnded ends a hand-over that the waiter got nothing by. Wake it.
func (q *Queue[T]) OfferEnded(w *Waiter[T]) {
	if w.state == Heir {
		w.move(Asleep)
	}
}

// HandedOn counts a hand-over that took place; Granted follows.
func (q *Queue[T]) HandedOn(now clock.Moment) { q.handedOn(now) }

// Freeing begins the release of the last hold of this process. After a streak those at the front rest. echoes is how many messages
// of this release the process will hear, where listeners can be counted; otherwise 0, and the first message ends the rest.
func (q *Queue[T]) Freeing(now clock.Moment, echoes int) {
	over := q.streakOver(now)
	q.moves = 0
	if over && len(q.waiters) > 0 && q.waiters[0].Class != Remote {
		q.offer(echoes)
	}
}

// Freed ends the release of a hold, or its loss. others says who listened for that; until is the end of their first chance.
func (q *Queue[T]) Freed(until clock.Moment, others Listeners) (wake []*Waiter[T]) {
	if q.freed(until, others) {
		return q.front() // their sleep has an end now
	}
	return q.Wake()
}

// front returns those that may ask.
func (q *Queue[T]) front() []*Waiter[T] {
	for i, w := range q.waiters {
		if !w.atFront() {
			return q.waiters[:i]
		}
	}
	return q.waiters
}
