package batch

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A runner sends the calls its lane loaded into it, one command or pipeline at a time. A caller of
// Batcher.Do may do its work for one call. Otherwise its own goroutine does.
type runner struct {
	lane *lane
	// Buffered for one token: the runner is loaded. Closed: leave the lane.
	wake chan struct{}

	// Guarded by the lane's mutex.

	// alive is true if the runner has a goroutine.
	alive bool
	// place is its index in lane.busy.
	place int
	// finishing is true if the runner has its replies.
	finishing bool
	// abandoned is true if all its calls have timed out.
	abandoned bool
	// measures is true if nothing else was in flight when it started.
	measures bool
	started  time.Time
	// deadline is the earliest of its calls.
	deadline time.Time
	// line was given to the runner. nil: it has none.
	line *duplex

	// The lane owns these while the runner is idle, the runner while it is busy. The lane may read
	// the calls of a busy runner, because they do not change until it is finishing.
	slots  []slot
	ctx    flightContext
	flight flight
	left   bool // the caller has left, and the goroutine goes on
	cmds   []redis.Cmder
	// wait is the last of cmds. nil: no replica must confirm.
	wait    *redis.Cmd
	parcels []parcel
	// joined are the slots in parcels, and calls are their calls.
	joined []*slot
	calls  []lua.Call
}

func newRunner(l *lane) *runner {
	r := &runner{lane: l, wake: make(chan struct{}, 1)}
	r.flight.wake = make(chan struct{}, 1)
	r.ctx.flight = &r.flight
	return r
}

// A slot is one call in flight.
type slot struct {
	call *Call
	// due is true if the call must be sent, or sent again.
	due bool
	// joined is true if the call was in a parcel when it was last sent.
	joined bool
	// refused is true if its parcel was refused as a whole.
	refused bool
	cmd     redis.Cmd
	reply   Reply
}

// A onceCmd is never retried by go-redis, which would silently resend a command whose reply was
// lost.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (r *runner) run() {
	for range r.wake {
		for more := true; more; more = r.finish() {
			for !r.execute() {
			}
		}
	}
}

// serve does one round of run on a caller's goroutine. If the caller leaves, or more calls are queued
// by then, it wakes the runner's own goroutine to deal with that.
func (r *runner) serve() {
	if r.execute() && !r.finish() {
		return
	}
	r.lane.mu.Lock()
	defer r.lane.mu.Unlock()
	r.lane.wakeLocked(r)
}

// execute sends the loaded calls. It resends the calls of refused parcels one by one. It returns
// false if the caller has left, or the line takes no flights any more. A goroutine that can wait must
// execute the rest then.
func (r *runner) execute() (done bool) {
	node := r.lane.node
	switch {
	case node == nil:
		r.executeRouted()
		return true
	case r.left:
		return r.resume(node)
	}
	if r.left = !r.eval(node, r.lane.canJoin(r.started)); r.left {
		return false
	}
	if refused, why := r.markRefused(); why != nil {
		r.eval(node, false)
		if !hasCode(why, "NOPERM") && slices.ContainsFunc(refused, func(s *slot) bool { return s.reply.Err == nil }) {
			// The server, or a proxy before it, seems to refuse keys of several locks in one
			// command.
			r.lane.noParcelsUntil.Store(r.started.Add(noParcelsFor).UnixNano())
		}
	}
	r.learn()
	return true
}

// resume executes what is left after execute has returned false.
func (r *runner) resume(node *redis.Client) (done bool) {
	r.left = false
	if sent := r.flight.stay(); sent {
		r.collect(r.flight.await(r.cmds))
		if r.retryText(node, false) {
			r.learn()
			return true
		}
	}
	// The line takes no flights any more. What is due goes through the pool.
	r.flight.line = nil
	return r.execute()
}

// learn records what the replies say about the server.
func (r *runner) learn() {
	heard, readOnly := false, false
	for i := range r.slots {
		err := r.slots[i].reply.Err
		if _, isReply := Said(err); err == nil || isReply {
			heard, readOnly = true, readOnly || HasCode(err, "READONLY")
		}
	}
	if heard {
		r.lane.all.heard.Store(int64(clock.Now()))
	}
	if readOnly {
		r.lane.all.redial()
	}
}

// eval sends the due calls by SHA. It resends those whose scripts Redis did not know with their
// text. It returns false if the caller has left.
func (r *runner) eval(rdb redis.UniversalClient, join bool, prelude ...redis.Cmder) bool {
	return r.exchange(rdb, lua.Call.EvalSHA, join, prelude...) && r.retryText(rdb, join, prelude...)
}

// retryText resends the calls whose scripts Redis did not know.
func (r *runner) retryText(rdb redis.UniversalClient, join bool, prelude ...redis.Cmder) bool {
	return !r.markNoScript() || r.exchange(rdb, lua.Call.Eval, join, prelude...)
}

// markNoScript marks the calls whose scripts Redis did not know as due. It reports whether there
// are any.
func (r *runner) markNoScript() (found bool) {
	for i := range r.slots {
		s := &r.slots[i]
		s.due = s.reply.Err != nil && redis.HasErrorPrefix(s.reply.Err, "NOSCRIPT")
		found = found || s.due
	}
	return found
}

