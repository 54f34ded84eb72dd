package watchdog

import (
	"math"
	"time"
)

// A tick is a point in time in units of the ring's width. Each box of the ring holds the items due
// in one tick.
type tick int64

const never tick = math.MaxInt64

const (
	// ticks is how many an interval has.
	ticks = 512
	// ringSize is the number of boxes. No item is so many ticks ahead.
	ringSize = 1024
	// ahead is how many ticks early a renewal may be, to fill a batch.
	ahead = 16
)

// everything is larger than any batch.
const everything = math.MaxInt

// A ring holds items by due time, as a timing wheel. Adding and removing one touches only its
// neighbours, where a heap would move a dozen others. The watchdog's mutex guards it.
type ring[H any] struct {
	// began is tick 0.
	began time.Time
	width time.Duration
	// read is when the clock was last read, since began.
	read time.Duration
	// next is a tick before which all boxes are empty.
	next tick
	len  int
	// boxes have the first item of each.
	boxes [ringSize]*Item[H]
}

func newRing[H any](interval time.Duration) ring[H] {
	return ring[H]{began: time.Now(), width: max(interval/ticks, 1)}
}

// elapsed returns the time since tick 0. It never goes back. If the clock was set back, elapsed
// goes on from its last result.
func (r *ring[H]) elapsed() time.Duration {
	at := time.Since(r.began)
	if at < r.read {
		at, r.began = r.read, time.Now().Add(-r.read)
	}
	r.read = at
	return at
}

// add adds an item and returns its due tick. It rounds down, so that no item is late. An item with
// a negative delay is overdue.
func (r *ring[H]) add(it *Item[H], delay time.Duration) tick {
	due := tick(max(0, r.elapsed()+delay) / r.width)
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

// remove removes an item.
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

// take removes all due items. If there are any, it adds items that are due soon, up to fill in
// total.
func (r *ring[H]) take(fill int) (due []*Item[H]) {
	now := tick(r.elapsed() / r.width)
	for t := max(r.next, now-ringSize+1); t <= now; t++ { // older items share these boxes
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

// takeAll removes all items.
func (r *ring[H]) takeAll() (all []*Item[H]) {
	for t := range tick(ringSize) {
		all = r.empty(t, all, everything)
	}
	return all
}

// empty moves items from a box to a list, up to fill in total.
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

// pause returns the next due tick and how long until then; below 0: the ring is empty.
func (r *ring[H]) pause() (tick, time.Duration) {
	if r.len == 0 {
		return never, -1
	}
	t := r.next
	for r.boxes[t%ringSize] == nil {
		t++
	}
	return t, max(0, time.Duration(t)*r.width-r.elapsed())
}
