package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// logTo makes a client log into a buffer.
func logTo(out *lockedBuffer) func(*Options) {
	return func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(out, nil)) }
}

// wantLines fails the test unless n lines of the log contain a text, and returns the last of them.
func wantLines(t *testing.T, out *lockedBuffer, text string, n int) (last string) {
	t.Helper()
	found := 0
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, text) {
			found++
			last = line
		}
	}
	if found != n {
		t.Errorf("%d lines with %q, want %d:\n%s", found, text, n, out.String())
	}
	return last
}

const (
	failing = `"reqlock: locks are failing"`
	again   = `"reqlock: locks work again"`
)

// A redisFault is something that is wrong with Redis, or with the user "limited" of a client.
type redisFault struct {
	breaks, mends func(t *testing.T, fx *redisFixture)
	logged        []string
	ping          []string // what Ping of the default user says; nil: nothing is wrong
}

var redisFaults = map[string]redisFault{
	"out of memory": {
		redisCommand("CONFIG", "SET", "maxmemory", 1), redisCommand("CONFIG", "SET", "maxmemory", 0),
		[]string{`cause="Redis is out of memory"`, `error="OOM command`, `change="raise maxmemory`},
		[]string{"Redis is out of memory: OOM", "raise maxmemory"},
	},
	"a replica": {
		redisCommand("REPLICAOF", "127.0.0.1", 1), redisCommand("REPLICAOF", "NO", "ONE"),
		[]string{`cause="Redis is a read-only replica"`, "READONLY", "master"},
		[]string{"Redis is a read-only replica: READONLY", "connect to the master"},
	},
	"no replicas": {
		redisCommand("CONFIG", "SET", "min-replicas-to-write", 1), redisCommand("CONFIG", "SET", "min-replicas-to-write", 0),
		[]string{"too few replicas", "NOREPLICAS", "min-replicas-to-write"},
		[]string{"too few replicas: NOREPLICAS", "min-replicas-to-write"},
	},
	"another password": {
		func(t *testing.T, fx *redisFixture) {
			redisCommand("ACL", "SETUSER", "limited", "resetpass", ">other")(t, fx)
			redisCommand("CLIENT", "KILL", "USER", "limited")(t, fx)
		},
		allowLimited,
		[]string{"refuses the user name or the password", "WRONGPASS", `change="correct Username and Password`}, nil,
	},
	"a password": {
		func(t *testing.T, fx *redisFixture) {
			redisCommand("CONFIG", "SET", "requirepass", "secret")(t, fx)
			redisCommand("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")(t, fx)
		},
		redisCommand("CONFIG", "SET", "requirepass", ""),
		nil, []string{"refuses the user name or the password: NOAUTH", "correct Username and Password"},
	},
	"a permission": {
		redisCommand("ACL", "SETUSER", "limited", "-evalsha"), allowLimited,
		[]string{"lacks a permission", "NOPERM", "evalsha", "docs/guides/operations.md"}, nil,
	},
	"a permission of scripts": {
		redisCommand("ACL", "SETUSER", "limited", "-hset"), allowLimited,
		[]string{"lacks a permission", "The user executing the script", "Client.Ping"}, nil,
	},
	"a stopped Redis": {
		func(t *testing.T, fx *redisFixture) { fx.srv.Kill(t) },
		func(t *testing.T, fx *redisFixture) { fx.srv.Restart(t); allowLimited(t, fx) },
		[]string{"cannot be reached", "dial tcp", "start Redis"},
		[]string{"Redis cannot be reached: dial tcp", "start Redis"},
	},
}