// exchange sends the due calls and reads their replies. prelude goes first on the same connection.
// It returns false if the caller has left.
func (r *runner) exchange(rdb redis.UniversalClient, args func(lua.Call) []any, join bool, prelude ...redis.Cmder) bool {
	r.cmds = append(r.cmds[:0], prelude...)
	for i := range r.slots {
		if s := &r.slots[i]; s.due {
			s.joined = false
		}
	}
	r.parcels = r.parcels[:0]
	if join && len(r.slots) > 1 {
		r.join(args)
	}
	for i := range r.slots {
		if s := &r.slots[i]; s.due && !s.joined {
			s.cmd = *redis.NewCmd(&r.ctx, args(s.call.Call)...)
			r.cmds = append(r.cmds, onceCmd{&s.cmd})
		}
	}
	if r.wait = nil; r.lane.acks {
		r.wait = redis.NewCmd(&r.ctx, "WAIT", r.lane.b.cfg.Acks, r.lane.b.cfg.AckTimeout.Milliseconds())
		r.cmds = append(r.cmds, onceCmd{r.wait})
	}
	r.flight.state, r.flight.left = fresh, false
	err := r.send(rdb)
	// A hook of the Redis client may have returned another error, or none.
	if r.flight.left || r.flight.state == unsent {
		return false
	}
	r.collect(err)
	return true
}

// collect gives the due calls the replies to their commands. err is the error of all of them.
func (r *runner) collect(err error) {
	unacked := r.unacked()
	for i := range r.parcels {
		r.parcels[i].open(err)
	}
	for i := range r.slots {
		if s := &r.slots[i]; s.due {
			if !s.joined {
				s.reply = Reply{}
				s.reply.Value, s.reply.Err = result(&s.cmd, err)
			}
			s.reply.Unacked = unacked
		}
	}
}

// result returns the reply to a command sent with others. err is the error of the whole pipeline.
func result(cmd *redis.Cmd, err error) (any, error) {
	value, own := cmd.Result()
	own = lua.PlainError(own)
	if own == nil && value == nil {
		own = missingReply(err)
	}
	return value, own
}

func (r *runner) send(rdb redis.UniversalClient) error {
	if len(r.cmds) == 1 {
		return rdb.Process(&r.ctx, r.cmds[0])
	}
	return pipeline(&r.ctx, rdb, r.cmds)
}

// missingReply returns the error of a command that has neither a reply nor an error. When a server
// refuses a connection with an error reply, go-redis returns that error only for the pipeline.
func missingReply(err error) error {
	if err == nil || err == redis.Nil {
		return errors.New("the Redis client returned neither a reply nor an error")
	}
	return err
}

// unacked returns why the commands before a WAIT do not count as confirmed, or nil.
func (r *runner) unacked() error {
	if r.wait == nil {
		return nil
	}
	n, err := r.wait.Int()
	switch want := r.lane.b.cfg.Acks; {
	case err != nil:
		return fmt.Errorf("WAIT: %w", err)
	case n < want:
		return fmt.Errorf("%d of %d replicas confirmed it within %s", n, want, r.lane.b.cfg.AckTimeout)
	}
	return nil
}

// expireLocked answers the calls whose deadline has passed with ErrUnanswered.
func (r *runner) expireLocked(now time.Time) {
	if now.Before(r.deadline) {
		return
	}
	r.abandoned, r.deadline = true, now.Add(r.lane.b.cfg.Timeout)
	for i := range r.slots {
		c := r.slots[i].call
		switch {
		case c.done:
		case !now.Before(c.Deadline):
			c.done = true
			c.Reply <- Reply{Err: ErrUnanswered}
		default:
			r.abandoned = false
			if c.Deadline.Before(r.deadline) {
				r.deadline = c.Deadline
			}
		}
	}
}

// finish delivers the replies and loads the next calls. It reports whether there were any.
func (r *runner) finish() (more bool) {
	l := r.lane
	l.mu.Lock()
	now := time.Now()
	l.observeLocked(now.Sub(r.started))
	if r.measures && r.line != nil && r.slots[0].reply.Err == nil {
		l.trip.add(now.Sub(r.started), now)
	}
	r.finishing = true // from here on the timer does not touch the calls
	if len(r.slots) == 1 {
		c, reply := r.slots[0].call, r.slots[0].reply
		more = r.nextLocked(now)
		l.mu.Unlock()
		l.deliver(c, reply)
		return more
	}
	l.mu.Unlock()

	for i := range r.slots {
		l.deliver(r.slots[i].call, r.slots[i].reply)
	}
	// The callers just answered send their next calls now or not at all. Let them run first, so
	// that those calls share a pipeline.
	runtime.Gosched()

	l.mu.Lock()
	defer l.mu.Unlock()
	return r.nextLocked(time.Now())
}

// deliver answers a call, unless it timed out or must be sent to another node.
func (l *lane) deliver(c *Call, reply Reply) {
	if !c.done && !l.b.redirect(l, c, reply.Err) {
		c.Reply <- reply
	}
}

// kept is how many calls an idle runner keeps room for. It frees the memory after a burst.
const kept = 128

// keptBytes is how large a request may be whose buffer it keeps.
const keptBytes = 16 << 10

// nextLocked empties the runner and loads it with queued calls, if it may start them.
func (r *runner) nextLocked(now time.Time) (more bool) {
	l := r.lane
	clear(r.slots)
	clear(r.cmds)
	clear(r.parcels)
	clear(r.joined)
	clear(r.calls)
	r.slots, r.cmds = r.slots[:0], r.cmds[:0]
	if cap(r.flight.request) > keptBytes {
		r.flight.request = nil
	}
	l.unloadLocked(r)
	if more = l.canStartLocked(now); more {
		l.loadLocked(r, now)
	} else {
		if cap(r.slots) > kept {
			r.slots, r.cmds, r.parcels, r.joined, r.calls = nil, nil, nil, nil, nil
		}
		l.restLocked(r)
	}
	l.dispatchLocked(now)
	l.endLocked()
	l.b.wg.Done() // comes last, because endLocked may start a goroutine
	return more
}
