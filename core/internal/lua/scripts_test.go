package lua

import (
	"context"
	"fmt"
	"math"
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
		taken, _ := mustTake(t, rdb, c)
		return slices.Contains(taken, true)
	}
	done, _, err := c.ReadRelease(mustEval(t, rdb, c))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// mustTake returns which owners lost the lock to a force, and how many hold it still.
func mustTake(t *testing.T, rdb *redis.Client, c Call) (taken []bool, left int) {
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
		taken, left := mustTake(t, rdb, ForceRelease(key, owners, announcement))
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
	if taken, left := mustTake(t, rdb, ForceRelease(key, owners, announcement)); !taken[0] || taken[1] || left != 1 {
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

func TestRenew(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	put(t, rdb, "short", mine, 2, 10*time.Second)
	put(t, rdb, "long", mine, 1, time.Hour)
	put(t, rdb, "endless", mine, 1, 0)
	put(t, rdb, "another's", other, 1, 20*time.Second)
	if err := rdb.Set(ctx(), "string", "a value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	put(t, rdb, "last", mine, 1, 10*time.Second)

	keys := []string{"short", "long", "string", "endless", "gone", "another's", "last"}
	var holds []Renewable
	for _, key := range keys {
		holds = append(holds, Renewable{Key: key, Field: mine})
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, lease)), len(keys))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true, false, false, true} {
		if results[i].Renewed != want {
			t.Errorf("%s: renewed %v, want %v", keys[i], results[i].Renewed, want)
		}
		if isError := results[i].Err != nil; isError != (keys[i] == "string") {
			t.Errorf("%s: error %v", keys[i], results[i].Err)
		}
	}
	if err := results[2].Err; err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the error of the key that is a string: %v", err)
	}
	wantTTL(t, rdb, "short", lease)
	wantTTL(t, rdb, "long", time.Hour)
	wantTTL(t, rdb, "endless", lease)
	wantTTL(t, rdb, "another's", 20*time.Second)
	wantTTL(t, rdb, "last", lease)
	wantHash(t, rdb, "short", map[string]string{mine: "2"})
	wantHash(t, rdb, "gone", nil)
}

// Renew tells apart the time-out keys of several holds, and leaves those of a hold that it does not
// renew alone.
func TestRenewTimeouts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	timeouts := map[string][]string{"none": nil, "gone": {"gone:1"}, "two": {"two:1", "two:2"}, "string": {"string:1"}, "one": {"one:1"}}
	keys := []string{"none", "gone", "two", "string", "one"}
	var holds []Renewable
	for _, key := range keys {
		switch key {
		case "gone":
		case "string":
			mustSet(t, rdb, key, time.Minute)
		default:
			put(t, rdb, key, mine, 1, 10*time.Second)
		}
		for _, timeout := range timeouts[key] {
			if timeout != "two:2" { // it was evicted, and is restored
				mustSet(t, rdb, timeout, 10*time.Second)
			}
		}
		holds = append(holds, Renewable{Key: key, Field: mine, Timeouts: timeouts[key], Lease: lease})
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, lease)), len(holds))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		want := lease
		if key == "gone" || key == "string" {
			want = 10 * time.Second
		} else {
			wantTTL(t, rdb, key, lease)
		}
		if got := results[i]; got.Renewed != (want == lease) || (got.Err != nil) != (key == "string") {
			t.Errorf("%s: %+v", key, got)
		}
		for _, timeout := range timeouts[key] {
			wantTTL(t, rdb, timeout, want)
		}
	}
}

func mustSet(t *testing.T, rdb *redis.Client, key string, ttl time.Duration) {
	t.Helper()
	if err := rdb.Set(ctx(), key, "1", ttl).Err(); err != nil {
		t.Fatal(err)
	}
}

