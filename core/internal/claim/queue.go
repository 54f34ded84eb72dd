package claim

import (
	"math"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A Queue is the queue of waiters for one name in this process, first come, first served.
type Queue[T any] struct {
	waiters  []*Waiter[T] // waiters at the front come first; RedisQueue ones are all there
	rotation rotation
	asked    clock.Moment // when a waiter last began an attempt, or was prompted to
	// The latest answer of Redis, as long as nothing suggests that the lock was freed since: an
	// attempt that began at refusedAt was refused. 0: none.
	refusedAt clock.Moment
	arrivals  uint32
	refused   Class         // the class of that attempt
	one       [1]*Waiter[T] // initial room for waiters: most names never have a second one
}

// freshness is how old a refusal may be that a waiter takes for its last answer. Waiters whose time
// ends together need only one attempt.
const freshness = 50 * time.Millisecond

// Init makes the queue ready for use. The queue must not be copied after it.
func (q *Queue[T]) Init() { q.waiters = q.one[:0] }

// Waiters returns all waiters in order. The caller must not change the slice.
func (q *Queue[T]) Waiters() []*Waiter[T] { return q.waiters }

// Len returns the number of waiters.
func (q *Queue[T]) Len() int { return len(q.waiters) }

// Arrivals returns a number that counts the waiters that have joined. It is for Dismiss.
func (q *Queue[T]) Arrivals() uint32 { return q.arrivals }

// An Admission is the result of Join.
type Admission uint8

const (
	Admitted Admission = iota
	Behind             // not joined: it makes a single attempt, and others are first
	Full               // not joined: its Limit of waiters is reached
)

// Join adds a waiter at the end.
func (q *Queue[T]) Join(w *Waiter[T]) Admission {
	front := true
	if n := len(q.waiters); n == 0 {
		q.refusedAt = 0
	} else {
		last := q.waiters[n-1]
		front = w.Class == RedisQueue || last.atFront() && last.joins(w.Class) && !q.crowded(w)
		switch {
		case w.NoWait && !front:
			return Behind
		case !w.NoWait && q.waiting() >= int(w.Limit):
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

// waiting counts the waiters, except those that were at the front from the start and have not been
// refused yet.
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

// crowded reports whether as many waiters try as a Counted w may try together with.
func (q *Queue[T]) crowded(w *Waiter[T]) bool {
	if w.Class != Counted {
		return false
	}
	n := int32(0)
	for _, other := range q.front() {
		if other.state == Ready || other.state == Asking {
			n++
		}
	}
	return n >= w.Together
}

// A Step is what a waiter does next.
type Step uint8

const (
	Ask    Step = iota // call Asks, and try in Redis
	Sleep              // until woken, or for the duration
	GiveUp             // its deadline has passed; call Leave
	Prompt             // the front has not tried for long; call Prompt, and Next again
	Gone               // it is not in the queue
)

// Forever is how long to sleep if only a wake-up can change the next step.
const Forever time.Duration = math.MaxInt64

// Next returns the next step of a waiter, and for Sleep the duration.
//
// A waiter at the front tries at PollAt, at the latest Every after its attempt before, and once more
// when its deadline has passed. One behind it cannot try. It prompts those at the front if none has
// tried for Every.
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
		if w.state == Queued {
			return q.sleepsBehind(w, left, now)
		}
		return Sleep, left
	}
	// Ready or Asleep.
	if left > 0 && w.Class != RedisQueue {
		pause, over := q.rotation.pausesFor(now)
		if pause > 0 {
			return Sleep, min(left, pause)
		}
		if over {
			q.Wake() // all waiters at the front slept until now
		}
	}
	first := w.Class != RedisQueue || q.waiters[0] == w
	switch {
	case w.state == Ready: // it tries once, even if its deadline has passed
		return Ask, 0
	case left <= 0 && (!first || w.triedLast() || q.answers(w)):
		return GiveUp, 0
	case left <= 0, w.woken:
		return Ask, 0
	case w.PollAt <= now:
		return Ask, 0
	}
	pause := min(left, w.PollAt.Since(now))
	if !first {
		return q.sleepsBehind(w, pause, now)
	}
	if w.Every > 0 {
		pause = min(pause, w.asked.Add(w.Every).Since(now))
	}
	if pause <= 0 {
		return Ask, 0
	}
	return Sleep, pause
}

// sleepsBehind returns the step of a waiter that leaves the attempts to others and would sleep for
// a pause otherwise.
func (q *Queue[T]) sleepsBehind(w *Waiter[T], pause time.Duration, now clock.Moment) (Step, time.Duration) {
	if w.Every > 0 {
		pause = min(pause, q.asked.Add(w.Every).Since(now))
	}
	if pause <= 0 {
		return Prompt, 0
	}
	return Sleep, pause
}

// answers reports whether w, which has waited behind others or was refused itself, need not try
// again before its deadline: Redis has just refused another attempt of its class.
func (q *Queue[T]) answers(w *Waiter[T]) bool {
	return w.counted && w.Deadline != 0 && q.refusedAt != 0 && q.refused == w.Class && w.Deadline.Since(q.refusedAt) <= freshness
}

// Prompt makes the waiters at the front try, because none has for long.
func (q *Queue[T]) Prompt(now clock.Moment) (wake []*Waiter[T]) {
	q.asked = now
	return q.Wake()
}

// Asks begins an attempt of w. A wake-up from now on may be newer than the reply, so w tries again
// after it. polls reports whether nothing woke w: its sleep is over.
func (q *Queue[T]) Asks(w *Waiter[T], now clock.Moment) (polls bool) {
	polls = w.state == Asleep && !w.woken
	if w.move(Asking) {
		w.woken, w.again, w.asked, q.asked = false, false, now, now
	}
	return polls
}

// Refused ends an attempt of w because another owner has the lock. From now on w counts as a
// waiter. If that exceeds the Limit of waiters at the end, Refused removes them and returns them as
// tooMany.
func (q *Queue[T]) Refused(w *Waiter[T], pollAt clock.Moment) (tooMany []*Waiter[T]) {
	q.Sleeps(w, pollAt)
	if q.refusedAt, q.refused = w.asked, w.Class; w.woken {
		q.refusedAt = 0
	}
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

// Sleeps ends an attempt of w that had no reply, or whose result is not needed.
func (q *Queue[T]) Sleeps(w *Waiter[T], pollAt clock.Moment) {
	if w.state != Out && w.move(Asleep) {
		w.PollAt, w.sure = pollAt, false
		if w.again {
			w.wake()
		}
	}
}

// Leave removes a waiter at any position. Waiters that move to the front try at once: a wake-up
// that w received may have been meant for them. Only those whose time is over soon take the answer
// that w got, unless w was woken since. Of those for permits, the next one at the front takes over the
// wake-up.
func (q *Queue[T]) Leave(w *Waiter[T]) (wake []*Waiter[T]) {
	in := w.state.Waits()
	wake = q.remove(w)
	if in && w.Class == Counted && (w.woken || w.again) {
		return q.Wake()
	}
	return wake
}

// remove is Leave without the wake-up.
func (q *Queue[T]) remove(w *Waiter[T]) (wake []*Waiter[T]) {
	if w.woken || w.state != Asleep && w.state != Queued {
		q.refusedAt = 0
	}
	if w.state == Out || !w.move(Out) || len(q.waiters) == 0 {
		return nil
	}
	first := q.waiters[0]
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	return q.promote(first)
}

// promote moves waiters to the front as far as possible, and returns them. One that needs no other
// answer before its deadline does not try at once. was is who was first. A RedisQueue waiter that is
// first from now on may sleep for a shorter time.
func (q *Queue[T]) promote(was *Waiter[T]) (promoted []*Waiter[T]) {
	if len(q.waiters) > 0 && q.waiters[0].Class == RedisQueue {
		if q.waiters[0] == was {
			return nil
		}
		return q.waiters[:1]
	}
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
			if q.answers(w) {
				w.move(Asleep)
				w.asked, w.PollAt = q.refusedAt, w.Deadline
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

// Granted removes w, which got the lock. w may have left before. The next waiter does not try,
// unless both share the lock: the release or the loss of the lock will wake it. It sleeps until
// pollAt and is returned as next. Of those for permits, as many try as permits are free.
func (q *Queue[T]) Granted(w *Waiter[T], free int, now, pollAt clock.Moment) (next *Waiter[T], wake []*Waiter[T]) {
	rested := q.rotation.phase != running
	q.rotation.move(running)
	q.asked = now
	if w.Class == Counted && (w.woken || w.again) { // more may have become free since its attempt
		free = max(free, 1)
	}
	wake = q.remove(w)
	if len(q.waiters) == 0 {
		return nil, wake
	}
	first := q.waiters[0]
	if first.Class == Counted {
		return q.spread(free, now, pollAt)
	}
	if first.Class == RedisQueue || w.Class == Shared && first.Class == Shared {
		if rested {
			wake = q.front()
		}
		return nil, wake
	}
	first.refrain(now, pollAt)
	return first, wake
}

// spread makes the first waiters for permits try, one for each permit that is free, and the others at
// the front sleep. One of those that are no heirs is at the front, and hears what becomes free: it
// is returned as next.
func (q *Queue[T]) spread(free int, now, pollAt clock.Moment) (next *Waiter[T], wake []*Waiter[T]) {
	for _, w := range q.waiters {
		behind := w.state == Queued
		if behind {
			if free <= 0 && next != nil {
				break
			}
			w.move(Ready)
		}
		switch {
		case w.state == Heir:
			continue
		case w.state == Asking:
			free--
			w.again = true
		case free > 0:
			free--
			w.wake()
			w.sure = true
			wake = append(wake, w)
		case w.state == Ready && !w.NoWait && !w.woken:
			if w.refrain(now, pollAt); behind {
				wake = append(wake, w) // it plans its next attempt
			}
		}
		if next == nil {
			next = w
		}
	}
	return next, wake
}

// Dismiss removes the waiters that had joined when Arrivals returned arrivals, except those for
// which keep reports true.
func (q *Queue[T]) Dismiss(arrivals uint32, keep func(*Waiter[T]) bool) (out, wake []*Waiter[T]) {
	if len(q.waiters) == 0 {
		return nil, nil
	}
	stay, was := q.waiters[:0:0], q.waiters[0]
	q.refusedAt = 0
	for _, w := range q.waiters {
		if int32(w.arrival-arrivals) > 0 || keep(w) {
			stay = append(stay, w)
		} else if w.move(Out) {
			out = append(out, w)
		}
	}
	q.waiters = stay
	return out, q.promote(was)
}

// Message handles a message on the channel of the name.
func (q *Queue[T]) Message() (wake []*Waiter[T]) {
	if !q.rotation.heard() {
		return nil
	}
	return q.Wake()
}

// Wake wakes the waiters at the front, because the lock may be free.
func (q *Queue[T]) Wake() (wake []*Waiter[T]) {
	q.refusedAt = 0
	for n, w := range q.waiters {
		switch {
		// Redis notifies RedisQueue waiters. Without its message, only the first of all waiters may
		// try.
		case w.Class == RedisQueue && n > 0:
			return q.waiters[:n]
		case !w.atFront():
			return q.waiters[:n]
		}
		w.wake()
		switch {
		case w.Class == RedisQueue:
			return q.waiters[:1]
		case w.Class == Counted && w.state != Heir: // once it has a permit, the next one tries
			return q.waiters[:n+1]
		}
	}
	return q.waiters
}

// Call wakes one waiter, because a message was for it alone.
func (q *Queue[T]) Call(w *Waiter[T]) {
	q.refusedAt = 0
	w.wake()
}

// Heir returns the waiter to hand a hold over to, or nil if the hold must be freed. A streak
// of hand-overs ends after a while, so that other processes get the lock. For RedisQueue waiters, Redis
// decides that. Of those for permits, one that tries because another permit is free gets that, so the
// next one is the heir.
func (q *Queue[T]) Heir(now clock.Moment) *Waiter[T] {
	if len(q.waiters) == 0 {
		return nil
	}
	w := q.waiters[0]
	if w.Class == Counted {
		i := slices.IndexFunc(q.waiters, func(w *Waiter[T]) bool { return w.state != Heir && !(w.state == Asking && w.sure) })
		if i < 0 || q.waiters[i].state == Asking {
			return nil
		}
		w = q.waiters[i]
	}
	switch {
	case w.Class != Counted && w.state != Ready && w.state != Asleep:
		return nil
	case w.Class != RedisQueue && q.rotation.streakOver(now):
		return nil
	}
	return w
}

// HandTo begins a hand-over to w. A waiter is the heir of at most one hold at a time. Of those for
// permits, the next one comes to the front: it is the next heir. It sleeps until pollAt and is
// returned.
func (q *Queue[T]) HandTo(w *Waiter[T], now, pollAt clock.Moment) (next *Waiter[T]) {
	if w.state == Queued {
		w.move(Ready)
	}
	w.move(Heir)
	i := slices.IndexFunc(q.waiters, func(w *Waiter[T]) bool { return w.state != Heir })
	if w.Class != Counted || i < 0 || q.waiters[i].state != Queued {
		return nil
	}
	next = q.waiters[i]
	next.move(Ready)
	next.refrain(now, pollAt)
	return next
}

// EndHandOver ends a hand-over to w, which waits again until the caller wakes it. If w has got the
// hold, Granted removes it next.
func (q *Queue[T]) EndHandOver(w *Waiter[T]) {
	if w.state == Heir {
		w.move(Asleep)
		w.sure = false
	}
}

// HandedOver counts a completed hand-over. The caller calls Granted next.
func (q *Queue[T]) HandedOver(now clock.Moment) { q.rotation.handedOver(now) }

// Freeing begins the release of the last hold of this process. After a streak, the waiters at the
// front pause. echoes is how many messages of this release the process will receive itself. It is 0
// if Redis cannot count listeners; then the first message ends the pause.
func (q *Queue[T]) Freeing(now clock.Moment, echoes int) {
	over := q.rotation.streakOver(now)
	q.rotation.moves, q.refusedAt = 0, 0
	if over && len(q.waiters) > 0 && q.waiters[0].Class != RedisQueue {
		q.rotation.yield(echoes)
	}
}

// Freed ends the release or the loss of a hold. others says whether other processes listened to the
// release. If so, they have the first chance until the given moment.
func (q *Queue[T]) Freed(until clock.Moment, others Listeners) (wake []*Waiter[T]) {
	if q.rotation.freed(until, others) {
		return q.front() // their sleep now ends at until
	}
	wake = q.Wake()
	for _, w := range wake {
		w.sure = w.Class == Counted
	}
	return wake
}

// front returns the waiters at the front, which may try.
func (q *Queue[T]) front() []*Waiter[T] {
	for i, w := range q.waiters {
		if !w.atFront() {
			return q.waiters[:i]
		}
	}
	return q.waiters
}
