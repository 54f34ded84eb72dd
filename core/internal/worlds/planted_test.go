package worlds

import (
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/explore"
)

// planted lists defects of scripts: the text to replace, its replacement, and what the search
// reports.
var planted = []struct {
	name, world, script string
	old, replaced       string
	want                string
}{
	{"a release that ignores whose hold it is", "plain/handover", "release",
		"redis.call('HDEL', KEYS[1], ARGV[1])", "redis.call('DEL', KEYS[1])",
		"release: it changes the field of"},
	{"a release that publishes nothing", "plain/handover", "release",
		"for i = 4, #ARGV do", "for i = 4, 3 do",
		`"0" is not published on redisson_lock__channel:{order}`},
	{"an acquire whose repeat adds to the count", "plain/handover", "acquire",
		"if ttl < tonumber(ARGV[2]) then", "redis.call('HINCRBY', KEYS[1], ARGV[1], 1) if ttl < tonumber(ARGV[2]) then",
		"acquire: a repeat changes something"},
	{"an acquire whose repeat shortens the lease", "plain/reentry", "acquire",
		"if ttl < tonumber(ARGV[2]) then", "if true then",
		"acquire: the TTL of order shrinks from 60000 to 30000 ms"},
	{"an acquire without PEXPIRE", "plain/handover", "acquire",
		"  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n  return 1", "  return 1",
		"order has no TTL"},
	{"an acquire that takes a held lock", "plain/handover", "acquire",
		"if not held[1] then", "if not held[1] then redis.call('HSET', KEYS[1], ARGV[1], 1) return 1 end if false then",
		"two owners hold the lock"},
	{"a re-entry that revives an expired hold", "plain/reentry", "update",
		"if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then", "if false then",
		"update: it creates a field for"},
	{"a re-entry that shortens the lease", "plain/reentry", "update",
		"if lease > 0 and redis.call('PTTL', KEYS[1]) < lease then", "if lease > 0 then",
		"update: the TTL of order shrinks"},
	{"a re-entry that does not set the count", "plain/reentry", "update",
		"redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])", "",
		"has entered [ 2] times, and Redis has [ 1]"},
	{"a hand-over that does not look for the hold that goes", "plain/handover", "pass",
		"if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then", "if false then",
		"gets the lock from"},
	{"a hand-over that leaves the hold that goes", "plain/handover", "pass",
		"redis.call('HDEL', KEYS[1], ARGV[1])", "",
		"pass: the hold of"},
	{"a hand-over whose repeat finds nothing", "plain/handover", "pass",
		"if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then", "if true then",
		"pass: the reply is yes, and to a repeat no"},
	{"a renewal that re-creates the key", "plain/renewal", "renew",
		"local result, shortened = mine == 0 and 0", "call('HSET', key, ARGV[2 + i], 1) mine = 1 local result, shortened = mine == 0 and 0",
		"renew: it creates a field for"},
	{"a renewal that does not prolong", "plain/renewal", "renew",
		"done = call('PEXPIRE', key, lease)", "done = 1",
		"renew: A:10 was granted 60000 ms and has 30000"},
	{"a renewal that says that all is lost", "plain/renewal", "renew",
		"mine == 1 and 1", "mine == 1 and 0",
		"renew: the reply is no, and the owner held the lock: true"},
	{"a force that takes the lock from all", "plain/faults", "force_release",
		"local there = redis.call('HDEL', KEYS[1], ARGV[i])", "local there = redis.call('DEL', KEYS[1])",
		"force_release: it changes the field of"},
	{"a force that publishes nothing", "plain/faults", "force_release",
		"for i = n + 5, #ARGV do", "for i = 1, 0 do",
		"force_release: \"0\" is not published"},
	{"an acquire that draws no token", "fenced/handover", "fenced_acquire",
		"local token = draw(KEYS[2])", "local token = tonumber(redis.call('GET', KEYS[2]))",
		"fenced_acquire: the token is 7, and 7 was given before"},
	{"a hand-over that draws no token", "fenced/handover", "fenced_pass",
		"local token = draw(KEYS[2])", "local token = tonumber(redis.call('GET', KEYS[2]))",
		"fenced_pass: the token is 7, and 7 was given before"},
	{"a token that Lua has rounded", "fenced/huge-tokens", "fenced_acquire",
		"if token < 2^53 then", "if true then",
		"fenced_acquire: script fenced_acquire: unexpected reply"},
	{"an acquire past the queue", "fair/queue", "fair_acquire",
		"if ttl == -2 and (not first or first == owner) then", "if ttl == -2 then",
		"which is ahead of it and listens"},
	{"an acquire that stays in the queue", "fair/queue", "fair_acquire",
		"  if first then\n    leave({owner})\n  else", "  if not first then",
		"holds the lock and is in the queue"},
	{"an acquire that queues up although it must not", "fair/queue", "fair_acquire",
		"elseif now <= tonumber(ARGV[10]) then", "else",
		"joins the queue after it has given up"},
	{"a newcomer that has no time of its own", "fair/queue", "fair_acquire",
		"math.max(ttl, 0) + places * budget", "0",
		"is dropped from the queue, and it listens"},
	{"a frozen waiter that keeps its time", "fair/frozen", "fair_acquire",
		"if deadline > now + grace then", "if false then",
		"ticks it is not free and empty"},
	{"a waiter that has less time than it takes to try", "fair/frozen", "fair_acquire",
		"    deadline = now + grace\n", "    deadline = now\n",
		"a repeat changes something"},
	{"a question that does not prolong a waiter's time", "fair/held-for-long", "fair_acquire",
		"mine - due < -budget / 2 or", "",
		"is dropped from the queue, and it listens"},
	{"a queue whose first place is never taken from the dead", "fair/faults", "fair_acquire",
		"elseif now - notes[i] >= grace and tell(owner) == 0 then", "elseif false then",
		"ticks it is not free and empty"},
	{"a release that leaves the waiter in the queue", "fair/queue", "fair_release",
		"#waiters == 0 or leave(waiters)", "true",
		"keys without TTL are left"},
	{"a release that does not tell the first", "fair/queue", "fair_release",
		"  summon(first)", "",
		"fair_release: \"0\" is not published on redisson_lock__channel:{order}:"},
	{"a hand-over to a waiter that is not the first", "fair/queue", "fair_pass",
		"if first == to then", "if true then",
		"which is ahead of it and listens"},
	{"a reader beside a writer", "readwrite/levels", "read_acquire",
		"if mode == 'write' then", "if mode == 'never' then",
		"two owners hold the lock"},
	{"a writer beside a reader", "readwrite/levels", "write_acquire",
		"if mode and", "if mode == 'write' and",
		"two owners hold the lock"},
	{"a reader without a time-out key", "readwrite/levels", "read_acquire",
		"  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])\nelseif", "elseif",
		"read_acquire: B:12 was granted"},
	{"a reader that the shared TTL does not cover", "readwrite/levels", "read_acquire",
		"if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then", "if redis.call('PTTL', KEYS[1]) < 0 then",
		"read_acquire: B:12 was granted 60000 ms and has 30000"},
	{"a release that ends the other readers", "readwrite/levels", "read_write_update",
		"redis.call('PEXPIRE', hash, longest)", "redis.call('PEXPIRE', hash, 1)",
		"read_write_update: the TTL of order shrinks"},
	{"a release that finds all other readers dead", "readwrite/levels", "read_write_update",
		"longest = math.max(longest, ttl)\n        if not all", "if not all",
		"read_write_update: it changes the field of"},
	{"a release that does not delete the time-out keys", "readwrite/levels", "read_write_update",
		"for i = reads + 2, #KEYS do", "for i = 1, 0 do",
		"read_write_update: a repeat changes something"},
	{"a downgrade that lets no reader in", "readwrite/levels", "read_write_update",
		"redis.call('HSET', hash, 'mode', 'read')", "",
		"the mode is \"write\", and 0 of 1 holders write"},
	{"a downgrade that publishes nothing", "readwrite/levels", "read_write_update",
		"    publish(ARGV[10])", "",
		"\"1\" is not published"},
	{"a renewal that does not put back a time-out key", "readwrite/renewal", "renew",
		"if ttl == -2 and value then", "if ttl == -2 and value then done = 1 elseif false then",
		"renew: A:10 was granted 60000 ms and has"},
	{"a grant beside a record", "once/records", "once_acquire",
		"if kept[1] then", "if false then",
		"the lock is granted beside a record"},
	{"a record of one that has lost the lock", "once/records", "once_record",
		"if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then", "if false then",
		"once_record: "},
	{"a record whose repeat finds nothing", "once/records", "once_record",
		"return (last and", "return (false and",
		"once_record: the reply is yes, and to a repeat no"},
	{"a record without a TTL", "once/records", "once_record",
		"redis.call('PEXPIRE', KEYS[2], ARGV[4])", "",
		"{order}:record has no TTL"},
	{"a record that is still a marker", "once/markers", "once_record",
		"redis.call('HDEL', KEYS[2], 'marker', last and 'binder' or '')", "",
		"the record is still a marker"},
	{"a release that deletes a record", "once/markers", "once_release",
		"if by[1] == ARGV[1] then", "if by[2] then",
		"once_release: the record is gone"},
	{"a release that leaves its marker", "once/markers", "once_release",
		"if by[1] == ARGV[1] then", "if false then",
		"the marker of a hold that did nothing stays"},
	{"a release that deletes the marker of a lost hold", "once/markers", "once_release",
		"if freed == 1 or ARGV[2] == '1' then", "if true then",
		"once_release: the record is gone"},
	{"a release that frees a name for something else", "once/markers", "once_release",
		"if ARGV[3] == '1' and", "if",
		"once_release: the name was bound to"},
	{"a grant for something else", "once/markers", "once_acquire",
		"kept[2] ~= ARGV[4] then", "false then",
		"the lock is granted for"},
	{"a grant that does not bind the name", "once/markers", "once_acquire",
		"and not kept[2] then", "and false then",
		"the name is not bound"},
}

