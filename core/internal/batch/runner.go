package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A runner is a goroutine that sends the calls its lane loaded into it. While it is idle, a caller
// of Batcher.Do may do its work for one call.
type runner struct {
	lane *lane
	// Buffered for one. true: the runner is loaded. false or closed: leave the lane, which is
	// closed.
	wake chan bool

	// Guarded by the lane's mutex.
	busy      bool
	finishing bool // it has its replies
	abandoned bool // all its calls have timed out
	started   time.Time
	deadline  time.Time // the earliest of its calls

	// The lane owns these while the runner is idle, the runner while it is busy. The lane may read
	// the calls of a busy runner, because they do not change until it is finishing.
	slots   []slot
	ctx     context.Context
	cmds    []redis.Cmder
	parcels []parcel
	joined  []*slot    // the slots in parcels
	calls   []lua.Call // their calls
}

// A slot is one call in flight.
type slot struct {
	call    *Call
	due     bool // must be sent, or sent again
	joined  bool // was in a parcel when last sent
	refused bool // that parcel was refused as a whole
	cmd     redis.Cmd
	reply   Reply
}

// A onceCmd is never retried by go-redis, which would silently resend a command whose reply was
// lost.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (r *runner) run() {
	for more := range r.wake {
		closed := !more
		for more {
			r.execute()
			more, closed = r.finish()
		}
		if closed && r.exit() {
			return
		}
	}
}

// serve does one round of run on a caller's goroutine. If more calls are queued by then, or the
// lane was closed, it wakes the runner's own goroutine to deal with that.
func (r *runner) serve() {
	r.execute()
	if more, closed := r.finish(); more || closed {
		r.wake <- more
	}
}

// execute sends the loaded calls. It resends the calls of refused parcels one by one.
func (r *runner) execute() {
	node := r.lane.node
	if node == nil {
		r.executeRouted()
		return
	}
	r.eval(node, r.lane.canJoin(r.started))
	if refused, why := r.markRefused(); why != nil {
		r.eval(node, false)
		if !hasCode(why, "NOPERM") && slices.ContainsFunc(refused, func(s *slot) bool { return s.reply.Err == nil }) {
			// The server, or a proxy before it, seems to refuse keys of several locks in one
			// command.
			r.lane.noParcelsUntil.Store(r.started.Add(noParcelsFor).UnixNano())
		}
	}
	r.learn()
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
// text.
func (r *runner) eval(rdb redis.UniversalClient, join bool, prelude ...redis.Cmder) {
	r.exchange(rdb, lua.Call.EvalSHA, join, prelude...)
	if r.markNoScript() {
		r.exchange(rdb, lua.Call.Eval, join, prelude...)
	}
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
func (r *runner) exchange(rdb redis.UniversalClient, args func(lua.Call) []any, join bool, prelude ...redis.Cmder) {
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
			s.cmd = *redis.NewCmd(r.ctx, args(s.call.Call)...)
			r.cmds = append(r.cmds, onceCmd{&s.cmd})
		}
	}
	var wait *redis.Cmd
	if r.lane.acks {
		wait = redis.NewCmd(r.ctx, "WAIT", r.lane.b.cfg.Acks, r.lane.b.cfg.AckTimeout.Milliseconds())
		r.cmds = append(r.cmds, onceCmd{wait})
	}
	err := r.send(rdb)
	unacked := r.unacked(wait)
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
		return rdb.Process(r.ctx, r.cmds[0])
	}
	return pipeline(r.ctx, rdb, r.cmds)
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
func (r *runner) unacked(wait *redis.Cmd) error {
	if wait == nil {
		return nil
	}
	n, err := wait.Int()
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

// finish delivers the replies and loads the next calls. It reports whether there were any, and
// whether the lane is closed.
func (r *runner) finish() (more, closed bool) {
	l := r.lane
	l.mu.Lock()
	now := time.Now()
	l.observeLocked(now.Sub(r.started))
	r.finishing = true // from here on the timer does not touch the calls
	if len(r.slots) == 1 {
		c, reply := r.slots[0].call, r.slots[0].reply
		more, closed = r.nextLocked(now), l.closed
		l.mu.Unlock()
		l.deliver(c, reply)
		return more, closed
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
	return r.nextLocked(time.Now()), l.closed
}

// deliver answers a call, unless it timed out or must be sent to another node.
func (l *lane) deliver(c *Call, reply Reply) {
	if !c.done && !l.b.redirect(l, c, reply.Err) {
		c.Reply <- reply
	}
}

// kept is how many calls an idle runner keeps room for. It frees the memory after a burst.
const kept = 128

// nextLocked empties the runner and loads it with queued calls, if it may start them.
func (r *runner) nextLocked(now time.Time) (more bool) {
	l := r.lane
	clear(r.slots)
	clear(r.cmds)
	clear(r.parcels)
	clear(r.joined)
	clear(r.calls)
	r.slots, r.cmds = r.slots[:0], r.cmds[:0]
	r.busy, r.finishing = false, false
	if more = l.canStartLocked(now); more {
		l.loadLocked(r, now)
	} else if cap(r.slots) > kept {
		r.slots, r.cmds, r.parcels, r.joined, r.calls = nil, nil, nil, nil, nil
	}
	l.dispatchLocked(now)
	return more
}

// exit removes an idle runner from a closed lane and reports whether it did.
func (r *runner) exit() bool {
	l := r.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed || r.busy { // a caller may have loaded it since it finished
		return false
	}
	if i := slices.Index(l.runners, r); i >= 0 {
		l.runners = slices.Delete(l.runners, i, i+1)
		l.stopTimersLocked()
	} // otherwise close removed it
	return true
}
