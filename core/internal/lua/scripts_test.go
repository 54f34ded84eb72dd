package lua

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const (
	key   = "order:42"
	mine  = "8f8e7c1a-0000-4000-8000-000000000000:1"
	other = "8f8e7c1a-0000-4000-8000-000000000000:2"
	lease = 30 * time.Second
)

var announcement = Announcement{Channel: "ch:{order:42}", Message: "0", Commands: []string{"PUBLISH"}}

func ctx() context.Context { return context.Background() }

// eval runs a call as the engine does: by digest first, then by text.
func eval(rdb *redis.Client, c Call) (any, error) {
	reply, err := rdb.Do(ctx(), c.EvalSHA()...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = rdb.Do(ctx(), c.Eval()...).Result()
	}
	return reply, PlainError(err)
}

func mustEval(t *testing.T, rdb *redis.Client, c Call) any {
	t.Helper()
	reply, err := eval(rdb, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Script.Name, err)
	}
	return reply
}

// mustFlag reports whether an update, a release or a force found what it changes.
func mustFlag(t *testing.T, rdb *redis.Client, c Call) bool {
	t.Helper()
	if c.Script == forceRelease || c.Script == fairForceRelease {
		taken, _ := mustForceRelease(t, rdb, c)
		return slices.Contains(taken, true)
	}
	done, _, err := c.ReadRelease(mustEval(t, rdb, c))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// mustForceRelease returns which owners lost the lock to a force, and how many hold it still.
func mustForceRelease(t *testing.T, rdb *redis.Client, c Call) (taken []bool, left int) {
	t.Helper()
	reply := mustEval(t, rdb, c)
	list, _ := reply.([]any)
	taken, left, err := c.ReadTaken(reply, len(list)-1)
	if err != nil {
		t.Fatal(err)
	}
	return taken, left
}

func mustAcquire(t *testing.T, rdb *redis.Client, owner string, d time.Duration) (granted bool, ttl time.Duration) {
	t.Helper()
	told := mustAnswer(t, rdb, Acquire(key, owner, d))
	return told.Granted, told.TTL
}

// mustAnswer runs an acquire script.
func mustAnswer(t *testing.T, rdb *redis.Client, c Call) Answer {
	t.Helper()
	told, err := c.ReadAcquire(mustEval(t, rdb, c))
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// put makes a lock hash; ttl 0: it never expires, which only a fault can cause.
func put(t *testing.T, rdb *redis.Client, k, owner string, count int, ttl time.Duration) {
	t.Helper()
	if err := rdb.HSet(ctx(), k, owner, count).Err(); err != nil {
		t.Fatal(err)
	}
	if ttl > 0 {
		if err := rdb.PExpire(ctx(), k, ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantHash checks the hash of a lock; nil: it does not exist.
func wantHash(t *testing.T, rdb *redis.Client, k string, want map[string]string) {
	t.Helper()
	got, err := rdb.HGetAll(ctx(), k).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("hash of %s: %v, want %v", k, got, want)
	}
}

// wantTTL checks a TTL. It allows for a slow machine.
func wantTTL(t *testing.T, rdb *redis.Client, k string, want time.Duration) {
	t.Helper()
	got, err := rdb.PTTL(ctx(), k).Result()
	if err != nil {
		t.Fatal(err)
	}
	if got > want || got < want-10*time.Second {
		t.Errorf("%s has %v to live, want %v", k, got, want)
	}
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		before  func(t *testing.T, rdb *redis.Client)
		granted bool
		// refusal is the most that the holder has left.
		refusal time.Duration
		hash    map[string]string
		ttl     time.Duration
	}{
		{"free", func(*testing.T, *redis.Client) {}, true, 0, map[string]string{mine: "1"}, lease},
		{
			"held by another",
			func(t *testing.T, rdb *redis.Client) { put(t, rdb, key, other, 3, 20*time.Second) },
			false, 20 * time.Second, map[string]string{other: "3"}, 20 * time.Second,
		},
		{
			"mine by a try whose reply was lost: a repeat",
			func(t *testing.T, rdb *redis.Client) { put(t, rdb, key, mine, 1, 15*time.Second) },
			true, 0, map[string]string{mine: "1"}, lease,
		},
		{
			"mine, and longer: not shortened",
			func(t *testing.T, rdb *redis.Client) { put(t, rdb, key, mine, 1, time.Hour) },
			true, 0, map[string]string{mine: "1"}, time.Hour,
		},
		{
			"mine, without end: gets one",
			func(t *testing.T, rdb *redis.Client) { put(t, rdb, key, mine, 1, 0) },
			true, 0, map[string]string{mine: "1"}, lease,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			tc.before(t, rdb)
			granted, ttl := mustAcquire(t, rdb, mine, lease)
			if granted != tc.granted {
				t.Errorf("granted %v, want %v", granted, tc.granted)
			}
			if ttl > tc.refusal || ttl < tc.refusal-10*time.Second {
				t.Errorf("the refusal says %v, want %v", ttl, tc.refusal)
			}
			wantHash(t, rdb, key, tc.hash)
			wantTTL(t, rdb, key, tc.ttl)
		})
	}
}

func TestAcquireHeldWithoutEnd(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, key, other, 1, 0)
	granted, ttl := mustAcquire(t, rdb, mine, lease)
	if granted || ttl != -time.Millisecond {
		t.Errorf("granted %v, ttl %v; want a refusal with -1ms", granted, ttl)
	}
	wantHash(t, rdb, key, map[string]string{other: "1"})
	if ttl := rdb.PTTL(ctx(), key).Val(); ttl != -1 {
		t.Errorf("a stranger's key got a time to live: %v", ttl)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// ttl is what the hash had left before. -1: there is no hash.
		ttl   time.Duration
		count int
		lease time.Duration
		done  bool
		// after is the count in Redis.
		after  string
		newTTL time.Duration
	}{
		{"re-entry", 20 * time.Second, 2, lease, true, "2", lease},
		{"re-entry that is shorter", time.Hour, 2, lease, true, "2", time.Hour},
		{"the same again", 20 * time.Second, 1, lease, true, "1", lease},
		{"partial release leaves the time to live", 20 * time.Second, 1, 0, true, "1", 20 * time.Second},
		{"gone", -1, 2, lease, false, "", 0},
		{"gone, partial release", -1, 1, 0, false, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			if tc.ttl >= 0 {
				put(t, rdb, key, mine, 1, tc.ttl)
			}
			for range 3 { // a repeat changes nothing
				if done := mustFlag(t, rdb, Update(key, mine, tc.count, tc.lease)); done != tc.done {
					t.Errorf("done %v, want %v", done, tc.done)
				}
				if !tc.done {
					wantHash(t, rdb, key, nil)
					continue
				}
				wantHash(t, rdb, key, map[string]string{mine: tc.after})
				wantTTL(t, rdb, key, tc.newTTL)
			}
		})
	}
}

