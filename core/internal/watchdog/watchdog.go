// Package watchdog renews locks: one scheduler for all holds of a client, which sends them in batches, a cluster slot
// at a time, spread over the interval.
//
// An Item is in one of four states, guarded by the watchdog's mutex:
//
//	idle    -> waiting by Arm
//	waiting -> sent when due; idle by Cancel
//	sent    -> waiting when the result is there, or idle when the hold is found gone; left by Cancel
//	left    -> idle when the result is there; sent by Arm
//
// Cancel does not wait for a renewal under way; whoever reads the result (Config.Send) must ignore it for a hold that
// has ended, and the renewal script itself changes nothing where the hold is gone.
package watchdog

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A Verdict is what became of one renewal.
type Verdict int

const (
	Renewed    Verdict = iota
	Gone               // the hold is not there any more
	Outdated           // the question was about what the hold has given up since
	Refused            // Redis answered with an error
	Unanswered         // Redis did not answer
)

// An Item is one hold to be renewed. The zero value with Hold and Slot filled in is idle. There is one in every hold: it is
// kept small.
type Item[H any] struct {
	Hold H      // what Config.Send knows it by
	Slot uint16 // items of different slots never share a batch

	state    state
	failures uint8
	box      uint16 // of the ring, where it is while it waits
	era      uint16 // of the latest renewal that was sent; see Watchdog.era

	next, prev *Item[H] // in the box
}

type state uint8

const (
	idle state = iota
	waiting
	sent // its renewal is under way
	left // likewise, but it is not to be renewed any more
)

// Config says how to renew. Interval and Send are required.
type Config[H any] struct {
	// Interval between two renewals of a hold.
	Interval time.Duration
	// Slots is set where there are several.
	Slots bool
	// Send renews a batch and returns a verdict for each item. It may block, and is called on many goroutines.
	Send func(batch []*Item[H]) []Verdict
}

// BatchSize is the most holds that one script renews: Redis serves nobody else meanwhile.
const BatchSize = 100

// A Watchdog renews the items that are armed.
type Watchdog[H any] struct {
	cfg Config[H]

	mu     sync.Mutex
	ring   ring[H]
	armed  int    // items that wait or are sent
	era    uint16 // counts RenewAlls: a renewal under way was sent before the latest of them if it is of an earlier one
	rushed bool   // everything in the ring is due
	sleeps tick   // until when the loop sleeps, unless it is nudged

	loop    *schedule.Loop
	sending sync.WaitGroup
}

// New starts a watchdog.
func New[H any](cfg Config[H]) *Watchdog[H] {
	w := &Watchdog[H]{cfg: cfg, ring: newRing[H](cfg.Interval), sleeps: never}
	w.loop = schedule.NewLoop(w.look)
	return w
}

// Arm has an item renewed from now on, first after half an interval to a whole one, and at the latest after half of what is left of
// its lease: an answer may have come late.
func (w *Watchdog[H]) Arm(it *Item[H], remaining time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch it.state {
	case idle: // locks taken together are spread over half an interval; from then on they stay apart
		w.schedule(it, min(w.cfg.Interval-rand.N(w.cfg.Interval/2+1), remaining/2))
	case left:
		it.state = sent
	default:
		return
	}
	it.failures = 0
	w.armed++
}

// Cancel ends the renewal of an item.
func (w *Watchdog[H]) Cancel(it *Item[H]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch it.state {
	case waiting:
		w.ring.remove(it)
		it.state = idle
	case sent:
		it.state = left
	default:
		return
	}
	w.armed--
}

// RenewAll has every armed item renewed by a command that is sent from now on, at once: those that are scheduled, and those
// whose renewal is under way as soon as it has its result.
func (w *Watchdog[H]) RenewAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.era++
	w.rushed = true
	w.wake(0)
}

// Len is the number of armed items.
func (w *Watchdog[H]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.armed
}

// Close ends the watchdog and waits for renewals under way. Arm must not be called after it.
func (w *Watchdog[H]) Close() {
	w.loop.Close()
	w.sending.Wait()
}

// schedule has an item renewed after a delay. Locked.
func (w *Watchdog[H]) schedule(it *Item[H], delay time.Duration) {
	it.state = waiting
	if due := w.ring.add(it, delay); due < w.sleeps {
		w.wake(due)
	}
}

// wake has the loop sleep no longer than until a tick. Locked.
func (w *Watchdog[H]) wake(until tick) {
	w.sleeps = until
	w.loop.Nudge()
}

// interval is shortened at random, so that locks that have come together do not stay together.
func (w *Watchdog[H]) interval() time.Duration {
	return w.cfg.Interval - rand.N(w.cfg.Interval/32+1)
}

// retry is the pause after a failure: a hundredth of the interval at first, an eighth of it at most.
func (w *Watchdog[H]) retry(failures uint8) time.Duration {
	return min(w.cfg.Interval/100<<min(failures-1, 10), w.cfg.Interval/8) + time.Millisecond
}

// look sends what is due, each batch on a goroutine of its own: a node that hangs must not hold up the others.
func (w *Watchdog[H]) look() (sleep time.Duration) {
	batches, sleep := w.due()
	for _, batch := range batches {
		w.sending.Go(func() { w.renew(batch) })
	}
	return sleep
}

// due takes what is due out of the ring, and of what will be soon as much as fills a batch. It says how long to sleep then;
// below 0: until nudged.
func (w *Watchdog[H]) due() (batches [][]*Item[H], sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fill := BatchSize // one at a time, or others would wait for all of them
	if w.cfg.Slots {
		fill = everything // few of those that are due together share a slot
	}
	var due []*Item[H]
	if w.rushed {
		w.rushed = false
		due = w.ring.takeAll()
	} else {
		due = w.ring.take(fill)
	}
	w.sleeps, sleep = w.ring.pause()
	return w.batches(due), sleep
}

// batches notes that items are sent. Locked.
func (w *Watchdog[H]) batches(due []*Item[H]) [][]*Item[H] {
	bySlot := make(map[uint16][]*Item[H])
	for _, it := range due {
		it.state, it.era = sent, w.era
		bySlot[it.Slot] = append(bySlot[it.Slot], it)
	}
	var batches [][]*Item[H]
	for _, items := range bySlot {
		for len(items) > BatchSize {
			batches = append(batches, items[:BatchSize:BatchSize])
			items = items[BatchSize:]
		}
		batches = append(batches, items)
	}
	return batches
}

// renew sends a batch. What Redis refuses in company is sent again alone, so that one bad key, or one bad script call,
// costs no other hold its lease.
func (w *Watchdog[H]) renew(batch []*Item[H]) {
	verdicts := w.cfg.Send(batch)
	for i, it := range batch {
		if verdicts[i] == Refused && len(batch) > 1 {
			verdicts[i] = w.cfg.Send([]*Item[H]{it})[0]
		}
		w.settle(it, verdicts[i])
	}
}

func (w *Watchdog[H]) settle(it *Item[H], v Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state == left {
		it.state = idle
		return
	}
	switch v {
	case Renewed:
		it.failures = 0
		pause := w.interval()
		if it.era != w.era {
			pause = 0
		}
		w.schedule(it, pause)
	case Gone:
		it.state = idle
		w.armed--
	default:
		it.failures = min(it.failures+1, 100) // more make no difference
		w.schedule(it, w.retry(it.failures))
	}
}
