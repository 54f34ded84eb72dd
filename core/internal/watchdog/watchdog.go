// Package watchdog renews locks: one scheduler for all holds of a client, which sends them in batches, a cluster slot
// at a time, spread over the interval.
//
// An Item is in one of three states, guarded by the watchdog's mutex:
//
//	idle     -> armed by Arm
//	armed    -> scheduled; when due, sent; by Cancel, or when its hold is found gone: idle
//	sent     -> as armed, but its renewal is under way: it is scheduled again when the result is there,
//	            unless it was cancelled meanwhile
//
// Cancel does not wait for a renewal under way; whoever reads the result (Config.Send) must ignore it for a hold that
// has ended, and the renewal script itself changes nothing where the hold is gone.
package watchdog

import (
	"math"
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
	Refused            // Redis answered with an error
	Unanswered         // Redis did not answer
)

// An Item is one hold to be renewed. The zero value with Hold and Slot filled in is idle. There is one in every hold: it is
// kept small.
type Item[H any] struct {
	Hold H      // what Config.Send knows it by
	Slot uint16 // items of different slots never share a batch

	armed    bool
	sent     bool
	failures uint16
	era      uint16 // of the latest renewal that was sent; see Watchdog.era
	entry    schedule.Entry[*Item[H]]
}

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
	cfg      Config[H]
	schedule *schedule.Schedule[*Item[H]]

	mu    sync.Mutex
	armed int
	era   uint16 // counts RenewAlls: a renewal under way was sent before the latest of them if it is of an earlier one

	sending sync.WaitGroup
}

// New starts a watchdog.
func New[H any](cfg Config[H]) *Watchdog[H] {
	w := &Watchdog[H]{cfg: cfg}
	fill := BatchSize // one at a time, or others would wait for all of them
	if cfg.Slots {
		fill = math.MaxInt // few of those that are due together share a slot
	}
	w.schedule = schedule.New(cfg.Interval/32, fill, w.fire)
	return w
}

// Arm has an item renewed from now on, first after half an interval to a whole one.
func (w *Watchdog[H]) Arm(it *Item[H]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.armed {
		return
	}
	it.armed, it.failures = true, 0
	w.armed++
	if !it.sent {
		// Locks taken together are spread over half an interval; from then on they stay apart.
		w.schedule.Set(&it.entry, it, w.cfg.Interval-rand.N(w.cfg.Interval/2+1))
	}
}

// Cancel ends the renewal of an item.
func (w *Watchdog[H]) Cancel(it *Item[H]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disarm(it)
}

// RenewAll has every armed item renewed by a command that is sent from now on, at once: those that are scheduled, and those
// whose renewal is under way as soon as it has its result.
func (w *Watchdog[H]) RenewAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.era++
	w.schedule.Rush()
}

// Len is the number of armed items.
func (w *Watchdog[H]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.armed
}

// Close ends the watchdog and waits for renewals under way. Arm must not be called after it.
func (w *Watchdog[H]) Close() {
	w.schedule.Close()
	w.sending.Wait()
}

func (w *Watchdog[H]) disarm(it *Item[H]) {
	if it.armed {
		it.armed = false
		w.armed--
		w.schedule.Cancel(&it.entry)
	}
}

// interval is shortened at random, so that locks that have come together do not stay together.
func (w *Watchdog[H]) interval() time.Duration {
	return w.cfg.Interval - rand.N(w.cfg.Interval/8+1)
}

// retry is the pause after a failure: a hundredth of the interval at first, an eighth of it at most.
func (w *Watchdog[H]) retry(failures uint16) time.Duration {
	return min(w.cfg.Interval/100<<min(failures-1, 10), w.cfg.Interval/8) + time.Millisecond
}

// fire sends what is due, each batch on a goroutine of its own: a node that hangs must not hold up the others.
func (w *Watchdog[H]) fire(due []*Item[H]) {
	for _, batch := range w.batches(due) {
		w.sending.Go(func() { w.renew(batch) })
	}
}

func (w *Watchdog[H]) batches(due []*Item[H]) [][]*Item[H] {
	w.mu.Lock()
	defer w.mu.Unlock()
	bySlot := make(map[uint16][]*Item[H])
	for _, it := range due {
		if it.armed && !it.sent {
			it.sent, it.era = true, w.era
			bySlot[it.Slot] = append(bySlot[it.Slot], it)
		}
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
	it.sent = false
	if !it.armed {
		return
	}
	switch v {
	case Renewed:
		it.failures = 0
		pause := w.interval()
		if it.era != w.era {
			pause = 0
		}
		w.schedule.Set(&it.entry, it, pause)
	case Gone:
		w.disarm(it)
	default:
		it.failures = min(it.failures+1, 100) // more make no difference
		w.schedule.Set(&it.entry, it, w.retry(it.failures))
	}
}
