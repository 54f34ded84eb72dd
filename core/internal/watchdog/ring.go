package watchdog

import (
	"math"
	"time"
)

// A tick is a point in time, counted in the ring's width; a box of the ring has what is due by one.
type tick int64

const never tick = math.MaxInt64

const (
	ticks    = 512  // of an interval
	ringSize = 1024 // boxes: more than anything is ahead
	ahead    = 16   // ticks that a renewal may come early, to be in one batch with others
)

// everything is more than any batch.
const everything = math.MaxInt

// A ring has items by when they are due. To put one in and to take one out touches no more than its neighbours, where a heap
// would have to move a dozen others. It is guarded by the watchdog's mutex.
type ring[H any] struct {
	began time.Time // tick 0
	width time.Duration
	next  tick // all boxes before that are empty
	len   int
	boxes [ringSize]*Item[H] // the first of each
}

func newRing[H any](interval time.Duration) ring[H] {
	return ring[H]{began: time.Now(), width: max(interval/ticks, 1)}
}

// add puts in an item that is due after a delay, and returns when that is. It may be a tick early: nothing is to come late.
func (r *ring[H]) add(it *Item[H], delay time.Duration) tick {
	due := tick((time.Since(r.began) + delay) / r.width)
	if r.len == 0 || due < r.next {
		r.next = due
	}
	it.box = uint16(due % ringSize)
	first := &r.boxes[it.box]
	it.next, it.prev = *first, nil
	if *first != nil {
		(*first).prev = it
	}
	*first = it
	r.len++
	return due
}

// remove takes out an item.
func (r *ring[H]) remove(it *Item[H]) {
	if it.prev == nil {
		r.boxes[it.box] = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	}
	it.next, it.prev = nil, nil
	r.len--
}

// take takes out what is due, if anything is, and then as much of what soon will be as makes it fill.
func (r *ring[H]) take(fill int) (due []*Item[H]) {
	now := tick(time.Since(r.began) / r.width)
	for t := max(r.next, now-ringSize+1); t <= now; t++ { // what is overdue by more is in the same boxes
		due = r.empty(t, due, everything)
	}
	r.next = max(r.next, now+1)
	if len(due) == 0 {
		return nil
	}
	for t := r.next; t <= now+ahead; t++ {
		due = r.empty(t, due, fill)
	}
	return due
}

// takeAll takes out everything.
func (r *ring[H]) takeAll() (all []*Item[H]) {
	for t := range tick(ringSize) {
		all = r.empty(t, all, everything)
	}
	return all
}

// empty adds what is in a box to a list, which is not to be longer than fill.
func (r *ring[H]) empty(t tick, list []*Item[H], fill int) []*Item[H] {
	for len(list) < fill {
		it := r.boxes[t%ringSize]
		if it == nil {
			break
		}
		r.remove(it)
		list = append(list, it)
	}
	return list
}

// pause is until when nothing is due, and how long that is; below 0: for ever.
func (r *ring[H]) pause() (tick, time.Duration) {
	if r.len == 0 {
		return never, -1
	}
	t := r.next
	for r.boxes[t%ringSize] == nil {
		t++
	}
	return t, max(0, time.Duration(t)*r.width-time.Since(r.began))
}
