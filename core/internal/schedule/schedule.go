// Package schedule calls back at given times. It uses one goroutine and one heap for any number of
// entries. A timer for each would cost more and could not fire neighbours together.
package schedule

import (
	"math"
	"sync"
	"time"
)

// An Entry is the place of a value in a Schedule. The zero value is not scheduled. It belongs to one
// Schedule. The value itself is in the heap, and only while it is scheduled: every lease and every
// waiter has an Entry, and few of them are.
type Entry struct {
	// place is the index in the heap plus one. 0: the entry is not scheduled.
	place int32
}

// A Schedule holds entries and fires them when they are due.
type Schedule[T any] struct {
	fire  func(due []T)
	slack time.Duration
	// began is the origin of the schedule's clock.
	began time.Time

	mu      sync.Mutex
	entries entries[T]
	// sleeps is when the loop wakes, unless it is nudged. A time that is past: it is about to look.
	sleeps time.Duration

	loop *Loop
}

// New starts a schedule. It calls fire on its goroutine with all values that are due, or will be
// within slack. fire must not block.
func New[T any](slack time.Duration, fire func(due []T)) *Schedule[T] {
	s := &Schedule[T]{
		fire:  fire,
		slack: slack,
		began: time.Now(),
	}
	s.loop = NewLoop(s.ringDue)
	return s
}

// never is later than any due time.
const never time.Duration = math.MaxInt64

// after returns now + delay without overflow. Callers may pass a delay of centuries to mean
// forever.
func after(now, delay time.Duration) time.Duration {
	return now + min(delay, never-now)
}

// Set schedules a value to fire after a delay. It moves an entry that is already scheduled.
func (s *Schedule[T]) Set(e *Entry, value T, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := after(time.Since(s.began), delay)
	s.entries.set(timed[T]{due, e, value})
	if due < s.sleeps {
		s.sleeps = due
		s.loop.Nudge()
	}
}

// Cancel removes an entry. It does not stop an entry that is being fired.
func (s *Schedule[T]) Cancel(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.place > 0 {
		s.entries.remove(int(e.place - 1))
	}
}

// Len returns the number of scheduled entries.
func (s *Schedule[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Close stops the schedule after a running fire. It never fires the remaining entries.
func (s *Schedule[T]) Close() { s.loop.Close() }

func (s *Schedule[T]) ringDue() (sleep time.Duration) {
	due, sleep := s.takeDue()
	if len(due) > 0 {
		s.fire(due)
	}
	return sleep
}

// takeDue removes the due entries and returns how long to sleep next; below 0: until nudged.
func (s *Schedule[T]) takeDue() (due []T, sleep time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	if len(s.entries) > 0 && s.entries[0].due <= now {
		horizon := after(now, s.slack)
		for len(s.entries) > 0 && s.entries[0].due <= horizon {
			due = append(due, s.entries.remove(0))
		}
	}
	if len(s.entries) == 0 {
		s.sleeps = never
		return due, -1
	}
	s.sleeps = s.entries[0].due
	return due, max(0, s.sleeps-now)
}

// entries is a heap by due time. It holds the times itself, because every change compares many of
// them and each would otherwise be a fetch from an entry elsewhere in memory.
type entries[T any] []timed[T]

type timed[T any] struct {
	// due is when the entry rings, on the schedule's clock.
	due   time.Duration
	entry *Entry
	value T
}

// kept is how many entries an empty heap keeps room for. It frees the memory after a burst.
const kept = 1024

// set adds or moves an entry.
func (h *entries[T]) set(item timed[T]) {
	if item.entry.place == 0 {
		*h = append(*h, timed[T]{})
		item.entry.place = int32(len(*h))
	}
	h.fix(int(item.entry.place-1), item)
}

// remove removes the entry at index i, and returns its value.
func (h *entries[T]) remove(i int) T {
	removed, last := (*h)[i], len(*h)-1
	moved := (*h)[last]
	(*h)[last] = timed[T]{}
	*h = (*h)[:last]
	if i < last {
		h.fix(i, moved)
	} else if last == 0 && cap(*h) > kept {
		*h = nil
	}
	removed.entry.place = 0
	return removed.value
}

// fix moves an item from the free index i to where it belongs.
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
	item.entry.place = int32(i + 1)
}
