package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/redisacl"
	"github.com/reqlock/reqlock/internal/redisclient"
	"github.com/reqlock/reqlock/internal/redisinfo"
)

// doctor is reqlock doctor.
type doctor struct{ samples int }

func (c *doctor) flags(fs *flag.FlagSet) {
	fs.IntVar(&c.samples, "samples", 100, "how many `commands` to time")
}

// A verdict is the result of a check.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn"
	fail verdict = "fail"
)

// A finding is one line of the doctor.
type finding struct {
	Check  string  `json:"check"`
	Status verdict `json:"status"`
	// Server names a node of a cluster.
	Server  string `json:"server,omitempty"`
	Finding string `json:"finding"`
	// Change says what to do.
	Change string `json:"change,omitempty"`
}

func (c *doctor) run(ctx context.Context, s *session, _ []string) error {
	if c.samples < 1 {
		return usageError("--samples is %d; use at least 1", c.samples)
	}
	return s.with(func(rdb *client) error {
		findings, err := c.examine(ctx, s, rdb)
		if err != nil {
			return err
		}
		if s.json {
			err = s.print(findings)
		} else {
			s.report(findings)
		}
		if n := failures(findings); n > 0 && err == nil {
			return &exitError{redisFailed, fmt.Sprintf("%s: %s failed", rdb, count(n, "check"))}
		}
		return err
	})
}

func failures(findings []finding) (n int64) {
	for _, f := range findings {
		if f.Status == fail {
			n++
		}
	}
	return n
}

func (s *session) report(findings []finding) {
	styles := map[verdict]style{ok: green, warn: amber, fail: red}
	t := &table{}
	var changes []string
	for _, f := range findings {
		text := f.Finding
		if f.Server != "" {
			text = f.Server + ": " + text
		}
		t.add(cell{string(f.Status), styles[f.Status]}, cell{f.Check, plain}, cell{text, plain})
		changes = append(changes, f.Change)
	}
	for i, line := range t.lines(s.screen, 0) {
		fmt.Fprintln(s.out, line)
		if changes[i] != "" {
			fmt.Fprintf(s.out, "      %s %s\n", s.screen.paint(dim, "->"), changes[i])
		}
	}
}

// examine makes all checks. Only a Redis that does not answer at all is an error.
func (c *doctor) examine(ctx context.Context, s *session, rdb *client) ([]finding, error) {
	bound, cancel := s.bound(ctx)
	defer cancel()
	if err := rdb.Ping(bound).Err(); err != nil {
		return nil, err
	}
	all := []finding{{Check: "connection", Status: ok, Finding: rdb.String()}}
	nodes, err := servers(bound, rdb)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		all = append(all, c.server(ctx, s, n)...)
	}
	if slices.ContainsFunc(all, func(f finding) bool { return f.Check == "topology" && f.Status == fail }) {
		all = append(all, finding{Check: "locks", Status: warn, Finding: "not tried: some keys of a lock would be elsewhere, see topology"})
	} else {
		all = append(all, permissions(ctx, s, rdb, nodes)...)
	}
	countKeys(ctx, s, rdb, nodes, all)
	all = append(all, reading(ctx, s, rdb)...)
	if rdb.kind == "cluster" {
		all = append(all, shardedChannels(ctx, s, rdb))
	}
	return all, ctx.Err()
}

// A server is a Redis server to examine.
type server struct {
	redis.Cmdable
	// name is empty if there is only one server.
	name string
}

// servers returns the server, or the masters of a cluster.
func servers(ctx context.Context, rdb *client) ([]server, error) {
	conn, err := redisclient.Of(rdb.UniversalClient)
	if err != nil {
		return nil, err
	}
	masters, err := conn.Masters(ctx)
	var all []server
	for _, node := range masters {
		name := ""
		if conn.Cluster != nil {
			name = node.Options().Addr
		}
		all = append(all, server{node, name})
	}
	slices.SortFunc(all, func(a, b server) int { return strings.Compare(a.name, b.name) })
	return all, err
}

// server makes the checks of one server.
func (c *doctor) server(ctx context.Context, s *session, n server) []finding {
	bound, cancel := s.bound(ctx)
	defer cancel()
	all := []finding{c.latency(bound, n), clock(bound, n)}
	text, err := n.Info(bound, "everything").Result()
	if err != nil {
		all = append(all, finding{Check: "settings", Status: warn, Finding: "unknown: " + bare(err),
			Change: "permit INFO to see version, eviction, memory, persistence and replication"})
	} else {
		all = append(all, diagnose(redisinfo.Parse(text), n.name != "")...)
	}
	for i := range all {
		all[i].Server = n.name
	}
	return all
}

