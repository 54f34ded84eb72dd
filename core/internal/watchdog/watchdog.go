// Package watchdog renews locks. One scheduler serves all holds of a client. It sends renewals in
// batches of one cluster slot, spread over the interval.
//
// An Item is in one of five states, guarded by the watchdog's mutex:
//
//	idle      -> waiting    Arm
//	waiting   -> sent       it is due
//	waiting   -> idle       Cancel
//	sent      -> waiting    the result arrived
//	sent      -> idle       the result arrived: the hold is gone
//	sent      -> sent       refused in a batch, it is sent again alone
//	sent      -> cancelled  Cancel
//	cancelled -> idle       the result arrived
//	cancelled -> rearmed    Arm
//	rearmed   -> waiting    the result arrived, whatever it is
//	rearmed   -> sent       refused in a batch, it is sent again alone
//	rearmed   -> cancelled  Cancel
//
// The result that a rearmed item gets is about the hold as it was before Cancel. It may be Gone
// although the hold is there, because a renewal names one field, and a hold may change its field.
//
// Cancel does not wait for a renewal in flight. Config.Send must ignore the result for a hold that
// has ended. The renewal script changes nothing if the hold is gone.
package watchdog

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A Verdict is the result of one renewal.
type Verdict int

const (
	Renewed    Verdict = iota
	Gone               // the hold no longer exists
	Outdated           // the renewal was for a state the hold has since left
	Refused            // Redis answered with an error
	Unanswered         // Redis did not answer
)

// An Item is one hold to renew. The zero value with Hold and Slot set is idle. Every hold contains
// one, so it is small.
type Item[H any] struct {
	Hold H      // identifies the hold to Config.Send
	Slot uint16 // items of different slots never share a batch

	state    state
	failures uint8
	// box is where in the ring the item waits.
	box uint16
	// era is when the last renewal was sent. See Watchdog.era.
	era uint16

	// next and prev are the neighbours in the box.
	next, prev *Item[H]
}

type state uint8

const (
	idle state = iota
	waiting
	sent      // The renewal of the item is in flight.
	cancelled // The same, but no further renewal is wanted.
	rearmed   // The same, but the item was cancelled and armed again since.
)

// Config configures a Watchdog. Interval and Send are required.
type Config[H any] struct {
	// Interval is the time between two renewals of a hold.
	Interval time.Duration
	// Slots is set in a cluster, where holds are in different slots.
	Slots bool
	// Send renews a batch and returns a verdict for each item. It may block, and is called from
	// many goroutines.
	Send func(batch []*Item[H]) []Verdict
}

// BatchSize limits the holds that one script renews, because Redis serves no other client
// meanwhile.
const BatchSize = 100

// A Watchdog renews the items that are armed.
type Watchdog[H any] struct {
	cfg Config[H]

	mu   sync.Mutex
	ring ring[H]
	// armed counts the items that are waiting, sent or rearmed.
	armed int
	// era counts RenewAll calls. A renewal with an older era was sent before the last one.
	era uint16
	// rushed is true if everything in the ring is due.
	rushed bool
	// sleeps is when the loop wakes, unless it is nudged.
	sleeps tick
	// used is true if an item was armed since the loop looked.
	used bool

	loop    *schedule.Loop
	sending sync.WaitGroup
}

// New starts a watchdog.
func New[H any](cfg Config[H]) *Watchdog[H] {
	w := &Watchdog[H]{cfg: cfg, ring: newRing[H](cfg.Interval), sleeps: never}
	w.loop = schedule.NewLoop(w.renewDue)
	return w
}

// Arm starts the renewal of an item. The first renewal comes after half an interval to a whole one,
// and no later than halfway through what remains of the lease: the reply that began it may have
// come late.
func (w *Watchdog[H]) Arm(it *Item[H], remaining time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch it.state {
	case idle: // spread locks taken together over half an interval; they stay apart from then on
		w.scheduleLocked(it, min(w.cfg.Interval-rand.N(w.cfg.Interval/2+1), remaining/2))
	case cancelled:
		it.state = rearmed
	default:
		return
	}
	it.failures = 0
	w.armed++
	w.used = true
}

// Cancel stops the renewal of an item.
func (w *Watchdog[H]) Cancel(it *Item[H]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch it.state {
	case waiting:
		w.ring.remove(it)
		it.state = idle
	case sent, rearmed:
		it.state = cancelled
	default:
		return
	}
	w.armed--
}

// RenewAll renews every armed item with a command sent from now on: the waiting ones at once, those
// with a renewal in flight as soon as it has its result.
func (w *Watchdog[H]) RenewAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.era++
	w.rushed = true
	w.wakeLocked(0)
}