// A renewal says that a hash lives for too long, as it does once the server's clock was set back, and
// the next one shortens the TTL. It does not if the hash has been prolonged in between, or if
// another reader shares it.
func TestRenew_Shortens(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	renew := func(h Renewable) Renewal {
		t.Helper()
		results, err := ReadRenew(mustEval(t, rdb, Renew([]Renewable{{Key: "gone", Field: mine}, h}, lease)), 2)
		if err != nil || results[0] != (Renewal{}) || !results[1].Renewed {
			t.Fatalf("%+v, %v", results, err)
		}
		return results[1]
	}
	const long = time.Hour
	put(t, rdb, "lock", mine, 1, long)
	hold := Renewable{Key: "lock", Field: mine}
	first := renew(hold)
	wantTTL(t, rdb, "lock", long)
	if at := time.UnixMilli(first.Expiry); first.TTL > long || first.TTL < long-10*time.Second || time.Until(at) < long-20*time.Second {
		t.Errorf("it lives for %v, until %v", first.TTL, at)
	}

	// An extension has moved the end.
	hold.Seen = first.Expiry
	if !mustFlag(t, rdb, Update("lock", mine, 1, first.TTL+time.Second)) {
		t.Fatal("the extension was refused")
	}
	second := renew(hold)
	wantTTL(t, rdb, "lock", long+time.Second)
	if second.Expiry < first.Expiry+1000 {
		t.Errorf("it expires at %d and then at %d", first.Expiry, second.Expiry)
	}

	hold.Seen = second.Expiry
	for range 2 { // a repeat changes nothing
		if got := renew(hold); got.Expiry != 0 {
			t.Errorf("shortened: %+v", got)
		}
		wantTTL(t, rdb, "lock", lease)
	}

	// A reader, alone and beside another one.
	timeout := "timeout:1"
	put(t, rdb, "read", mine, 1, long)
	put(t, rdb, "read", "mode", 0, 0)
	if err := rdb.HSet(ctx(), "read", "mode", "read", other, "1").Err(); err != nil {
		t.Fatal(err)
	}
	mustSet(t, rdb, timeout, long)
	reader := Renewable{Key: "read", Field: mine, Timeouts: []string{timeout}, Lease: lease}
	if got := renew(reader); got.Expiry != 0 {
		t.Errorf("beside another reader: %+v", got)
	}
	if err := rdb.HDel(ctx(), "read", other).Err(); err != nil {
		t.Fatal(err)
	}
	reader.Seen = renew(reader).Expiry
	wantTTL(t, rdb, "read", long)
	wantTTL(t, rdb, timeout, long)
	renew(reader)
	wantTTL(t, rdb, "read", lease)
	wantTTL(t, rdb, timeout, lease)
}

