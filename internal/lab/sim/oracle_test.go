package sim

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// emptyWorld returns a world with one server and two processes, p1 and p2, without callers.
func emptyWorld(kind string) (*world, *node) {
	w := &world{start: time.Now().Add(-time.Hour), trace: new(trace)}
	w.oracle = newOracle(w)
	w.cfg.names = []lockName{{name: "lock-a", kind: kind}}
	w.cfg.options = core.Options{CommandTimeout: time.Second, PollInterval: time.Second}
	w.processes = []*process{{world: w, name: "p1"}, {world: w, name: "p2"}}
	w.nodes = []*node{{world: w, rate: 1, db: &memredis.DB{}}}
	w.nodes[0].tick()
	return w, w.nodes[0]
}

// run executes commands, each a line.
func (n *node) run(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		args := strings.Fields(line)
		if err, failed := n.db.Do(args...).(memredis.Error); failed {
			t.Fatalf("%s: %s", line, err)
		}
	}
}

// When all work is done, only entries of a process that died may be left, or entries that a
// rollback brought back. All others are violations, also in a world with such faults.
func TestOracle_Leftovers(t *testing.T) {
	t.Parallel()
	const queue, deadlines = "redisson_lock_queue:{lock-a}", "redisson_lock_timeout:{lock-a}"
	placeUntil := func(owner string, ms int64) []string {
		return []string{"RPUSH " + queue + " " + owner, "ZADD " + deadlines + " " + strconv.FormatInt(worldEpoch+ms, 10) + " " + owner}
	}
	place := func(owner string) []string { return placeUntil(owner, 1) }
	const readTimeout = "{lock-a}:p1.x:1:rwlock_timeout:1"
	hold := []string{"HSET lock-a p1.x:1 1", "PEXPIRE lock-a 60000"}
	reader := []string{"HSET lock-a p1.x:1 1 mode read", "PEXPIRE lock-a 60000", "SET " + readTimeout + " 1 PX 60000"}
	freed := []string{"DEL lock-a", "DEL " + queue, "DEL " + deadlines, "DEL " + readTimeout}
	for name, test := range map[string]struct {
		// The commands run before the snapshot, between it and the crash, and after the rollback.
		before, between, after []string
		// dies is true if p1 dies.
		dies bool
		// want is what each violation says. It is empty if there is none.
		want string
	}{
		"nothing":                              {},
		"a place":                              {before: place("p1.x:1"), want: "has a place of p1.x:1"},
		"a place whose deadline is in a fault": {before: placeUntil("p1.x:1", -1)},
		"a place of a process that died":       {before: place("p1.x:1"), dies: true},
		"a place, and another process died":    {before: place("p2.x:1"), dies: true, want: "has a place of p2.x:1"},
		"a place that a rollback brought back": {before: place("p1.x:1"), between: freed},
		"a place from after a rollback":        {after: place("p1.x:1"), want: "has a place of p1.x:1"},
		"a place beside one that a rollback brought back": {
			before: place("p1.x:1"), between: freed, after: place("p1.x:2"), want: "has a place of p1.x:2",
		},
		"a place that a rollback left alone": {before: place("p1.x:1"), want: "has a place of p1.x:1"},
		"a hold":                             {before: hold, want: "the key lock-a is left"},
		"a hold of a process that died":      {before: hold, dies: true},
		"a hold that a rollback brought back": {
			before: hold, between: freed,
		},
		"a read hold": {before: reader, want: "is left"},
		"a read hold that a rollback brought back": {
			before: reader, between: freed,
		},
		"a read hold of a process that died": {before: reader, dies: true},
		"a read level that a rollback brought back without its hold": {
			before: reader[2:], between: freed,
		},
		"counters and records": {before: []string{"INCR redisson_lock_token:{lock-a}", "HSET {lock-a}:record record r"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld("fair")
			n.run(t, test.before...)
			snapshot := n.db.Clone()
			n.run(t, test.between...)
			n.restart(snapshot, 0)
			n.run(t, test.after...)
			w.processes[0].dead, w.processes[0].abandoned = test.dies, test.dies
			w.oracle.checkFree()
			if found := len(w.oracle.violations) > 0; found != (test.want != "") {
				t.Fatalf("violations %q, want %q", w.oracle.violations, test.want)
			}
			for _, v := range w.oracle.violations {
				if !strings.Contains(v, test.want) {
					t.Errorf("violation %q, want %q", v, test.want)
				}
			}
		})
	}
}

