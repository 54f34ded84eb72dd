package embedded

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func pttl(t *testing.T, rdb redis.Cmdable, key string) time.Duration {
	t.Helper()
	left, err := rdb.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// patient returns a client that waits as long as a script may take on a busy machine.
func patient(t *testing.T, srv *Server) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: time.Minute, PoolTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestKeyIsGoneAfterItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 50 * time.Millisecond
	tests := map[string]func(ctx context.Context, rdb *redis.Client) error{
		"PEXPIRE": func(ctx context.Context, rdb *redis.Client) error {
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.HSet(ctx, "k", "f", 1)
				p.PExpire(ctx, "k", ttl)
				return nil
			})
			return err
		},
		"SET PX": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Set(ctx, "k", "v", ttl).Err()
		},
		"PEXPIREAT": func(ctx context.Context, rdb *redis.Client) error {
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "k", "v", 0)
				p.PExpireAt(ctx, "k", time.Now().Add(ttl))
				return nil
			})
			return err
		},
		"in a script": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Eval(ctx, "redis.call('HSET', KEYS[1], 'f', 1) return redis.call('PEXPIRE', KEYS[1], ARGV[1])", []string{"k"}, ttl.Milliseconds()).Err()
		},
	}
	if strconv.IntSize == 32 { // miniredis reads a time in ms as an int
		delete(tests, "PEXPIREAT")
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t).Client()
			if err := set(t.Context(), rdb); err != nil {
				t.Fatal(err)
			}
			// Only time must pass: the next command finds the key gone, however late it comes.
			time.Sleep(ttl)
			if left := pttl(t, rdb, "k"); left != -2 {
				t.Errorf("PTTL once the TTL has passed = %v, want -2: no such key", left)
			}
			if n, err := rdb.DBSize(t.Context()).Result(); n != 0 || err != nil {
				t.Errorf("DBSIZE = %d, %v; want 0", n, err)
			}
		})
	}
}

// A lock must not end before its holder expects. The time is read before the command is sent, so
// the key may live longer, but never shorter. Other connections advance the clock meanwhile.
func TestKeyLivesForItsTTL(t *testing.T) {
	t.Parallel()
	srv := start(t)

	busy, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer func() { stop(); others.Wait() }()
	for range 4 {
		rdb := srv.Client()
		others.Go(func() {
			for busy.Err() == nil {
				rdb.Eval(busy, "for i = 1, 100 do redis.call('EXISTS', 'other') end return 1", nil)
			}
		})
	}

	rdb := patient(t, srv)
	const ttl = 20 * time.Millisecond
	for i := range 20 {
		key := "k" + strconv.Itoa(i)
		sent := time.Now()
		if err := rdb.Set(t.Context(), key, "v", ttl).Err(); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := rdb.Exists(t.Context(), key).Result()
			lived := time.Since(sent)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				if lived < ttl {
					t.Errorf("a key with a TTL of %v was gone after %v", ttl, lived)
				}
				break
			}
			if lived > time.Minute {
				t.Fatalf("a key with a TTL of %v is still there after %v", ttl, lived)
			}
		}
	}
}

func TestPTTLCountsDown(t *testing.T) {
	t.Parallel()
	rdb := start(t).Client()
	const ttl = time.Minute

	sent := time.Now()
	if err := rdb.Set(t.Context(), "k", "v", ttl).Err(); err != nil {
		t.Fatal(err)
	}
	set := time.Now()
	time.Sleep(5 * time.Millisecond)
	asked := time.Now()
	left := pttl(t, rdb, "k")
	answered := time.Now()

	// Between "set late, asked early" and "set early, asked late"; PTTL rounds down to
	// milliseconds.
	most := ttl - asked.Sub(set)
	least := ttl - answered.Sub(sent) - time.Millisecond
	if left > most || left < least {
		t.Errorf("PTTL = %v, want %v to %v", left, least, most)
	}
}

