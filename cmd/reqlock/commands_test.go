package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	nowhere := call{redis: "redis://127.0.0.1:1"}
	for line, text := range map[string]string{
		"":                                     "which command?",
		"sl":                                   `there is no command "sl"; did you mean ls?`,
		"help unlok":                           "did you mean unlock?",
		"wtach":                                "did you mean watch?",
		"x":                                    "try reqlock help",
		"restart":                              "try reqlock help",
		"completion":                           "usage: reqlock completion SHELL [options]",
		"completion tcsh":                      "use bash, zsh or fish",
		"list":                                 `no command "list"`,
		"help list":                            `no command "list"`,
		"ls a b":                               "usage: reqlock ls [PREFIX] [options]",
		"show":                                 "usage: reqlock show NAME [options]",
		"ls --nothing":                         "not defined: --nothing",
		"--nothing ls":                         "not defined: --nothing",
		"ls --limit 0":                         "--limit is 0",
		"ls --limit x":                         "--limit",
		"watch --every 1ms":                    "--every is 1ms",
		"bench --callers 0":                    "--callers is 0",
		"bench --for 0s":                       "--for is 0s",
		"doctor --samples 0":                   "--samples is 0",
		"unlock a --yes":                       "--reason",
		"unlock a --reason b":                  "--yes",
		"version a":                            "usage: reqlock version [options]",
		"run":                                  "usage: reqlock run NAME [options] -- COMMAND",
		"run a":                                "usage: reqlock run NAME [options] -- COMMAND",
		"run a b":                              "usage: reqlock run NAME [options] -- COMMAND",
		"run a --":                             "usage: reqlock run NAME [options] -- COMMAND",
		"run a b -- true":                      "usage: reqlock run NAME [options] -- COMMAND",
		"run a --wait -1s -- true":             "use for example 30s, or forever",
		"run a --wait x -- true":               "use for example 30s, or forever",
		"run a --lease -1s -- true":            "--lease is -1s",
		"run a --lease 1us -- true":            "LeaseTime",
		"run a --grace -1s -- true":            "--grace is -1s",
		"run a --limit -1 -- true":             "--limit is -1",
		"run a --limit 2 --fair -- true":       "--limit makes a semaphore",
		"run a --limit 2 --fenced -- true":     "--limit makes a semaphore",
		"run a --on-lost stop -- true":         `--on-lost is "stop"`,
		"version --redis x":                    "not defined: --redis",
		"ls --tls-insecure":                    "use rediss://",
		"ls --redis 127.0.0.1":                 "no scheme",
		"ls --redis http://a":                  `scheme "http"`,
		"ls --redis redis+x://a":               `scheme "redis+x"`,
		"ls --redis redis://a/x":               "invalid database number",
		"ls --redis redis://a?b=c":             "unexpected option: b",
		"ls --redis redis+sentinel://a":        "master_name",
		"ls --redis rediss://a --tls-ca /none": "--tls-ca: open /none",
		"ls --redis rediss://a --tls-ca main_test.go":          "no certificate in PEM form",
		"ls --redis rediss://a --tls-cert /none":               "--tls-cert and --tls-key",
		"ls --redis redis://user:geheim%zz@127.0.0.1":          "%40 for @",
		"ls --redis redis://user:geheim/1@127.0.0.1":           "%40 for @",
		"ls --redis redis+cluster://user:geheim@127.0.0.1?a=b": "unexpected option: a",
		"ls --redis redis://user:/geheim@127.0.0.1":            "%2F for /",
		"ls --redis redis://user:12/geheim@127.0.0.1":          "%2F for /",
		"ls --redis redis://user:12?geheim@127.0.0.1":          "%3F for ?",
		"ls --redis redis://user:12#geheim@127.0.0.1":          "%23 for #",
		"ls --redis redis://user:/geheim":                      "invalid database number",
		"ls --redis redis+sentinel://user:/geheim@a":           "%2F for /",
		"ls --redis redis+sentinel://user:/geheim":             "invalid database number",
		"ls --redis redis+cluster://a:1?addr=user:geheim@b:1":  "%40 for @",
		"ls --redis redis+cluster://a:1?addr=geheim":           "invalid value of addr",
		"ls --redis redis://a?dial_timeout=geheim":             "invalid value of dial_timeout",
	} {
		r := nowhere.want(t, usage, words(line), text, "!geheim")
		if r.out != "" {
			t.Errorf("reqlock %s prints on stdout %s", line, r.out)
		}
	}
	call{}.want(t, usage, words("ls"), "REDIS_URL")
	call{}.want(t, done, words("version"), "reqlock "+reqlock.Version, "go1")
	call{}.want(t, done, words("--version"), "reqlock "+reqlock.Version, "go1")
	call{}.want(t, done, words("version --json"), `"version": "`)
	call{}.want(t, done, words("--json version"), `"version": "`)
}

