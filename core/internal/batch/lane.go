package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// limits bound the commands and pipelines a lane has in flight.
type limits struct {
	few      int // commands sent alone while there is no backlog
	window   int // pipelines
	most     int // of both, slow ones included, abandoned ones not
	commands int // in one pipeline
	bytes    int
}

var (
	shared = limits{few: 4, window: 2, most: 8, commands: 128, bytes: 1 << 20}
	alone  = limits{few: 16, window: 1, most: 16, commands: 1, bytes: 1}
)

// A pipeline older than leastSlow and older than slow times the usual is slow: it does not count.
const (
	leastSlow = 20 * time.Millisecond
	slow      = 10
)

// A lane is a queue of calls and the runners that send them.
type lane struct {
	b      *Batcher
	all    *lanes        // to the same server
	node   *redis.Client // nil: look it up in the cluster for each call
	limits limits
	acks   bool

	noParcelsUntil atomic.Int64 // in ns since the epoch

	mu      sync.Mutex
	queue   queue
	runners []*runner
	usual   time.Duration // moving average of a command's duration
	used    time.Time
	closed  bool

	timer   *time.Timer
	timerAt time.Time // zero: the timer is not set

	ctx      context.Context // of commands started before ctxUntil
	cancel   context.CancelFunc
	ctxUntil time.Time
}

// send queues a call and starts it if possible. It returns false if the lane is closed.
func (l *lane) send(c *Call, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.enqueueLocked(c)
	l.dispatchLocked(now)
	return true
}

// sendInline queues a call. If the call may start at once, sendInline returns a runner loaded with
// it, for the caller to serve. sent is false if the lane is closed.
func (l *lane) sendInline(c *Call, now time.Time) (r *runner, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	l.enqueueLocked(c)
	if l.queue.len == 1 && l.canStartLocked(now) {
		r = l.idleRunnerLocked()
		l.loadLocked(r, now)
	}
	l.dispatchLocked(now)
	return r, true
}

// enqueueLocked queues a call.
func (l *lane) enqueueLocked(c *Call) {
	c.lane.Store(l)
	c.done = false
	l.queue.push(c)
}

// dispatchLocked starts as many queued calls as the limits allow and sets the timer.
func (l *lane) dispatchLocked(now time.Time) {
	for l.canStartLocked(now) {
		r := l.idleRunnerLocked()
		l.loadLocked(r, now)
		r.wake <- true
	}
	l.setTimerLocked(now)
}

// canStartLocked reports whether the limits allow another command or pipeline now.
func (l *lane) canStartLocked(now time.Time) bool {
	if l.queue.len == 0 {
		return false
	}
	inFlight, counted, pipelines := 0, 0, 0
	for _, r := range l.runners {
		if !r.busy || r.abandoned {
			continue
		}
		inFlight++
		if now.Sub(r.started) < l.slowAfterLocked() {
			counted++
			if len(r.slots) > 1 {
				pipelines++
			}
		}
	}
	switch {
	case inFlight >= l.limits.most:
		return false
	case counted < l.limits.window:
		return true
	}
	return counted < l.limits.few && pipelines == 0 && (l.queue.len == 1 || l.limits.commands == 1)
}

// slowAfterLocked returns the age from which a pipeline is slow.
func (l *lane) slowAfterLocked() time.Duration { return max(leastSlow, slow*l.usual) }

// idleRunnerLocked returns an idle runner, usually the one used last, or starts one.
func (l *lane) idleRunnerLocked() *runner {
	for _, r := range l.runners {
		if !r.busy {
			return r
		}
	}
	r := &runner{lane: l, wake: make(chan bool, 1)}
	l.runners = append(l.runners, r)
	l.b.wg.Go(r.run)
	return r
}

// loadLocked moves queued calls into a runner, up to the size of one pipeline.
func (l *lane) loadLocked(r *runner, now time.Time) {
	r.busy, r.abandoned, r.started, r.ctx = true, false, now, l.contextLocked(now)
	l.used = now
	for bytes := 0; l.queue.len > 0 && len(r.slots) < l.limits.commands; {
		c := l.queue.first
		if bytes += c.Size(); bytes > l.limits.bytes && len(r.slots) > 0 {
			break
		}
		l.queue.remove(c)
		if len(r.slots) == 0 || c.Deadline.Before(r.deadline) {
			r.deadline = c.Deadline
		}
		r.slots = append(r.slots, slot{call: c, due: true})
	}
	l.b.counts.add(len(r.slots))
}

// contextLocked returns the context of the commands started about now. They share it, because a
// timer for each would cost too much here. It ends after all their deadlines.
func (l *lane) contextLocked(now time.Time) context.Context {
	if now.After(l.ctxUntil) {
		more := l.b.cfg.Timeout / 8
		l.ctxUntil = now.Add(more)
		l.ctx, l.cancel = context.WithDeadline(Bounded(context.Background()), now.Add(l.b.cfg.Timeout).Add(more))
	}
	return l.ctx
}

// observeLocked updates the usual duration of a command. It caps the influence of slow ones.
func (l *lane) observeLocked(d time.Duration) {
	l.usual += (min(d, max(2*l.usual, leastSlow/slow)) - l.usual) / 8
}

// setTimerLocked sets the timer to the next deadline, or to when a pipeline becomes slow.
func (l *lane) setTimerLocked(now time.Time) {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, r := range l.runners {
		if r.busy && !r.finishing {
			sooner(r.deadline)
			if old := r.started.Add(l.slowAfterLocked()); l.queue.len > 0 && old.After(now) {
				sooner(old)
			}
		}
	}
	if l.queue.len > 0 {
		sooner(l.queue.deadline)
	}
	if at.IsZero() || !l.timerAt.IsZero() && !at.Before(l.timerAt) {
		return // it fires in time; a needless firing is cheaper than stopping it each time
	}
	l.timerAt = at
	if l.timer == nil {
		l.b.wg.Add(1)
		l.timer = time.AfterFunc(at.Sub(now), l.onTimer)
	} else if !l.timer.Reset(at.Sub(now)) {
		l.b.wg.Add(1) // it had fired, or was not set
	}
}

// onTimer answers the calls whose deadline has passed and starts what the limits now allow.
func (l *lane) onTimer() {
	defer l.b.wg.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timerAt = time.Time{}
	now := time.Now()
	l.queue.expire(now)
	for _, r := range l.runners {
		if r.busy && !r.finishing {
			r.expireLocked(now)
		}
	}
	l.dispatchLocked(now)
}

func (l *lane) unused(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.len > 0 || !l.used.Before(since) {
		return false
	}
	for _, r := range l.runners {
		if r.busy {
			return false
		}
	}
	return true
}

// close refuses further calls. Runners end when nothing is left to do.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var busy []*runner
	for _, r := range l.runners {
		if r.busy {
			busy = append(busy, r)
		} else {
			close(r.wake)
		}
	}
	l.runners = busy
	l.stopTimersLocked()
}

// stopTimersLocked stops the timer and the context of a closed lane once its runners have ended.
func (l *lane) stopTimersLocked() {
	if !l.closed || len(l.runners) > 0 {
		return
	}
	if l.timer != nil && l.timer.Stop() {
		l.b.wg.Done()
	}
	if l.cancel != nil {
		l.cancel()
	}
}
