package core

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A faultRow makes Redis, or the way to it, give the error of a row of the table in
// docs/reference/failures.md. It returns the client that gets it for the lock "a".
type faultRow func(t *testing.T) redis.UniversalClient

// told is a fault that commands to a server cause.
func told(commands ...[]any) faultRow {
	return func(t *testing.T) redis.UniversalClient {
		rdb := redistest.Start(t).Client(t)
		for _, command := range commands {
			if err := rdb.Do(bg, command...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		return rdb
	}
}

// replied is a fault that a proxy makes up. A server of one test cannot be brought to it.
func replied(text string) faultRow {
	return func(t *testing.T) redis.UniversalClient {
		proxy := redistest.Start(t).Proxy(t)
		proxy.OnEvery(runsScript(), redistest.ReplyWith("-"+text+"\r\n"))
		return proxy.Client(t)
	}
}

// started is a fault of a server that directives cause.
func started(directives ...string) faultRow {
	return func(t *testing.T) redis.UniversalClient { return redistest.Start(t, directives...).Client(t) }
}

// replyTexts are the error replies of the table. Those of Redis 8 say the same.
var replyTexts = map[string]string{
	"`READONLY`":               "READONLY You can't write against a read only replica.",
	"`LOADING`":                "LOADING Redis is loading the dataset in memory",
	"`TRYAGAIN`":               "TRYAGAIN Multiple keys request during rehashing of slot",
	"`MASTERDOWN`":             "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"`CLUSTERDOWN`":            "CLUSTERDOWN Hash slot not served",
	"`MOVED` (a plain client)": "MOVED 15495 127.0.0.1:7000",
	"`BUSY`":                   "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"`MISCONF`":                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"`NOREPLICAS`":             "NOREPLICAS Not enough good replicas to write.",
	"`OOM`":                    "OOM command not allowed when used memory > 'maxmemory'.",
	"`NOPERM`":                 "NOPERM User limited has no permissions to run the 'evalsha' command",
	"`NOAUTH`":                 "NOAUTH Authentication required.",
	"`unknown command`":        "ERR unknown command 'EVALSHA', with args beginning with: ",
	"`WRONGTYPE`":              "WRONGTYPE Operation against a key holding the wrong kind of value",
}

var faultRows = map[string]faultRow{
	"`READONLY`":               told([]any{"REPLICAOF", "127.0.0.1", 1}),
	"`LOADING`":                replied(replyTexts["`LOADING`"]),
	"`TRYAGAIN`":               replied(replyTexts["`TRYAGAIN`"]),
	"`MASTERDOWN`":             told([]any{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []any{"REPLICAOF", "127.0.0.1", 1}),
	"`CLUSTERDOWN`":            started("cluster-enabled yes"),
	"`MOVED` (a plain client)": replied(replyTexts["`MOVED` (a plain client)"]),
	"`BUSY`":                   busyServer,
	"`MISCONF`":                replied(replyTexts["`MISCONF`"]),
	"`NOREPLICAS`":             told([]any{"CONFIG", "SET", "min-replicas-to-write", 1}),
	"`OOM`":                    told([]any{"CONFIG", "SET", "maxmemory", 1}),
	"`NOPERM`": func(t *testing.T) redis.UniversalClient {
		fx := newRedis(t)
		allowLimited(t, fx)
		redisCommand("ACL", "SETUSER", "limited", "-evalsha")(t, fx)
		return fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
	},
	"`NOAUTH`":          told([]any{"CONFIG", "SET", "requirepass", "secret"}, []any{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}),
	"`unknown command`": started(`rename-command EVALSHA ""`),
	"`WRONGTYPE`":       told([]any{"SET", "a", "x"}),
	"TLS does not fit": func(t *testing.T) redis.UniversalClient {
		s := startTLS(t, time.Now().Add(time.Hour))
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.port, TLSConfig: &tls.Config{RootCAs: s.roots, ServerName: "other"}})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	},
	"not reached, closed": func(t *testing.T) redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: closingPort(t)})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	},
	"no answer in time": func(t *testing.T) redis.UniversalClient {
		srv := redistest.Start(t)
		rdb := srv.Client(t)
		if err := rdb.Ping(bg).Err(); err != nil {
			t.Fatal(err)
		}
		srv.Freeze(t)
		t.Cleanup(func() { srv.Thaw(t) })
		return rdb
	},
	"no connection in the pool": emptyPool,
}

// emptyPool takes the only connection of a Redis client.
func emptyPool(t *testing.T) redis.UniversalClient {
	rdb := redistest.Start(t).ClientWith(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 10*patience })
	conn := rdb.Conn()
	if err := conn.Ping(bg).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rdb
}

// busyServer runs a script that does not end.
func busyServer(t *testing.T) redis.UniversalClient {
	srv := redistest.Start(t, "busy-reply-threshold 10")
	endless := srv.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = 10 * patience })
	ended := make(chan error, 1)
	go func() { ended <- endless.Eval(bg, "while true do end", nil).Err() }()
	rdb := srv.Client(t)
	t.Cleanup(func() {
		eventually(t, "the script to be killed", func() bool {
			_ = rdb.ScriptKill(bg).Err()
			select {
			case err := <-ended:
				return err != nil
			default:
				return false
			}
		})
	})
	eventually(t, "Redis to be busy", func() bool { return redisop.HasCode(rdb.Get(bg, "a").Err(), "BUSY") })
	return rdb
}

