package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func wantPing(t *testing.T, c *Client, says ...string) {
	t.Helper()
	err := c.Ping(bg)
	if len(says) == 0 {
		if err != nil {
			t.Errorf("Ping: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("Ping: nil, want an error that says %q", says)
		return
	}
	text := err.Error()
	for _, part := range says {
		if !strings.Contains(text, part) {
			t.Errorf("Ping: %v; want %q in it", err, part)
		}
	}
	if !strings.HasPrefix(text, "reqlock: ping: ") || strings.Count(text, "reqlock: ") != 1 || strings.Contains(text, "\n") {
		t.Errorf("Ping: %q; want one line that begins with reqlock: ping:", text)
	}
}

// Ping leaves nothing in Redis, and observers do not hear of it.
func TestPing(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	for _, mode := range []PublishMode{PublishAuto, PublishPlain, PublishSharded, PublishBoth} {
		var events []string
		c := fx.newLocks(t, func(o *Options) {
			o.PublishMode = mode
			o.Observer.Acquired = func(context.Context, Event) { events = append(events, "acquired") }
			o.Observer.Released = func(context.Context, Event) { events = append(events, "released") }
		})
		wantPing(t, c)
		fx.rdb.ScriptFlush(bg)
		wantPing(t, c)
		if len(events) > 0 {
			t.Errorf("an observer heard of %q", events)
		}
	}
}

// Ping also frees its lock if the caller leaves, or Close begins, while Redis grants it.
func TestPing_LeavesNoLock(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"the caller leaves": false, "Close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
			held := proxy.OnMatch(1, runsScript(allKinds["plain"].acquire), redistest.HoldReply)
			ctx, cancel := context.WithCancel(bg)
			ping := make(chan error, 1)
			go func() { ping <- c.Ping(ctx) }()
			mustReceive(t, "Redis to grant the lock", held.Hit())
			for _, key := range fx.rdb.Keys(bg, "*").Val() {
				fx.rdb.Persist(bg, key) // the end of its lease must not free it
			}
			cancel()
			wantErr(t, "Ping", mustReceive(t, "Ping to return", ping), context.Canceled)
			if closes {
				mustClose(t, c)
			}
			eventually(t, "the lock to be freed", func() bool { return fx.rdb.DBSize(bg).Val() == 0 })
			held.Release()
		})
	}
}

// Ping names each rule of docs/guides/operations.md that the user lacks.
func TestPing_MissingPermission(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	text, err := os.ReadFile("../docs/guides/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER orders on >secret resetkeys (.*)$`).FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("docs/guides/operations.md has no user")
	}
	rules := slices.DeleteFunc(strings.Fields(line[1]), func(rule string) bool { return rule == "resetchannels" || rule == "-@all" })
	user := func(without string) *Client {
		args := []any{"ACL", "SETUSER", "orders", "reset", "on", ">secret", "resetkeys", "resetchannels", "-@all"}
		for _, rule := range rules {
			if rule != without {
				args = append(args, rule)
			}
		}
		if err := fx.rdb.Do(bg, args...).Err(); err != nil {
			t.Fatal(err)
		}
		return fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "orders", "secret", true }))
	}
	wantPing(t, user(""))
	if n := fx.rdb.Do(bg, "ACL", "LOG").Val(); fmt.Sprint(n) != "[]" {
		t.Errorf("denied: %v", n)
	}
	if len(rules) < 15 {
		t.Fatalf("only %d rules were found", len(rules))
	}
	for _, rule := range rules {
		c := user(rule)
		want := fmt.Sprintf("the Redis user %q lacks permissions: ACL SETUSER orders %s (NOPERM", "orders", rule)
		wantPing(t, c, want)
		fx.loadScripts(t)
		wantPing(t, c, want) // the scripts being known makes no difference
	}
	none := user("")
	fx.rdb.Do(bg, "ACL", "SETUSER", "orders", "-hset", "-publish", "resetchannels")
	wantPing(t, none, "ACL SETUSER orders +publish +hset &redisson_lock__channel:* &reqlock:client:* (")
}

// Sharded channels need further permissions.
func TestPing_ShardedPermissions(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	for _, rule := range []string{"+spublish", "+ssubscribe", "+sunsubscribe"} {
		if err := fx.rdb.Do(bg, "ACL", "SETUSER", "orders", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+rule[1:]).Err(); err != nil {
			t.Fatal(err)
		}
		c := fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "orders", "secret" }), func(o *Options) { o.PublishMode = PublishSharded })
		wantPing(t, c, "ACL SETUSER orders "+rule+" (")
	}
}

