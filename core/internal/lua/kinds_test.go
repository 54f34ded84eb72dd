package lua

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The keys and fields of the other kinds, as Redisson has them.
const (
	tokens    = "redisson_lock_token:{order:42}"
	mineWrite = mine + ":write"
)

// level returns the key of a read level.
func level(owner string, n int) string {
	return fmt.Sprintf("{order:42}:%s:rwlock_timeout:%d", owner, n)
}

// A wiretap receives all published messages.
type wiretap struct{ *redis.PubSub }

func tap(t *testing.T, rdb *redis.Client) wiretap {
	t.Helper()
	ps := rdb.PSubscribe(ctx(), "*")
	t.Cleanup(func() { _ = ps.Close() })
	if _, err := ps.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	return wiretap{ps}
}

// want checks the channels and messages published since its last call.
func (w wiretap) want(t *testing.T, rdb *redis.Client, want ...string) {
	t.Helper()
	if err := rdb.Publish(ctx(), farewell, "").Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		m, err := w.ReceiveMessage(ctx())
		if err != nil {
			t.Fatal(err)
		}
		if m.Channel == farewell {
			break
		}
		got = append(got, m.Channel+" "+m.Payload)
	}
	if !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}

// putHash makes a hash with the given fields; ttl 0: it never expires.
func putHash(t *testing.T, rdb *redis.Client, fields map[string]string, ttl time.Duration) {
	t.Helper()
	for field, value := range fields {
		if err := rdb.HSet(ctx(), key, field, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if ttl > 0 {
		if err := rdb.PExpire(ctx(), key, ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantKeys checks which keys exist.
func wantKeys(t *testing.T, rdb *redis.Client, want ...string) {
	t.Helper()
	got := rdb.Keys(ctx(), "*").Val()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

// A grant draws a token, a repeat draws the next, a refusal draws none. The counter never expires.
func TestAcquireFenced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		before  map[string]string
		left    time.Duration // 0: never expires
		granted bool
		refusal time.Duration
		ttl     time.Duration
	}{
		{"free", nil, 0, true, 0, lease},
		{"mine by a try whose reply was lost", map[string]string{mine: "1"}, 15 * time.Second, true, 0, lease},
		{"mine, and longer", map[string]string{mine: "1"}, time.Hour, true, 0, time.Hour},
		{"mine, without end", map[string]string{mine: "1"}, 0, true, 0, lease},
		{"another's", map[string]string{other: "2"}, 20 * time.Second, false, 20 * time.Second, 20 * time.Second},
		{"another's, without end", map[string]string{other: "2"}, 0, false, -time.Millisecond, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			putHash(t, rdb, tc.before, tc.left)
			rdb.Set(ctx(), tokens, 41, 0)
			for n := range uint64(3) {
				told := mustAnswer(t, rdb, AcquireFenced(key, tokens, mine, lease))
				if told.Granted != tc.granted || tc.granted && told.Token != 42+n || !tc.granted && told.Token != 0 {
					t.Errorf("%+v, want token %d", told, 42+n)
				}
				if told.TTL > tc.refusal || told.TTL < tc.refusal-10*time.Second {
					t.Errorf("the refusal says %v, want %v", told.TTL, tc.refusal)
				}
				drawn := uint64(41)
				if tc.granted {
					drawn = told.Token
					wantHash(t, rdb, key, map[string]string{mine: "1"})
				} else {
					wantHash(t, rdb, key, tc.before)
				}
				if got := rdb.Get(ctx(), tokens).Val(); got != fmt.Sprint(drawn) {
					t.Errorf("the counter is at %s, want %d", got, drawn)
				}
			}
			wantTTL(t, rdb, key, tc.ttl)
			if ttl := rdb.PTTL(ctx(), tokens).Val(); ttl != -1 {
				t.Errorf("the counter has %v to live", ttl)
			}
		})
	}
}

// The write side and a fair lock draw from the same counter. Refusals draw nothing, and a repeat
// leaves the count alone.
func TestAcquireFencedOfOtherKinds(t *testing.T) {
	t.Parallel()
	write := func(field string) Call { return AcquireFencedWrite(key, tokens, field+":write", lease) }
	fair := func(owner string) Call { return AcquireFencedFair(fencedFairLock, owner, lease, asLong, soon) }
	for _, tc := range []struct {
		name          string
		call          func(owner string) Call
		before, after map[string]string
		granted       bool
	}{
		{"write, free", write, nil, map[string]string{"mode": "write", mineWrite: "1"}, true},
		{"write, entered again", write, map[string]string{"mode": "write", mineWrite: "3"}, map[string]string{"mode": "write", mineWrite: "3"}, true},
		{"write, another writes", write, map[string]string{"mode": "write", other + ":write": "1"}, map[string]string{"mode": "write", other + ":write": "1"}, false},
		{"write, another reads", write, map[string]string{"mode": "read", other: "1"}, map[string]string{"mode": "read", other: "1"}, false},
		{"fair, free", fair, nil, map[string]string{mine: "1"}, true},
		{"fair, entered again", fair, map[string]string{mine: "3"}, map[string]string{mine: "3"}, true},
		{"fair, another's", fair, map[string]string{other: "1"}, map[string]string{other: "1"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			putHash(t, rdb, tc.before, lease)
			rdb.Set(ctx(), tokens, uint64(exact-2), 0) // the last tokens that are numbers, and the first that are not
			for n := range uint64(3) {
				want := Answer{}
				if tc.granted {
					want = Answer{Granted: true, Token: exact - 1 + n}
				}
				told := mustAnswer(t, rdb, tc.call(mine))
				told.TTL, told.Now, told.Place = 0, 0, 0
				if told != want {
					t.Errorf("%+v, want %+v", told, want)
				}
				wantHash(t, rdb, key, tc.after)
				if got := rdb.Get(ctx(), tokens).Val(); got != fmt.Sprint(max(exact-2, want.Token)) {
					t.Errorf("the counter is at %s after token %d", got, want.Token)
				}
			}
		})
	}
}

// A fenced fair lock that is handed over draws a token, also in a repeat. One that is freed, or was
// gone, draws none.
func TestFairPassFenced(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 2)
	pass := func(from, to int) Answer {
		t.Helper()
		c := PassFencedFair(fencedFairLock, owner(from), owner(to), lease)
		told, err := c.ReadPass(mustEval(t, f.rdb, c))
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	for n := range uint64(3) {
		if told := pass(0, 1); told != (Answer{Granted: true, Token: 1 + n}) {
			t.Errorf("to the first: %+v after %d others", told, n)
		}
		wantHash(t, f.rdb, key, map[string]string{owner(1): "1"})
	}
	if told := pass(0, 2); told != (Answer{}) {
		t.Errorf("from one that does not hold it: %+v", told)
	}
	if told := pass(1, 3); told != (Answer{Freed: true}) {
		t.Errorf("to one that is not the first: %+v", told)
	}
	if got := f.rdb.Get(ctx(), tokens).Val(); got != "3" {
		t.Errorf("the counter is at %s, want 3", got)
	}
}

// No two holders get the same token, wherever the counter stands.
func TestLargeTokens(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, start := range []uint64{exact - 5, exact, 1_700_000_000_000_000_000, math.MaxInt64 - 8} {
		want := start
		wantNext := func(told Answer, err error) {
			t.Helper()
			if want++; err != nil || !told.Granted || told.Token != want {
				t.Errorf("%+v, %v; want token %d", told, err, want)
			}
		}
		rdb.Del(ctx(), key)
		rdb.Set(ctx(), tokens, start, 0)
		for range 4 {
			wantNext(mustAnswer(t, rdb, AcquireFenced(key, tokens, mine, lease)), nil)
		}
		for _, pair := range [][2]string{{mine, other}, {mine, other}, {other, mine}, {mine, other}} {
			c := PassFenced(key, tokens, pair[0], pair[1], lease)
			wantNext(c.ReadPass(mustEval(t, rdb, c)))
		}
	}
	c := AcquireFenced(key, tokens, other, lease)
	if reply, err := eval(rdb, c); err == nil { // there is no greater token
		t.Errorf("reply %v, want an error", reply)
	}
	wantHash(t, rdb, key, map[string]string{other: "1"})
}

// A counter that is not a number grants nothing.
func TestAcquireFencedWithoutACounter(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	rdb.Set(ctx(), tokens, "precious", 0)
	for _, c := range []Call{
		AcquireFenced(key, tokens, mine, lease), AcquireFencedWrite(key, tokens, mineWrite, lease),
		AcquireFencedFair(fencedFairLock, mine, lease, asLong, soon),
	} {
		if reply, err := eval(rdb, c); err == nil {
			t.Errorf("%s: reply %v, want an error", c.Script.Name, reply)
		}
	}
	wantKeys(t, rdb, tokens)
}

func TestAcquireRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		before  map[string]string
		left    time.Duration
		granted bool
		after   map[string]string
		ttl     time.Duration
	}{
		{"free", nil, 0, true, map[string]string{"mode": "read", mine: "1"}, lease},
		{
			"a repeat", map[string]string{"mode": "read", mine: "1"}, 15 * time.Second, true,
			map[string]string{"mode": "read", mine: "1"}, lease,
		},
		{
			"beside another", map[string]string{"mode": "read", other: "2"}, 15 * time.Second, true,
			map[string]string{"mode": "read", mine: "1", other: "2"}, lease,
		},
		{
			"beside another that has longer", map[string]string{"mode": "read", other: "2"}, time.Hour, true,
			map[string]string{"mode": "read", mine: "1", other: "2"}, time.Hour,
		},
		{
			"a writer has it", map[string]string{"mode": "write", other + ":write": "1"}, 20 * time.Second, false,
			map[string]string{"mode": "write", other + ":write": "1"}, 20 * time.Second,
		},
		{
			"held by a writer that also reads", map[string]string{"mode": "write", other + ":write": "1", other: "1"}, 20 * time.Second, false,
			map[string]string{"mode": "write", other + ":write": "1", other: "1"}, 20 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			putHash(t, rdb, tc.before, tc.left)
			for range 2 {
				told := mustAnswer(t, rdb, AcquireRead(key, level(mine, 1), mine, lease))
				if told.Granted != tc.granted || !tc.granted && (told.TTL > tc.ttl || told.TTL < tc.ttl-10*time.Second) {
					t.Errorf("%+v, want granted %v", told, tc.granted)
				}
				wantHash(t, rdb, key, tc.after)
				wantTTL(t, rdb, key, tc.ttl)
				if tc.granted {
					wantTTL(t, rdb, level(mine, 1), lease)
					wantKeys(t, rdb, key, level(mine, 1))
				} else {
					wantKeys(t, rdb, key)
				}
			}
			if tc.granted && rdb.Get(ctx(), level(mine, 1)).Val() != "1" {
				t.Error("the key of the read level is not 1")
			}
		})
	}
}

