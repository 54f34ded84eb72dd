package batch

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A parcel is one command that executes several calls.
type parcel struct {
	slots []*slot
	cmd   *redis.Cmd
}

// parcelSize limits the calls in a parcel, because Redis serves no other client while it runs.
const parcelSize = 64

// noParcelsFor is how long a lane sends no parcel after Redis refused one but accepted its calls.
// A server that never accepts parcels then refuses one a minute; one that refused only once soon
// gets parcels again.
const noParcelsFor = time.Minute

// canJoin reports whether the lane may send parcels now. In a cluster it may not, because the locks
// of a lane are in different slots.
func (l *lane) canJoin(now time.Time) bool {
	return l.b.single() && now.UnixNano() >= l.noParcelsUntil.Load()
}

// join puts the due calls of plain locks into parcels if there are at least two. A parcel costs
// Redis half the work of the single commands, and is less to write and read here.
func (r *runner) join(args func(lua.Call) []any) {
	r.joined, r.calls = r.joined[:0], r.calls[:0]
	for _, of := range []func(lua.Call) bool{lua.Call.Frees, lua.Call.Takes} {
		for i := range r.slots {
			if s := &r.slots[i]; s.due && of(s.call.Call) {
				r.joined, r.calls = append(r.joined, s), append(r.calls, s.call.Call)
			}
		}
	}
	if len(r.joined) < 2 {
		return
	}
	for from := 0; from < len(r.joined); from += parcelSize {
		to := min(from+parcelSize, len(r.joined))
		cmd := redis.NewCmd(&r.ctx, args(lua.Many(r.calls[from:to]))...)
		r.parcels = append(r.parcels, parcel{r.joined[from:to], cmd})
		for _, s := range r.joined[from:to] {
			s.joined = true
		}
		r.cmds = append(r.cmds, onceCmd{cmd})
	}
}

// open gives each call of a parcel its reply. An error with one lock is in that lock's own reply.
// An error reply to the whole parcel means that nothing was executed, and some of these errors
// would not occur for each call alone: CROSSSLOT from a cluster, NOPERM from an ACL, and ERR from a
// proxy.
func (p *parcel) open(err error) {
	value, err := result(p.cmd, err)
	refused := hasCode(lua.PlainError(p.cmd.Err()), "CROSSSLOT", "NOPERM", "ERR")
	var values []any
	if err == nil {
		values, err = lua.ReadMany(value, len(p.slots))
	}
	for i, s := range p.slots {
		s.reply, s.refused = Reply{Err: err}, refused
		if err != nil {
			continue
		}
		if s.reply.Err, _ = values[i].(error); s.reply.Err == nil {
			s.reply.Value = values[i]
		}
	}
}

// markRefused marks the calls of refused parcels as due. It returns them and the error.
func (r *runner) markRefused() (refused []*slot, why error) {
	for i := range r.slots {
		s := &r.slots[i]
		if s.due = s.refused; s.due {
			refused, why = append(refused, s), s.reply.Err
		}
	}
	return refused, why
}

// hasCode reports whether err is a Redis error reply with one of the codes.
func hasCode(err error, codes ...string) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains(codes, code)
}