// A tableRow is a row of the table in docs/reference/failures.md.
type tableRow struct{ failure, executed, acquire, release, failOpen, class string }

// faultTable reads the table in docs/reference/failures.md.
func faultTable(t *testing.T) (rows []tableRow) {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What Redis says\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasPrefix(line, "|") && faultRows[cells[0]] != nil {
			rows = append(rows, tableRow{cells[0], cells[1], cells[2], cells[3], cells[4], strings.Trim(cells[5], "`")})
		}
	}
	if len(rows) != len(faultRows) {
		t.Fatalf("docs/reference/failures.md has %d of %d rows", len(rows), len(faultRows))
	}
	return rows
}

// code returns the first word of the reply of a row, or "" if its error is no reply.
func (r tableRow) code() string {
	text, isReply := strings.CutPrefix(r.failure, "`")
	text, _, _ = strings.Cut(text, "`")
	if !isReply {
		return ""
	}
	return text
}

// Each error of the table in docs/reference/failures.md comes from Redis as it says, and core, Ping
// and the log say what the table says.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	for _, row := range faultTable(t) {
		t.Run(row.failure, func(t *testing.T) {
			t.Parallel()
			var out lockedBuffer
			c := newUncheckedLocks(t, faultRows[row.failure](t), commandTimeout(5*time.Second), logTo(&out))
			defer mustClose(t, c)
			_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
			if err == nil {
				t.Fatal("the lock was acquired")
			}
			f := faultOf(err)
			// On a busy machine the last try may be late, and no reply of Redis.
			late := errors.Is(err, redisop.ErrTimeout) || row.code() != "" && f != nil && f.Class == "silent"
			if !late && !strings.Contains(err.Error(), row.code()) && !errors.Is(err, ErrWrongKind) {
				t.Errorf("Acquire: %v, want %s", err, row.code())
			}
			never := errors.Is(err, ErrMisconfigured) || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrWrongKind)
			if never != (row.failOpen == "never") && !late {
				t.Errorf("Acquire: %v; FailOpen would be: never %v, want %s", err, never, row.failOpen)
			}
			switch {
			case f == nil && row.class == "" || late && row.code() != "":
				return
			case f == nil || f.Class != row.class:
				t.Fatalf("the type of %v is %+v, want %s", err, f, row.class)
			}
			if n := c.Counters().Errors[row.class]; n == 0 { // a clean-up may have got it, too
				t.Errorf("no error of type %s is counted", row.class)
			}
			line := wantLines(t, &out, failing, 1)
			for _, part := range []string{f.Cause, f.ChangeAfter(err)} {
				if !strings.Contains(line, part) {
					t.Errorf("the log lacks %q: %s", part, line)
				}
			}
			if f.Permanent && !strings.Contains(err.Error(), f.ChangeAfter(err)) {
				t.Errorf("Acquire: %v, want it to say %q", err, f.ChangeAfter(err))
			}
			cause, change := f.Cause, f.Change
			if row.failure == "`NOPERM`" {
				cause, change = "lacks permissions", "ACL SETUSER" // Ping finds out which
			}
			if err := c.Ping(bg); err == nil || !strings.Contains(err.Error(), cause) || !strings.Contains(err.Error(), change) {
				t.Errorf("Ping: %v, want it to say %q and %q", err, cause, change)
			}
		})
	}
}

// While Redis gives an error of the table to a holder, renewals are retried, whatever the error. A
// release is retried, or fails and goes on in the background, as the table says.
func TestFaultTable_Holder(t *testing.T) {
	t.Parallel()
	for _, row := range faultTable(t) {
		action := redistest.CutBefore
		if text := replyTexts[row.failure]; text != "" {
			action = redistest.ReplyWith("-" + text + "\r\n")
		} else if row.failure == "no answer in time" {
			action = redistest.DropReply
		} else if row.failure != "not reached, closed" {
			continue // a holder has a connection with TLS, and waits for one
		}
		t.Run(row.failure, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			fx.inboxes = true
			c, proxy := fx.newLossyLocks(t, watchdogTimeout(patience))
			lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			if row.failure == "`WRONGTYPE`" { // it proves that the lock is lost
				if err := fx.rdb.Set(bg, "a", "x", 0).Err(); err != nil {
					t.Fatal(err)
				}
				mustReceive(t, "the end of the lease", lease.Context().Done())
				if err := context.Cause(lease.Context()); !errors.Is(err, ErrLockLost) || !errors.Is(err, ErrWrongKind) {
					t.Errorf("the lease ended with %v", err)
				}
				if err := fx.rdb.Del(bg, "a").Err(); err != nil {
					t.Fatal(err)
				}
				return
			}
			var renewals atomic.Int32
			rule := proxy.OnEvery(func(args []string) bool {
				return runsScript(renewScript)(args) && renewals.Add(1) > 0
			}, action)
			eventually(t, "the renewal to be retried", func() bool { return renewals.Load() > 1 })
			rule.Remove()
			mustBeRenewed(t, lease)

			proxy.OnMatch(1, runsScript(releaseScript), action)
			switch err := lease.Release(bg); {
			case row.release == "try again":
				wantErr(t, "Release", err, nil)
			case row.release == "fail" && (err == nil || !strings.Contains(err.Error(), row.code())):
				t.Errorf("Release: %v, want %s", err, row.code())
			}
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
		})
	}
}