func TestUpdateOfAnothersLock(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, key, other, 1, 20*time.Second)
	if mustFlag(t, rdb, Update(key, mine, 2, time.Hour)) {
		t.Error("updated a missing hold")
	}
	wantHash(t, rdb, key, map[string]string{other: "1"})
	wantTTL(t, rdb, key, 20*time.Second)
}

func TestUpdateGivesAnEndToAHashWithoutOne(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, key, mine, 1, 0)
	if !mustFlag(t, rdb, Update(key, mine, 2, lease)) {
		t.Error("not done")
	}
	wantTTL(t, rdb, key, lease)
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		commands []string
		before   map[string]string
		freed    bool
		after    map[string]string
		// heard counts messages by the kind of subscription.
		heard map[string]int
	}{
		{"mine", []string{"PUBLISH"}, map[string]string{mine: "1"}, true, nil, map[string]int{"plain": 1}},
		{"mine, entered several times", []string{"PUBLISH"}, map[string]string{mine: "7"}, true, nil, map[string]int{"plain": 1}},
		{"sharded", []string{"SPUBLISH"}, map[string]string{mine: "1"}, true, nil, map[string]int{"sharded": 1}},
		{"both", []string{"PUBLISH", "SPUBLISH"}, map[string]string{mine: "1"}, true, nil, map[string]int{"plain": 1, "sharded": 1}},
		{"silent", nil, map[string]string{mine: "1"}, true, nil, nil},
		{"free", []string{"PUBLISH"}, nil, false, nil, nil},
		{"another's", []string{"PUBLISH"}, map[string]string{other: "2"}, false, map[string]string{other: "2"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			for owner, count := range tc.before {
				put(t, rdb, key, owner, int(count[0]-'0'), lease)
			}
			plain := listen(t, rdb.Subscribe(ctx(), announcement.Channel))
			sharded := listen(t, rdb.SSubscribe(ctx(), announcement.Channel))

			a := announcement
			a.Commands = tc.commands
			if freed := mustFlag(t, rdb, Release(key, mine, a)); freed != tc.freed {
				t.Errorf("freed %v, want %v", freed, tc.freed)
			}
			if freed := mustFlag(t, rdb, Release(key, mine, a)); freed {
				t.Error("a repeat frees something once more")
			}
			wantHash(t, rdb, key, tc.after)
			plain.want(t, rdb, tc.heard["plain"])
			sharded.want(t, rdb, tc.heard["sharded"])
		})
	}
}