// The lease of a leftover must not be prolonged, except by readers for each other.
func TestOracle_LeftoverIsProlonged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, then string
		stopping    bool
		// want is the number of violations.
		want int
	}{
		"its lease runs out":              {first: "HSET lock-a p1.x:1 1", then: "EXISTS lock-a"},
		"another caller prolongs it":      {first: "HSET lock-a p1.x:1 1", then: "PEXPIRE lock-a 90000", want: 1},
		"other readers prolong it":        {first: "HSET lock-a p1.x:1 1 mode read", then: "PEXPIRE lock-a 90000"},
		"it is prolonged without readers": {first: "HSET lock-a p1.x:1 1 mode read", then: "PEXPIRE lock-a 90000", stopping: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld("rw")
			w.processes[0].dead, w.processes[0].abandoned = true, true
			w.stopping = test.stopping
			n.run(t, test.first, "PEXPIRE lock-a 60000")
			w.oracle.checkOrphans()
			n.run(t, test.then)
			w.oracle.checkOrphans()
			if len(w.oracle.violations) != test.want {
				t.Errorf("violations %q, want %d", w.oracle.violations, test.want)
			}
		})
	}
}

// A hold that no caller has must be freed soon. A reader whose time-out key has expired holds
// nothing, although its field stays beside other readers.
func TestOracle_Orphans(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines []string
		// want is the number of violations.
		want int
	}{
		"a writer":      {[]string{"HSET lock-a p1.x:1:write 1 mode write"}, 1},
		"a reader":      {[]string{"HSET lock-a p1.x:1 1 mode read", "SET {lock-a}:p1.x:1:rwlock_timeout:1 1 PX 7200000"}, 1},
		"a dead reader": {[]string{"HSET lock-a p1.x:1 1 mode read"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld("rw")
			n.run(t, append(test.lines, "PEXPIRE lock-a 7200000")...)
			w.oracle.checkOrphans()
			w.start = w.start.Add(-time.Minute) // time passes
			w.oracle.checkOrphans()
			if len(w.oracle.violations) != test.want {
				t.Errorf("violations %q, want %d", w.oracle.violations, test.want)
			}
		})
	}
}

// The permits of a semaphore: how many are in force after a grant, what may be left of them, and that
// their keys expire.
func TestOracle_Permits(t *testing.T) {
	t.Parallel()
	later := func(ms int64) string { return strconv.FormatInt(worldEpoch+time.Hour.Milliseconds()+ms, 10) }
	take := func(id string, ms int64) string { return "ZADD {lock-a}:timeout " + later(ms) + " " + id }
	keys := []string{"SET lock-a 1 PX 86400000", "SET {lock-a}:permits x PX 86400000"}
	for name, test := range map[string]struct {
		before, then []string
		forever      bool
		// want is what a violation says. It is empty if there is none.
		want string
	}{
		"two of two":                {then: []string{take("p1.x:1", 9000), take("p2.x:1", 9000)}},
		"three of two":              {before: []string{take("p1.x:1", 9000), take("p1.x:2", 9000)}, then: []string{take("p2.x:1", 9000)}, want: "3 permits of lock-a are in force, and there are 2"},
		"a third, and one is over":  {before: []string{take("p1.x:1", 0), take("p1.x:2", 9000)}, then: []string{take("p2.x:1", 9000)}},
		"three, and one is renewed": {before: []string{take("p1.x:1", 9000), take("p1.x:2", 9000), take("p1.x:3", 9000)}, then: []string{take("p1.x:3", 9999)}},
		"one replaces another":      {before: []string{take("p1.x:1", 9000), take("p1.x:2", 9000)}, then: []string{"ZREM {lock-a}:timeout p1.x:1", take("p2.x:1", 9000)}},
		"no TTL":                    {then: []string{"SET lock-a 1"}, want: "the key lock-a has no TTL"},
		"no TTL after SetPermits":   {then: []string{"SET lock-a 1"}, forever: true},
		"what has expired is left":  {then: []string{take("p1.x:1", 0)}},
		"a permit is left":          {then: []string{take("p1.x:1:2", 9000)}, want: "the key {lock-a}:timeout is left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld("semaphore")
			o := w.oracle
			o.declare("lock-a", 2)
			o.forever["lock-a"] = test.forever
			n.run(t, append(keys, test.before...)...)
			n.run(t, "ZADD {lock-a}:timeout 1 p1.x:9", "PEXPIRE {lock-a}:timeout 86400000")
			o.noteGrants("lock-a")
			n.run(t, test.then...)
			o.checkGrants("lock-a")
			o.checkPermits("lock-a")
			if strings.HasSuffix(name, "is left") {
				o.checkFree()
			}
			if found := strings.Join(o.violations, "\n"); (found != "") != (test.want != "") || !strings.Contains(found, test.want) {
				t.Errorf("violations %q, want %q", found, test.want)
			}
		})
	}
}