// One script must carry as many holds as the watchdog puts into a batch, each with its own owner.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const n = 500
	var holds []Renewable
	for i := range n {
		holds = append(holds, Renewable{Key: fmt.Sprintf("lock:%d", i), Field: fmt.Sprintf("client:%d", i)})
		if i%2 == 0 {
			put(t, rdb, holds[i].Key, holds[i].Field, 1, time.Second*20)
		}
	}
	results, err := ReadRenew(mustEval(t, rdb, Renew(holds, time.Hour)), n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if want := i%2 == 0; results[i].Renewed != want || results[i].Err != nil {
			t.Fatalf("%s: %+v, want %v", holds[i].Key, results[i], want)
		}
	}
	wantTTL(t, rdb, holds[n-2].Key, time.Hour)
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
	// These are no scripts, scripts for many locks, and one for none.
	tested := append([]string{renew.Name, many.Name, abilities.Name}, beginnings...)
	for _, c := range calls() {
		tested = append(tested, c.Script.Name)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".lua")
		if !strings.HasPrefix(name, "once_") && !slices.Contains(tested, name) {
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

// strange holds replies that no script gives.
var strange = []any{
	nil, "", "1", "OK", true, false, 1.0, int64(-1), int64(math.MinInt64), int(1),
	[]any{}, []any{nil}, []any{"1"}, []any{int64(1), int64(2)}, []any{[]any{int64(1)}}, map[any]any{"1": int64(1)}, fmt.Errorf("x"),
}

func TestReadAcquire(t *testing.T) {
	t.Parallel()
	plain, fenced, fair := Acquire(key, mine, lease), AcquireFenced(key, "n", mine, lease), AcquireFair(&Fair{}, mine, lease, 0, 0)
	fencedFair, fencedWrite := AcquireFencedFair(&Fair{}, mine, lease, 0, 0), AcquireFencedWrite(key, "n", mineWrite, lease)
	for _, tc := range []struct {
		call  Call
		reply any
		want  Answer
	}{
		{fencedFair, int64(1), Answer{Granted: true, Token: 1}},
		{fencedFair, "9007199254740992", Answer{Granted: true, Token: exact}},
		{fencedFair, []any{int64(5), "1700000000000", int64(17)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000, Place: 17}},
		{fencedWrite, int64(2), Answer{Granted: true, Token: 2}},
		{fencedWrite, []any{int64(30000)}, Answer{TTL: 30 * time.Second}},
		{plain, int64(1), Answer{Granted: true}},
		{fair, int64(1), Answer{Granted: true}},
		{fenced, int64(1), Answer{Granted: true, Token: 1}},
		{fenced, int64(exact - 1), Answer{Granted: true, Token: exact - 1}},
		{fenced, "9007199254740992", Answer{Granted: true, Token: exact}},
		{fenced, "9223372036854775807", Answer{Granted: true, Token: math.MaxInt64}},
		{plain, []any{int64(0)}, Answer{}},
		{plain, []any{int64(-1)}, Answer{TTL: -time.Millisecond}},
		{fenced, []any{int64(30000)}, Answer{TTL: 30 * time.Second}},
		{plain, []any{int64(math.MaxInt64 / 1_000_000)}, Answer{TTL: math.MaxInt64 / 1_000_000 * time.Millisecond}},
		{plain, []any{int64(math.MaxInt64/1_000_000 + 1)}, Answer{TTL: -time.Millisecond}},
		{fair, []any{int64(math.MaxInt64), "1700000000000", int64(1)}, Answer{TTL: -time.Millisecond, Now: 1700000000000, Place: 1}},
		{fair, []any{int64(5), "1700000000000", int64(0)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000}},
		{fair, []any{int64(5), "1700000000000", int64(17)}, Answer{TTL: 5 * time.Millisecond, Now: 1700000000000, Place: 17}},
	} {
		if got, err := tc.call.ReadAcquire(tc.reply); got != tc.want || err != nil {
			t.Errorf("%s: %v: %+v, %v; want %+v", tc.call.Script.Name, tc.reply, got, err, tc.want)
		}
	}
	for _, c := range []Call{plain, fenced, fair, fencedFair, fencedWrite} {
		for _, reply := range append(strange, int64(0)) {
			if got, err := c.ReadAcquire(reply); got != (Answer{}) || err == nil {
				t.Errorf("%s: %T %v: %+v, %v; want an error", c.Script.Name, reply, reply, got, err)
			}
		}
	}
	if got, err := plain.ReadAcquire(int64(2)); err == nil {
		t.Errorf("a plain lock has no token: %+v", got)
	}
	for _, reply := range [][]any{{int64(2)}, {int64(2), "soon", int64(1)}, {int64(2), int64(3), int64(1)}, {"2", "3", int64(1)}, {int64(2), "3", int64(-1)}} {
		if got, err := fair.ReadAcquire(reply); got != (Answer{}) || err == nil {
			t.Errorf("a refusal without the server's clock or with no place, %v: %+v, %v", reply, got, err)
		}
	}
}

func TestReadUpdate(t *testing.T) {
	t.Parallel()
	c := Update(key, mine, 1, lease)
	for n, want := range map[int64]bool{0: false, 1: true} {
		if got, err := c.ReadUpdate(n); got != want || err != nil {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	for _, reply := range append(strange, int64(2)) {
		got, err := c.ReadUpdate(reply)
		if got || err == nil {
			t.Errorf("%T %v: %v, %v; want an error", reply, reply, got, err)
		} else if !strings.Contains(err.Error(), "update") {
			t.Errorf("the error does not name the script: %v", err)
		}
	}
}

func TestReadRelease(t *testing.T) {
	t.Parallel()
	c := Release(key, mine, announcement)
	for n, want := range map[int64]struct {
		freed     bool
		listeners int
	}{0: {false, 0}, 1: {true, 0}, 3: {true, 2}} {
		if freed, listeners, err := c.ReadRelease(n); freed != want.freed || listeners != want.listeners || err != nil {
			t.Errorf("%d: %v, %d, %v", n, freed, listeners, err)
		}
	}
	for _, reply := range strange {
		if freed, _, err := c.ReadRelease(reply); freed || err == nil || !strings.Contains(err.Error(), "release") {
			t.Errorf("%T %v: %v, %v; want an error that names the script", reply, reply, freed, err)
		}
	}
}

func TestReadHolders(t *testing.T) {
	t.Parallel()
	for _, want := range [][]string{{}, {mine}, {mine, other}} {
		reply := []any{}
		for _, owner := range want {
			reply = append(reply, owner)
		}
		if got, err := ReadHolders(reply); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %q, %v", reply, got, err)
		}
	}
	for _, reply := range []any{nil, "", mine, int64(0), int64(1), []any{nil}, []any{mine, int64(1)}, map[any]any{mine: "1"}} {
		if got, err := ReadHolders(reply); got != nil || err == nil {
			t.Errorf("%T %v: %q, %v; want an error", reply, reply, got, err)
		}
	}
}

func TestReadInspect(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reply []any
		want  State
	}{
		{[]any{int64(0), int64(-2), int64(0), ""}, State{}},
		{[]any{int64(1), int64(-1), int64(0), ""}, State{Fields: 1, TTL: -time.Millisecond}},
		{[]any{int64(1), int64(0), int64(1), ""}, State{Fields: 1, Count: 1}},
		{[]any{int64(1), int64(math.MaxInt64), int64(1), ""}, State{Fields: 1, Count: 1, TTL: -time.Millisecond}},
		{[]any{int64(2), int64(1500), int64(4), "read"}, State{Fields: 2, TTL: 1500 * time.Millisecond, Count: 4, Mode: "read"}},
	} {
		if got, err := ReadInspect(tc.reply); got != tc.want || err != nil {
			t.Errorf("%v: %+v, %v; want %+v", tc.reply, got, err, tc.want)
		}
	}
	for _, reply := range append(strange, []any{int64(1), nil, int64(1), ""}, []any{int64(1), int64(2), "3", ""}, []any{int64(1), int64(2), int64(3), int64(4)}) {
		if got, err := ReadInspect(reply); got != (State{}) || err == nil {
			t.Errorf("%T %v: %+v, %v; want an error", reply, reply, got, err)
		}
	}
}

func TestReadRenew(t *testing.T) {
	t.Parallel()
	results, err := ReadRenew([]any{int64(1), int64(0), "WRONGTYPE no", int64(5000), int64(1000)}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if !results[0].Renewed || results[0].Err != nil || results[1].Renewed || results[1].Err != nil || results[2].Renewed || results[2].Err == nil ||
		results[3] != (Renewal{Renewed: true, TTL: 5 * time.Second, Expiry: 6000}) {
		t.Errorf("%+v", results)
	}
	one := int64(1)
	for _, reply := range append(strange, int64(0), one, []any{one}, []any{one, one, one}, []any{one, int64(2), one, int64(0)}, []any{one, nil, one, int64(0)}) {
		if got, err := ReadRenew(reply, 3); got != nil || err == nil {
			t.Errorf("%T %v: %+v, %v; want an error", reply, reply, got, err)
		}
	}
	if got, err := ReadRenew([]any{int64(0)}, 0); len(got) != 0 || err != nil {
		t.Errorf("no keys: %v, %v", got, err)
	}
}