// ears receive the messages of one channel.
type ears struct {
	pubsub  *redis.PubSub
	publish func(rdb *redis.Client) *redis.IntCmd
}

const farewell = "farewell"

func listen(t *testing.T, ps *redis.PubSub) *ears {
	t.Helper()
	t.Cleanup(func() { _ = ps.Close() })
	confirmation, err := ps.Receive(ctx())
	if err != nil {
		t.Fatal(err)
	}
	e := &ears{pubsub: ps, publish: func(rdb *redis.Client) *redis.IntCmd {
		return rdb.Publish(ctx(), announcement.Channel, farewell)
	}}
	if confirmation.(*redis.Subscription).Kind == "ssubscribe" {
		e.publish = func(rdb *redis.Client) *redis.IntCmd { return rdb.SPublish(ctx(), announcement.Channel, farewell) }
	}
	return e
}

// want publishes its own message and reads up to it, so that it has seen all messages before.
func (e *ears) want(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	if err := e.publish(rdb).Err(); err != nil {
		t.Fatal(err)
	}
	for got := 0; ; got++ {
		m, err := e.pubsub.ReceiveMessage(ctx())
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload == farewell {
			if got != n {
				t.Errorf("%d messages, want %d", got, n)
			}
			return
		}
		if m.Payload != announcement.Message {
			t.Errorf("message %q, want %q", m.Payload, announcement.Message)
		}
	}
}

func TestForceRelease(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	heard := listen(t, rdb.Subscribe(ctx(), announcement.Channel))
	owners := []string{mine, other}
	if mustFlag(t, rdb, ForceRelease(key, owners, announcement)) {
		t.Error("freed a lock that was not held")
	}
	for _, held := range [][]string{{mine}, {other}, {mine, other}, {mine, other, "mode"}} {
		for _, owner := range held {
			put(t, rdb, key, owner, 3, lease)
		}
		taken, left := mustForceRelease(t, rdb, ForceRelease(key, owners, announcement))
		if taken[0] != slices.Contains(held, mine) || taken[1] != slices.Contains(held, other) || left != 0 {
			t.Errorf("held by %q: taken %v, left %d", held, taken, left)
		}
		wantHash(t, rdb, key, nil)
		if mustFlag(t, rdb, ForceRelease(key, owners, announcement)) {
			t.Errorf("held by %q: a repeat frees something once more", held)
		}
	}
	heard.want(t, rdb, 4)

	// An owner that has acquired it since keeps it.
	put(t, rdb, key, "somebody else", 1, lease)
	if mustFlag(t, rdb, ForceRelease(key, owners, announcement)) || mustFlag(t, rdb, ForceRelease(key, nil, announcement)) {
		t.Error("freed a lock that none of the owners held")
	}
	wantHash(t, rdb, key, map[string]string{"somebody else": "1"})
	heard.want(t, rdb, 0)

	// A reader that has entered since stays, and the hash keeps its TTL.
	put(t, rdb, key, mine, 1, lease)
	put(t, rdb, key, "mode", 1, lease)
	if taken, left := mustForceRelease(t, rdb, ForceRelease(key, owners, announcement)); !taken[0] || taken[1] || left != 1 {
		t.Errorf("a reader beside another one: taken %v, left %d", taken, left)
	}
	wantHash(t, rdb, key, map[string]string{"somebody else": "1", "mode": "1"})
	wantTTL(t, rdb, key, lease)
	heard.want(t, rdb, 0)
}

