package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A holder without permission to publish can release. The waiter finds the free lock by polling.
func TestRelease_WithoutPermissionToPublish(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]any{
		"no command": {"~*", "&*", "+@all", "-publish", "-spublish"},
		"no channel": {"~*", "resetchannels", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			limited := fx.newUser(t, rules...)
			holder := fx.newLocksOn(t, limited)
			waiter := fx.newLocks(t, pollInterval(100*time.Millisecond))
			if err := limited.Publish(bg, wire.LockChannel("a"), "0").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Fatalf("PUBLISH: %v, want NOPERM", err)
			}

			lease := mustAcquire(t, bg, holder.Lock("a"), AcquireOptions{})
			next := acquireAsync(bg, waiter.Lock("a"), AcquireOptions{WaitTime: patience})
			eventually(t, "the waiter to subscribe", func() bool { return waiter.Stats().Channels == 1 })
			mustRelease(t, lease)
			r := mustReceive(t, "the waiter to get the lock", next)
			if r.err != nil {
				t.Fatal(r.err)
			}
			freed, err := holder.Lock("a").ForceUnlock(bg)
			if !freed || err != nil {
				t.Errorf("ForceUnlock: %v, %v", freed, err)
			}
			wantErr(t, "Release after ForceUnlock", r.lease.Release(bg), ErrLockLost)
		})
	}
}

// A full Redis grants no new locks, and a script that fails half-way leaves nothing behind. Holders
// keep their locks and can release them.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(6*time.Second))
	held := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{})
	fx.loadScripts(t)
	if err := fx.rdb.ConfigSet(bg, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	lease, err := c.Lock("new").Acquire(bg, AcquireOptions{})
	if err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("Acquire on a full Redis: %v, %v; want OOM", lease, err)
	}
	fx.eventuallyRenewed(t, "held")
	wantHeld(t, held)
	mustRelease(t, held)
	fx.wantFields(t, "held", nil)
	fx.wantFields(t, "new", nil)
	if err := fx.rdb.ConfigSet(bg, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	again := mustAcquire(t, bg, c.Lock("new"), AcquireOptions{})
	mustRelease(t, again)
}

// Locks can be acquired, re-entered, renewed and released while their slot moves to another node.
// With a channel among the KEYS, Redis would answer TRYAGAIN until the move ends: a channel is not
// a key, so neither node has it.
func TestSlotMigration_LocksWork(t *testing.T) {
	t.Parallel()
	nodes := newMigration(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes.source.Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })
	c := newUncheckedLocks(t, cluster, watchdogTimeout(6*time.Second))
	t.Cleanup(func() { checkIdleAndClose(t, c, nodes.from) })

	// All keys are in one slot. Two stay, one moves, and one is created on the target.
	stays := []*Lease{mustAcquire(t, bg, c.Lock("{slot}stays:1"), AcquireOptions{}), mustAcquire(t, bg, c.Lock("{slot}stays:2"), AcquireOptions{})}
	moves := mustAcquire(t, bg, c.Lock("{slot}moves"), AcquireOptions{})
	nodes.begin(t, wire.Slot("{slot}"))
	nodes.move(t, "{slot}moves")
	taken := mustAcquire(t, bg, c.Lock("{slot}new"), AcquireOptions{})
	all := append(stays, moves, taken)
	for _, lease := range all {
		inner := mustAcquire(t, lease.Context(), c.Lock(lease.Name()), AcquireOptions{})
		mustRelease(t, inner)
	}

	for range 2 {
		mustBeRenewed(t, all...)
	}
	for _, lease := range all {
		if err := lease.Release(bg); err != nil {
			t.Errorf("release of %s: %v", lease.Name(), err)
		}
	}
	for _, node := range []*redis.Client{nodes.from, nodes.to} {
		if keys := node.Keys(bg, "*").Val(); len(keys) != 0 {
			t.Errorf("keys left: %q", keys)
		}
	}
}

// migration is a cluster of two nodes. The source has all slots and moves one to the target.
type migration struct {
	source, target *redistest.Server
	from, to       *redis.Client
}

func newMigration(t *testing.T) *migration {
	t.Helper()
	var servers [2]*redistest.Server
	var ports [2]int
	for i := range servers {
		ports[i] = freePort(t)
		servers[i] = redistest.Start(t, "cluster-enabled yes", fmt.Sprintf("cluster-port %d", ports[i]))
	}
	m := &migration{source: servers[0], target: servers[1], from: servers[0].Client(t), to: servers[1].Client(t)}
	m.do(t, m.from, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	host, port, _ := strings.Cut(m.target.Addr(), ":")
	m.do(t, m.from, "CLUSTER", "MEET", host, port, ports[1])
	eventually(t, "both nodes to know the cluster", func() bool {
		for _, node := range []*redis.Client{m.from, m.to} {
			info := node.ClusterInfo(bg).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:2") || !strings.Contains(info, "cluster_slots_assigned:16384") {
				return false
			}
		}
		return true
	})
	return m
}

