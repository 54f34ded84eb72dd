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
	// few is how many commands are sent alone while there is no backlog.
	few int
	// window is how many pipelines may be in flight.
	window int
	// most is how many commands and pipelines may use the pool. Slow ones count, abandoned ones do
	// not.
	most int
	// commands is how many one pipeline may have.
	commands int
	bytes    int
}

var (
	// pooled is for flights that each take a connection of the Redis client's pool.
	pooled = limits{few: 4, window: 2, most: 8, commands: 128, bytes: 1 << 20}
	// near is for flights on one connection to a server that answers sooner than farFrom. Large
	// parcels save more there than an early start.
	near  = limits{few: 8, window: 2, most: 8, commands: 128, bytes: 1 << 20}
	alone = limits{few: 16, window: 1, most: 16, commands: 1, bytes: 1}
)

const (
	// farFrom is the round trip from which calls go out at once, and overlap.
	farFrom = 150 * time.Microsecond
	// spacing is how many flights are on their way to a far server: one for each spacing of the
	// round trip. More would cost more of the processor than they save time.
	spacing = 50 * time.Microsecond
	// mostFar bounds them, and mostFlights all flights, slow ones included.
	mostFar, mostFlights = 128, 256
	// mostShared is how large a flight may be that others have to wait for.
	mostShared = 64 << 10
)

// far returns the limits for a server that takes a round trip to answer.
func far(roundTrip time.Duration) limits {
	l := near
	l.window = min(max(int(roundTrip/spacing), near.few), mostFar)
	l.few = l.window
	return l
}

// A pipeline older than leastSlow and older than slow times the usual is slow: it does not count.
const (
	leastSlow = 20 * time.Millisecond
	slow      = 10
)