func TestHolders(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, want := range [][]string{nil, {mine}, {mine, other}} {
		for _, owner := range want {
			put(t, rdb, key, owner, 2, lease)
		}
		got, err := ReadHolders(mustEval(t, rdb, Holders(key)))
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	inspect := func(owner string) State {
		t.Helper()
		s, err := ReadInspect(mustEval(t, rdb, Inspect(key, owner)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := inspect(mine); got != (State{}) {
		t.Errorf("free: %+v", got)
	}
	put(t, rdb, key, mine, 3, lease)
	for owner, count := range map[string]int{mine: 3, other: 0, "": 0} {
		got := inspect(owner)
		if got.Fields != 1 || got.Count != count || got.TTL > lease || got.TTL < lease-10*time.Second {
			t.Errorf("owner %q: %+v, want locked, %d times, for %v", owner, got, count, lease)
		}
	}
	if err := rdb.Persist(ctx(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := inspect(mine), (State{Fields: 1, TTL: -time.Millisecond, Count: 3}); got != want {
		t.Errorf("without end: %+v, want %+v", got, want)
	}
	// A value that no lock writes must not pass for a count.
	put(t, rdb, key, mine, 1, lease)
	if err := rdb.HSet(ctx(), key, mine, "many").Err(); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadInspect(mustEval(t, rdb, Inspect(key, mine))); err == nil {
		t.Errorf("a count that is no number: %+v, want an error", s)
	}
}

// calls returns a call of every script for one lock.
func calls() []Call {
	return []Call{
		Acquire(key, mine, lease),
		AcquireFenced(key, tokens, mine, lease),
		AcquireFair(fairLock, mine, lease, asLong, soon),
		AcquireRead(key, level(mine, 1), mine, lease),
		AcquireWrite(key, mineWrite, lease),
		AcquireFencedFair(fencedFairLock, mine, lease, asLong, soon),
		AcquireFencedWrite(key, tokens, mineWrite, lease),
		Enter(Entry{Key: key, Host: mine, Guest: other}, lease),
		Update(key, mine, 2, lease),
		readWrite(2, 1, lease, true),
		Pass(key, mine, other, lease),
		PassFenced(key, tokens, mine, other, lease),
		PassFair(fairLock, mine, other, lease),
		PassFencedFair(fencedFairLock, mine, other, lease),
		Release(key, mine, announcement),
		ReleaseFair(fairLock, mine),
		ForceRelease(key, []string{mine}, announcement),
		ForceReleaseFair(fairLock, []string{mine}),
		Holders(key),
		Present(key, []string{mine, other}),
		Inspect(key, mine),
	}
}

// keysOf returns the keys of a call of calls.
func keysOf(c Call) []any {
	return append([]any{key}, map[*Script][]any{
		fencedAcquire:     {tokens},
		fencedPass:        {tokens},
		fencedWrite:       {tokens},
		fencedFairAcquire: {queue, deadlines, tokens},
		fencedFairPass:    {queue, deadlines, tokens},
		fairAcquire:       {queue, deadlines},
		fairPass:          {queue, deadlines},
		fairRelease:       {queue, deadlines},
		fairForceRelease:  {queue, deadlines},
		readAcquire:       {level(mine, 1)},
		readWriteUpdate:   {level(mine, 1), level(mine, 2)},
	}[c.Script]...)
}

// calls covers all scripts for one lock.
func TestAllCalls(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	// These are no scripts, scripts for many locks, and one for none. Those of a Once and of permits have
	// tests of their own.
	tested := append([]string{renew.Name, many.Name, abilities.Name}, beginnings...)
	for _, c := range calls() {
		tested = append(tested, c.Script.Name)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".lua")
		if !strings.HasPrefix(name, "once_") && !strings.HasPrefix(name, "permit_") && !strings.HasPrefix(name, "latch_") && !slices.Contains(tested, name) {
			t.Errorf("%s is not among calls: add a call of it there, and its further keys to keysOf", file)
		}
	}
}

// A key of another type is an error, and stays unchanged.
func TestWrongType(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for kind, make := range map[string]func() error{
		"string": func() error { return rdb.Set(ctx(), key, "precious", time.Hour).Err() },
		"list":   func() error { return rdb.RPush(ctx(), key, "precious").Err() },
		"zset":   func() error { return rdb.ZAdd(ctx(), key, redis.Z{Score: 1, Member: "precious"}).Err() },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		before := rdb.Dump(ctx(), key).Val()
		ttl := rdb.PTTL(ctx(), key).Val()
		for _, c := range calls() {
			reply, err := eval(rdb, c)
			if !redis.HasErrorPrefix(err, "WRONGTYPE") {
				t.Errorf("%s on a %s: %v, %v; want WRONGTYPE", c.Script.Name, kind, reply, err)
			}
		}
		wantKeys(t, rdb, key)
		if after := rdb.Dump(ctx(), key).Val(); after != before {
			t.Errorf("the %s has changed", kind)
		}
		if now := rdb.PTTL(ctx(), key).Val(); now > ttl || (now < 0) != (ttl < 0) {
			t.Errorf("the %s has %v to live, had %v", kind, now, ttl)
		}
		if err := rdb.Del(ctx(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// asUser returns a client that logs in as a new user with the given rules.
func asUser(t *testing.T, srv *redistest.Server, rules ...any) *redis.Client {
	t.Helper()
	args := append([]any{"ACL", "SETUSER", "limited", "on", ">secret"}, rules...)
	if err := srv.Client(t).Do(ctx(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
}

// The lock is freed before the release is published. A user that may not publish must not get an
// error.
func TestReleaseWithoutRightToPublish(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]any{
		"no command": {"~*", "&*", "+@all", "-publish", "-spublish"},
		"no channel": {"~*", "resetchannels", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			limited := asUser(t, srv, rules...)
			a := announcement
			a.Commands = []string{"PUBLISH", "SPUBLISH"}
			acquire, read, write := Acquire(key, mine, lease), AcquireRead(key, level(mine, 1), mine, lease), AcquireWrite(key, mineWrite, lease)
			for _, tc := range []struct{ take, free Call }{
				{acquire, Release(key, mine, a)},
				{acquire, ForceRelease(key, []string{mine}, a)},
				{acquire, ReleaseFair(fairLock, mine)},
				{acquire, ForceReleaseFair(fairLock, []string{mine})},
				{read, readWrite(0, 0, 0, true)},
				{write, readWrite(0, 0, 0, true)},
			} {
				if !mustAnswer(t, limited, tc.take).Granted {
					t.Fatal("not granted")
				}
				limited.RPush(ctx(), queue, other) // of a fair lock: a waiter to notify
				limited.ZAdd(ctx(), deadlines, redis.Z{Score: asLong, Member: other})
				if !mustFlag(t, limited, tc.free) {
					t.Errorf("%s: not freed", tc.free.Script.Name)
				}
				wantHash(t, limited, key, nil)
			}
			mustAnswer(t, limited, acquire)
			pass := PassFair(fairLock, mine, "nobody:1", lease)
			if told, err := pass.ReadPass(mustEval(t, limited, pass)); !told.Freed || err != nil {
				t.Errorf("%s: %+v, %v", pass.Script.Name, told, err)
			}
			if err := limited.Publish(ctx(), a.Channel, "x").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Fatalf("this user is not what the test is about: PUBLISH gives %v", err)
			}
		})
	}
}

// PEXPIRE follows HSET at once. If Redis refuses even that, the error says so, and the hold can be
// freed.
func TestAcquireWithoutRightToExpire(t *testing.T) {
	t.Parallel()
	limited := asUser(t, redistest.Start(t), "~*", "&*", "+@all", "-pexpire")
	for _, tc := range []struct{ take, free Call }{
		{Acquire(key, mine, lease), Release(key, mine, announcement)},
		{AcquireFenced(key, tokens, mine, lease), Release(key, mine, announcement)},
		{AcquireFair(fairLock, mine, lease, asLong, soon), ReleaseFair(fairLock, mine)},
		{AcquireRead(key, level(mine, 1), mine, lease), readWrite(0, 0, 0, true)},
		{AcquireWrite(key, mineWrite, lease), readWrite(0, 0, 0, true)},
		{AcquireFencedFair(fencedFairLock, mine, lease, asLong, soon), ReleaseFair(fairLock, mine)},
		{AcquireFencedWrite(key, tokens, mineWrite, lease), readWrite(0, 0, 0, true)},
	} {
		if reply, err := eval(limited, tc.take); err == nil {
			t.Fatalf("%s: reply %v, want an error", tc.take.Script.Name, reply)
		}
		if !mustFlag(t, limited, tc.free) {
			t.Errorf("what %s has left cannot be freed", tc.take.Script.Name)
		}
		wantHash(t, limited, key, nil)
	}
}

// KEYS are data keys only: a user needs the patterns of a lock's own keys, but none for channels.
func TestKeysArePermittedByNameAlone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, c := range calls() {
		rules := []any{"resetkeys", "&*", "+@all"}
		for _, k := range keysOf(c) {
			rules = append(rules, fmt.Sprint("~", k))
		}
		limited := asUser(t, srv, rules...)
		if _, err := eval(limited, c); err != nil {
			t.Errorf("%s: %v", c.Script.Name, err)
		}
		if _, err := eval(limited, Acquire("another key", mine, lease)); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Fatalf("this user is not what the test is about: %v", err)
		}
		srv.Client(t).FlushAll(ctx())
	}
}

// The leases of other readers are in keys whose names are in the hash, so their pattern must be
// permitted too. Otherwise the readers stay.
func TestKeysOfOtherReaders(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, pattern := range []string{"~{order:42}:*:rwlock_timeout:*", "~" + level(mine, 1) + " ~" + level(mine, 2)} {
		admin := srv.Client(t)
		admin.FlushAll(ctx())
		rules := []any{"resetkeys", "&*", "+@all", "~" + key}
		for p := range strings.FieldsSeq(pattern) {
			rules = append(rules, p)
		}
		limited := asUser(t, srv, rules...)
		for _, o := range []string{other, mine} {
			mustAnswer(t, admin, AcquireRead(key, level(o, 1), o, lease))
		}
		if !mustFlag(t, limited, readWrite(0, 0, 0, true)) {
			t.Error("not done")
		}
		wantHash(t, admin, key, map[string]string{"mode": "read", other: "1"})
	}
}

func TestCallForm(t *testing.T) {
	t.Parallel()
	renewal := Renew([]Renewable{{Key: "a", Field: mine, Timeouts: []string{"a1", "a2"}}, {Key: "b", Field: other}}, lease)
	for _, c := range append(calls(), renewal) {
		keys := keysOf(c)
		if c.Script == renewal.Script {
			keys = []any{"a", "b", "a1", "a2"}
		}
		sha, text := c.EvalSHA(), c.Eval()
		if sha[0] != "EVALSHA" || sha[1] != c.Script.SHA || sha[2] != len(keys) || !reflect.DeepEqual(sha[3:3+len(keys)], keys) {
			t.Errorf("%s: %v, want EVALSHA, digest, %d and the data keys %v", c.Script.Name, sha, len(keys), keys)
		}
		if text[0] != "EVAL" || text[1] != c.Script.Source || !reflect.DeepEqual(text[2:], sha[2:]) {
			t.Errorf("%s: the two forms differ in more than the script: %v, %v", c.Script.Name, text, sha)
		}
		if again := c.EvalSHA(); again[0] != "EVALSHA" {
			t.Errorf("%s: Eval has changed the other form: %v", c.Script.Name, again)
		}
		if c.Key() != keys[0] {
			t.Errorf("%s: the first key is %q", c.Script.Name, c.Key())
		}
	}
}

// The digest is the one that Redis computes for the text.
func TestDigest(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, c := range append(calls(), Renew(nil, lease), Many(nil)) {
		sha, err := rdb.ScriptLoad(ctx(), c.Script.Source).Result()
		if err != nil || sha != c.Script.SHA {
			t.Errorf("%s: digest %s, Redis says %s (%v)", c.Script.Name, c.Script.SHA, sha, err)
		}
	}
}