// The search finds each planted defect, so it checks what it claims to check.
func TestPlanted_DefectsAreFound(t *testing.T) {
	t.Parallel()
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			world := worldOf(t, p.world)
			text := sourceOf(t, world, p.script)
			if strings.Count(text, p.old) == 0 {
				t.Fatalf("%s does not have the text %q", p.script, p.old)
			}
			world.Scripts = map[string]string{p.script: strings.Replace(text, p.old, p.replaced, 1)}
			m := New(world)
			defer m.Close()
			r := explore.Run(m, 0)
			if r.Violation == nil {
				t.Fatalf("not found: %s", r)
			}
			if !strings.Contains(r.Violation.Broken.Error(), p.want) {
				t.Errorf("found %v\nwant %q", r.Violation, p.want)
			}
			if r.States > 100_000 {
				t.Errorf("found only after %s", r)
			}
			if trace, broken := explore.Replay(m, r.Violation.Path); broken == nil || trace != r.Violation.Trace {
				t.Errorf("the replay of %s gives %v", r.Violation.Path, broken)
			}
			t.Log(r)
		})
	}
}

func worldOf(t *testing.T, name string) World {
	t.Helper()
	for _, w := range worlds {
		if w.name == name {
			return w.small
		}
	}
	t.Fatalf("there is no world %s", name)
	return World{}
}

// sourceOf returns the text of a script that a world runs.
func sourceOf(t *testing.T, w World, name string) string {
	t.Helper()
	m := New(w)
	defer m.Close()
	for op := opAcquire; op <= opForce; op++ {
		for _, c := range []command{{op: op, excl: 1}, {op: op, shared: 1}} {
			if s := m.call(c).Script; s != nil && s.Name == name {
				return s.Source
			}
		}
	}
	t.Fatalf("the world runs no script %s", name)
	return ""
}