// A caller waits beside a free permit only for so long, unless one of its process wants more.
func TestOracle_WaitsBesideAFreePermit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		free  string
		takes int // of another caller of the process
		want  int
	}{
		"a free permit":            {"1", 1, 2},
		"none":                     {"0", 1, 0},
		"one of them wants two":    {"1", 2, 0},
		"there are two, and it is": {"2", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld("semaphore")
			n.run(t, "SET lock-a "+test.free+" PX 86400000")
			for _, takes := range []int{1, test.takes} {
				w.oracle.pending[&op{process: w.processes[0], names: []string{"lock-a"}, waits: core.WaitForever, takes: takes}] = struct{}{}
			}
			w.oracle.checkPermits("lock-a")
			w.start = w.start.Add(-time.Hour) // time passes
			w.oracle.checkWaiters()
			if len(w.oracle.violations) != test.want {
				t.Errorf("violations %q, want %d", w.oracle.violations, test.want)
			}
		})
	}
}

// While a caller wants more, the others of its process wait behind it.
func TestOracle_WaitsBehindOneThatWantsMore(t *testing.T) {
	t.Parallel()
	w, n := emptyWorld("semaphore")
	n.run(t, "SET lock-a 1 PX 86400000")
	w.oracle.checkPermits("lock-a")
	one := &op{process: w.processes[0], names: []string{"lock-a"}, waits: core.WaitForever, takes: 1}
	two := &op{process: w.processes[0], names: []string{"lock-a"}, takes: 2}
	w.oracle.pending[one], w.oracle.pending[two] = struct{}{}, struct{}{}
	w.start = w.start.Add(-time.Hour)
	w.oracle.returned(two)
	w.oracle.checkWaiters()
	if len(w.oracle.violations) != 0 {
		t.Errorf("violations %q", w.oracle.violations)
	}
	w.start = w.start.Add(-time.Hour)
	w.oracle.checkWaiters()
	if len(w.oracle.violations) != 1 {
		t.Errorf("an hour later: violations %q, want one", w.oracle.violations)
	}
}