// Len returns the number of armed items.
func (w *Watchdog[H]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.armed
}

// Close stops the watchdog and waits for renewals in flight. Arm must not be called after it.
func (w *Watchdog[H]) Close() {
	w.loop.Close()
	w.sending.Wait()
}

// scheduleLocked puts an item into the ring.
func (w *Watchdog[H]) scheduleLocked(it *Item[H], delay time.Duration) {
	it.state = waiting
	if due := w.ring.add(it, delay); due < w.sleeps {
		w.wakeLocked(due)
	}
}

// wakeLocked makes the loop sleep no longer than until a tick.
func (w *Watchdog[H]) wakeLocked(until tick) {
	w.sleeps = until
	w.loop.Nudge()
}

// interval returns the interval minus a random part, so that locks taken together drift apart.
func (w *Watchdog[H]) interval() time.Duration {
	return w.cfg.Interval - rand.N(w.cfg.Interval/32+1)
}

// retry returns the backoff after failures, from a hundredth of the interval to an eighth.
func (w *Watchdog[H]) retry(failures uint8) time.Duration {
	return backoff.Doubled(w.cfg.Interval/100, w.cfg.Interval/8, int(failures)-1) + time.Millisecond
}

// renewDue sends due items, each batch on its own goroutine, so that a hung node does not delay others.
func (w *Watchdog[H]) renewDue() (sleep time.Duration) {
	batches, sleep := w.due()
	for _, batch := range batches {
		w.sending.Go(func() { w.renew(batch) })
	}
	return sleep
}

// due takes due items from the ring, and items due soon to fill a batch. It returns how long to
// sleep next; below 0: until nudged.
func (w *Watchdog[H]) due() (batches [][]*Item[H], sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fill := BatchSize // one batch, so that other commands run in between
	if w.cfg.Slots {
		fill = everything // few items due together share a slot
	}
	var due []*Item[H]
	if w.rushed {
		w.rushed = false
		due = w.ring.takeAll()
	} else {
		due = w.ring.take(fill)
	}
	w.sleeps, sleep = w.restLocked()
	return w.batchesLocked(due), sleep
}

// restLocked returns when the loop wakes next, and how long until then. While the watchdog is used it
// wakes early enough for whatever is armed next. Locks that are held for a moment, one after the
// other, would otherwise nudge it each time.
func (w *Watchdog[H]) restLocked() (tick, time.Duration) {
	next, sleep := w.ring.pause()
	if soon := w.cfg.Interval / 4; w.used && (sleep < 0 || sleep > soon) {
		next, sleep = tick((w.ring.elapsed()+soon)/w.ring.width), soon
	}
	w.used = false
	return next, sleep
}

// batchesLocked splits due items into batches by slot and marks them as sent.
func (w *Watchdog[H]) batchesLocked(due []*Item[H]) [][]*Item[H] {
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

// renew sends a batch. Items that Redis refuses are sent again alone, so that one bad key or script
// call costs no other hold its lease. All others are settled before that.
func (w *Watchdog[H]) renew(batch []*Item[H]) {
	var refused []*Item[H]
	for i, v := range w.cfg.Send(batch) {
		if v == Refused && len(batch) > 1 {
			refused = append(refused, batch[i])
		} else {
			w.handle(batch[i], v)
		}
	}
	w.renewAlone(refused)
}

// renewAlone sends items one after another. Once an eighth of the interval has passed, the rest
// wait for their retry in the ring. Each command may take as long as Send does, and an item behind
// it would miss its deadline.
func (w *Watchdog[H]) renewAlone(refused []*Item[H]) {
	began := time.Now()
	for _, it := range refused {
		v := Refused
		if time.Since(began) < w.cfg.Interval/8 {
			if !w.resend(it) {
				continue
			}
			v = w.cfg.Send([]*Item[H]{it})[0]
		}
		w.handle(it, v)
	}
}

// resend marks an item as sent once more. It returns false if the item was cancelled.
func (w *Watchdog[H]) resend(it *Item[H]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state == cancelled {
		it.state = idle
		return false
	}
	it.state, it.era = sent, w.era
	return true
}

func (w *Watchdog[H]) handle(it *Item[H], v Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case it.state == cancelled:
		it.state = idle
		return
	case it.state == rearmed && v == Gone:
		v = Outdated
	}
	switch v {
	case Renewed:
		it.failures = 0
		pause := w.interval()
		if it.era != w.era {
			pause = 0
		}
		w.scheduleLocked(it, pause)
	case Gone:
		it.state = idle
		w.armed--
	default:
		it.failures = min(it.failures+1, 100) // more make no difference
		w.scheduleLocked(it, w.retry(it.failures))
	}
}