func TestTTLsAreIndependent(t *testing.T) {
	t.Parallel()
	rdb := start(t).Client()
	ctx := t.Context()
	if err := rdb.Set(ctx, "short", "v", 10*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "long", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "none", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// In one block, so that the first TTL cannot run out before it is replaced.
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "renewed", "v", 10*time.Millisecond)
		p.PExpire(ctx, "renewed", time.Hour)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)

	if left := pttl(t, rdb, "short"); left != -2 {
		t.Errorf("PTTL short = %v, want -2", left)
	}
	if left := pttl(t, rdb, "long"); left <= 0 {
		t.Errorf("PTTL long = %v, want most of an hour", left)
	}
	if left := pttl(t, rdb, "none"); left != -1 {
		t.Errorf("PTTL none = %v, want -1: no TTL", left)
	}
	if left := pttl(t, rdb, "renewed"); left <= 0 {
		t.Errorf("PTTL renewed = %v, want most of an hour", left)
	}
}

// The loop takes many milliseconds and other connections send commands, but the script must see one
// instant.
func TestTimeStopsInScript(t *testing.T) {
	t.Parallel()
	srv := start(t)
	rdb, other := patient(t, srv), srv.Client()

	busy, stop := context.WithCancel(t.Context())
	var pings sync.WaitGroup
	defer func() { stop(); pings.Wait() }()
	pings.Go(func() {
		for busy.Err() == nil {
			other.Ping(busy)
		}
	})

	const script = `
		local before = redis.call('TIME')
		redis.call('SET', KEYS[1], 'v', 'PX', 2)
		for i = 1, 1000000 do end
		local after = redis.call('TIME')
		return {redis.call('PTTL', KEYS[1]), redis.call('EXISTS', KEYS[1]),
			after[1] - before[1], after[2] - before[2]}`
	began := time.Now()
	got, err := rdb.Eval(t.Context(), script, []string{"k"}).Int64Slice()
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	if took < 3*time.Millisecond {
		t.Fatalf("the script took %v: too short to show anything", took)
	}
	for i, want := range []int64{2, 1, 0, 0} {
		if got[i] != want {
			t.Errorf("after %v in the script PTTL, EXISTS and the difference in TIME are %v, want [2 1 0 0]", took, got)
			break
		}
	}
	if left := pttl(t, rdb, "k"); left != -2 {
		t.Errorf("PTTL after the script = %v, want -2: its time has passed now", left)
	}
}

func TestTimeStopsInMulti(t *testing.T) {
	t.Parallel()
	rdb := patient(t, start(t))
	var left *redis.DurationCmd
	_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "k", "v", 2*time.Millisecond)
		p.Eval(t.Context(), "for i = 1, 1000000 do end return 1", nil)
		left = p.PTTL(t.Context(), "k")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left.Val() != 2*time.Millisecond {
		t.Errorf("PTTL at the end of the block = %v, want 2ms as at its beginning", left.Val())
	}
}

func TestTimeIsWallClock(t *testing.T) {
	t.Parallel()
	rdb := start(t).Client()
	before := time.Now()
	got, err := rdb.Time(t.Context()).Result()
	after := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if got.Before(before.Truncate(time.Microsecond)) || got.After(after) {
		t.Errorf("TIME = %v, want between %v and %v", got, before, after)
	}
}

// The clock keeps track of connections, and must forget closed ones.
func TestClockForgetsConnections(t *testing.T) {
	t.Parallel()
	srv := start(t)
	clock := runClock(srv.mini) // It replaces the one that Start made.
	known := func() (n int) {
		clock.conns.Range(func(any, any) bool { n++; return true })
		return n
	}

	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		if err := rdb.Eval(t.Context(), "return redis.call('PING')", nil).Err(); err != nil {
			t.Fatal(err)
		}
		if n := known(); n == 0 {
			t.Error("an open connection is not known")
		}
		if err := rdb.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); known() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are remembered after all were closed", known())
		}
	}
}