func TestRedisFails(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	if err := srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">geheim").Err(); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ls", "show a", "watch", "unlock a --yes --reason b", "doctor", "bench", "run a -- " + os.Args[0]} {
		code := redisFailed
		if strings.HasPrefix(word, "run") {
			code = unavailable
		}
		call{redis: "redis://user:geheim@127.0.0.1:1"}.want(t, code, words(word), "127.0.0.1:1: ", "connection refused", "!geheim")
		call{redis: srv.URL()}.want(t, code, words(word), srv.Addr(), "NOAUTH", "put user and password into the URL")
		call{redis: "redis://:false@" + srv.Addr()}.want(t, code, words(word), "WRONGPASS", "!false")
	}
	call{redis: "redis://:geheim@" + srv.Addr()}.want(t, done, words("ls"), "no locks")
	srv.Freeze(t)
	defer srv.Thaw(t)
	begin := time.Now()
	call{redis: "redis://:geheim@" + srv.Addr()}.want(t, redisFailed, words("ls --timeout 50ms"), srv.Addr())
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a timeout of 50ms takes %s", took)
	}
}

// newLocks returns a lock client whose owners begin with the process name.
func newLocks(t *testing.T, rdb redis.UniversalClient, process string) *core.Client {
	t.Helper()
	locks, err := core.New(rdb, core.Options{ClientID: process, Logger: slog.New(slog.DiscardHandler), WatchdogTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func hold(t *testing.T, l core.Locker) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// topologies are the ways to run Redis, with the URL of each.
var topologies = map[string]func(t *testing.T) (redis.UniversalClient, string){
	"single": func(t *testing.T) (redis.UniversalClient, string) {
		srv := redistest.Start(t)
		return srv.Client(t), srv.URL()
	},
	"sentinel": func(t *testing.T) (redis.UniversalClient, string) {
		s := redistest.StartSentinel(t, 1)
		rdb := s.Client(t)
		var name string
		for _, field := range s.Sentinels[0].Client(t).Do(t.Context(), "SENTINEL", "MASTERS").Val().([]any) {
			name = field.(map[any]any)["name"].(string)
		}
		return rdb, "redis+sentinel://" + s.Sentinels[0].Addr() + "?addr=" + s.Sentinels[1].Addr() + "&master_name=" + name
	},
	"cluster": func(t *testing.T) (redis.UniversalClient, string) {
		c := redistest.StartCluster(t)
		return c.Client(t), "redis+cluster://" + c.Servers[0].Addr() + "?addr=" + c.Servers[1].Addr()
	},
}

// Every command works on every kind of Redis, with a lock of Redisson beside ours.
func TestCommands(t *testing.T) {
	t.Parallel()
	for where, start := range topologies {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb, url := start(t)
			locks := newLocks(t, rdb, "web-1.4242")
			lease := hold(t, locks.Lock("order:42"))
			defer lease.Release(context.Background())
			if err := rdb.HSet(t.Context(), "order:43", jvm+":57", 1).Err(); err != nil {
				t.Fatal(err)
			}
			if err := rdb.PExpire(t.Context(), "order:43", time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			at := call{redis: url}
			at.want(t, done, words("ls order:"), "web-1.4242.", "Redisson "+jvm)
			if r := at.want(t, done, words("ls --limit 1"), "order:42"); !strings.HasPrefix(r.err, "there are more than 1 lock; ") {
				t.Errorf("a list that is cut says %s", r.err)
			}
			var cut inspect.Listing
			if err := json.Unmarshal([]byte(at.want(t, done, words("ls --limit 1 --json")).out), &cut); err != nil || !cut.Truncated || len(cut.Locks) != 1 {
				t.Errorf("%+v, %v", cut, err)
			}
			at.want(t, done, words("show order:42"), "host web-1, pid 4242")
			at.want(t, done, words("show order:43"), "Redisson, thread 57")
			at.want(t, done, []string{"run", "order:45", "--fenced", "--", "sh", "-c", "echo token $REQLOCK_TOKEN"}, "token 1")
			at.want(t, done, words("run order:46 --limit 2 --fair=false -- true"))
			at.want(t, notHeld, words("show order:44"), `no such lock: "order:44"`, "!"+where)
			at.want(t, done, words("bench --for 100ms --callers 3"), "round trips", "of 3 callers", "p99 ")
			var m measurement
			if err := json.Unmarshal([]byte(at.want(t, done, words("bench --for 100ms --json")).out), &m); err != nil || m.RoundTrips == 0 || m.P50 <= 0 || m.P99 < m.P50 {
				t.Errorf("%+v, %v", m, err)
			}
			at.want(t, done, words("doctor"), "ok    version", "ok    locks", "2 locks held or queued for, none without a TTL", "!fail ")
			if n := rdb.Exists(t.Context(), "reqlock:ping").Val(); n != 0 {
				t.Error("the doctor has left a key")
			}
		})
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	replicas := redistest.StartReplicas(t, 1)
	cluster := redistest.StartCluster(t)
	good := redistest.Start(t, "appendonly yes", "maxmemory 500mb")
	evicts := redistest.Start(t, "maxmemory 500mb", "maxmemory-policy allkeys-lru")
	lazy := redistest.Start(t, "maxmemory-policy volatile-ttl")
	// Redisson gives permits for ever unless it is asked for a lease, so that is no fault.
	if err := errors.Join(lazy.Client(t).Set(t.Context(), "export", 0, 0).Err(), lazy.Client(t).ZAdd(t.Context(), core.KeysOf("export").Taken,
		redis.Z{Score: 922337203685477, Member: "\x00\xff\r\n:{}%\x7f\x80ABCDEF"}).Err()); err != nil {
		t.Fatal(err)
	}
	lacking := redistest.Start(t, `rename-command LPOS ""`)
	full := redistest.Start(t, "maxmemory-policy noeviction")
	if err := errors.Join(full.Client(t).Set(t.Context(), "other", "x", 0).Err(), full.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err()); err != nil {
		t.Fatal(err)
	}
	torn := redistest.StartCluster(t)
	if err := torn.Masters(t)[1].Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	denied := redistest.Start(t)
	if err := denied.Client(t).Do(t.Context(), "ACL", "SETUSER", "orders", "on", ">secret", "~*", "&*", "+@all", "-pexpire").Err(); err != nil {
		t.Fatal(err)
	}
	stuck := redistest.Start(t)
	if err := stuck.Client(t).HSet(t.Context(), "order:42", jvm+":1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		url   string
		code  int
		texts []string
	}{
		"good": {good.URL(), done, []string{"ok    eviction     maxmemory-policy noeviction", "ok    persistence  append-only file",
			"ok    clock        within 2ms", "ok    replication  no replica", "0 locks"}},
		"evicts":  {evicts.URL(), redisFailed, []string{"fail  eviction", "may evict locks", "fencing tokens first", "CONFIG SET maxmemory-policy noeviction", "1 check failed"}},
		"lazy":    {lazy.URL(), done, []string{"warn  eviction", "no effect as long as maxmemory is 0", "warn  persistence", "ok    stuck        1 lock held"}},
		"lacking": {lacking.URL(), redisFailed, []string{"fail  locks", "lacks commands that locks need: LPOS (for fair)", "use Redis 6.2"}},
		"full": {full.URL(), redisFailed, []string{"fail  memory", "1 B; 1 key, and 0 names of locks", "fail  locks", "Redis is out of memory",
			"-> raise maxmemory of Redis", "!grant"}},
		"denied": {strings.Replace(denied.URL(), "redis://", "redis://orders:secret@", 1), redisFailed, []string{"fail  locks", "ACL SETUSER orders +pexpire",
			"-> grant what the error says"}},
		"a full master": {"redis+cluster://" + torn.Servers[0].Addr(), redisFailed, []string{
			"fail  locks        " + torn.Masters(t)[1].Addr() + ": Redis is out of memory", "ok    locks        " + torn.Masters(t)[0].Addr() + ": a lock can be",
			"fail  memory       " + torn.Masters(t)[1].Addr()}},
		"stuck":       {stuck.URL(), redisFailed, []string{"fail  stuck", "1 lock held without a TTL, so forever: order:42", "reqlock unlock"}},
		"master":      {replicas.Master.URL(), done, []string{"ok    replication  1 replica; a failover may lose"}},
		"replica":     {replicas.Replicas[0].URL(), redisFailed, []string{"fail  replication", "read-only replica of 127.0.0.1", "fail  locks"}},
		"a node":      {cluster.Masters(t)[0].URL(), redisFailed, []string{"fail  topology", "use redis+cluster://", "warn  locks        not tried", "!ok    locks"}},
		"the cluster": {"redis+cluster://" + cluster.Servers[0].Addr(), done, []string{"ok    topology     127.0.0.1:", "sharded pub/sub", "1 replica"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call{redis: test.url}.want(t, test.code, words("doctor"), test.texts...)
			var findings []finding
			if err := json.Unmarshal([]byte(call{redis: test.url}.run(t.Context(), "doctor", "--json").out), &findings); err != nil {
				t.Fatal(err)
			}
			if failed := failures(findings) > 0; failed != (test.code == redisFailed) {
				t.Errorf("%+v", findings)
			}
			for _, f := range findings {
				if name == "good" && f.Status != ok && f.Check != "latency" { // which tells of a busy machine
					t.Errorf("%+v", f)
				}
			}
		})
	}
	call{redis: cluster.Masters(t)[0].URL()}.want(t, redisFailed, words("show order:1"), "node of a cluster", "redis+cluster://")
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	healthy := redisinfo.Info{"redis_version": "7.2.0", "maxmemory_policy": "noeviction", "aof_enabled": "1", "role": "master", "redis_mode": "standalone"}
	for name, test := range map[string]struct {
		change redisinfo.Info
		check  string
		want   verdict
	}{
		"old":               {redisinfo.Info{"redis_version": "6.0.16"}, "version", warn},
		"no version":        {redisinfo.Info{"redis_version": ""}, "version", warn},
		"oldest":            {redisinfo.Info{"redis_version": "6.2.0"}, "version", ok},
		"Dragonfly":         {redisinfo.Info{"dragonfly_version": "df-v1.27.1"}, "version", warn},
		"not persistent":    {redisinfo.Info{"aof_enabled": "0"}, "persistence", warn},
		"policy unknown":    {redisinfo.Info{"maxmemory_policy": ""}, "eviction", warn},
		"Valkey":            {redisinfo.Info{"valkey_version": "8.0.1"}, "version", ok},
		"loading":           {redisinfo.Info{"loading": "1"}, "persistence", fail},
		"no snapshot":       {redisinfo.Info{"rdb_last_bgsave_status": "err"}, "persistence", fail},
		"no append":         {redisinfo.Info{"aof_last_write_status": "err"}, "persistence", fail},
		"full":              {redisinfo.Info{"used_memory": "90", "maxmemory": "100"}, "memory", warn},
		"over its limit":    {redisinfo.Info{"used_memory": "100", "maxmemory": "100"}, "memory", fail},
		"not full":          {redisinfo.Info{"used_memory": "89", "maxmemory": "100"}, "memory", ok},
		"many clients":      {redisinfo.Info{"connected_clients": "80", "maxclients": "100"}, "clients", warn},
		"fewer clients":     {redisinfo.Info{"connected_clients": "79", "maxclients": "100"}, "clients", ok},
		"refused":           {redisinfo.Info{"rejected_connections": "1"}, "clients", warn},
		"a replica":         {redisinfo.Info{"role": "slave"}, "replication", fail},
		"evicts":            {redisinfo.Info{"maxmemory": "1", "maxmemory_policy": "volatile-lru"}, "eviction", fail},
		"evicts, no limit":  {redisinfo.Info{"maxmemory_policy": "volatile-lru"}, "eviction", warn},
		"a node of cluster": {redisinfo.Info{"cluster_enabled": "1"}, "topology", fail},
	} {
		i := make(redisinfo.Info)
		for k, v := range healthy {
			i[k] = v
		}
		for k, v := range test.change {
			i[k] = v
		}
		for _, f := range diagnose(i, false) {
			switch {
			case f.Check == test.check && f.Status != test.want:
				t.Errorf("%s: %+v, want %s", name, f, test.want)
			case f.Check != test.check && f.Status == fail:
				t.Errorf("%s: %+v", name, f)
			case f.Status != ok && f.Change == "":
				t.Errorf("%s: %+v says not what to change", name, f)
			}
		}
	}
}

// What the program says to a user who lacks permissions.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	fill(t, rdb)
	user := func(name string, rules ...any) call {
		t.Helper()
		if err := rdb.Do(t.Context(), append([]any{"ACL", "SETUSER", name, "on", ">geheim"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		return call{redis: "redis://" + name + ":geheim@" + srv.Addr()}
	}
	// The user of docs/guides/operations.md, which programs use, may not look at all keys.
	program := user("program", words2(aclRules(t, "operations.md", "orders"))...)
	program.want(t, redisFailed, words("ls"), "NOPERM", "docs/guides/commands.md", "!geheim")
	program.want(t, done, words("doctor"), "ok    locks", "warn  settings", "permit INFO", "warn  permissions", "ACL SETUSER program ~{reqlock:*", "warn  stuck", "cannot be listed", "!fail ")
	// It runs commands under plain locks, and the user of docs/guides/redisson.md under all kinds.
	lease := hold(t, newLocks(t, rdb, "web-1.4242").Lock("reqlock:nightly"))
	program.want(t, notAcquired, words("run reqlock:nightly -- true"), "reqlock:nightly is held by others")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	program.want(t, done, words("run reqlock:nightly -- true"))
	program.want(t, unavailable, words("run nightly -- true"), "NOPERM", "docs/guides/operations.md", "!docs/guides/commands.md")
	jobs := user("jobs", words2(aclRules(t, "redisson.md", "orders"))...)
	for _, options := range []string{"", "--fair", "--fenced", "--limit 2"} {
		jobs.want(t, done, words("run order:nightly "+options+" -- true"))
	}
	// The user of docs/guides/commands.md may look, and no more.
	reader := user("reader", words2(aclRules(t, "commands.md", "reader"))...)
	reader.want(t, done, words("ls"), "order:42", "fenced")
	reader.want(t, done, words("show order:44"), "2 waiters")
	reader.want(t, done, words("show export:pdf"), "3 of 5 permits taken")
	reader.want(t, redisFailed, words("unlock order:42 --yes --reason test"), "NOPERM")
	// The operator of docs/guides/commands.md may unlock.
	operator := user("operator", words2(aclRules(t, "commands.md", "operator"))...)
	operator.want(t, done, words("unlock order:42 --yes --reason test"), "order:42 is free")
	operator.want(t, done, words("unlock order:44 --yes --reason test"), "order:44 is free")
	operator.want(t, done, words("unlock order:45 --yes --reason test"), "order:45 is free")
	operator.want(t, done, words("unlock order:48 --yes --reason test"), "order:48 is free")
	operator.want(t, done, words("unlock export:xls --yes --reason test"), "export:xls is free")
	if free := rdb.Get(t.Context(), "export:xls").Val(); free != "1" {
		t.Errorf("%s permits are free, want 1", free)
	}
	operator.want(t, done, words("doctor"), "ok    locks", "!unknown", "!fail ")
	// Redis denies a command within a script in other words.
	limited := user("limited", words2(aclRules(t, "commands.md", "operator")+" -hdel -del")...)
	limited.want(t, redisFailed, words("unlock order:43 --yes --reason test"), "docs/guides/commands.md", "script")

	blind := user("blind", words2("~* -@all +@read +hello +client +ping +time")...)
	blind.want(t, done, words("ls order:46"), "?")
	blind.want(t, done, words("show order:47"), "unknown: this user may not run PUBSUB NUMSUB")
}

func words2(line string) (all []any) {
	for _, w := range words(line) {
		all = append(all, w)
	}
	return all
}

// aclRules returns the rules of a user in a page of docs.
func aclRules(t *testing.T, page, user string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(text), "\nACL SETUSER "+user+" on >secret ")
	if !found {
		t.Fatalf("docs/guides/%s has no user %s", page, user)
	}
	line, _, _ = strings.Cut(line, "\n")
	return line
}

// Ctrl-C ends every command at once, also while Redis does not answer.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := srv.Proxy(t)
	for _, line := range []string{"ls", "show a", "unlock a --yes --reason b", "doctor", "bench"} {
		t.Run(line, func(t *testing.T) {
			cmd := program("redis://"+proxy.Addr(), words(line)...)
			silence := proxy.On("", 1, redistest.HoldRequest)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-silence.Hit()
			begin := time.Now()
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != interrupted {
				t.Errorf("exit code %d", code)
			}
			if took := time.Since(begin); took > patience+3*time.Second {
				t.Errorf("it takes %s", took)
			}
		})
	}
}

// Ctrl-C ends a measurement, which prints what it has measured until then.
func TestBench_Interrupted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, form := range []string{"", " --json"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			proxy := srv.Proxy(t)
			running := proxy.On("", 50, redistest.Delay(time.Millisecond))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-running.Hit()
				cancel()
			}()
			args := words("bench --for 10m" + form)
			r := call{redis: "redis://" + proxy.Addr()}.run(ctx, args...)
			want := "round trips"
			if form != "" {
				want = `"round_trips"`
			}
			r.check(t, interrupted, args, want)
			if r.err != "" {
				t.Errorf("it prints on stderr %s", r.err)
			}
		})
	}
}

