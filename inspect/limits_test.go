package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// List returns at most Limit locks, and says whether there are more. A cluster's masters share the
// limit.
func TestList_Limit(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"single", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb := sites[where](t)
			pipe := rdb.Pipeline()
			for i := range 300 {
				name := fmt.Sprintf("order:%03d", i)
				pipe.HSet(t.Context(), name, redissonOwner, 1)
				pipe.PExpire(t.Context(), name, time.Hour)
			}
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			for limit, want := range map[int]int{1: 1, 299: 299, 300: 300, 301: 300, 0: 300} {
				locks, more, err := List(t.Context(), rdb, ListOptions{Limit: limit})
				if err != nil || len(locks) != want || more != (want < 300) {
					t.Errorf("limit %d: %d locks, more %v, %v", limit, len(locks), more, err)
				}
			}
			if _, _, err := List(t.Context(), rdb, ListOptions{Limit: -1}); err == nil || !strings.Contains(err.Error(), "Limit is -1") {
				t.Errorf("limit -1: %v", err)
			}
			if locks, more, err := List(t.Context(), rdb, ListOptions{Prefix: "none"}); err != nil || more || locks == nil || len(locks) > 0 {
				t.Errorf("nothing found: %v, %v, %v; want an empty list, which is [] in JSON", locks, more, err)
			}
		})
	}
}

// List uses no command that stops Redis for long, and reads what it finds in few round trips.
func TestList_Work(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	pipe := srv.Client(t).Pipeline()
	for i := range 20_000 {
		pipe.Set(t.Context(), fmt.Sprint("string:", i), 1, 0)
	}
	for i := range 500 {
		name := fmt.Sprint("order:", i)
		pipe.HSet(t.Context(), name, redissonOwner, 1)
		pipe.PExpire(t.Context(), name, time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy := srv.Proxy(t)
	if locks, _, err := List(t.Context(), proxy.Client(t), ListOptions{}); err != nil || len(locks) != 500 {
		t.Fatalf("%d locks, %v", len(locks), err)
	}
	if n := proxy.Count("SCAN"); n < 60 || n > 90 {
		t.Errorf("%d times SCAN for three times 20,500 keys", n)
	}
	// Ten for each lock: nothing is asked about the strings.
	if n := proxy.Count(""); n > 500*10+100 {
		t.Errorf("%d commands", n)
	}
	for _, c := range []string{"KEYS", "HGETALL", "SMEMBERS", "EVAL", "EVALSHA", "TYPE"} {
		if n := proxy.Count(c); n > 0 {
			t.Errorf("%s is sent %d times", c, n)
		}
	}
}

// A hash of another program costs two commands, or three if it has several fields, if its name has the prefix, none otherwise, and no
// memory once it is known to be no lock.
func TestList_OtherHashes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	pipe := srv.Client(t).Pipeline()
	for i := range 3000 {
		pipe.HSet(t.Context(), fmt.Sprint("session:", i), "user", i, "since", i)
	}
	pipe.HSet(t.Context(), "order:1", redissonOwner, 1)
	pipe.PExpire(t.Context(), "order:1", time.Hour)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for prefix, most := range map[string]int{"": 3*3000 + 50, "order:": 50} {
		proxy := srv.Proxy(t)
		s := newScan(redisclient.Client{UniversalClient: proxy.Client(t)}, ListOptions{Prefix: prefix})
		if err := s.run(t.Context()); err != nil || len(s.locks) != 1 {
			t.Fatalf("%d locks, %v", len(s.locks), err)
		}
		if n := proxy.Count(""); n > most {
			t.Errorf("prefix %q: %d commands, want at most %d", prefix, n, most)
		}
		if len(s.seen) != 1 || !s.seen["order:1"] {
			t.Errorf("prefix %q: %d names are kept", prefix, len(s.seen))
		}
	}
}

// A lock with more holders or waiters than are shown.
func TestShow_Many(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	pipe := rdb.Pipeline()
	pipe.HSet(t.Context(), "order:read", "mode", "read")
	keys := core.KeysOf("order:read")
	for i := range 3000 {
		owner := fmt.Sprintf("web.abcdefgh:%04d", i)
		pipe.HSet(t.Context(), keys.Lock, owner, 1)
		pipe.Set(t.Context(), keys.ReadTimeout(owner, 1), 1, time.Hour)
	}
	pipe.PExpire(t.Context(), keys.Lock, time.Hour)
	pipe.HSet(t.Context(), "order:fair", redissonOwner, 1)
	pipe.PExpire(t.Context(), "order:fair", time.Hour)
	keys = core.KeysOf("order:fair")
	for i := range 1500 {
		owner := fmt.Sprintf("web.abcdefgh:%04d", i)
		pipe.RPush(t.Context(), keys.Queue, owner)
		pipe.ZAdd(t.Context(), keys.Deadlines, redis.Z{Member: owner, Score: float64(time.Now().Add(time.Hour).UnixMilli() + int64(i))})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, err := Show(t.Context(), rdb, "order:read")
	// HSCAN returns about as many fields as it is asked for.
	if n := len(read.Holders); err != nil || read.Kind != "read" || n > shown || n < shown*9/10 || read.MoreHolders != int64(3000-n) || read.Holders[0].Expired {
		t.Errorf("%d holders, %d more, %v", len(read.Holders), read.MoreHolders, err)
	}
	fair, err := Show(t.Context(), rdb, "order:fair")
	if err != nil || fair.Kind != "fair" || len(fair.Queue) != shown || fair.MoreQueue != 500 {
		t.Fatalf("%d waiters, %d more, %v", len(fair.Queue), fair.MoreQueue, err)
	}
	for i, w := range fair.Queue {
		if w.Place != i+1 || w.Owner != fmt.Sprintf("web.abcdefgh:%04d", i) || w.Client != "web.abcdefgh" || w.Deadline < 3_500_000 || w.Deadline > 3_602_000 || !w.Absent {
			t.Fatalf("place %d: %+v", i+1, w)
		}
	}
	locks, more, err := List(t.Context(), rdb, ListOptions{})
	if err != nil || more || len(locks) != 2 || len(locks[0].Queue) != listed || locks[0].MoreQueue != 1400 || len(locks[1].Holders) > listed || len(locks[1].Holders) < listed*9/10 {
		t.Errorf("%d locks, %v", len(locks), err)
	}
}

// A waiter that has died is shown as absent, and one that waits is not.
func TestShow_AbsentWaiter(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"single", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb := sites[where](t)
			a, b := newLocks(t, rdb, "a"), newLocks(t, rdb, "b")
			take(t, context.Background(), a.FairLock("order:1"))
			wait(t, b.FairLock("order:1"))
			eventually(t, rdb, "order:1", func(l *Lock) bool { return len(l.Queue) == 1 })
			mustDo(t, rdb, "RPUSH", core.KeysOf("order:1").Queue, redissonOwner)
			l := eventually(t, rdb, "order:1", func(l *Lock) bool { return !l.Queue[0].Absent })
			if !l.Queue[1].Absent || l.Queue[1].Deadline != 0 || l.Queue[0].Deadline < 100_000 {
				t.Errorf("%+v", l.Queue)
			}
		})
	}
}

