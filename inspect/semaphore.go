package inspect

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
)

// A Semaphore is what Redis knows about a semaphore's permits. A permit whose time is over is free.
type Semaphore struct {
	// Permits is how many permits there are. -1: Redis has only those that are taken, and no one gets
	// another until a program says how many there are.
	Permits int64 `json:"permits"`
	// Taken may be more than Permits, if there were more of them before.
	Taken int64 `json:"taken"`
	Free  int64 `json:"free"`
}

// readSemaphores returns the semaphores with these names, nil for a name without one. A name without
// braces may be that of the keys of a semaphore whose name has them, which it then returns.
func (r *reader) readSemaphores(ctx context.Context, node redis.Cmdable, names []string) ([]*Lock, error) {
	if len(names) == 0 {
		return nil, nil
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	all := make([]*permitReplies, len(names))
	pipe := r.rdb.Pipeline()
	for i, name := range names {
		all[i] = askPermits(ctx, pipe, name, now, r.most)
		if !r.strict && !strings.Contains(name, "{") {
			all[i].braced = pipe.Get(ctx, "{"+name+"}")
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return nil, err
	}
	semaphores := make([]*Lock, len(names))
	for i, reply := range all {
		semaphores[i] = reply.semaphore()
	}
	return semaphores, nil
}

// permitReplies is what Redis answers about the permits of one name.
type permitReplies struct {
	name string
	now  int64
	// free is the number of free permits, and braced that under the name in braces, if it may have
	// them.
	free, braced *redis.StringCmd
	declared     *redis.StringCmd
	// stored counts all permits that are taken, and live those that have not expired.
	stored, live *redis.IntCmd
	ids          *redis.ZSliceCmd
}

func askPermits(ctx context.Context, pipe redis.Pipeliner, name string, at time.Time, most int64) *permitReplies {
	k, now := core.KeysOf(name), at.UnixMilli()
	after := "(" + strconv.FormatInt(now, 10)
	return &permitReplies{
		name:     name,
		now:      now,
		free:     pipe.Get(ctx, k.Lock),
		declared: pipe.Get(ctx, k.Declared),
		stored:   pipe.ZCard(ctx, k.Taken),
		live:     pipe.ZCount(ctx, k.Taken, after, "+inf"),
		ids:      pipe.ZRangeByScoreWithScores(ctx, k.Taken, &redis.ZRangeBy{Min: after, Max: "+inf", Count: most}),
	}
}

// semaphore returns nil if the keys are those of another program.
func (r *permitReplies) semaphore() *Lock {
	name := r.name
	free, known := number(r.free)
	if !known && r.braced != nil {
		if free, known = number(r.braced); known {
			name = "{" + name + "}"
		}
	}
	declared, isDeclared := r.declaration()
	holders, ours := r.holders()
	s := &Semaphore{Permits: -1, Taken: r.live.Val()}
	switch stored := r.stored.Val(); {
	case known && (stored > 0 || isDeclared):
		s.Permits = free + stored
	case isDeclared:
		s.Permits = declared
	case !ours || s.Taken == 0:
		return nil
	}
	s.Free = max(s.Permits-s.Taken, 0)
	l := &Lock{Name: name, Kind: "semaphore", Holders: holders, Semaphore: s, MoreHolders: max(s.Taken-int64(len(r.ids.Val())), 0)}
	for _, h := range holders {
		l.TTL = max(l.TTL, h.TTL)
	}
	if slices.ContainsFunc(holders, func(h Holder) bool { return h.TTL < 0 }) {
		l.TTL = -1
	}
	return l
}

// number returns the integer that a key has, if it has one.
func number(reply *redis.StringCmd) (n int64, ok bool) {
	n, err := strconv.ParseInt(reply.Val(), 10, 64)
	return n, err == nil
}

// declaration returns how many permits programs have declared.
func (r *permitReplies) declaration() (permits int64, ok bool) {
	declared, since, _ := strings.Cut(r.declared.Val(), " ")
	permits, err := strconv.ParseInt(declared, 10, 64)
	_, err2 := strconv.ParseUint(since, 10, 64)
	return permits, err == nil && err2 == nil && permits >= 0
}

// holders returns each owner of permits once. ours is true if reqlock has made the IDs of all.
func (r *permitReplies) holders() (holders []Holder, ours bool) {
	there := make(map[string]bool)
	for _, z := range r.ids.Val() {
		there[z.Member.(string)] = true
	}
	ours = true
	places := make(map[string]int)
	holders = []Holder{}
	for _, z := range r.ids.Val() {
		h := holderOf(z.Member.(string), there)
		ours = ours && h.Client != ""
		place, known := places[h.Owner]
		if !known {
			place = len(holders)
			places[h.Owner] = place
			h.TTL = max(int64(z.Score)-r.now, 1)
			if z.Score >= noLease {
				h.TTL = -1
			}
			holders = append(holders, h)
		}
		holders[place].Count++
	}
	slices.SortFunc(holders, Holder.compare)
	return holders, ours
}

// noLease is less than the expiry of a permit that Redisson has given for ever, in ms, and more than
// all others.
const noLease = 9e14

// holderOf returns the owner of a permit. One whose first permit is gone is named by each of the
// others, as the scripts know it.
func holderOf(id string, there map[string]bool) Holder {
	owner, _, ok := core.OwnerOfPermit(id)
	client, _ := core.ClientOf(owner)
	switch {
	case ok && there[owner]:
		return Holder{Owner: owner, Client: client}
	case !ok && len(id) == rawID:
		return Holder{Owner: hex.EncodeToString([]byte(id))}
	}
	return Holder{Owner: id, Client: client}
}

// rawID is how many bytes the ID of a permit of Redisson has. Redisson shows them as hex digits, and
// core.Client.ForceUnlockOwners knows them by these.
const rawID = 16