func TestAcquireWrite(t *testing.T) {
	t.Parallel()
	written := map[string]string{"mode": "write", mineWrite: "1"}
	for _, tc := range []struct {
		name    string
		before  map[string]string
		left    time.Duration
		granted bool
		after   map[string]string
		ttl     time.Duration
	}{
		{"free", nil, 0, true, written, lease},
		{"a repeat", written, 15 * time.Second, true, written, lease},
		{"a repeat, and longer", written, time.Hour, true, written, time.Hour},
		{"a repeat, without end", written, 0, true, written, lease},
		{
			"another writes", map[string]string{"mode": "write", other + ":write": "1"}, 20 * time.Second, false,
			map[string]string{"mode": "write", other + ":write": "1"}, 20 * time.Second,
		},
		{
			"another reads", map[string]string{"mode": "read", other: "2"}, 20 * time.Second, false,
			map[string]string{"mode": "read", other: "2"}, 20 * time.Second,
		},
		{
			"the same reads: no upgrade", map[string]string{"mode": "read", mine: "1"}, 20 * time.Second, false,
			map[string]string{"mode": "read", mine: "1"}, 20 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			putHash(t, rdb, tc.before, tc.left)
			for range 2 {
				told := mustAnswer(t, rdb, AcquireWrite(key, mineWrite, lease))
				if told.Granted != tc.granted || !tc.granted && (told.TTL > tc.ttl || told.TTL < tc.ttl-10*time.Second) {
					t.Errorf("%+v, want granted %v", told, tc.granted)
				}
				wantHash(t, rdb, key, tc.after)
				wantTTL(t, rdb, key, tc.ttl)
				wantKeys(t, rdb, key)
			}
		})
	}
}