func TestPing_NameMapper(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	mapped := func(o *Options) { o.NameMapper = func(name string) string { return "app:" + name } }
	c := fx.newLocksOn(t, fx.newUser(t, "~app:*", "&*", "+@all"), mapped)
	wantPing(t, c)
	c = fx.newLocksOn(t, fx.newUser(t, "resetkeys", "~reqlock:*", "&*", "+@all"), mapped)
	wantPing(t, c, "~app:reqlock:ping:* (")
	wantPing(t, fx.newLocks(t, func(o *Options) { o.NameMapper = func(string) string { return "" } }), "NameMapper")
}

func TestPing_WhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, fault := range redisFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			allowLimited(t, fx)
			c := fx.newLocks(t)
			wantPing(t, c)
			fault.breaks(t, fx)
			wantPing(t, c, fault.ping...)
			fault.mends(t, fx)
			eventually(t, "Ping to succeed", func() bool { return c.Ping(bg) == nil })
		})
	}
}

func TestPing_WrongPassword(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocksOn(t, fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "nobody", "guess" }))
	wantPing(t, c, "refuses the user name or the password: WRONGPASS", "correct Username and Password")
}

func TestPing_NoAnswer(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocksWith(t, readTimeout(time.Second), commandTimeout(500*time.Millisecond))
	proxy.Stall()
	began := time.Now()
	wantPing(t, c, "Redis does not answer in time", "SLOWLOG")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Ping took %s", took)
	}
	ctx, cancel := context.WithTimeout(bg, time.Millisecond)
	defer cancel()
	wantErr(t, "Ping with a short deadline", c.Ping(ctx), context.DeadlineExceeded)
	proxy.Restore()
	eventually(t, "Ping to succeed", func() bool { return c.Ping(bg) == nil })
}

// Redis answers the scripts, but not a command that Ping tries beside them.
func TestPing_NoAnswerToCommands(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	for _, command := range []string{"HKEYS", "SUBSCRIBE"} {
		c, proxy := fx.newProxiedLocksWith(t, readTimeout(2*time.Second), commandTimeout(2*time.Second))
		held := proxy.On(command, 1, redistest.HoldReply)
		eventually(t, "the reply to be held", func() bool {
			wantPing(t, c, "Redis does not answer in time")
			select {
			case <-held.Hit():
				return true
			default: // the machine was too slow for what comes before
				return false
			}
		})
		held.Release()
		eventually(t, "Ping to succeed", func() bool { return c.Ping(bg) == nil })
	}
}

func TestPing_Ends(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t))
	ctx, cancel := context.WithCancelCause(bg)
	reason := errors.New("the caller has left")
	cancel(reason)
	err := c.Ping(ctx)
	wantErr(t, "Ping", err, context.Canceled)
	wantErr(t, "Ping", err, reason)
	mustClose(t, c)
	wantErr(t, "Ping of a closed client", c.Ping(bg), ErrClosed)
}

func TestPing_Replicas(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	acks := func(o *Options) { o.ReplicaAcks, o.ReplicaTimeout = 1, 10*time.Millisecond }
	err := fx.newLocks(t, acks).Ping(bg)
	wantErr(t, "Ping", err, ErrNotReplicated)
	c := fx.newLocksOn(t, fx.newUser(t, "~*", "&*", "+@all", "-wait"), acks)
	wantPing(t, c, "+wait (")
}

// Each node of a cluster has its own users.
func TestPing_Cluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	var nodes []*redis.Client
	for _, srv := range cluster.Servers {
		node := srv.Client(t)
		nodes = append(nodes, node)
		if err := node.Do(bg, "ACL", "SETUSER", "orders", "on", ">secret", "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []PublishMode{PublishAuto, PublishPlain, PublishBoth} {
		c := newUncheckedLocks(t, cluster.ClientWith(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "orders", "secret" }), func(o *Options) { o.PublishMode = mode })
		wantPing(t, c)
		master := cluster.Masters(t)[1]
		limit := func(rule string) {
			t.Helper()
			for i, srv := range cluster.Servers {
				if srv == master {
					if err := nodes[i].Do(bg, "ACL", "SETUSER", "orders", rule).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		limit("-hset")
		wantPing(t, c, master.Addr()+`: the Redis user "orders" lacks permissions: ACL SETUSER orders +hset (`)
		limit("+hset")
		wantPing(t, c)
		mustClose(t, c)
	}
	for _, node := range nodes {
		if keys := node.Keys(bg, "*").Val(); len(keys) > 0 {
			t.Errorf("left: %q", keys)
		}
	}
}