// A lane is a queue of calls and the runners that send them.
type lane struct {
	b *Batcher
	// all are the lanes to the same server.
	all *lanes
	// node is nil if each call looks it up in the cluster.
	node *redis.Client
	// limits hold without a line.
	limits limits
	acks   bool
	// shares is true if the lane has a line once one is dialed.
	shares bool

	// noParcelsUntil is in ns since the epoch.
	noParcelsUntil atomic.Int64

	mu     sync.Mutex
	queue  queue
	busy   []*runner
	idle   []*runner     // the one used last at the end
	usual  time.Duration // moving average of a command's duration
	used   time.Time
	closed bool

	lines []*duplex
	// retired are the lines whose flights have not all ended.
	retired []*duplex
	dialing bool
	// dialAt is the earliest time for the next dial.
	dialAt time.Time
	trip   roundTrip

	timer   *time.Timer
	timerAt time.Time // zero: the timer is not set

	ctx      context.Context // what commands started before ctxUntil share
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

// mostInline is how large a call may be that its caller writes. Writing a larger one can take as
// long as the network likes.
const mostInline = 16 << 10

// sendInline queues a call. If the call may start at once, sendInline returns a runner loaded with
// it, for the caller to serve. A caller that may leave serves it on the line only, where it can be
// interrupted. sent is false if the lane is closed.
func (l *lane) sendInline(c *Call, now time.Time, until Until) (r *runner, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	l.enqueueLocked(c)
	if l.queue.len == 1 && l.canStartLocked(now) {
		r = l.idleRunnerLocked()
		l.loadLocked(r, now)
		if mayLeave := until != (Until{}); mayLeave && (r.line == nil || c.Size() > mostInline) {
			l.wakeLocked(r)
			r = nil
		} else {
			r.flight.until = until
		}
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
		l.wakeLocked(r)
	}
	l.setTimerLocked(now)
}

// wakeLocked makes a loaded runner's own goroutine go on with it.
func (l *lane) wakeLocked(r *runner) {
	if !r.alive {
		r.alive = true
		l.b.wg.Go(r.run)
	}
	r.wake <- struct{}{}
}

// limitsLocked returns the limits of flights that start now.
func (l *lane) limitsLocked() limits {
	switch d := l.trip.least(); {
	case len(l.lines) == 0:
		return l.limits
	case d < farFrom:
		return near
	default:
		return far(d)
	}
}

// canStartLocked reports whether the limits allow another command or pipeline now.
func (l *lane) canStartLocked(now time.Time) bool {
	if l.queue.len == 0 {
		return false
	}
	limits, measure := l.limitsLocked(), len(l.lines) > 0 && l.trip.due(now)
	if len(l.busy) < limits.window && !measure {
		return true
	}
	slowAfter := l.slowAfterLocked()
	inFlight, throughPool, counted, pipelines := 0, 0, 0, 0
	for _, r := range l.busy {
		if r.abandoned {
			continue
		}
		inFlight++
		if r.line == nil {
			throughPool++
		}
		if now.Sub(r.started) < slowAfter {
			counted++
			if len(r.slots) > 1 {
				pipelines++
			}
		}
	}
	switch {
	case inFlight >= mostFlights, throughPool >= limits.most:
		return false
	case measure:
		return counted == 0
	case counted < limits.window:
		return true
	}
	return counted < limits.few && pipelines == 0 && (l.queue.len == 1 || limits.commands == 1)
}

// slowAfterLocked returns the age from which a pipeline is slow.
func (l *lane) slowAfterLocked() time.Duration {
	return max(leastSlow, slow*max(l.usual, l.trip.least()))
}

// idleRunnerLocked returns an idle runner, the one used last, or a new one.
func (l *lane) idleRunnerLocked() *runner {
	if n := len(l.idle); n > 0 {
		r := l.idle[n-1]
		l.idle[n-1] = nil
		l.idle = l.idle[:n-1]
		return r
	}
	return newRunner(l)
}

// loadLocked moves queued calls into a runner, up to the size of one pipeline. A call that measures
// the round trip is alone.
func (l *lane) loadLocked(r *runner, now time.Time) {
	most := l.limits.commands
	if r.measures = len(l.busy) == 0 && len(l.lines) > 0; r.measures && l.trip.due(now) {
		most = 1
	}
	r.place = len(l.busy)
	l.busy = append(l.busy, r)
	l.b.wg.Add(1)
	r.abandoned, r.finishing, r.started = false, false, now
	r.ctx.Context = l.contextLocked(now)
	l.used = now
	bytes := 0
	for l.queue.len > 0 && len(r.slots) < most {
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
	r.measures = r.measures && len(r.slots) == 1
	if r.line = nil; bytes <= mostShared {
		if r.line = l.lineLocked(now); r.line != nil {
			r.line.users++
		}
	}
	r.flight.line, r.flight.until = r.line, Until{}
	l.b.totals.add(len(r.slots))
}

// unloadLocked makes a runner idle.
func (l *lane) unloadLocked(r *runner) {
	last := l.busy[len(l.busy)-1]
	l.busy[r.place], last.place = last, r.place
	l.busy[len(l.busy)-1] = nil
	l.busy = l.busy[:len(l.busy)-1]
	if r.line != nil {
		r.line.users--
		r.line = nil
	}
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
	for _, r := range l.busy {
		if !r.finishing {
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
	for _, r := range l.busy {
		if !r.finishing {
			r.expireLocked(now)
		}
	}
	l.dispatchLocked(now)
	l.endLocked()
}

func (l *lane) unused(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.len == 0 && l.used.Before(since) && len(l.busy) == 0
}

// close refuses further calls. Runners end when nothing is left to do.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.endLocked()
}

// mostIdle is how many idle runners a lane keeps. A crowd needs more for a moment.
const mostIdle = 32

// restLocked keeps an unloaded runner for later calls, or ends it.
func (l *lane) restLocked(r *runner) {
	if len(l.idle) < mostIdle {
		l.idle = append(l.idle, r)
	} else {
		close(r.wake)
	}
}

// endLocked ends what a closed lane needs no more: goroutines that are idle, and when nothing is
// left to do, the timer, the context and the line.
func (l *lane) endLocked() {
	if !l.closed {
		return
	}
	for _, r := range l.idle {
		close(r.wake)
	}
	l.idle = nil
	if len(l.busy) > 0 || l.queue.len > 0 {
		return
	}
	if l.timer != nil && l.timer.Stop() {
		l.b.wg.Done()
	}
	if l.cancel != nil {
		l.cancel()
	}
	for _, d := range l.lines {
		d.retire()
	}
	l.lines = nil
}
