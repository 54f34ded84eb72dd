package redisop

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/internal/loglimit"
)

// health logs when Redis begins to fail locks, and why, and when locks work again. Callers get an
// error each time, but a wrong password or a full Redis is for operators to mend.
//
// While locks work it costs one atomic load per reply.
type health struct {
	logger *slog.Logger
	same   func(a, b string) bool // whether two keys are at one server
	limit  loglimit.Limit         // of warnings, by cause

	failing atomic.Int32 // faults whose end is to be logged

	mu     sync.Mutex
	faults map[*Fault]outage

	deaf atomic.Bool // the loss of the pub/sub connection was logged
}

// An outage is a fault that was logged.
type outage struct {
	began  time.Time
	key    string // of the latest call that failed
	script string
}

func newHealth(logger *slog.Logger, same func(a, b string) bool) *health {
	return &health{logger: logger, same: same, faults: make(map[*Fault]outage)}
}

// saw takes the outcome of a call that is not going to be repeated.
func (h *health) saw(x *Op, reply any, err error) {
	if err == nil && h.failing.Load() == 0 {
		return
	}
	f := FaultOf(err)
	if f != nil {
		h.fail(f, x, err)
	}
	if answered := err == nil || IsAnswer(err); answered && (f == nil || !f.door) && h.failing.Load() > 0 {
		h.succeed(x, reply, err)
	}
}

// fail logs a fault, unless it was logged less than a minute ago.
func (h *health) fail(f *Fault, x *Op, err error) {
	warn := h.limit.Allow(f.Cause)
	h.mu.Lock()
	was, known := h.faults[f]
	if !known {
		was.began = time.Now()
	}
	if warn || known { // a fault that was not logged needs no line when it ends
		h.faults[f] = outage{was.began, x.call.Key(), x.call.Script.Name}
		h.failing.Store(int32(len(h.faults)))
	}
	h.mu.Unlock()
	if warn {
		h.logger.Warn("reqlock: locks are failing", "cause", f.Cause, "error", err, "change", f.Change)
	}
}

// succeed logs the end of each fault that an answer shows to be over.
func (h *health) succeed(x *Op, reply any, err error) {
	h.mu.Lock()
	var over []*Fault
	var lasted []time.Duration
	for f, o := range h.faults {
		if f.shownOver(o, x, reply, err) && h.same(o.key, x.call.Key()) {
			over, lasted = append(over, f), append(lasted, time.Since(o.began))
			delete(h.faults, f)
		}
	}
	h.failing.Store(int32(len(h.faults)))
	h.mu.Unlock()
	for i, f := range over {
		h.logger.Info("reqlock: locks work again", "cause", f.Cause, "after", lasted[i].Round(time.Millisecond))
	}
}

// shownOver reports whether an answer shows that a fault is over. Any answer does if no command got
// through before. Otherwise the script that failed has to succeed, and one that acquires has to be
// granted: only then has it written something. A Redis that refused to write has done so for every
// script that acquires.
func (f *Fault) shownOver(o outage, x *Op, reply any, err error) bool {
	switch {
	case f.door:
		return true
	case err != nil:
		return false
	case x.call.Acquires():
		return x.call.Granted(reply) && (f.refusesWrites() || x.call.Script.Name == o.script)
	}
	return x.call.Script.Name == o.script
}

func (f *Fault) refusesWrites() bool {
	return f == faultOutOfMemory || f == faultReadOnly || f == faultCannotSave || f == faultTooFewReplicas
}

// PubSubLost is told when waiters hear of no release any more.
func (r *Runner) PubSubLost(err error) { r.health.pubsubLost(err) }

// PubSubBack is told when they do again.
func (r *Runner) PubSubBack() { r.health.pubsubBack() }

func (h *health) pubsubLost(err error) {
	if !h.limit.Allow("pub/sub") {
		return
	}
	h.deaf.Store(true)
	change := []any{"error", err}
	if f := FaultOf(err); f != nil {
		change = append(change, slog.String("cause", f.Cause), slog.String("change", f.Change))
	}
	h.logger.Warn("reqlock: pub/sub connection lost, waiters poll until it is back", change...)
}

func (h *health) pubsubBack() {
	if h.deaf.Swap(false) {
		h.logger.Info("reqlock: pub/sub connection is back")
	}
}