// Without a terminal, watch prints a line for each change, through an outage too.
func TestWatch_Lines(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newLocks(t, srv.Client(t), "web-1.4242")
	cmd := program(srv.URL(), words("watch order: --every 20ms --timeout 10s --json")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := hold(t, locks.Lock("order:41"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(event, name string) change {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("no line, want %s %s", event, name)
		}
		var c change
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Event != event || name != "" && (c.Lock == nil || c.Lock.Name != name) {
			t.Errorf("%s, want %s %s", lines.Text(), event, name)
		}
		return c
	}
	next("held", "order:41")
	lease := hold(t, locks.Lock("order:42"))
	if c := next("held", "order:42"); !c.Lock.Held() || !strings.HasPrefix(c.Lock.Holders[0].Client, "web-1.4242.") {
		t.Errorf("%+v", c)
	}
	if _, err := locks.Lock("order:42").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lease.Done()
	if c := next("freed", "order:42"); c.Lock.Held() {
		t.Errorf("%+v", c)
	}
	before.Release(t.Context())
	next("freed", "order:41")
	srv.Kill(t)
	if c := next("failed", ""); c.Error == "" {
		t.Errorf("%+v", c)
	}
	srv.Restart(t)
	next("answers", "")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

func TestWatch_Text(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := &session{app: &app{out: &b}}
	v := &lineViewer{write: s.textLine}
	at := time.Date(2026, 11, 24, 3, 0, 0, 0, time.FixedZone("CET", 3600))
	lock := inspect.Lock{Name: "order:42", Kind: "lock", Holders: []inspect.Holder{{Owner: web1 + ":1", Client: web1, Count: 1}}}
	passed := inspect.Lock{Name: "order:42", Kind: "lock", Holders: []inspect.Holder{{Owner: web2 + ":1", Client: web2, Count: 1}}}
	// A permit more, one less, all of them, and fewer permits.
	permits := func(most int64, owners ...string) inspect.Lock {
		l := inspect.Lock{Name: "export", Kind: "semaphore", Semaphore: &inspect.Semaphore{Permits: most, Taken: int64(len(owners)), Free: most - int64(len(owners))}}
		for _, o := range owners {
			l.Holders = append(l.Holders, inspect.Holder{Owner: o + ":1", Client: o, Count: 1})
		}
		return l
	}
	awaited := passed
	awaited.Listeners, awaited.Holders = 2, []inspect.Holder{{Owner: web2 + ":1", Client: web2, Count: 3}}
	for _, p := range []picture{
		{at: at},
		{at: at, locks: []inspect.Lock{lock}},
		{at: at, locks: []inspect.Lock{lock}},
		{at: at, locks: []inspect.Lock{passed}},
		{at: at, locks: []inspect.Lock{awaited}},
		{at: at, err: context.DeadlineExceeded},
		{at: at, err: context.DeadlineExceeded},
		{at: at},
		{at: at, locks: []inspect.Lock{{Name: "order:43", Kind: "fair", Queue: []inspect.Waiter{{Place: 1}}}}},
		{at: at, locks: []inspect.Lock{lock}, more: true},
		{at: at, locks: []inspect.Lock{lock}, more: true},
		{at: at, locks: []inspect.Lock{lock}},
		{at: at, locks: []inspect.Lock{permits(3, web1)}},
		{at: at, locks: []inspect.Lock{permits(3, web1, web2)}},
		{at: at, locks: []inspect.Lock{permits(3, web1, web2)}},
		{at: at, locks: []inspect.Lock{permits(2, web1, web2)}},
		{at: at, locks: []inspect.Lock{permits(2, web2)}},
		{at: at},
	} {
		v.show(p)
	}
	golden(t, "watch_lines", b.String())
}

// A list that is empty because of its prefix is no all-clear, and a name that is not found may lack
// the prefix of guards.
func TestNearby(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	for _, name := range []string{"reqlock:order:41", "reqlock:order:42", "job:9"} {
		if err := rdb.HSet(t.Context(), name, web1+":7", 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	at := call{redis: srv.URL()}
	at.want(t, notHeld, words("ls order:"), "no locks begin with order:; 2 begin with reqlock:order:")
	at.want(t, notHeld, words("ls order: --limit 1"), "no locks begin with order:; more than 1 begin with reqlock:order:")
	at.want(t, notHeld, words("ls order:41"), "no locks begin with order:41; 1 begins with reqlock:order:41")
	at.want(t, notHeld, words("ls reqlock:job:"), "no locks begin with reqlock:job:; 1 begins with job:")
	if r := at.want(t, done, words("ls other:"), "no locks begin with other:", "!;"); r.out != "" {
		t.Errorf("an empty list prints %q", r.out)
	}
	r := at.run(t.Context(), words("ls order: --json")...)
	var listing inspect.Listing
	if err := json.Unmarshal([]byte(r.out), &listing); err != nil || len(listing.Locks) != 0 || listing.Locks == nil || r.code != notHeld {
		t.Errorf("%+v, %v", r, err)
	}
	for _, word := range []string{"show", "unlock --yes --reason test"} {
		at.want(t, notHeld, words(word+" order:42"), `no such lock: "order:42"; reqlock:order:42 is there, held by `+web1)
		at.want(t, notHeld, words(word+" reqlock:job:9"), `no such lock: "reqlock:job:9"; job:9 is there, held by `+web1)
		at.want(t, notHeld, words(word+" other"), `no such lock: "other"`, "!is there")
		at.want(t, notHeld, words(word+" reqlock:"), `no such lock: "reqlock:"`, "!is there")
	}
	if n := rdb.Exists(t.Context(), "reqlock:order:42", "job:9").Val(); n != 2 {
		t.Error("unlock has freed a lock that was not named")
	}
}

// The scripts complete commands, options and shells. Bash runs its script; the others name the same.
func TestCompletion(t *testing.T) {
	t.Parallel()
	bash := call{}.want(t, done, words("completion bash")).out
	zsh := call{}.want(t, done, words("completion zsh"), "bashcompinit").out
	if !strings.HasSuffix(zsh, bash) {
		t.Error("zsh gets another script")
	}
	complete := func(line string) string {
		t.Helper()
		cmd := exec.Command("bash", "--norc", "-c", bash+`COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _reqlock; echo "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, strings.Split(line, " ")...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return strings.TrimSpace(string(out))
	}
	for line, want := range map[string]string{
		"reqlock un": "unlock", "reqlock unlock --ow": "--owner", "reqlock unlock a --y": "--yes", "reqlock completion z": "zsh",
		"reqlock run a --on": "--on-lost", "reqlock run a -- true --on": "", "reqlock ls order": "", "reqlock version --": "--json",
	} {
		if got := complete(line); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
	if got := complete("reqlock run a -- tru"); !slices.Contains(words(got), "true") {
		t.Errorf("a command under a lock is completed by %q", got)
	}
	fish := call{}.want(t, done, words("completion fish")).out
	for _, e := range entries {
		if !strings.Contains(fish, "-a "+e.name+" -d '"+e.summary+"'") {
			t.Errorf("fish does not know %s", e.name)
		}
		e.options(new(session), func(f *flag.Flag) {
			if !strings.Contains(fish, "__fish_seen_subcommand_from "+e.name+"' -l "+f.Name) {
				t.Errorf("fish does not know --%s of %s", f.Name, e.name)
			}
		})
	}
}
