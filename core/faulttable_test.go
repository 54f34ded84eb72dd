package core

import (
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/redistest"
)

// A faultRow makes Redis, or the way to it, give the error of a row of the table in docs/failures.md.
// It returns the client that gets it for the lock "a".
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
		proxy.OnEvery(runs(), redistest.ReplyWith("-"+text+"\r\n"))
		return proxy.Client(t)
	}
}

// started is a fault of a server that directives cause.
func started(directives ...string) faultRow {
	return func(t *testing.T) redis.UniversalClient { return redistest.Start(t, directives...).Client(t) }
}

var faultRows = map[string]faultRow{
	"`READONLY`":               told([]any{"REPLICAOF", "127.0.0.1", 1}),
	"`LOADING`":                replied("LOADING Redis is loading the dataset in memory"),
	"`TRYAGAIN`":               replied("TRYAGAIN Multiple keys request during rehashing of slot"),
	"`MASTERDOWN`":             told([]any{"CONFIG", "SET", "replica-serve-stale-data", "no"}, []any{"REPLICAOF", "127.0.0.1", 1}),
	"`CLUSTERDOWN`":            started("cluster-enabled yes"),
	"`MOVED` (a plain client)": replied("MOVED 15495 127.0.0.1:7000"),
	"`BUSY`":                   busyServer,
	"`MISCONF`":                replied("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
	"`NOREPLICAS`":             told([]any{"CONFIG", "SET", "min-replicas-to-write", 1}),
	"`OOM`":                    told([]any{"CONFIG", "SET", "maxmemory", 1}),
	"`NOPERM`": func(t *testing.T) redis.UniversalClient {
		b := newBundle(t)
		setLimited(t, b)
		tell("ACL", "SETUSER", "limited", "-evalsha")(t, b)
		return b.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
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

// Each error of the table in docs/failures.md comes from Redis as it says, and core, Ping and the log
// say what the table says.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What Redis says\n")
	found := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		arrange := faultRows[cells[0]]
		if !strings.HasPrefix(line, "|") || arrange == nil {
			continue
		}
		found++
		t.Run(cells[0], func(t *testing.T) {
			t.Parallel()
			var out lockedBuffer
			c := newLooseClient(t, arrange(t), commandTimeout(5*time.Second), logTo(&out))
			defer mustClose(t, c)
			code, isReply := strings.CutPrefix(cells[0], "`")
			code, _, _ = strings.Cut(code, "`")
			_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
			if err == nil {
				t.Fatal("the lock was acquired")
			}
			late := errors.Is(err, redisop.ErrTimeout) // on a busy machine, the last try may be
			if isReply && !strings.Contains(err.Error(), code) && !errors.Is(err, ErrWrongKind) {
				t.Errorf("Acquire: %v, want %s", err, code)
			}
			never := errors.Is(err, ErrMisconfigured) || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrWrongKind)
			if never != (cells[4] == "never") && !late {
				t.Errorf("Acquire: %v; FailOpen would be: never %v, want %s", err, never, cells[4])
			}
			f, class := faultOf(err), strings.Trim(cells[5], "`")
			switch {
			case f == nil && class == "" || late && class != "silent":
				return
			case f == nil || f.Class != class:
				t.Fatalf("the type of %v is %+v, want %s", err, f, class)
			}
			if n := c.Counters().Errors[class]; n == 0 { // a clean-up may have got it, too
				t.Errorf("no error of type %s is counted", class)
			}
			line := wantLines(t, &out, failing, 1)
			for _, part := range []string{f.Cause, f.Change} {
				if !strings.Contains(line, part) {
					t.Errorf("the log lacks %q: %s", part, line)
				}
			}
			if f.Permanent && !strings.Contains(err.Error(), f.Change) {
				t.Errorf("Acquire: %v, want it to say %q", err, f.Change)
			}
		})
	}
	if found != len(faultRows) {
		t.Errorf("docs/failures.md has %d of %d rows", found, len(faultRows))
	}
}
