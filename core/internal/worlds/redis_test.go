package worlds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/explore"
	"github.com/reqlock/reqlock/internal/lab/memredis"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The scripts do on a redis-server what they did in the search. This compares a sample.
func TestEffects_LikeRedis(t *testing.T) {
	t.Parallel()
	redistest.NeedsServer(t)
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			m := New(w.small)
			defer m.Close()
			explore.Run(m, 3000)
			samples := make([]effectKey, 0, len(m.effects))
			for key := range m.effects {
				samples = append(samples, key)
			}
			// Map order differs between runs.
			slices.SortFunc(samples, func(a, b effectKey) int {
				return cmp.Or(cmp.Compare(a.redis, b.redis), cmp.Compare(a.listen, b.listen), cmp.Compare(fmt.Sprint(a.command), fmt.Sprint(b.command)))
			})
			r := rand.New(rand.NewPCG(1, 2))
			r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
			samples = slices.DeleteFunc(samples, m.onEdge)
			samples = samples[:min(len(samples), 40)]
			slices.SortStableFunc(samples, func(a, b effectKey) int { return cmp.Compare(a.listen, b.listen) })
			srv := newServer(t, m)
			for _, key := range samples {
				srv.compare(key)
			}
		})
	}
}

// onEdge reports whether a script does something else a millisecond later. A server's clock moves,
// so its result may differ.
func (m *Model) onEdge(key effectKey) bool {
	db, waiter := m.db(key.redis), m.wireName(key.command.from)
	deadline, _ := db.Score(m.keys.deadlines, waiter)
	place := slices.Index(db.List(m.keys.queue), waiter)
	budget := int64(m.Budget) * tick
	prolongs, queuesUp := int64(deadline) == now+int64(place)*budget+budget/2, key.command.notAfter == 0
	return m.Kind == Fair && key.command.op == opAcquire && (prolongs || queuesUp)
}

// A server is a real one that executes the commands of a model.
type server struct {
	*testing.T
	m      *Model
	rdb    *redis.Client
	listen uint16
	pubsub *redis.PubSub
}

func newServer(t *testing.T, m *Model) *server {
	s := &server{T: t, m: m, rdb: redistest.Start(t).ClientWith(t, func(o *redis.Options) { o.Protocol = 2 })}
	t.Cleanup(func() {
		if s.pubsub != nil {
			s.pubsub.Close()
		}
	})
	return s
}

var ctx = context.Background()

// subscribe makes exactly these wire owners listen.
func (s *server) subscribe(listen uint16) {
	s.Helper()
	if listen == s.listen {
		return
	}
	if s.pubsub != nil {
		s.pubsub.Close()
		s.pubsub = nil
	}
	s.listen = listen
	for w := range s.m.wires() {
		if listen&(1<<w) == 0 {
			continue
		}
		channel := wire.FairChannel(s.m.lock, s.m.wireName(w))
		if s.pubsub == nil {
			s.pubsub = s.rdb.Subscribe(ctx)
		}
		if err := s.pubsub.Subscribe(ctx, channel); err != nil {
			s.Fatal(err)
		}
		if _, err := s.pubsub.Receive(ctx); err != nil {
			s.Fatal(err)
		}
	}
	// The server may need a moment to notice that the earlier subscriptions are gone.
	for w := range s.m.wires() {
		channel := wire.FairChannel(s.m.lock, s.m.wireName(w))
		for want := int64(listen >> w & 1); s.rdb.PubSubNumSub(ctx, channel).Val()[channel] != want; {
		}
	}
}

// compare executes a command on the content that the model had.
func (s *server) compare(key effectKey) {
	s.Helper()
	s.subscribe(key.listen)
	later := s.rdb.Time(ctx).Val().UnixMilli() - now

	before := s.m.db(key.redis)
	s.shift(before, later)
	pipe := s.rdb.Pipeline()
	pipe.FlushAll(ctx)
	for _, c := range before.Commands() {
		pipe.Do(ctx, anys(c)...)
	}
	call := s.m.call(key.command)
	args := call.Eval()
	if key.command.op == opAcquire && s.m.Kind == Fair && key.command.notAfter != never {
		args[3+3+9] = args[3+3+9].(int64) + later
	}
	eval := pipe.Do(ctx, args...)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		s.Fatalf("%s: %v", call.Script.Name, err)
	}
	r := &run{Model: s.m, command: key.command, call: call, reply: eval.Val()}
	if err := r.read(); err != nil {
		s.Fatalf("%s: %v", call.Script.Name, err)
	}
	after := s.dump()
	s.shift(after, -later)
	round(after, s.m.keys)
	drew := s.m.resetCounter(after)

	want := s.m.effects[key]
	if got := s.m.number(after); got != want.redis || r.told != want.reply || drew != want.drew {
		s.Errorf("%s with %+v: reply %s, token drawn: %t, and\n%sThe model has %s, %t, and\n%sBefore:\n%s", call.Script.Name, key.command,
			r.told, drew, s.m.db(got), want.reply, want.drew, s.m.db(want.redis), s.m.db(key.redis))
	}
}

