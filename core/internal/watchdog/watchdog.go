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

// An Item is one hold to be renewed. The zero value with Key, Owner, Slot and Hold filled in is idle.
type Item struct {
	Key   string
	Owner string
	Slot  int // items of different slots never share a batch
	Hold  any // what Config.Send knows it by

	armed    bool
	sent     bool
	again    bool // as soon as the renewal under way has its result: it was sent before RenewAll
	failures int
	entry    schedule.Entry[*Item]
}

// Config says how to renew. All fields are required.
type Config struct {
	// Interval between two renewals of a hold.
	Interval time.Duration
	// Send renews a batch and returns a verdict for each item. It may block, and is called on many goroutines.
	Send func(batch []*Item) []Verdict
}

// BatchSize is the most holds that one script renews: Redis serves nobody else meanwhile.
const BatchSize = 100

// A Watchdog renews the items that are armed.
type Watchdog struct {
	cfg      Config
	schedule *schedule.Schedule[*Item]

	mu    sync.Mutex
	armed map[*Item]struct{}

	sending sync.WaitGroup
}

// New starts a watchdog.
func New(cfg Config) *Watchdog {
	w := &Watchdog{cfg: cfg, armed: make(map[*Item]struct{})}
	w.schedule = schedule.New(cfg.Interval/32, w.fire)
	return w
}

// Arm has an item renewed from now on, first after half an interval to a whole one.
func (w *Watchdog) Arm(it *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.armed {
		return
	}
	it.armed, it.failures = true, 0
	w.armed[it] = struct{}{}
	if !it.sent {
		// Locks taken together are spread over half an interval; from then on they stay apart.
		w.schedule.Set(&it.entry, it, w.cfg.Interval-rand.N(w.cfg.Interval/2+1))
	}
}

// Cancel ends the renewal of an item.
func (w *Watchdog) Cancel(it *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disarm(it)
}

// RenewAll has every armed item renewed by a command that is sent from now on, at once.
func (w *Watchdog) RenewAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for it := range w.armed {
		if it.again = it.sent; !it.again {
			w.schedule.Set(&it.entry, it, 0)
		}
	}
}

// Len is the number of armed items.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.armed)
}

// Close ends the watchdog and waits for renewals under way. Arm must not be called after it.
func (w *Watchdog) Close() {
	w.schedule.Close()
	w.sending.Wait()
}

func (w *Watchdog) disarm(it *Item) {
	if it.armed {
		it.armed = false
		delete(w.armed, it)
		w.schedule.Cancel(&it.entry)
	}
}

// interval is shortened at random, so that locks that have come together do not stay together.
func (w *Watchdog) interval() time.Duration {
	return w.cfg.Interval - rand.N(w.cfg.Interval/8+1)
}

// retry is the pause after a failure: a hundredth of the interval at first, an eighth of it at most.
func (w *Watchdog) retry(failures int) time.Duration {
	return min(w.cfg.Interval/100<<min(failures-1, 10), w.cfg.Interval/8) + time.Millisecond
}

// fire sends what is due, each batch on a goroutine of its own: a node that hangs must not hold up the others.
func (w *Watchdog) fire(due []*Item) {
	for _, batch := range w.batches(due) {
		w.sending.Go(func() { w.renew(batch) })
	}
}

func (w *Watchdog) batches(due []*Item) [][]*Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	bySlot := make(map[int][]*Item)
	for _, it := range due {
		if it.armed && !it.sent {
			it.sent = true
			bySlot[it.Slot] = append(bySlot[it.Slot], it)
		}
	}
	var batches [][]*Item
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
func (w *Watchdog) renew(batch []*Item) {
	verdicts := w.cfg.Send(batch)
	for i, it := range batch {
		if verdicts[i] == Refused && len(batch) > 1 {
			verdicts[i] = w.cfg.Send([]*Item{it})[0]
		}
		w.settle(it, verdicts[i])
	}
}

func (w *Watchdog) settle(it *Item, v Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := it.again
	it.sent, it.again = false, false
	if !it.armed {
		return
	}
	switch v {
	case Renewed:
		it.failures = 0
		pause := w.interval()
		if again {
			pause = 0
		}
		w.schedule.Set(&it.entry, it, pause)
	case Gone:
		w.disarm(it)
	default:
		it.failures++
		w.schedule.Set(&it.entry, it, w.retry(it.failures))
	}
}
