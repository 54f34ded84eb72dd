package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A runner is a goroutine that sends what its lane has loaded. While it has nothing to do, a caller may do its work for one
// call; see Batcher.Do.
type runner struct {
	lane *lane
	wake chan bool // holds one: whether it is loaded, or else is to leave its lane, which is closed; closed: it is to end

	// Guarded by the lane's mutex.
	busy     bool
	landing  bool // it has its replies
	givenUp  bool // none of its calls is waited for any more
	started  time.Time
	deadline time.Time // the earliest of its calls

	// The lane's while it is not busy, then the runner's; what others read of it meanwhile does not change.
	slots   []slot
	ctx     context.Context
	cmds    []redis.Cmder
	parcels []parcel
	joined  []*slot    // that are in parcels
	calls   []lua.Call // theirs
}

// A slot is one call under way.
type slot struct {
	call    *Call
	due     bool // it is to be sent, or sent again
	joined  bool // with others in one command, when it was sent last
	refused bool // that command, as a whole
	cmd     redis.Cmd
	reply   Reply
}

// A onceCmd is never repeated by the library, which would do so without a word when a reply was lost.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (r *runner) run() {
	for more := range r.wake {
		closed := !more
		for more {
			r.fly()
			more, closed = r.land()
		}
		if closed && r.leaves() {
			return
		}
	}
}

// serve is one turn of run, on the goroutine of a caller. What has queued up meanwhile is for the runner's own, and so is
// leaving a lane that was closed meanwhile.
func (r *runner) serve() {
	r.fly()
	if more, closed := r.land(); more || closed {
		r.wake <- more
	}
}

// fly sends what is loaded; again and one by one, what Redis does not want together.
func (r *runner) fly() {
	rdb := r.lane.rdb
	if rdb == nil {
		r.flyAlone()
		return
	}
	r.ask(rdb, r.lane.joins(r.started))
	if refused, why := r.refused(); why != nil {
		r.ask(rdb, false)
		if !hasCode(why, "NOPERM") && slices.ContainsFunc(refused, func(s *slot) bool { return s.reply.Err == nil }) {
			// It seems that this server, or what stands before it, does not want keys of several locks in one command.
			r.lane.apartUntil.Store(r.started.Add(apartFor).UnixNano())
		}
	}
}

// ask sends the calls that are due, and those whose scripts Redis did not know once more with their text.
func (r *runner) ask(rdb redis.UniversalClient, join bool, prelude ...redis.Cmder) {
	r.exchange(rdb, lua.Call.EvalSHA, join, prelude...)
	if r.unknown() {
		r.exchange(rdb, lua.Call.Eval, join, prelude...)
	}
}

// unknown marks the calls of scripts that Redis did not know as due, and reports whether there are any.
func (r *runner) unknown() (found bool) {
	for i := range r.slots {
		s := &r.slots[i]
		s.due = s.reply.Err != nil && redis.HasErrorPrefix(s.reply.Err, "NOSCRIPT")
		found = found || s.due
	}
	return found
}

// exchange sends the calls that are due and reads their replies. prelude goes before them on the same connection.
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

// result is the reply to a command that was sent with others; err is what the library says of all of them.
func result(cmd *redis.Cmd, err error) (any, error) {
	value, own := cmd.Result()
	if own == nil && value == nil {
		own = silent(err)
	}
	return value, own
}

func (r *runner) send(rdb redis.UniversalClient) error {
	if len(r.cmds) == 1 {
		return rdb.Process(r.ctx, r.cmds[0])
	}
	return pipeline(r.ctx, rdb, r.cmds)
}

// silent is the error of a command that has neither reply nor error: where a connection is refused with an error reply,
// the library tells so of the pipeline only.
func silent(err error) error {
	if err == nil || err == redis.Nil {
		return errors.New("the Redis client returned neither a reply nor an error")
	}
	return err
}

// unacked says why the commands before a WAIT do not count as confirmed.
func (r *runner) unacked(wait *redis.Cmd) error {
	if wait == nil {
		return nil
	}
	n, err := wait.Int()
	switch want := r.lane.b.cfg.Acks; {
	case err != nil:
		return fmt.Errorf("WAIT: %w", err)
	case n < want:
		return fmt.Errorf("%d of %d replicas have confirmed it within %s", n, want, r.lane.b.cfg.AckTimeout)
	}
	return nil
}

// expire answers the calls whose deadline has passed. Locked.
func (r *runner) expire(now time.Time) {
	if now.Before(r.deadline) {
		return
	}
	r.givenUp, r.deadline = true, now.Add(r.lane.b.cfg.Timeout)
	for i := range r.slots {
		c := r.slots[i].call
		switch {
		case c.over:
		case !now.Before(c.Deadline):
			c.over = true
			c.Reply <- Reply{Err: ErrUnanswered}
		default:
			r.givenUp = false
			if c.Deadline.Before(r.deadline) {
				r.deadline = c.Deadline
			}
		}
	}
}

// land gives the replies and takes what is queued. It reports whether there was anything to take, and whether the lane is
// closed.
func (r *runner) land() (more, closed bool) {
	l := r.lane
	l.mu.Lock()
	now := time.Now()
	l.took(now.Sub(r.started))
	r.landing = true // from here on the calls are not looked at by others
	if len(r.slots) == 1 {
		c, reply := r.slots[0].call, r.slots[0].reply
		more, closed = r.next(now), l.closed
		l.mu.Unlock()
		l.deliver(c, reply)
		return more, closed
	}
	l.mu.Unlock()

	for i := range r.slots {
		l.deliver(r.slots[i].call, r.slots[i].reply)
	}
	// Those who have just been answered send their next calls now, or never: one pipeline for all of them.
	runtime.Gosched()

	l.mu.Lock()
	defer l.mu.Unlock()
	return r.next(time.Now()), l.closed
}

// deliver gives a call its reply, unless nobody waits for it any more or it has to go elsewhere.
func (l *lane) deliver(c *Call, reply Reply) {
	if !c.over && !l.b.detour(l, c, reply.Err) {
		c.Reply <- reply
	}
}

// kept is how many calls a runner without work keeps room for: what a crowd has needed is not for ever.
const kept = 128

// next unloads the runner and loads it again, if there is anything. Locked.
func (r *runner) next(now time.Time) (more bool) {
	l := r.lane
	clear(r.slots)
	clear(r.cmds)
	clear(r.parcels)
	clear(r.joined)
	clear(r.calls)
	r.slots, r.cmds = r.slots[:0], r.cmds[:0]
	r.busy, r.landing = false, false
	if more = l.room(now); more {
		l.load(r, now)
	} else if cap(r.slots) > kept {
		r.slots, r.cmds, r.parcels, r.joined, r.calls = nil, nil, nil, nil, nil
	}
	l.dispatch(now)
	return more
}

// leaves takes the runner off a lane that is closed, if it has nothing more to do.
func (r *runner) leaves() bool {
	l := r.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed || r.busy { // loaded by somebody else since it landed
		return false
	}
	if i := slices.Index(l.runners, r); i >= 0 {
		l.runners = slices.Delete(l.runners, i, i+1)
		l.rest()
	} // or else close has taken it off
	return true
}