// shift moves all times in a database.
func (s *server) shift(db *memredis.DB, ms int64) {
	db.ShiftScores(s.m.keys.deadlines, float64(ms), math.Inf(-1))
	db.ShiftScores(s.m.keys.taken, float64(ms), math.Inf(-1))
	if n, since, known := s.m.declared(db); known {
		redeclare(db, s.m.keys.declared, n, since+ms)
	}
	for _, absent := range db.Fields(s.m.keys.absent) {
		if absent == "next" { // a place in the queue
			continue
		}
		since, _ := db.Field(s.m.keys.absent, absent)
		at, _ := strconv.ParseInt(since, 10, 64)
		db.Do("HSET", s.m.keys.absent, absent, strconv.FormatInt(at+ms, 10))
	}
}

// dump copies the server's content.
func (s *server) dump() *memredis.DB {
	s.Helper()
	db := &memredis.DB{}
	for _, key := range s.rdb.Keys(ctx, "*").Val() {
		switch kind := s.rdb.Type(ctx, key).Val(); kind {
		case "string":
			db.Do("SET", key, s.rdb.Get(ctx, key).Val())
		case "list":
			db.Do(append([]string{"RPUSH", key}, s.rdb.LRange(ctx, key, 0, -1).Val()...)...)
		case "hash":
			for field, value := range s.rdb.HGetAll(ctx, key).Val() {
				db.Do("HSET", key, field, value)
			}
		case "zset":
			for _, z := range s.rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
				db.Do("ZADD", key, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member.(string))
			}
		default:
			s.Fatalf("%s is a %s", key, kind)
		}
		if ttl := s.rdb.PTTL(ctx, key).Val(); ttl > 0 {
			db.Do("PEXPIRE", key, fmt.Sprint(ttl.Milliseconds()))
		}
	}
	return db
}

// round removes from a database the time that the test itself took.
func round(db *memredis.DB, k keys) {
	nearest := func(ms int64) int64 { return (ms + tick/2) / tick * tick }
	for _, key := range db.Keys() {
		if ttl := db.TTL(key); ttl != memredis.NoTTL {
			db.Do("PEXPIRE", key, fmt.Sprint(nearest(ttl)))
		}
	}
	for _, c := range db.Commands() {
		if c[0] == "SET" && c[1] == k.declared {
			n, since, _ := strings.Cut(c[2], " ")
			number, _ := strconv.Atoi(n)
			at, _ := strconv.ParseInt(since, 10, 64)
			redeclare(db, k.declared, number, now+nearest(at-now+100*tick)-100*tick)
		}
		if c[0] == "ZADD" && (c[1] == k.deadlines || c[1] == k.taken) {
			at, _ := strconv.ParseInt(c[2], 10, 64)
			db.Do("ZADD", c[1], fmt.Sprint(now+nearest(at-now+100*tick)-100*tick), c[3])
		}
		if c[0] == "HSET" && c[1] == k.absent && c[2] != "next" {
			at, _ := strconv.ParseInt(c[3], 10, 64)
			db.Do("HSET", c[1], c[2], fmt.Sprint(now+nearest(at-now+100*tick)-100*tick))
		}
	}
}

// redeclare changes since when a declaration of permits is in force.
func redeclare(db *memredis.DB, key string, n int, since int64) {
	ttl := db.TTL(key)
	db.Do("SET", key, fmt.Sprintf("%d %d", n, since))
	if ttl > 0 {
		db.Do("PEXPIRE", key, fmt.Sprint(ttl))
	}
}

func anys(args []string) []any {
	all := make([]any, len(args))
	for i := range args {
		all[i] = args[i]
	}
	return all
}