// The loss of a key excuses only the violations that follow from it. For example, the loss of the
// token counter excuses a lower token, but no lost lease.
func TestOracle_DisturbsWhatChanged(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"lock-a":                                "hold",
		"{lock-a}:p1.x:1:rwlock_timeout:1":      "hold",
		"redisson_lock_token:{lock-a}":          "tokens",
		"{lock-a}:record":                       "record",
		"redisson_lock_queue:{lock-a}":          "",
		"redisson_lock_timeout:{lock-a}":        "",
		"redisson_lock_timeout:{lock-a}:absent": "",
	} {
		w, _ := emptyWorld("lock")
		o := w.oracle
		o.tokens["lock-a"] = []issuedToken{{0, 7}}
		o.records["lock-a"] = storedRecord{0, time.Minute}
		o.damage(key)
		var got []string
		if _, known := o.damagedUntil["lock-a"]; known {
			got = append(got, "hold")
		}
		if _, reset := o.tokensReset["lock-a"]; reset != (len(o.tokens["lock-a"]) == 0) {
			t.Errorf("%s: reset %t, tokens %v", key, reset, o.tokens)
		} else if reset {
			got = append(got, "tokens")
		}
		if _, reset := o.recordsReset["lock-a"]; reset != (len(o.records) == 0) {
			t.Errorf("%s: reset %t, records %v", key, reset, o.records)
		} else if reset {
			got = append(got, "record")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s disturbs %q, want %q", key, got, want)
		}
	}
}

// Of a semaphore, only the loss of its permits excuses a lost lease. The numbers are restored.
func TestOracle_DisturbedPermits(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{"lock-a": false, "{lock-a}:permits": false, "{lock-a}:timeout": true} {
		w, _ := emptyWorld("semaphore")
		w.oracle.damage(key)
		if _, got := w.oracle.damagedUntil["lock-a"]; got != want {
			t.Errorf("the loss of %s excuses a lost lease: %t, want %t", key, got, want)
		}
	}
}

// A lock may have a holder and its guests at once, and no stranger beside any of them. p1 and p2 have
// invited p2.
func TestOracle_Guests(t *testing.T) {
	t.Parallel()
	const (
		host, writer, reader = "HSET lock-a p1.x:1 1", "HSET lock-a p1.x:1:write 1 mode write", "HSET lock-a p1.x:1 1 mode read"
		guest, writes        = "ENTER p1.x:1 p2.x:1", "ENTER p1.x:1:write p2.x:1:write"
		leaves, stranger     = "HDEL lock-a p1.x:1", "HSET lock-a p1.x:7 1"
	)
	for name, test := range map[string]struct {
		kind  string
		lines []string
		// want is what a violation says. It is empty if there is none.
		want string
	}{
		"a guest":                               {"lock", []string{host, guest}, ""},
		"a guest of a guest":                    {"lock", []string{host, guest, "ENTER p2.x:1 p2.x:2"}, ""},
		"a guest, and its host has left":        {"lock", []string{host, guest, leaves}, ""},
		"a stranger beside both":                {"lock", []string{host, guest, "HSET lock-a p2.x:7 1"}, "exclude each other"},
		"a stranger of the host's process":      {"lock", []string{host, guest, stranger}, "exclude each other"},
		"a stranger beside the guest":           {"lock", []string{host, guest, leaves, stranger}, "exclude each other"},
		"a stranger after both":                 {"lock", []string{host, guest, leaves, "HDEL lock-a p2.x:1", stranger}, ""},
		"one without an invitation":             {"lock", []string{host, "ENTER p1.x:1 p3.x:1"}, "exclude each other"},
		"a guest of a host that has left":       {"lock", []string{host, leaves, guest}, "p2.x:1 has entered lock-a as a guest of p1.x:1, which does not hold it"},
		"a guest of a writer":                   {"rw", []string{writer, writes}, ""},
		"a writer that reads on":                {"rw", []string{writer, writes, "HSET lock-a p1.x:1 1", "HDEL lock-a p1.x:1:write"}, ""},
		"a reader beside a writer's guest":      {"rw", []string{writer, writes, stranger}, "exclude each other"},
		"readers are let in beside a writer":    {"rw", []string{writer, writes, "HSET lock-a mode read"}, "exclude each other"},
		"a writer's guest reads, and no writer": {"rw", []string{writer, writes, "HSET lock-a p2.x:1 1", "HDEL lock-a p1.x:1:write p2.x:1:write"}, "exclude each other"},
		"a guest of a reader":                   {"rw", []string{reader, guest, stranger}, ""},
		"a writer beside a reader's guest":      {"rw", []string{reader, guest, "HSET lock-a p1.x:7:write 1"}, "exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := emptyWorld(test.kind)
			w.haveGuests(w.stream("guests", 0))
			w.cfg.names[0].kind = test.kind
			n.scripts = memredis.NewRunner()
			defer n.scripts.Close()
			for _, owner := range []string{"p1.x:1", "p2.x:1"} {
				host := &claim{parts: []part{{name: "lock-a", owner: owner}}}
				w.oracle.invite(&invitation{host: host}, w.processes[1])
			}
			for _, line := range test.lines {
				if words := strings.Fields(line); words[0] == "ENTER" {
					n.eval("redis.call('HSET', KEYS[1], ARGV[2], '1') return 1", []string{"1", "lock-a", words[1], words[2]})
				} else {
					n.run(t, line, "PEXPIRE lock-a 86400000")
				}
			}
			w.oracle.checkHash("lock-a")
			if found := strings.Join(w.oracle.violations, "\n"); (found != "") != (test.want != "") || !strings.Contains(found, test.want) {
				t.Errorf("violations %q, want %q", found, test.want)
			}
		})
	}
}

