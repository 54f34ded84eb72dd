package batch

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A parcel is one command that does what several calls do.
type parcel struct {
	slots []*slot
	cmd   *redis.Cmd
}

// parcelSize is the most calls that a parcel has: Redis serves nobody else meanwhile.
const parcelSize = 64

// apartFor is how long a lane sends no parcel after one was refused and its calls were not. A server that never takes them refuses
// one a minute; one that has refused a single one, for a reason that has passed, has them back soon.
const apartFor = time.Minute

// joins reports whether the lane sends parcels now. The locks of a cluster's lane are in different slots.
func (l *lane) joins(now time.Time) bool {
	return l.b.cluster == nil && now.UnixNano() >= l.apartUntil.Load()
}

// join puts the calls of plain locks that are due into parcels, unless there is but one: to Redis one of them is half the work
// then, and there is less to write and to read here.
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
		r.parcels = append(r.parcels, parcel{r.joined[from:to], redis.NewCmd(r.ctx, args(lua.Many(r.calls[from:to]))...)})
		for _, s := range r.joined[from:to] {
			s.joined = true
		}
		r.cmds = append(r.cmds, onceCmd{r.parcels[len(r.parcels)-1].cmd})
	}
}

// open gives each of a parcel's calls its reply. What is wrong with one lock stands in its own: an error reply to all of them is
// from before anything was executed, and some of these refuse what they would not refuse to each alone. CROSSSLOT is a cluster's;
// what stands before one in the place of a server has words of its own, behind ERR.
func (p *parcel) open(err error) {
	value, err := result(p.cmd, err)
	refused := hasCode(p.cmd.Err(), "CROSSSLOT", "NOPERM", "ERR")
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

// refused marks the calls of parcels that were refused as due, and returns them and why they were.
func (r *runner) refused() (refused []*slot, why error) {
	for i := range r.slots {
		s := &r.slots[i]
		if s.due = s.refused; s.due {
			refused, why = append(refused, s), s.reply.Err
		}
	}
	return refused, why
}

// hasCode reports whether an error is a reply of Redis with one of these codes.
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
