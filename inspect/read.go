package inspect

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A reader reads locks by their names. It uses plain commands: a script that reads many keys would
// stop Redis for longer.
type reader struct {
	// rdb follows the slots of a cluster that move.
	rdb redisclient.Client
	// most is how many holders and places in the queue of one lock are read.
	most int64
	// strict is true for a name that the caller gave: a key that is not a lock is an error.
	strict bool
}

// read returns the locks with these names, nil for a name without a lock. node is the server that
// has them. Its clock counts for deadlines.
func (r *reader) read(ctx context.Context, node redis.Cmdable, names []string) ([]*Lock, error) {
	replies, err := r.ask(ctx, names)
	if err != nil {
		return nil, err
	}
	locks := make([]*Lock, len(names))
	for i, reply := range replies {
		if reply != nil {
			locks[i] = reply.lock()
		}
		if locks[i] == nil && reply != nil && r.strict && reply.exists() {
			return nil, noLock(names[i])
		}
	}
	if err := r.addDeadlines(ctx, node, locks); err != nil {
		return nil, err
	}
	return locks, r.addReaderTTLs(ctx, locks)
}

func noLock(name string) error {
	return fmt.Errorf("%w: the key %q is something else", ErrNotFound, name)
}

// replies is what Redis answers about one name.
type replies struct {
	*reader
	keys core.Keys
	// The first pipeline, which sorts out most keys of other programs.
	fields *redis.IntCmd
	mode   *redis.StringCmd
	// A field of a hash that has several; nil: it has not.
	field *redis.StringSliceCmd
	// The second pipeline.
	ttl  *redis.DurationCmd
	hash *redis.ScanCmd
	// length is how long the queue is.
	length *redis.IntCmd
	queue  *redis.StringSliceCmd
	token  *redis.StringCmd
	// size is how large the record is.
	size      *redis.IntCmd
	record    *redis.SliceCmd
	recordTTL *redis.DurationCmd
}