func (m *migration) do(t *testing.T, node *redis.Client, args ...any) string {
	t.Helper()
	answer, err := node.Do(bg, args...).Text()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

func (m *migration) begin(t *testing.T, slot int) {
	t.Helper()
	from, to := m.do(t, m.from, "CLUSTER", "MYID"), m.do(t, m.to, "CLUSTER", "MYID")
	m.do(t, m.to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from)
	m.do(t, m.from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to)
}

func (m *migration) move(t *testing.T, key string) {
	t.Helper()
	host, port, _ := strings.Cut(m.target.Addr(), ":")
	m.do(t, m.from, "MIGRATE", host, port, key, 0, 5000)
}

// Only the reply "granted" grants. Any other reply is an error, and the client releases the lock in
// case Redis granted it.
func TestReply_OddOnesGrantNothing(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	for _, raw := range []string{"$-1\r\n", "_\r\n", ":0\r\n", ":-1\r\n", "+OK\r\n", "$1\r\n1\r\n", "*0\r\n", "*1\r\n$1\r\n1\r\n", "*2\r\n:1\r\n:1\r\n", "#t\r\n", ",1\r\n", "%0\r\n"} {
		t.Run(strconv.Quote(raw), func(t *testing.T) {
			releases := countCommands(proxy, runsScript(releaseScript))
			tries := countCommands(proxy, runsScript(acquireScript))
			proxy.OnMatch(1, runsScript(acquireScript), redistest.ReplyWith(raw))
			lease, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: time.Minute})
			if err == nil {
				t.Fatalf("Acquire succeeded: %s", holdOf(lease).wire)
			}
			if errors.Is(err, ErrNotAcquired) {
				t.Errorf("Acquire: %v, want no refusal", err)
			}
			if n := tries(); n != 1 {
				t.Errorf("%d tries, want 1: no retry after an odd reply", n)
			}
			eventually(t, "a release", func() bool { return releases() > 0 })
		})
	}
}

// The holder treats an odd reply neither as success nor as a loss.
func TestReply_OddOnesToTheHolder(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	for _, raw := range []string{"$-1\r\n", "_\r\n", ":-2\r\n", "+OK\r\n", "*0\r\n", "*1\r\n:1\r\n"} {
		t.Run(strconv.Quote(raw), func(t *testing.T) {
			lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
			proxy.OnMatch(1, runsScript(updateScript), redistest.ReplyWith(raw))
			if _, err := c.Lock("a").Acquire(lease.Context(), AcquireOptions{}); err == nil || errors.Is(err, ErrLockLost) {
				t.Errorf("re-entry: %v, want an error other than ErrLockLost", err)
			}
			proxy.OnMatch(1, runsScript(updateScript), redistest.ReplyWith(raw))
			if err := lease.Extend(bg, time.Hour); err == nil || errors.Is(err, ErrLockLost) {
				t.Errorf("Extend: %v, want an error other than ErrLockLost", err)
			}
			if err := lease.Err(); err != nil {
				t.Errorf("an odd reply ended the lease: %v", err)
			}
			proxy.OnMatch(1, runsScript(releaseScript), redistest.ReplyWith(raw))
			if err := lease.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
				t.Errorf("Release: %v, want an error other than ErrNotHeld", err)
			}
			eventually(t, "the release in the background", func() bool { return len(fx.hash(t, "a")) == 0 })
			eventually(t, "the clean-ups to end", func() bool { return c.Stats().Cleanups == 0 })
		})
	}
}

// A refusal carries the holder's time to live.
func TestReply_RefusalCarriesTTL(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.TTL > time.Hour || held.TTL < time.Hour-patience {
		t.Errorf("%v, TTL %v; want about an hour", err, held.TTL)
	}
	mustRelease(t, lease)

	if err := fx.rdb.HSet(bg, "a", "somebody", 1).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Lock("a").Acquire(bg, AcquireOptions{})
	if !errors.As(err, &held) || held.TTL != -time.Millisecond {
		t.Errorf("key without expiry: %v, TTL %v; want -1ms", err, held.TTL)
	}
	_, err = c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: 50 * time.Millisecond})
	if !errors.As(err, &held) || held.TTL != -time.Millisecond {
		t.Errorf("key without expiry, after a wait: %v, TTL %v; want -1ms", err, held.TTL)
	}
	fx.rdb.Del(bg, "a")
}