// A plain, fair or fenced lock cannot be acquired as a read/write lock, though Redisson allows it.
func TestReadWriteOnAPlainLock(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{mine, other} {
		rdb := redistest.Start(t).Client(t)
		put(t, rdb, key, owner, 1, lease)
		for _, c := range []Call{AcquireRead(key, level(mine, 1), mine, time.Hour), AcquireWrite(key, mineWrite, time.Hour)} {
			if reply, err := eval(rdb, c); !redis.HasErrorPrefix(err, "WRONGKIND") {
				t.Errorf("%s: %v, %v; want WRONGKIND", c.Script.Name, reply, err)
			}
		}
		wantHash(t, rdb, key, map[string]string{owner: "1"})
		wantTTL(t, rdb, key, lease)
		wantKeys(t, rdb, key)
	}
}

// readWrite is an update of the owner's hold to the given levels. It had at most two read levels.
func readWrite(reads, writes int, d time.Duration, certain bool) Call {
	return UpdateReadWrite(ReadWriteHold{
		Key:          key,
		Timeouts:     []string{level(mine, 1), level(mine, 2)},
		Owner:        mine,
		Reads:        reads,
		Writes:       writes,
		Prefix:       "{order:42}:",
		Suffix:       ":rwlock_timeout:",
		Certain:      certain,
		WriteMessage: "1",
	}, d, Announcement{Channel: "redisson_rwlock:{order:42}", Message: "0", Commands: []string{"PUBLISH"}})
}

