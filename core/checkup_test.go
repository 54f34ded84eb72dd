package core

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

// A server that lacks a command is refused by its name, its version and the command, whichever kind
// of lock needs it. An acquire that needs it says so, too, and does not ask to try again.
func TestPing_ServerLacksCommands(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, `rename-command LPOS ""`, `rename-command INCR ""`)
	var log lockedBuffer
	c := newUncheckedLocks(t, srv.Client(t), logTo(&log))
	name := redisinfo.Parse(srv.Client(t).Info(bg).Val()).Server()
	wantPing(t, c, name+" lacks commands that locks need: INCR (for fenced), LPOS (for fair)", "use Redis 6.2 or newer")
	if _, err := c.FencedLock("a").Acquire(bg, AcquireOptions{}); err == nil || heals(err) || redisop.FaultOf(err) == nil || redisop.FaultOf(err).Class != "no_command" {
		t.Errorf("a fenced lock: %v", err)
	}
	eventually(t, "the log to name the server", func() bool { return strings.Contains(log.String(), name+" lacks commands") })
	mustClose(t, c)
}

// Ping says what puts locks at risk. It logs a warning once, and again if it comes back.
func TestPing_Warnings(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	var log lockedBuffer
	c := newUncheckedLocks(t, rdb, logTo(&log))
	defer mustClose(t, c)
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(bg, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(says ...string) {
		t.Helper()
		wantPing(t, c)
		found := c.Warnings()
		if len(found) != len(says) {
			t.Errorf("%+v, want %q", found, says)
			return
		}
		for i, w := range found {
			if text := w.Check + ": " + w.Finding; !strings.Contains(text, says[i]) || w.Change == "" {
				t.Errorf("%+v, want %q", w, says[i])
			}
		}
	}
	logged := func(n int) {
		t.Helper()
		if got := strings.Count(log.String(), "level=WARN msg=\"reqlock: ping: locks are at risk\""); got != n {
			t.Errorf("%d lines, want %d:\n%s", got, n, log.String())
		}
	}
	want()
	set("maxmemory", "100mb")
	set("maxmemory-policy", "allkeys-lru")
	want("eviction: maxmemory-policy allkeys-lru may evict locks that are held")
	want("fencing tokens first")
	logged(1)
	mustRelease(t, mustAcquire(t, bg, c.FencedLock("a"), AcquireOptions{}))
	want("eviction", "persistence: no append-only file: a restart forgets locks")
	logged(2)
	set("maxmemory-policy", "noeviction")
	set("appendonly", "yes")
	want()
	set("maxmemory-policy", "volatile-ttl")
	want("two owners")
	logged(3)
}

// Ping says which kinds of locks the user cannot use, with the rule for the records of a Once. It
// tries nothing that Redis would deny and log.
func TestPing_WarnsOfPermissions(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const plain = "+ping +eval +evalsha +publish +subscribe +unsubscribe +pttl +pexpire +hset +hget +hkeys +hlen +hmget +hexists +hdel +del +cluster|slots"
	ping := func(rules string) []Warning {
		t.Helper()
		args := []any{"ACL", "SETUSER", "orders", "reset", "on", ">secret", "&*"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		if err := fx.rdb.Do(bg, args...).Err(); err != nil {
			t.Fatal(err)
		}
		c := fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "orders", "secret", true }))
		wantPing(t, c)
		return c.Warnings()
	}
	found := ping("~reqlock:* " + plain)
	if len(found) != 2 || found[0].Check != "permissions" || found[1].Check != "settings" ||
		!strings.Contains(found[0].Finding, "fair, fenced, read/write, Once, permits, CountDownLatch") || !strings.Contains(found[0].Change, "ACL SETUSER orders ~{reqlock:*") {
		t.Errorf("%+v", found)
	}
	found = ping("~reqlock:* ~{reqlock:* +info " + plain)
	if len(found) != 1 || strings.Contains(found[0].Finding, "Once") {
		t.Errorf("with the rule for records: %+v", found)
	}
	if found := ping("~* +@all"); len(found) != 0 {
		t.Errorf("with all permissions: %+v", found)
	}
	if denied := fx.rdb.ACLLog(bg, 10).Val(); len(denied) > 0 {
		t.Errorf("denied: %+v", denied[0])
	}
}
