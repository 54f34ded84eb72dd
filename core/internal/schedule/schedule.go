// Package schedule calls back at given times: one goroutine and one heap for any number of entries, where a timer
// each would do the same at a higher price and could not fire neighbours together.
package schedule

import (
	"math"
	"sync"
	"time"
)

// An Entry is one thing to be done at some time; the zero value is not scheduled. It belongs to one Schedule.
type Entry[T any] struct {
	value T
	place int // in the heap, plus one; 0: not scheduled
}

// A Schedule holds entries and fires them when they are due.
type Schedule[T any] struct {
	fire  func(due []T)
	slack time.Duration
	began time.Time // 0 by its clock

	mu      sync.Mutex
	entries entries[T]
	sleeps  time.Duration // until when the loop sleeps, unless it is nudged; past: it is about to look

	loop *Loop
}

// New starts a schedule. fire is called on the schedule's goroutine with everything that is due, or will be within slack; it must
// not block.
func New[T any](slack time.Duration, fire func(due []T)) *Schedule[T] {
	s := &Schedule[T]{
		fire:  fire,
		slack: slack,
		began: time.Now(),
	}
	s.loop = NewLoop(s.look)
	return s
}

// never is later than everything that is due.
const never time.Duration = math.MaxInt64

// after is the time that comes a delay after another; a delay of centuries may be meant as one without end.
func after(now, delay time.Duration) time.Duration {
	return now + min(delay, never-now)
}

// Set schedules a value to be fired after a delay; an entry that is scheduled already is moved.
func (s *Schedule[T]) Set(e *Entry[T], value T, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := after(time.Since(s.began), delay)
	e.value = value
	s.entries.set(e, due)
	if due < s.sleeps {
		s.sleeps = due
		s.loop.Nudge()
	}
}

// Cancel takes an entry out. One that is just being fired is past that.
func (s *Schedule[T]) Cancel(e *Entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.place > 0 {
		s.entries.remove(e.place - 1)
	}
}

// Len is the number of entries that are scheduled.
func (s *Schedule[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Close ends the schedule, after a fire that is under way. Entries that are left are never fired.
func (s *Schedule[T]) Close() { s.loop.Close() }

func (s *Schedule[T]) look() (sleep time.Duration) {
	due, sleep := s.takeDue()
	if len(due) > 0 {
		s.fire(due)
	}
	return sleep
}

// takeDue takes out what is due and says how long to sleep after it; below 0: until nudged.
func (s *Schedule[T]) takeDue() (due []T, sleep time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	if len(s.entries) > 0 && s.entries[0].due <= now {
		horizon := after(now, s.slack)
		for len(s.entries) > 0 && s.entries[0].due <= horizon {
			due = append(due, s.entries.remove(0).value)
		}
	}
	if len(s.entries) == 0 {
		s.sleeps = never
		return due, -1
	}
	s.sleeps = s.entries[0].due
	return due, max(0, s.sleeps-now)
}

// entries is a heap by due time. The times stand in it, and not in the entries: it is looked at in many places for each change,
// and each entry would have to be fetched from elsewhere for that.
type entries[T any] []timed[T]

type timed[T any] struct {
	due   time.Duration // by the schedule's clock
	entry *Entry[T]
}

// kept is for how many entries an empty heap keeps room: what a crowd has needed is not for ever.
const kept = 1024

// set adds an entry, or moves it.
func (h *entries[T]) set(e *Entry[T], at time.Duration) {
	if e.place == 0 {
		*h = append(*h, timed[T]{})
		e.place = len(*h)
	}
	h.fix(e.place-1, timed[T]{at, e})
}

// remove takes out what is in a place.
func (h *entries[T]) remove(i int) *Entry[T] {
	e, last := (*h)[i].entry, len(*h)-1
	moved := (*h)[last]
	(*h)[last] = timed[T]{}
	*h = (*h)[:last]
	if i < last {
		h.fix(i, moved)
	} else if last == 0 && cap(*h) > kept {
		*h = nil
	}
	e.place = 0
	return e
}

// fix puts an item where it belongs, from a place that is free.
func (h entries[T]) fix(i int, item timed[T]) {
	for i > 0 && item.due < h[(i-1)/2].due {
		h.put(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].due < h[child].due {
			child++
		}
		if child >= len(h) || item.due <= h[child].due {
			break
		}
		h.put(i, h[child])
		i = child
	}
	h.put(i, item)
}

func (h entries[T]) put(i int, item timed[T]) {
	h[i] = item
	item.entry.place = i + 1
}