// redisCommand returns a function that runs a command.
func redisCommand(args ...any) func(*testing.T, *redisFixture) {
	return func(t *testing.T, fx *redisFixture) {
		t.Helper()
		if err := fx.rdb.Do(bg, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// allowLimited gives the user "limited" its password and all permissions.
func allowLimited(t *testing.T, fx *redisFixture) {
	t.Helper()
	redisCommand("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all")(t, fx)
}

// A fault that lasts is one warning that says what to change, and its end is one line.
func TestLog_Faults(t *testing.T) {
	t.Parallel()
	for name, fault := range redisFaults {
		if fault.logged == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			allowLimited(t, fx)
			var out lockedBuffer
			c := fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" }), logTo(&out), commandTimeout(3*time.Second))
			mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
			if text := out.String(); text != "" {
				t.Fatalf("logged while all is well: %s", text)
			}
			for round := range 2 {
				fault.breaks(t, fx)
				for range 3 {
					if _, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Second}); err == nil || errors.Is(err, ErrNotAcquired) {
						t.Fatalf("Acquire: %v, want a fault of Redis", err)
					}
				}
				line := wantLines(t, &out, failing, 1) // also in the second round, which is less than a minute later
				for _, part := range append(fault.logged, "level=WARN") {
					if !strings.Contains(line, part) {
						t.Errorf("the warning lacks %q: %s", part, line)
					}
				}
				wantLines(t, &out, again, round)
				fault.mends(t, fx)
				mustRelease(t, eventuallyAcquire(t, c, "a", AcquireOptions{}))
				eventually(t, "the end of the fault in the log", func() bool { return strings.Contains(out.String(), again) })
				line = wantLines(t, &out, again, 1)
				if !strings.Contains(line, "level=INFO") || !strings.Contains(line, "cause=") || !strings.Contains(line, "after=") {
					t.Errorf("the end is logged as %s", line)
				}
			}
		})
	}
}

// A Redis without memory still answers queries and releases. That does not end the fault.
func TestLog_FaultOfWrites(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var out lockedBuffer
	c := fx.newLocks(t, logTo(&out))
	held, other := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{}), mustAcquire(t, bg, c.Lock("other"), AcquireOptions{})
	fx.rdb.ConfigSet(bg, "maxmemory", "1")
	if _, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Second}); err == nil {
		t.Fatal("the lock was acquired")
	}
	wantErr(t, "Acquire of a lock that is held", tryAcquire(c.Lock("held")), ErrNotAcquired)
	if _, err := c.Lock("held").IsLocked(bg); err != nil {
		t.Error(err)
	}
	mustRelease(t, other)
	wantLines(t, &out, failing, 1)
	wantLines(t, &out, again, 0)
	fx.rdb.ConfigSet(bg, "maxmemory", "0")
	mustRelease(t, mustAcquire(t, bg, c.FairLock("b"), AcquireOptions{})) // another kind of lock does
	wantLines(t, &out, again, 1)
	mustRelease(t, held)
}

// A retry that succeeds is not logged: an operator has nothing to do.
func TestLog_LostReplies(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var out lockedBuffer
	c, proxy := fx.newProxiedLocks(t, logTo(&out))
	for _, action := range []redistest.Action{redistest.CutBefore, redistest.CutAfter, redistest.ReplyWith("-LOADING Redis is loading the dataset in memory\r\n"), redistest.ReplyWith("-TRYAGAIN slot\r\n")} {
		proxy.On("EVALSHA", 1, action)
		mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
	}
	wantLines(t, &out, "locks", 0)
}

// A Redis that does not answer is logged when a command is given up.
func TestLog_Silence(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var out lockedBuffer
	c, proxy := fx.newProxiedLocksWith(t, readTimeout(500*time.Millisecond), logTo(&out), commandTimeout(300*time.Millisecond))
	proxy.Stall()
	if _, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Second}); err == nil {
		t.Fatal("the lock was acquired")
	}
	wantLines(t, &out, `cause="Redis does not answer in time"`, 1)
	proxy.Restore()
	eventually(t, "the line in the log", func() bool {
		_, _ = c.Lock("a").IsLocked(bg)
		return strings.Contains(out.String(), again)
	})
	eventually(t, "the clean-ups to be done", func() bool { return c.Stats().Cleanups == 0 })
}

// In a cluster the other nodes say nothing about the failing one.
func TestLog_FaultOfOneNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	var out lockedBuffer
	c := newUncheckedLocks(t, rdb, logTo(&out))
	master := cluster.Masters(t)[0]
	node := master.Client(t)
	var here, there string
	for i := 0; here == "" || there == ""; i++ {
		name := fmt.Sprint("lock-", i)
		if served, err := rdb.MasterForKey(bg, name); err != nil {
			t.Fatal(err)
		} else if served.Options().Addr == master.Addr() {
			here = name
		} else {
			there = name
		}
	}
	node.ConfigSet(bg, "maxmemory", "1")
	if _, err := c.Lock(here).Acquire(bg, AcquireOptions{LeaseTime: time.Second}); err == nil {
		t.Fatal("the lock was acquired")
	}
	mustRelease(t, mustAcquire(t, bg, c.Lock(there), AcquireOptions{}))
	wantLines(t, &out, failing, 1)
	wantLines(t, &out, again, 0)
	node.ConfigSet(bg, "maxmemory", "0")
	mustRelease(t, mustAcquire(t, bg, c.Lock(there), AcquireOptions{}))
	wantLines(t, &out, again, 0)
	mustRelease(t, mustAcquire(t, bg, c.Lock(here), AcquireOptions{}))
	wantLines(t, &out, again, 1)
	mustClose(t, c)
}

