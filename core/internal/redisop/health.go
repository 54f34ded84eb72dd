package redisop

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/internal/loglimit"
)

// health logs when Redis begins to fail locks, with the cause, and when locks work again. Callers
// get an error each time, but a wrong password or a full memory is for operators to fix.
//
// While locks work, it costs one atomic load per reply.
type health struct {
	logger *slog.Logger
	same   func(a, b string) bool // reports whether two keys are on one server
	limit  loglimit.Limit         // bounds warnings, by cause

	lacking func(key string) // Config.Lacking

	failing atomic.Int32 // faults that have not ended

	mu sync.Mutex
	// faults has the latest outage by each fault.
	faults map[*Fault]*outage
	// failed counts operations.
	failed map[*Fault]uint64

	pubsubDown atomic.Bool // the loss of the pub/sub connection was logged, its end was not
}

// An Outage is a time in which one fault failed operations.
type Outage struct {
	*Fault
	// Began and Last are when the first and the latest operation failed.
	Began, Last time.Time
	// Ended is zero if no operation has shown yet that the fault is over.
	Ended  time.Time
	Failed uint64
	// Err is the error of the latest operation.
	Err error
}

type outage struct {
	Outage
	// key and script belong to the last call that failed.
	key    string
	script string
	logged bool
}

func newHealth(logger *slog.Logger, same func(a, b string) bool) *health {
	return &health{logger: logger, same: same, faults: make(map[*Fault]*outage), failed: make(map[*Fault]uint64)}
}

// observe handles the outcome of a call that will not be retried.
func (h *health) observe(x *Op, reply any, err error) {
	if x.unacked != nil {
		h.fail(faultTooFewAcks, x, x.unacked)
	}
	if err == nil && h.failing.Load() == 0 {
		return
	}
	f := x.r.classify(err).fault
	if f != nil {
		h.fail(f, x, err)
	}
	if answered := err == nil || IsAnswer(err); answered && (f == nil || !f.blocksAll) && h.failing.Load() > 0 {
		h.succeed(x, reply, err)
	}
}

// fail logs a fault, unless it was logged less than a minute ago.
func (h *health) fail(f *Fault, x *Op, err error) {
	warn := h.limit.Allow(f.Cause)
	h.mu.Lock()
	h.failed[f]++
	o := h.faults[f]
	if o == nil || !o.Ended.IsZero() {
		o = &outage{Outage: Outage{Fault: f, Began: time.Now()}}
		h.faults[f] = o
		h.failing.Add(1)
	}
	o.Failed++
	o.Last, o.Err, o.key, o.script = time.Now(), err, x.call.Key(), x.call.Script.Name
	o.logged = o.logged || warn // the end of a fault is logged only if its beginning was
	h.mu.Unlock()
	if warn {
		h.logger.Warn("reqlock: locks are failing", "cause", f.Cause, "error", err, "change", f.ChangeAfter(err))
		if f == faultNoCommand && h.lacking != nil {
			h.lacking(x.call.Key())
		}
	}
}

// failedByClass returns the number of operations that failed; nil: none.
func (h *health) failedByClass() (n map[string]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failed) > 0 {
		n = make(map[string]uint64, len(h.failed))
	}
	for f, count := range h.failed {
		n[f.Class] += count
	}
	return n
}

// succeed logs the end of each fault that a reply ends.
func (h *health) succeed(x *Op, reply any, err error) {
	h.mu.Lock()
	var over []Outage
	for _, o := range h.faults {
		if !o.Ended.IsZero() || !o.endedBy(x, reply, err) || !h.same(o.key, x.call.Key()) {
			continue
		}
		o.Ended = time.Now()
		h.failing.Add(-1)
		if o.logged {
			over = append(over, o.Outage)
		}
	}
	h.mu.Unlock()
	for _, o := range over {
		h.logger.Info("reqlock: locks work again", "cause", o.Cause, "after", o.Ended.Sub(o.Began).Round(time.Millisecond))
	}
}

// outages returns the latest outage by each fault, the latest first.
func (h *health) outages() (all []Outage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.faults {
		all = append(all, o.Outage)
	}
	slices.SortFunc(all, func(a, b Outage) int { return b.Last.Compare(a.Last) })
	return all
}

// endedBy reports whether a reply shows that the fault is over. Any reply does if the fault blocked
// all commands. Otherwise the script that failed must succeed. A script that acquires must be
// granted, because otherwise it has written nothing. If Redis refused writes, it did so for all
// scripts that acquire, so any of them will do.
func (o *outage) endedBy(x *Op, reply any, err error) bool {
	switch {
	case o.blocksAll:
		return true
	case err != nil, o.Fault == faultTooFewAcks && x.unacked != nil:
		return false
	case x.call.Acquires():
		return x.call.Granted(reply) && (o.refusesWrites() || x.call.Script.Name == o.script)
	}
	return x.call.Script.Name == o.script
}

func (f *Fault) refusesWrites() bool {
	return f == faultOutOfMemory || f == faultReadOnly || f == faultCannotSave || f == faultTooFewReplicas
}

// PubSubLost logs that waiters do not receive messages any more.
func (r *Runner) PubSubLost(err error) { r.health.pubsubLost(err) }

// PubSubBack logs that waiters receive messages again.
func (r *Runner) PubSubBack() { r.health.pubsubBack() }

func (h *health) pubsubLost(err error) {
	if !h.limit.Allow("pub/sub") {
		return
	}
	h.pubsubDown.Store(true)
	change := []any{"error", err}
	if f := FaultOf(err); f != nil {
		change = append(change, slog.String("cause", f.Cause), slog.String("change", f.ChangeAfter(err)))
	}
	h.logger.Warn("reqlock: pub/sub connection lost, waiters poll until it is back", change...)
}

func (h *health) pubsubBack() {
	if h.pubsubDown.Swap(false) {
		h.logger.Info("reqlock: pub/sub connection is back")
	}
}