// What an update leaves on the wire: fields, levels with their TTLs, and messages. A repeat leaves
// the same.
func TestUpdateReadWrite(t *testing.T) {
	t.Parallel()
	type hash = map[string]string
	type ttls = map[string]time.Duration
	const readLeft, writeLeft = "redisson_rwlock:{order:42} 0", "redisson_rwlock:{order:42} 1"
	const short = 15 * time.Second
	for _, tc := range []struct {
		name   string
		before hash
		// ttlsBefore has the TTL of the hash, too.
		ttlsBefore    ttls
		reads, writes int
		lease         time.Duration
		gone          bool
		after         hash
		ttls          ttls
		heard         []string
	}{
		{
			name: "a reader enters again", before: hash{"mode": "read", mine: "1"}, ttlsBefore: ttls{key: short, level(mine, 1): short},
			reads: 2, lease: lease,
			after: hash{"mode": "read", mine: "2"}, ttls: ttls{key: lease, level(mine, 1): lease, level(mine, 2): lease},
		},
		{
			name: "a reader enters again for less", before: hash{"mode": "read", mine: "1"}, ttlsBefore: ttls{key: time.Hour, level(mine, 1): time.Hour},
			reads: 2, lease: lease,
			after: hash{"mode": "read", mine: "2"}, ttls: ttls{key: time.Hour, level(mine, 1): time.Hour, level(mine, 2): time.Hour},
		},
		{
			name: "a reader leaves one level", before: hash{"mode": "read", mine: "2"}, ttlsBefore: ttls{key: lease, level(mine, 1): short, level(mine, 2): lease},
			reads: 1,
			after: hash{"mode": "read", mine: "1"}, ttls: ttls{key: lease, level(mine, 1): lease},
		},
		{
			name: "the last reader leaves", before: hash{"mode": "read", mine: "2"}, ttlsBefore: ttls{key: lease, level(mine, 1): lease, level(mine, 2): lease},
			heard: []string{readLeft},
		},
		{
			name: "a reader leaves another behind", before: hash{"mode": "read", mine: "1", other: "2"},
			ttlsBefore: ttls{key: time.Hour, level(mine, 1): time.Hour, level(other, 1): short, level(other, 2): lease},
			after:      hash{"mode": "read", other: "2"}, ttls: ttls{key: lease, level(other, 1): short, level(other, 2): lease},
		},
		{
			name: "a reader leaves only dead ones behind", before: hash{"mode": "read", mine: "1", other: "2"},
			ttlsBefore: ttls{key: lease, level(mine, 1): lease},
			heard:      []string{readLeft},
		},
		{
			name: "a reader that is gone", before: hash{"mode": "read", other: "1"},
			ttlsBefore: ttls{key: lease, level(other, 1): lease, level(mine, 1): lease},
			reads:      2, lease: time.Hour, gone: true,
			after: hash{"mode": "read", other: "1"}, ttls: ttls{key: lease, level(other, 1): lease},
		},
		{name: "a lock that is gone", reads: 0, gone: true},
		{
			name: "a stray from before a downgrade", before: hash{"mode": "read", mine: "1"}, ttlsBefore: ttls{key: lease, level(mine, 1): lease},
			reads: 1, writes: 1, lease: lease,
			after: hash{"mode": "read", mine: "1"}, ttls: ttls{key: lease, level(mine, 1): lease},
		},
		{
			name: "a stray from before a downgrade, without read levels", before: hash{"mode": "read", mine: "1"}, ttlsBefore: ttls{key: lease, level(mine, 1): lease},
			writes: 2, lease: time.Hour,
			after: hash{"mode": "read", mine: "1"}, ttls: ttls{key: lease, level(mine, 1): lease},
		},
		{
			name: "a writer goes on as a reader, whose level a stray has deleted", before: hash{"mode": "write", mineWrite: "1"}, ttlsBefore: ttls{key: lease},
			reads: 1,
			after: hash{"mode": "read", mine: "1"}, ttls: ttls{key: lease, level(mine, 1): lease},
			heard: []string{writeLeft},
		},
		{
			name: "a writer enters again", before: hash{"mode": "write", mineWrite: "1"}, ttlsBefore: ttls{key: short},
			writes: 2, lease: lease,
			after: hash{"mode": "write", mineWrite: "2"}, ttls: ttls{key: lease}, // not the sum
		},
		{
			name: "a writer reads as well", before: hash{"mode": "write", mineWrite: "1"}, ttlsBefore: ttls{key: time.Hour},
			reads: 1, writes: 1, lease: lease,
			after: hash{"mode": "write", mineWrite: "1", mine: "1"}, ttls: ttls{key: time.Hour, level(mine, 1): lease},
		},
		{
			name: "a writer leaves the read side", before: hash{"mode": "write", mineWrite: "1", mine: "1"}, ttlsBefore: ttls{key: time.Hour, level(mine, 1): lease},
			writes: 1,
			// The TTL is not shortened to the read lease.
			after: hash{"mode": "write", mineWrite: "1"}, ttls: ttls{key: time.Hour},
		},
		{
			name: "a writer goes on as a reader", before: hash{"mode": "write", mineWrite: "1", mine: "1"}, ttlsBefore: ttls{key: lease, level(mine, 1): lease},
			reads: 1,
			after: hash{"mode": "read", mine: "1"}, ttls: ttls{key: lease, level(mine, 1): lease},
			heard: []string{writeLeft},
		},
		{
			name: "a writer leaves", before: hash{"mode": "write", mineWrite: "2"}, ttlsBefore: ttls{key: lease},
			heard: []string{writeLeft},
		},
		{
			name: "a writer leaves both sides", before: hash{"mode": "write", mineWrite: "1", mine: "2"},
			ttlsBefore: ttls{key: lease, level(mine, 1): lease, level(mine, 2): lease},
			heard:      []string{writeLeft},
		},
		{
			name: "another's write lock", before: hash{"mode": "write", other + ":write": "1"}, ttlsBefore: ttls{key: lease},
			gone: true, after: hash{"mode": "write", other + ":write": "1"}, ttls: ttls{key: lease},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			putHash(t, rdb, tc.before, tc.ttlsBefore[key])
			for k, ttl := range tc.ttlsBefore {
				if k != key {
					if err := rdb.Set(ctx(), k, 1, ttl).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			heard := tap(t, rdb)
			c := readWrite(tc.reads, tc.writes, tc.lease, true)
			check := func(done bool) {
				t.Helper()
				if got := mustFlag(t, rdb, c); got != done {
					t.Errorf("done %v, want %v", got, done)
				}
				wantHash(t, rdb, key, tc.after)
				for k, ttl := range tc.ttls {
					wantTTL(t, rdb, k, ttl)
				}
				wantKeys(t, rdb, slices.Collect(maps.Keys(tc.ttls))...)
			}
			check(!tc.gone)
			heard.want(t, rdb, tc.heard...)
			check(!tc.gone && tc.reads+tc.writes > 0)
			heard.want(t, rdb)
		})
	}
}

// While a slot moves, a level that is missing here may be on the other node. Its reader counts as
// alive, and the hash keeps its TTL.
func TestReaderLeavesWhileASlotMoves(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	putHash(t, rdb, map[string]string{"mode": "read", mine: "1", other: "1"}, time.Hour)
	heard := tap(t, rdb)
	if !mustFlag(t, rdb, readWrite(0, 0, 0, false)) {
		t.Error("not done")
	}
	wantHash(t, rdb, key, map[string]string{"mode": "read", other: "1"})
	wantTTL(t, rdb, key, time.Hour)
	heard.want(t, rdb)
}

// A lock moves from one field to another. A repeat reports success. If the old field is gone, the
// new one gets nothing. Nothing is published.
func TestPass(t *testing.T) {
	t.Parallel()
	type hash = map[string]string
	for _, tc := range []struct {
		name          string
		from, to      string
		before, after hash
		done          bool
	}{
		{"a lock", mine, other, hash{mine: "3"}, hash{other: "1"}, true},
		{"a write lock", mineWrite, other + ":write", hash{"mode": "write", mineWrite: "1"}, hash{"mode": "write", other + ":write": "1"}, true},
		{"gone", mine, other, nil, nil, false},
		{"gone, and taken by a third", mine, other, hash{"third:1": "1"}, hash{"third:1": "1"}, false},
	} {
		for fenced, c := range map[bool]Call{false: Pass(key, tc.from, tc.to, lease), true: PassFenced(key, tokens, tc.from, tc.to, lease)} {
			t.Run(fmt.Sprint(tc.name, ", fenced: ", fenced), func(t *testing.T) {
				t.Parallel()
				rdb := redistest.Start(t).Client(t)
				putHash(t, rdb, tc.before, time.Hour)
				heard := tap(t, rdb)
				for n := range uint64(3) {
					told, err := c.ReadPass(mustEval(t, rdb, c))
					if err != nil || told.Granted != tc.done {
						t.Errorf("%+v, %v; want done %v", told, err, tc.done)
					}
					if want := n + 1; fenced && tc.done && told.Token != want || (!fenced || !tc.done) && told.Token != 0 {
						t.Errorf("token %d after %d others", told.Token, n)
					}
					wantHash(t, rdb, key, tc.after)
					if tc.done {
						wantTTL(t, rdb, key, lease) // lease of the new hold
						// The lease counts from the repeat.
						if err := rdb.PExpire(ctx(), key, lease/2).Err(); err != nil {
							t.Fatal(err)
						}
					} else if len(tc.after) > 0 {
						wantTTL(t, rdb, key, time.Hour)
					}
				}
				if n := rdb.Exists(ctx(), tokens).Val() == 1; n != (fenced && tc.done) {
					t.Errorf("a counter of tokens: %v", n)
				}
				heard.want(t, rdb)
			})
		}
	}
}

// A release reports how many clients received its message. The end of a streak of hand-overs uses
// that to see whether other processes want the lock. A user that may not publish still frees it.
func TestRelease_CountsListeners(t *testing.T) {
	t.Parallel()
	const channel = "c"
	write := ReadWriteHold{Key: key, Owner: mine, Certain: true, WriteMessage: "0"}
	write.Prefix, write.Suffix = "{"+key+"}:", ":rwlock_timeout:"
	for _, tc := range []struct {
		name      string
		commands  []string
		plain     int // listeners
		sharded   int
		rules     []any
		listeners int
	}{
		{name: "none", commands: []string{"PUBLISH"}},
		{name: "plain", commands: []string{"PUBLISH"}, plain: 2, sharded: 1, listeners: 2},
		{name: "sharded", commands: []string{"SPUBLISH"}, plain: 2, sharded: 1, listeners: 1},
		{name: "both", commands: []string{"PUBLISH", "SPUBLISH"}, plain: 2, sharded: 1, listeners: 3},
		{name: "not allowed", commands: []string{"PUBLISH"}, plain: 1, rules: []any{"~*", "&*", "+@all", "-publish"}},
	} {
		a := Announcement{Channel: channel, Message: "0", Commands: tc.commands}
		for name, c := range map[string]Call{"plain lock": Release(key, mine, a), "write lock": UpdateReadWrite(write, 0, a)} {
			t.Run(tc.name+", "+name, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				rdb := srv.Client(t)
				as := rdb
				if tc.rules != nil {
					as = asUser(t, srv, tc.rules...)
				}
				listen := func(n int, subscribe func(context.Context, ...string) *redis.PubSub) {
					for range n {
						ps := subscribe(ctx(), channel)
						t.Cleanup(func() { _ = ps.Close() })
						if _, err := ps.Receive(ctx()); err != nil {
							t.Fatal(err)
						}
					}
				}
				listen(tc.plain, rdb.Subscribe)
				listen(tc.sharded, rdb.SSubscribe)
				fields := map[string]string{mine: "1"}
				if name == "write lock" {
					fields = map[string]string{mine + ":write": "1", "mode": "write"}
				}
				putHash(t, rdb, fields, time.Hour)
				freed, listeners, err := c.ReadRelease(mustEval(t, as, c))
				if !freed || listeners != tc.listeners || err != nil {
					t.Errorf("freed %v, %d listeners, %v; want %d", freed, listeners, err, tc.listeners)
				}
				if rdb.Exists(ctx(), key).Val() != 0 {
					t.Error("the lock is still there")
				}
				if freed, listeners, err := c.ReadRelease(mustEval(t, as, c)); freed || listeners != 0 || err != nil {
					t.Errorf("a repeat: freed %v, %d listeners, %v", freed, listeners, err)
				}
			})
		}
	}
}