// The loss of the subscriptions is one line, and their return is another.
func TestLog_PubSub(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var out lockedBuffer
	c := fx.newLocks(t, logTo(&out), pollInterval(100*time.Millisecond))
	held := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "the waiter to subscribe", func() bool { return c.Stats().Channels == 1 })
	const lost, back = `"reqlock: pub/sub connection lost, waiters poll until it is back"`, `"reqlock: pub/sub connection is back"`
	eventually(t, "the channel to be subscribed to", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 1 })
	for range 2 { // the second time is less than a minute later
		before := fx.rdb.ClientList(bg).Val()
		id := regexp.MustCompile(`id=(\d+) .* sub=1 `).FindStringSubmatch(before)
		if id == nil {
			t.Fatalf("no connection is subscribed to anything: %s", before)
		}
		fx.rdb.ClientKillByFilter(bg, "ID", id[1])
		eventually(t, "the channel to be subscribed to again", func() bool {
			clients := fx.rdb.ClientList(bg).Val()
			return !strings.Contains(clients, "id="+id[1]+" ") && strings.Contains(clients, " sub=1 ")
		})
		eventually(t, "both lines in the log", func() bool { return strings.Contains(out.String(), back) })
	}
	if line := wantLines(t, &out, lost, 1); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "error=") || !strings.Contains(line, "change=") {
		t.Errorf("the loss is logged as %s", line)
	}
	if line := wantLines(t, &out, back, 1); !strings.Contains(line, "level=INFO") {
		t.Errorf("the return is logged as %s", line)
	}
	mustRelease(t, held)
	mustRelease(t, mustReceiveLease(t, "the waiter to get the lock", waiter))
}

// If the user may not subscribe, the log says so.
func TestLog_SubscribeDenied(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var out lockedBuffer
	c := fx.newLocksOn(t, fx.newUser(t, "~*", "&*", "+@all", "-subscribe"), logTo(&out), pollInterval(20*time.Millisecond))
	held := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "the line in the log", func() bool { return strings.Contains(out.String(), "pub/sub connection lost") })
	if line := wantLines(t, &out, "pub/sub connection lost", 1); !strings.Contains(line, "lacks a permission") || !strings.Contains(line, "'subscribe'") {
		t.Errorf("logged: %s", line)
	}
	mustRelease(t, held)
	mustRelease(t, mustReceiveLease(t, "the waiter to get the lock", waiter))
}

// A fault that concerns many locks is one line a minute for each cause, not one for each lock and
// retry. Losses get ten.
func TestLog_ManyLocks(t *testing.T) {
	t.Parallel()
	const locks = 300
	fx := newRedis(t)
	var out lockedBuffer
	var failed, lost, released atomic.Int64
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(6*time.Second), commandTimeout(time.Second), logTo(&out), func(o *Options) {
		o.Observer.RenewFailed = func(context.Context, Event) { failed.Add(1) }
		o.Observer.Lost = func(context.Context, Event) { lost.Add(1) }
		o.Observer.Released = func(context.Context, Event) { released.Add(1) }
	})
	var leases []*Lease
	for i := range locks {
		leases = append(leases, eventuallyAcquire(t, c, fmt.Sprint("a", i), AcquireOptions{}))
	}
	held := int64(0)
	for _, l := range leases {
		if l.Err() == nil {
			held++
		}
	}
	proxy.Cut()
	var wg sync.WaitGroup
	for _, l := range leases[:locks/2] {
		wg.Go(func() { _ = l.Release(bg) })
	}
	wg.Wait()
	eventually(t, "the other locks to be lost", func() bool { return lost.Load()+released.Load() >= held })
	const causes = 3 // the connection breaks, is not there, or the time is over
	for text, most := range map[string]int{
		"renewal failed": causes, "could not be released yet": causes, "lock lost while it was held": 10, failing: causes,
	} {
		n := strings.Count(out.String(), text)
		if n > most {
			t.Errorf("%d lines with %q, want %d at most", n, text, most)
		}
	}
	if failed.Load() < locks/2 || !strings.Contains(out.String(), " locks=") {
		t.Errorf("%d renewals failed; the log: %s", failed.Load(), out.String())
	}
	proxy.Restore()
}