// ask returns nil for a name whose key is not a lock.
func (r *reader) ask(ctx context.Context, names []string) ([]*replies, error) {
	all := make([]*replies, len(names))
	pipe := r.rdb.Pipeline()
	for i, name := range names {
		all[i] = &replies{
			reader: r,
			keys:   core.KeysOf(name),
			fields: pipe.HLen(ctx, name),
			mode:   pipe.HGet(ctx, name, "mode"),
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return nil, err
	}
	if err := r.askField(ctx, all); err != nil {
		return nil, err
	}
	pipe = r.rdb.Pipeline()
	for i, reply := range all {
		if !reply.mayBeLock() {
			if r.strict {
				return nil, noLock(names[i])
			}
			all[i] = nil
			continue
		}
		k := reply.keys
		reply.ttl = pipe.PTTL(ctx, k.Lock)
		reply.hash = pipe.HScan(ctx, k.Lock, 0, "", r.most+1) // one is the mode
		reply.length = pipe.LLen(ctx, k.Queue)
		reply.queue = pipe.LRange(ctx, k.Queue, 0, r.most-1)
		reply.token = pipe.Get(ctx, k.Tokens)
		reply.size = pipe.HStrLen(ctx, k.Record, "record")
		reply.record = pipe.HMGet(ctx, k.Record, "ttl", "marker")
		reply.recordTTL = pipe.PTTL(ctx, k.Record)
	}
	return all, exec(ctx, pipe)
}

// askField asks for a field of each hash that has several and is no read/write lock: it is one of a lock
// with guests, or of another program.
func (r *reader) askField(ctx context.Context, all []*replies) error {
	pipe := r.rdb.Pipeline()
	for _, reply := range all {
		if n := reply.fields.Val(); n > 1 && n <= 1+mostGuests && reply.mode.Err() != nil {
			reply.field = pipe.HRandField(ctx, reply.keys.Lock, 1)
		}
	}
	return exec(ctx, pipe)
}

// exec runs a pipeline. That a key is missing or has another type is no error.
func exec(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	commands, _ := pipe.Exec(ctx)
	for _, c := range commands {
		if err := c.Err(); err != nil && err != redis.Nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
	}
	return nil
}

// mostGuests is how many guests of a hold are expected at most. A larger hash is not read: it is hardly a
// lock.
const mostGuests = 255

// mayBeLock reports whether the key is missing, or a hash with as many fields as a lock may have.
func (r *replies) mayBeLock() bool {
	n, err := r.fields.Result()
	if err == nil && r.field != nil && len(r.field.Val()) == 1 {
		_, owner := core.ClientOf(r.field.Val()[0])
		return owner
	}
	return err == nil && (n <= 1 || r.mode.Val() == "read" || r.mode.Val() == "write")
}

// exists reports whether there is a hash under the name of the lock.
func (r *replies) exists() bool { return r.fields.Val() > 0 }

// lock returns nil if there is no lock.
func (r *replies) lock() *Lock {
	l := &Lock{Name: r.keys.Lock, Kind: "lock", Holders: r.holders()}
	if l.Holders == nil {
		return nil
	}
	switch ttl := r.ttl.Val(); {
	case ttl == forever:
		l.TTL = -1
	case ttl > 0 && l.Held():
		l.TTL = max(ttl.Milliseconds(), 1)
	}
	for i, owner := range r.queue.Val() {
		client, _ := core.ClientOf(owner)
		l.Queue = append(l.Queue, Waiter{Owner: owner, Client: client, Place: i + 1})
	}
	l.MoreQueue = max(r.length.Val()-int64(len(l.Queue)), 0)
	l.Token, _ = strconv.ParseUint(r.token.Val(), 10, 64)
	l.Record = r.recordLeft()
	readWrite, fields := r.mode.Err() == nil, r.fields.Val()
	if readWrite {
		fields--
	}
	l.MoreHolders = max(fields-int64(len(l.Holders)), 0)
	switch {
	case readWrite:
		l.Kind = r.mode.Val()
	case len(l.Queue) > 0:
		l.Kind = "fair"
	case r.token.Err() == nil:
		l.Kind = "fenced"
	case l.Record != nil:
		l.Kind = "once"
	case !l.Held():
		return nil
	}
	return l
}

// forever is the TTL of a key without one.
const forever time.Duration = -1

// holders returns nil if the hash has other fields than owners, so that it is not a lock.
func (r *replies) holders() []Holder {
	pairs, _ := r.hash.Val()
	holders := []Holder{}
	for pair := range slices.Chunk(pairs, 2) {
		field, value := pair[0], pair[len(pair)-1]
		if field == "mode" {
			continue
		}
		client, ok := core.ClientOf(field)
		count, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil || count < 1 || strconv.FormatInt(count, 10) != value {
			return nil
		}
		holders = append(holders, Holder{Owner: field, Client: client, Count: count})
	}
	slices.SortFunc(holders, Holder.compare)
	return holders[:min(len(holders), int(r.most))]
}

func (r *replies) recordLeft() *Record {
	size := r.size.Val()
	if size == 0 {
		return nil
	}
	rec := &Record{Size: size, TTL: r.recordTTL.Val().Milliseconds()}
	fields := r.record.Val()
	if whole, ok := fields[0].(string); ok {
		if ms, err := strconv.ParseInt(whole, 10, 64); err == nil {
			rec.Age = max(ms-rec.TTL, 0)
		}
	}
	rec.Marker = fields[1] != nil
	return rec
}

// addDeadlines sets the deadlines of the places in queues.
func (r *reader) addDeadlines(ctx context.Context, node redis.Cmdable, locks []*Lock) error {
	pipe := r.rdb.Pipeline()
	scores := make(map[*Lock]*redis.FloatSliceCmd)
	for _, l := range locks {
		if l == nil || len(l.Queue) == 0 {
			continue
		}
		owners := make([]string, len(l.Queue))
		for i, w := range l.Queue {
			owners[i] = w.Owner
		}
		scores[l] = pipe.ZMScore(ctx, core.KeysOf(l.Name).Deadlines, owners...)
	}
	if len(scores) == 0 {
		return nil
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return err
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for l, score := range scores {
		for i, deadline := range score.Val() {
			if deadline != 0 { // else it was lost, and the next script restores it
				l.Queue[i].Deadline = int64(deadline) - now.UnixMilli()
			}
		}
	}
	return nil
}

// How many TTLs one pipeline reads, and how many levels of one reader count.
const (
	ttlsAtOnce = 1000
	levels     = 8
)

// addReaderTTLs sets the TTLs of readers: of their longest level.
func (r *reader) addReaderTTLs(ctx context.Context, locks []*Lock) error {
	type ask struct {
		holder *Holder
		ttl    *redis.DurationCmd
	}
	var asks []ask
	pipe := r.rdb.Pipeline()
	flush := func() error {
		if err := exec(ctx, pipe); err != nil {
			return err
		}
		for _, a := range asks {
			if left := a.ttl.Val(); left > 0 {
				a.holder.TTL = max(a.holder.TTL, left.Milliseconds(), 1)
			}
		}
		asks, pipe = nil, r.rdb.Pipeline()
		return nil
	}
	for _, l := range locks {
		if l == nil || l.Kind != "read" && l.Kind != "write" {
			continue
		}
		keys := core.KeysOf(l.Name)
		for i := range l.Holders {
			h := &l.Holders[i]
			if h.Writes() {
				continue
			}
			for level := 1; level <= int(min(h.Count, levels)); level++ {
				asks = append(asks, ask{h, pipe.PTTL(ctx, keys.ReadTimeout(h.Owner, level))})
			}
			if len(asks) >= ttlsAtOnce {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for _, l := range locks {
		if l != nil {
			l.markExpired()
		}
	}
	return nil
}

// markExpired marks the readers whose last level is over.
func (l *Lock) markExpired() {
	for i := range l.Holders {
		h := &l.Holders[i]
		h.Expired = (l.Kind == "read" || l.Kind == "write") && !h.Writes() && h.TTL == 0
	}
}