func TestReadPass(t *testing.T) {
	t.Parallel()
	plain, fenced := Pass(key, mine, other, lease), PassFenced(key, tokens, mine, other, lease)
	fair := PassFair(fairLock, mine, other, lease)
	fencedFair := PassFencedFair(fencedFairLock, mine, other, lease)
	for _, c := range []Call{plain, fenced, fair, fencedFair} {
		for _, reply := range append(strange, []any{int64(0)}) {
			if reply == any(int64(-1)) && (c.Script == fairPass || c.Script == fencedFairPass) {
				continue // freed
			}
			if got, err := c.ReadPass(reply); got != (Answer{}) || err == nil || !strings.Contains(err.Error(), c.Script.Name) {
				t.Errorf("%s: %T %v: %+v, %v; want an error that names the script", c.Script.Name, reply, reply, got, err)
			}
		}
	}
	if got, err := fencedFair.ReadPass(int64(7)); got != (Answer{Granted: true, Token: 7}) || err != nil {
		t.Errorf("a fenced hand-over of a fair lock: %+v, %v", got, err)
	}
	if got, err := fencedFair.ReadPass(int64(-1)); got != (Answer{Freed: true}) || err != nil {
		t.Errorf("a fenced fair lock is freed: %+v, %v", got, err)
	}
	for _, c := range []Call{plain, fair} {
		if got, err := c.ReadPass(int64(2)); err == nil {
			t.Errorf("%s has no token: %+v", c.Script.Name, got)
		}
	}
}