// If Redis returns an error before it runs the command, the caller gets the error at once. The
// client has nothing to clean up.
func TestOutcome_NotExecuted(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	for _, text := range []string{
		"MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "MASTERDOWN Link with MASTER is down",
		"CLUSTERDOWN The cluster is down", "BUSY Redis is busy running a script.", "WRONGTYPE Operation against a key",
	} {
		code, _, _ := strings.Cut(text, " ")
		t.Run(code, func(t *testing.T) {
			tries := countCommands(proxy, runsScript())
			proxy.OnMatch(1, runsScript(acquireScript), redistest.ReplyWith("-"+text+"\r\n"))
			_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: time.Minute})
			if code == "WRONGTYPE" {
				wantErr(t, "Acquire", err, ErrWrongKind)
			} else if err == nil || !strings.Contains(err.Error(), code) {
				t.Fatalf("Acquire: %v, want %s", err, code)
			}
			if s := c.Stats(); s != (Stats{}) {
				t.Errorf("%+v after a command that did not run, want an idle client", s)
			}
			if n := tries(); n != 1 {
				t.Errorf("%d commands, want 1", n)
			}
		})
	}
}

// After NOSCRIPT the client sends the text of the script. The caller notices nothing.
func TestOutcome_ScriptFlush(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(6*time.Second))
	forget := func() {
		t.Helper()
		if err := fx.rdb.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
	}
	texts := func() int { return proxy.Count("EVAL") }

	forget()
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	forget()
	inner := mustAcquire(t, lease.Context(), c.Lock("a"), AcquireOptions{})
	fx.wantCount(t, lease, 2)
	forget()
	n := texts()
	eventually(t, "a renewal", func() bool { return texts() > n })
	forget()
	if held, err := c.Lock("a").IsHeld(lease.Context()); !held || err != nil {
		t.Errorf("IsHeld: %v, %v", held, err)
	}
	forget()
	mustRelease(t, inner)
	forget()
	mustRelease(t, lease)
	forget()
	if freed, err := c.Lock("a").ForceUnlock(bg); freed || err != nil {
		t.Errorf("ForceUnlock: %v, %v", freed, err)
	}
	// Redis knows the scripts again, so the client sends no text twice.
	unwatched := AcquireOptions{LeaseTime: time.Hour} // no renewal comes in between
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), unwatched))
	n = texts()
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), unwatched))
	if texts() != n {
		t.Error("the client sent the text of a script that Redis knows")
	}
}

// TRYAGAIN and LOADING pass, so the client retries until the deadline.
func TestOutcome_RetriedUntilTheDeadline(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	for _, code := range []string{"TRYAGAIN", "LOADING"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			busy := redistest.ReplyWith("-" + code + " not now\r\n")
			for n := range 3 {
				proxy.OnMatch(n+1, runsScript(), busy)
			}
			lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			fx.wantCount(t, lease, 1)
			for n := range 3 {
				proxy.OnMatch(n+1, runsScript(), busy)
			}
			mustRelease(t, lease)
			fx.wantFields(t, "a", nil)

			short, proxy := fx.newProxiedLocks(t, commandTimeout(timeout))
			always := proxy.OnEvery(runsScript(), busy)
			tries := countCommands(proxy, runsScript())
			began := time.Now()
			_, err := short.Lock("a").Acquire(bg, AcquireOptions{})
			if err == nil || !strings.Contains(err.Error(), code) {
				t.Errorf("Acquire: %v, want %s", err, code)
			}
			if took := time.Since(began); took < timeout-50*time.Millisecond {
				t.Errorf("gave up after %v, want %v", took, timeout)
			}
			if n := tries(); n < 3 {
				t.Errorf("%d tries, want at least 3", n)
			}
			if s := short.Stats(); s != (Stats{}) && !errors.Is(err, redisop.ErrTimeout) {
				t.Errorf("%+v after commands that did not run, want an idle client", s)
			}
			always.Remove()
			eventually(t, "an idle client", func() bool { return short.Stats() == Stats{} })
		})
	}
}