// Latencies above these are too long.
const (
	slow     = 50 * time.Millisecond
	tooSlow  = time.Second // a third of CommandTimeout's default
	badClock = time.Second
)

// latency times commands.
func (c *doctor) latency(ctx context.Context, n server) finding {
	f := finding{Check: "latency", Status: ok}
	times := make([]time.Duration, c.samples)
	for i := range times {
		begin := time.Now()
		if err := n.Ping(ctx).Err(); err != nil {
			f.Status, f.Finding, f.Change = fail, bare(err), "check the load of Redis and the network"
			return f
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	last := len(times) - 1
	p99 := times[last*99/100]
	f.Finding = fmt.Sprintf("p50 %.2fms, p99 %.2fms, max %.2fms of %s", ms(times[last/2]), ms(p99), ms(times[last]), count(int64(len(times)), "command"))
	if p99 > slow {
		f.Status, f.Change = warn, "each lock costs two round trips: check SLOWLOG, the load of Redis and the network"
	}
	if p99 > tooSlow {
		f.Status = fail
	}
	return f
}

// clock compares the clocks, by the fastest of a few answers.
func clock(ctx context.Context, n server) finding {
	f := finding{Check: "clock", Status: ok}
	var skew, shortest time.Duration
	for range 10 {
		begin := time.Now()
		at, err := n.Time(ctx).Result()
		if err != nil {
			f.Status, f.Finding, f.Change = warn, "unknown: "+bare(err), "permit TIME to compare the clocks"
			return f
		}
		if took := time.Since(begin); shortest == 0 || took < shortest {
			shortest, skew = took, at.Sub(begin.Add(took/2))
		}
	}
	f.Finding = apart(skew) + " of the clock here"
	if skew.Abs() > badClock {
		f.Status = warn
		f.Change = "synchronize the clocks (NTP): Redisson stores the deadlines of a fair lock's queue by its own clock"
	}
	return f
}

func apart(skew time.Duration) string {
	switch d := skew.Abs().Round(time.Millisecond); {
	case d < 2*time.Millisecond:
		return "within 2ms"
	case skew > 0:
		return fmt.Sprint(d, " ahead")
	default:
		return fmt.Sprint(d, " behind")
	}
}

// permissions uses a lock on each master, and says which kinds of locks the user cannot use.
func permissions(ctx context.Context, s *session, rdb *client, masters []server) (all []finding) {
	var warnings []core.Warning
	locks, closeLocks, err := s.locks(rdb)
	if err == nil {
		defer closeLocks()
		bound, cancel := s.bound(ctx)
		defer cancel()
		err = locks.Ping(bound)
		warnings = locks.Warnings()
	}
	// general is the error that no master in particular has.
	var general error
	failed := make(map[string]error)
	for _, one := range partsOf(err) {
		i := slices.IndexFunc(masters, func(m server) bool { return m.name != "" && strings.HasPrefix(bare(one), m.name+": ") })
		if i < 0 {
			general = one
			continue
		}
		failed[masters[i].name] = one
	}
	if general != nil {
		all = append(all, lockFault("", general))
	} else {
		for _, m := range masters {
			f := finding{Check: "locks", Status: ok, Server: m.name, Finding: "a lock can be acquired, released, announced and awaited"}
			if err := failed[m.name]; err != nil {
				f = lockFault(m.name, err)
			}
			all = append(all, f)
		}
	}
	for _, w := range warnings {
		if w.Check == "permissions" { // the doctor has checks of its own for the others
			all = append(all, finding{Check: w.Check, Status: warn, Server: w.Server, Finding: w.Finding, Change: w.Change})
		}
	}
	return all
}

// partsOf returns the errors of all masters, if err has them; otherwise err itself.
func partsOf(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// lockFault is the finding that a lock does not work. What to change follows from the error.
func lockFault(where string, err error) finding {
	f := finding{Check: "locks", Status: fail, Server: where, Finding: strings.TrimPrefix(bare(err), where+": "), Change: "do what the error says"}
	var known interface{ Remedy() string }
	switch {
	case errors.As(err, &known):
		f.Change = known.Remedy()
		f.Finding = strings.ReplaceAll(f.Finding, " ("+f.Change+")", "")
	case redisacl.Denied(err):
		f.Change = "grant what the error says; docs/guides/operations.md lists all under Access"
	}
	return f
}

// countKeys adds to findings about memory that is nearly full how many keys are of locks: what fills a
// server may be something else.
func countKeys(ctx context.Context, s *session, rdb *client, masters []server, all []finding) {
	bound, cancel := s.bound(ctx)
	defer cancel()
	ours := sync.OnceValues(func() (string, error) {
		names, more, err := inspect.List(bound, rdb.UniversalClient, inspect.ListOptions{Limit: mostRead, Free: true})
		most := ""
		if more {
			most = "more than "
		}
		return fmt.Sprintf("%s%d names of locks, records and counters", most, len(names)), err
	})
	for _, m := range masters {
		i := slices.IndexFunc(all, func(f finding) bool { return f.Check == "memory" && f.Server == m.name && f.Status != ok })
		if i < 0 {
			continue
		}
		keys, err := m.DBSize(bound).Result()
		if err != nil {
			continue
		}
		if names, err := ours(); err == nil {
			all[i].Finding += fmt.Sprintf("; %s, and %s", count(keys, "key"), names)
			if m.name != "" {
				all[i].Finding += " in the cluster"
			}
		}
	}
}

// mostRead is how many names of locks the doctor reads.
const mostRead = 10_000

// reading lists locks, and finds those that never expire, and fair locks that no one takes.
func reading(ctx context.Context, s *session, rdb *client) []finding {
	f := finding{Check: "stuck", Status: ok}
	bound, cancel := s.bound(ctx)
	defer cancel()
	locks, more, err := inspect.List(bound, rdb.UniversalClient, inspect.ListOptions{Limit: mostRead})
	if err != nil {
		f.Status, f.Finding = warn, "locks cannot be listed: "+bare(err)
		f.Change = "grant what docs/guides/commands.md lists, if reqlock ls should work for this user"
		return []finding{f}
	}
	var forever []string
	for i := range locks {
		if locks[i].TTL < 0 && locks[i].Semaphore == nil { // Redisson gives permits for ever, unless it is asked for a lease.
			forever = append(forever, printable(locks[i].Name))
		}
	}
	if len(forever) > 0 {
		f.Status = fail
		f.Finding = fmt.Sprintf("%s held without a TTL, so forever: %s", count(int64(len(forever)), "lock"),
			strings.Join(forever[:min(3, len(forever))], ", "))
		f.Change = "free each with reqlock unlock NAME, and find the program that has written it"
		return append(stalledQueues(locks), f)
	}
	f.Finding = fmt.Sprintf("%s held or queued for, none without a TTL", count(int64(len(locks)), "lock"))
	if more {
		f.Finding = "more than " + f.Finding
	}
	return append(stalledQueues(locks), f)
}

// stalledQueues finds fair locks that are free while the first in their queue does not take them.
func stalledQueues(locks []inspect.Lock) (all []finding) {
	for i := range locks {
		if l := &locks[i]; l.Stalled {
			f := finding{
				Check: "queue", Status: fail,
				Finding: fmt.Sprintf("%s is free, and %s wait; %s, first in the queue, is %s", printable(l.Name),
					count(int64(len(l.Queue))+l.MoreQueue, "waiter"), firstInQueue(l), l.Stall()),
				Change: "resume or restart that process, or drop it: " + dropCommand(l),
			}
			if l.Queue[0].Absent { // a waiter that lives skips it
				f.Status, f.Change = warn, "wait, or drop it: "+dropCommand(l)
			}
			all = append(all, f)
		}
	}
	return all
}

func shardedChannels(ctx context.Context, s *session, rdb *client) finding {
	bound, cancel := s.bound(ctx)
	defer cancel()
	err := redisclient.CheckSharded(bound, rdb)
	if answer := redis.Error(nil); err != nil && errors.As(err, &answer) {
		return finding{Check: "channels", Status: warn, Finding: "no sharded pub/sub: " + bare(err),
			Change: "every release goes to every node; use Redis 7.0 or newer for that, and permit pubsub|shardnumsub, spublish, ssubscribe"}
	} else if err != nil {
		return finding{Check: "channels", Status: warn, Finding: bare(err)}
	}
	return finding{Check: "channels", Status: ok, Finding: "releases are announced by sharded pub/sub"}
}

// diagnose checks what a server says about itself.
func diagnose(i redisinfo.Info, cluster bool) []finding {
	return []finding{
		checkVersion(i), checkTopology(i, cluster), checkEviction(i), checkMemory(i), checkPersistence(i), checkReplication(i), checkClients(i),
	}
}

// checkVersion names the server. Whether it has all that locks need is a question for Client.Ping.
func checkVersion(i redisinfo.Info) finding {
	f := finding{Check: "version", Status: ok, Finding: i.Server()}
	if i["dragonfly_version"] != "" {
		f.Status, f.Change = warn, "locks are not tested on Dragonfly: use Redis 6.2 or newer, Valkey or KeyDB"
		return f
	}
	var major, minor int
	if n, _ := fmt.Sscanf(i["redis_version"], "%d.%d", &major, &minor); n < 2 || major < 6 || major == 6 && minor < 2 {
		f.Status, f.Change = warn, "use Redis 6.2 or newer, Valkey or KeyDB: older versions are not supported"
	}
	return f
}

func checkTopology(i redisinfo.Info, cluster bool) finding {
	f := finding{Check: "topology", Status: ok, Finding: i["redis_mode"]}
	if i.Number("cluster_enabled") == 1 && !cluster {
		f.Status, f.Finding = fail, "this server is a node of a cluster"
		f.Change = "use redis+cluster:// here, and redis.NewClusterClient in programs"
	}
	return f
}

func checkEviction(i redisinfo.Info) finding {
	f := finding{Check: "eviction", Status: ok, Finding: "maxmemory-policy " + i["maxmemory_policy"]}
	if i["maxmemory_policy"] == "" {
		f.Status, f.Finding, f.Change = warn, "maxmemory-policy could not be read", "check that it is noeviction"
	}
	if r := i.Eviction(); r != nil {
		f.Status, f.Finding, f.Change = warn, r.Finding, r.Change
		if r.Serious {
			f.Status = fail
		}
	}
	if n := i.Number("evicted_keys"); n > 0 {
		f.Finding += fmt.Sprintf("; %s evicted since the start", count(n, "key"))
	}
	return f
}

func checkMemory(i redisinfo.Info) finding {
	used, most := i.Number("used_memory"), i.Number("maxmemory")
	f := finding{Check: "memory", Status: ok, Finding: size(used) + " used, without a limit"}
	if most > 0 {
		f.Finding = fmt.Sprintf("%s used of %s", size(used), size(most))
		switch {
		case used >= most:
			f.Status, f.Change = fail, "raise maxmemory, or free memory: no lock can be acquired until then"
		case used*10 >= most*9:
			f.Status, f.Change = warn, "raise maxmemory, or free memory: when it is full, no lock can be acquired"
		}
	}
	return f
}

func checkPersistence(i redisinfo.Info) finding {
	f := finding{Check: "persistence", Status: ok, Finding: "append-only file"}
	switch {
	case i.Number("loading") == 1:
		f.Status, f.Finding, f.Change = fail, "Redis is loading its data", "wait; if it takes long, check the log of Redis"
	case i["aof_enabled"] == "1" && i["aof_last_write_status"] == "err":
		f.Status, f.Finding, f.Change = fail, "the append-only file cannot be written", "check the disk and the log of Redis"
	case i["rdb_last_bgsave_status"] == "err":
		f.Status, f.Finding, f.Change = fail, "the last snapshot failed", "check the disk and the log of Redis: it may refuse writes"
	}
	if r := i.Persistence(); r != nil && f.Status == ok {
		f.Status, f.Finding, f.Change = warn, r.Finding, r.Change
	}
	return f
}

func checkReplication(i redisinfo.Info) finding {
	f := finding{Check: "replication", Status: ok}
	n := i.Number("connected_slaves")
	switch {
	case i["role"] == "slave":
		f.Status, f.Finding = fail, "this server is a read-only replica of "+i["master_host"]+":"+i["master_port"]
		f.Change = "connect to the master, or use redis+sentinel:// or redis+cluster://, which find it"
	case n == 0:
		f.Finding = "no replica: if this server is lost, so are its locks"
	default:
		f.Finding = fmt.Sprintf("%s; a failover may lose the last locks unless programs set ReplicaAcks", count(n, "replica"))
	}
	return f
}

func checkClients(i redisinfo.Info) finding {
	n, most := i.Number("connected_clients"), i.Number("maxclients")
	f := finding{Check: "clients", Status: ok, Finding: count(n, "client")}
	if most > 0 {
		f.Finding = fmt.Sprintf("%s of at most %d", f.Finding, most)
		if n*10 >= most*8 {
			f.Status, f.Change = warn, "raise maxclients, or lower PoolSize of the Redis clients"
		}
	}
	if refused := i.Number("rejected_connections"); refused > 0 {
		f.Status, f.Finding = warn, fmt.Sprintf("%s; %s refused since the start", f.Finding, count(refused, "connection"))
		f.Change = "raise maxclients, or lower PoolSize of the Redis clients"
	}
	return f
}