// A user that may not count listeners sees all else. One that may not look is told so.
func TestList_Permissions(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	mustDo(t, rdb, "HSET", "order:1", redissonOwner, 1)
	mustDo(t, rdb, "PEXPIRE", "order:1", 60_000)
	mustDo(t, rdb, "RPUSH", core.KeysOf("order:1").Queue, redissonOwner)
	user := func(rules ...any) redis.UniversalClient {
		mustDo(t, rdb, append([]any{"ACL", "SETUSER", "user", "reset", "on", "nopass", "~*", "-@all", "+hello", "+ping", "+time"}, rules...)...)
		return srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "user", "x" })
	}
	blind := user("+@read")
	locks, _, err := List(t.Context(), blind, ListOptions{})
	if err != nil || len(locks) != 1 || locks[0].Listeners != -1 || locks[0].Queue[0].Absent {
		t.Errorf("without PUBSUB: %+v, %v", locks, err)
	}
	stranger := user()
	if _, _, err := List(t.Context(), stranger, ListOptions{}); err == nil || !strings.HasPrefix(err.Error(), "reqlock: list locks: NOPERM") {
		t.Errorf("without SCAN: %v", err)
	}
	if _, err := Show(t.Context(), stranger, "order:1"); err == nil || errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), "reqlock: show a lock: NOPERM") {
		t.Errorf("without HLEN: %v", err)
	}
}

// A replica that is down hides no lock.
func TestList_ReplicaDown(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	locks := newLocks(t, rdb, "a")
	take(t, context.Background(), locks.Lock("order:1"))
	masters := make(map[string]bool)
	for _, m := range cluster.Masters(t) {
		masters[m.Addr()] = true
	}
	for _, srv := range cluster.Servers {
		if !masters[srv.Addr()] {
			srv.Kill(t)
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	found, _, err := List(ctx, rdb, ListOptions{})
	if err != nil || len(found) != 1 || found[0].Listeners != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// The end of ctx ends List, and an error names it.
func TestList_Canceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := List(ctx, redistest.Start(t).Client(t), ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