// Redis refuses a batch of renewals with TRYAGAIN while a slot moves. The client renews the keys
// one by one and does not repeat the batch.
func TestRenewal_BatchInAMigratingSlot(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, watchdogTimeout(6*time.Second))
	several := func(args []string) bool { return runsScript(renewScript)(args) && args[2] != "1" }
	proxy.OnEvery(several, redistest.ReplyWith("-TRYAGAIN not now\r\n"))
	batches := countCommands(proxy, several)
	singles := countCommands(proxy, func(args []string) bool { return runsScript(renewScript)(args) && args[2] == "1" })
	var leases []*Lease
	for i := range 40 {
		leases = append(leases, mustAcquire(t, bg, c.Lock(fmt.Sprint(i)), AcquireOptions{}))
	}
	eventually(t, "ten refused batches", func() bool { return batches() >= 10 })
	mustBeRenewed(t, leases...)
	// A batch has at least two locks, so two single renewals follow it. The test wants only one: a
	// slow machine repeats batches, and the locks of the last ones are still to come. A client that
	// repeats every batch sends dozens of them for each single renewal.
	if n, alone := batches(), singles(); alone < n {
		t.Errorf("%d batches refused, %d locks renewed alone, want at least as many", n, alone)
	}
	for _, lease := range leases {
		mustRelease(t, lease)
	}
}

// A command that gets no connection was not sent, so the client has nothing to clean up.
func TestOutcome_NotSent(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()

	nowhere := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", freePort(t))})
	defer nowhere.Close()
	down := fx.newLocksOn(t, nowhere)
	if lease, err := down.Lock("a").Acquire(ctx, long); err == nil || ctx.Err() != nil {
		t.Errorf("Acquire with Redis down: %v, %v; want an error at once", lease, err)
	}
	if s := down.Stats(); s != (Stats{}) {
		t.Errorf("%+v after a command that was not sent, want an idle client", s)
	}

	crowded := fx.srv.ClientWith(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond })
	conn := crowded.Conn()
	if err := conn.Ping(bg).Err(); err != nil {
		t.Fatal(err)
	}
	c := fx.newLocksOn(t, crowded)
	if lease, err := c.Lock("a").Acquire(ctx, AcquireOptions{}); !errors.Is(err, redis.ErrPoolTimeout) {
		t.Errorf("Acquire without a connection: %v, %v; want ErrPoolTimeout", lease, err)
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("%+v after a command that was not sent, want an idle client", s)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

// After any other error or a lost reply, the client releases the lock: Redis may have granted it.
func TestOutcome_Unknown(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{
		"error":       redistest.ReplyWith("-ERR something went wrong\r\n"),
		"misconf":     redistest.ReplyWith("-MISCONF cannot persist\r\n"),
		"executed":    redistest.CutAfter,
		"not reached": redistest.CutBefore,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
			releases := countCommands(proxy, runsScript(releaseScript))
			always := proxy.OnEvery(runsScript(acquireScript), action)
			lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
			if err == nil || errors.Is(err, ErrNotAcquired) {
				t.Fatalf("Acquire: %v, %v", lease, err)
			}
			always.Remove()
			eventually(t, "a release", func() bool { return releases() > 0 })
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
		})
	}
}

// A grant costs three calls in Redis. A release to zero and a refusal cost two each.
func TestScripts_CommandsPerCall(t *testing.T) {
	t.Parallel()
	fx := newRedisWithInboxes(t)
	c, _ := fx.newProxiedLocks(t)
	holder := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{})
	eventuallyListening(t, fx.rdb, c)
	eventually(t, "the hold to be verified", func() bool { return fx.commandCalls(t)["hmget"] == 1 })
	var lease *Lease
	for _, tc := range []struct {
		what string
		do   func()
		want map[string]int
	}{
		{"grant", func() { lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}) }, map[string]int{"pttl": 1, "hset": 1, "pexpire": 1}},
		{"release", func() { mustRelease(t, lease) }, map[string]int{"hdel": 1, "publish": 1}},
		{"refusal", func() { wantHeldByOther(t, c, "held") }, map[string]int{"pttl": 1, "hmget": 1}},
	} {
		if err := fx.rdb.ConfigResetStat(bg).Err(); err != nil {
			t.Fatal(err)
		}
		tc.do()
		got := fx.commandCalls(t)
		delete(got, "config|resetstat")
		if got["evalsha"] != 1 {
			t.Errorf("%s: %d scripts, want 1", tc.what, got["evalsha"])
		}
		delete(got, "evalsha")
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s costs %v, want %v", tc.what, got, tc.want)
		}
	}
	mustRelease(t, holder)
}

// commandCalls counts the commands that Redis ran, inside and outside of scripts. It leaves out
// INFO and the commands that open a connection, with which the client may be busy in the
// background.
func (fx *redisFixture) commandCalls(t testing.TB) map[string]int {
	t.Helper()
	info, err := fx.rdb.Info(bg, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]int)
	for line := range strings.Lines(info) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !found || strings.HasPrefix(name, "client") || name == "hello" || name == "ping" || name == "info" {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("no count in line %q of INFO", line)
		}
		calls[name] = n
	}
	return calls
}
