package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// limits are how many commands, or pipelines, a lane has under way.
type limits struct {
	few      int // that many go alone, as long as there is no need for more
	window   int // pipelines
	most     int // of either, slow ones included, but not those that have been given up
	commands int // in a pipeline
	bytes    int
}

var (
	shared = limits{few: 4, window: 2, most: 8, commands: 128, bytes: 1 << 20}
	alone  = limits{few: 16, window: 1, most: 16, commands: 1, bytes: 1}
)

// A pipeline older than this, or than slow times what is usual, does not count.
const (
	leastSlow = 20 * time.Millisecond
	slow      = 10
)

// A lane is a queue of calls, and the runners that serve it.
type lane struct {
	b      *Batcher
	rdb    redis.UniversalClient // nil: the cluster's, for each call anew
	lends  bool                  // callers may run a command themselves: rdb gives it up in time
	limits limits
	acks   bool

	apartUntil atomic.Int64 // no command has keys of several locks before that, in ns since the epoch

	mu      sync.Mutex
	queue   queue
	runners []*runner
	usual   time.Duration // that a command takes
	used    time.Time
	closed  bool

	timer *time.Timer
	rings time.Time // zero: the timer is not set

	ctx      context.Context // of the commands that are begun before ctxUntil
	cancel   context.CancelFunc
	ctxUntil time.Time
}

// send queues a call, and starts it if it may start. It reports false if the lane is closed.
func (l *lane) send(c *Call, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.take(c)
	l.dispatch(now)
	return true
}

// lend queues a call, and if that may start at once returns a runner loaded with it, for the caller to serve. sent is false if
// the lane is closed.
func (l *lane) lend(c *Call, now time.Time) (r *runner, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	l.take(c)
	if l.queue.len == 1 && l.room(now) {
		r = l.runner()
		l.load(r, now)
	}
	l.dispatch(now)
	return r, true
}

// take queues a call. Locked.
func (l *lane) take(c *Call) {
	c.lane.Store(l)
	c.over = false
	l.queue.push(c)
}

// dispatch starts what may be started. Locked, as everything below.
func (l *lane) dispatch(now time.Time) {
	for l.room(now) {
		r := l.runner()
		l.load(r, now)
		r.wake <- true
	}
	l.setTimer(now)
}

// room says whether something may be started now.
func (l *lane) room(now time.Time) bool {
	if l.queue.len == 0 {
		return false
	}
	flying, counted, pipelines := 0, 0, 0
	for _, r := range l.runners {
		if !r.busy || r.givenUp {
			continue
		}
		flying++
		if now.Sub(r.started) < l.patience() {
			counted++
			if len(r.slots) > 1 {
				pipelines++
			}
		}
	}
	switch {
	case flying >= l.limits.most:
		return false
	case counted < l.limits.window:
		return true
	}
	return counted < l.limits.few && pipelines == 0 && (l.queue.len == 1 || l.limits.commands == 1)
}

// patience is how long a pipeline counts.
func (l *lane) patience() time.Duration { return max(leastSlow, slow*l.usual) }

// runner is one that has nothing to do: the one that was used last, as a rule.
func (l *lane) runner() *runner {
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

// load gives a runner as much of the queue as one pipeline may have.
func (l *lane) load(r *runner, now time.Time) {
	r.busy, r.givenUp, r.started, r.ctx = true, false, now, l.context(now)
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
}

// context is shared by the commands of a moment: a timer for each would cost more than its turn here. It ends only after
// all their deadlines.
func (l *lane) context(now time.Time) context.Context {
	if now.After(l.ctxUntil) {
		more := l.b.cfg.Timeout / 8
		l.ctxUntil = now.Add(more)
		l.ctx, l.cancel = context.WithDeadline(Bounded(context.Background()), now.Add(l.b.cfg.Timeout).Add(more))
	}
	return l.ctx
}

// took learns from a command that has ended, slowly: a few that took for ever do not make that usual.
func (l *lane) took(d time.Duration) {
	l.usual += (min(d, max(2*l.usual, leastSlow/slow)) - l.usual) / 8
}

// setTimer has the timer ring when something will be due: a deadline, or a pipeline that is getting old.
func (l *lane) setTimer(now time.Time) {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, r := range l.runners {
		if r.busy && !r.landing {
			sooner(r.deadline)
			if old := r.started.Add(l.patience()); l.queue.len > 0 && old.After(now) {
				sooner(old)
			}
		}
	}
	if l.queue.len > 0 {
		sooner(l.queue.deadline)
	}
	if at.IsZero() || !l.rings.IsZero() && !at.Before(l.rings) {
		return // it rings in time; should there be nothing to do then, that costs less than to stop it each time
	}
	l.rings = at
	if l.timer == nil {
		l.b.wg.Add(1)
		l.timer = time.AfterFunc(at.Sub(now), l.ring)
	} else if !l.timer.Reset(at.Sub(now)) {
		l.b.wg.Add(1) // it had rung, or not been set
	}
}

// ring answers the calls whose deadline has passed, and starts what may be started by now.
func (l *lane) ring() {
	defer l.b.wg.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rings = time.Time{}
	now := time.Now()
	l.queue.expire(now)
	for _, r := range l.runners {
		if r.busy && !r.landing {
			r.expire(now)
		}
	}
	l.dispatch(now)
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

// close refuses further calls. Runners end when nothing is left to do. Not locked.
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
	l.rest()
}

// rest lets go of timers once a closed lane has nothing to do any more.
func (l *lane) rest() {
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