// Only a reason excuses a caller that was invited: it may be turned away if its host has left, and it
// may wait like a stranger if its token has expired.
func TestOracle_InvitedInVain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*world, *op)
		err    error
		// want says whether the oracle excuses the error.
		want bool
	}{
		"the host holds the lock": {func(*world, *op) {}, core.ErrParentLost, false},
		"the host has left":       {func(_ *world, p *op) { p.invited.host.released = true }, core.ErrParentLost, true},
		"the host is dead":        {func(w *world, _ *op) { w.processes[0].dead = true }, core.ErrParentLost, true},
		"the lock was damaged":    {func(w *world, _ *op) { w.oracle.damage("lock-a") }, core.ErrParentLost, true},
		"another error":           {func(_ *world, p *op) { p.invited.host.released = true }, core.ErrWrongKind, false},
		"no invitation":           {func(_ *world, p *op) { p.invited = nil }, core.ErrParentLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := emptyWorld("lock")
			host := &claim{op: &op{process: w.processes[0]}, process: w.processes[0], parts: []part{{name: "lock-a", owner: "p1.x:1"}}}
			p := &op{process: w.processes[1], names: []string{"lock-a"}, invited: &invitation{host: host, until: time.Minute}}
			test.change(w, p)
			if got := w.oracle.turnedAway(p, test.err, false); got != test.want {
				t.Errorf("excused: %t, want %t", got, test.want)
			}
		})
	}
}

// A guest has its host's fencing token, and a caller that was invited does not get the lock as a
// stranger while the token of the invitation is good.
func TestOracle_GuestTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entered bool
		token   uint64
		until   time.Duration
		want    string
	}{
		"the host's token":     {true, 7, time.Minute, ""},
		"another token":        {true, 8, time.Minute, "has the fencing token 8, and its host h has 7"},
		"a stranger":           {false, 8, time.Minute, "was invited by h, and got lock-a as a stranger"},
		"a stranger, too late": {false, 8, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := emptyWorld("fenced")
			host := &claim{op: &op{name: "h"}, token: 7, parts: []part{{name: "lock-a", owner: "p1.x:1"}}}
			c := &claim{op: &op{name: "g", invited: &invitation{host: host, until: test.until}}, token: test.token}
			c.parts = []part{{name: "lock-a", owner: "p2.x:1"}}
			if test.entered {
				w.haveGuests(w.stream("guests", 0))
				w.oracle.families[member{"lock-a", "p1.x:1"}] = "p1.x:1"
				w.oracle.families[member{"lock-a", "p2.x:1"}] = "p1.x:1"
			}
			w.oracle.checkGuest(c)
			if found := strings.Join(w.oracle.violations, "\n"); (found != "") != (test.want != "") || !strings.Contains(found, test.want) {
				t.Errorf("violations %q, want %q", found, test.want)
			}
		})
	}
}
