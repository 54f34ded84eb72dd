package memredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// hour is the unit of TTLs here. It hides the time that a test takes.
const hour = int64(time.Hour / time.Millisecond)

// randomCommand returns a command on few keys and fields, so that commands often touch the same
// ones.
func randomCommand(r *rand.Rand) []string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	// The last letter of a key names its usual type. Some commands use a key of another type.
	of := func(kind string) string {
		if r.IntN(12) == 0 {
			return pick("xs", "xh", "xl", "xz", "none")
		}
		return pick("x", "y") + kind
	}
	field := pick("f", "g", "h")
	n := strconv.Itoa(r.IntN(5) - 2)
	// No two TTLs are equal. In Redis, the earlier one has already run down a little when they are
	// compared.
	ttl := strconv.FormatInt(int64(1+r.IntN(4))*hour+r.Int64N(hour/4), 10)
	anyKey := of(pick("s", "h", "l", "z"))
	switch r.IntN(45) {
	case 0:
		return []string{"DEL", anyKey, of("h")}
	case 1:
		return []string{"EXISTS", anyKey, anyKey}
	case 2, 3:
		return []string{"PTTL", anyKey}
	case 4:
		return []string{"PEXPIRE", anyKey, ttl}
	case 5:
		return []string{"PEXPIRE", anyKey, ttl, "GT"}
	case 6:
		return []string{"PEXPIRE", anyKey, pick("0", "-1", "nonsense", ttl)}
	case 7:
		return []string{"GET", of("s")}
	case 8:
		return []string{"SET", of("s"), n}
	case 9:
		return []string{"SET", of("s"), pick("1", "text"), "PX", pick(ttl, "0", "-5")}
	case 10:
		return []string{"INCR", of("s")}
	case 11, 12:
		return []string{"HSET", of("h"), field, n, pick("f", "g"), "2"}
	case 13:
		return []string{"HSETNX", of("h"), field, n}
	case 14:
		return []string{"HGET", of("h"), field}
	case 15:
		return []string{"HMGET", of("h"), field, "g"}
	case 16:
		return []string{"HEXISTS", of("h"), field}
	case 17:
		return []string{"HDEL", of("h"), field, "f"}
	case 18:
		return []string{pick("HLEN", "HKEYS"), of("h")}
	case 19:
		return []string{"HINCRBY", of("h"), field, n}
	case 20:
		return []string{"HRANDFIELD", of("h"), "9", "WITHVALUES"}
	case 21, 22:
		return []string{"RPUSH", of("l"), field, pick("f", "k")}
	case 23:
		return []string{"LINDEX", of("l"), n}
	case 24:
		return []string{"LRANGE", of("l"), n, strconv.Itoa(r.IntN(7) - 3)}
	case 25:
		return []string{"LPOS", of("l"), field}
	case 26:
		return []string{"LREM", of("l"), pick("0", "1", "-1", "-2"), field}
	case 27:
		return []string{"ZADD", of("z"), pick("1.5", "1764000000000", "-3", "nonsense"), field}
	case 28:
		return []string{pick("ZREM", "ZSCORE", "ZRANK"), of("z"), field}
	case 29:
		return []string{"LPOS", of("l"), field, "MAXLEN", pick("1", "2")}
	case 30:
		return []string{"LSET", of("l"), n, field}
	case 31:
		return []string{"LLEN", of("l")}
	case 32:
		return []string{"ZCARD", of("z")}
	case 33:
		return []string{"PERSIST", anyKey}
	case 34:
		return []string{"INCRBY", of("s"), pick(n, "nonsense", "9223372036854775807", "-9223372036854775808")}
	case 35, 36:
		return []string{"ZADD", of("z"), pick("GT", "XX", "gt"), pick("1.5", "7", "1764000000000", "-3", "nonsense"), field}
	case 37:
		return []string{"ZADD", of("z"), "XX", "GT", pick("2", "9", "-4"), field}
	case 38:
		return []string{"ZCOUNT", of("z"), pick("-inf", "(1.5", "7"), pick("+inf", "(7", "nonsense", "2")}
	case 39:
		return []string{"ZRANGEBYSCORE", of("z"), pick("-inf", "(1.5", "1.5"), pick("+inf", "(7", "7")}
	case 40:
		return []string{"ZREMRANGEBYSCORE", of("z"), pick("-inf", "(1.5", "7"), pick("(7", "2", "(nonsense")}
	case 41:
		return []string{"ZRANGE", of("z"), n, strconv.Itoa(r.IntN(7) - 3), "WITHSCORES"}
	case 42:
		return []string{"ZRANGE", of("z"), n, pick("0", "-1", "nonsense")}
	case 43:
		return []string{"ZMSCORE", of("z"), field, pick("f", "none")}
	default:
		return []string{"ZINCRBY", of("z"), pick("2", "-300000"), field}
	}
}

// plain makes the replies of both comparable. An error becomes its text, without the script that
// raised it, and a TTL whole hours. Fields without an order become a map.
func plain(command []string, reply any) any {
	switch v := reply.(type) {
	case error:
		text, _, _ := strings.Cut(v.Error(), " script: ")
		return text
	case Status:
		return string(v)
	case int64:
		if command[0] == "PTTL" && v > 0 {
			return (v + hour/2) / hour
		}
	case []any:
		step := map[string]int{"HKEYS": 1, "HRANDFIELD": 2}[command[0]]
		if step > 0 {
			found := map[string]any{}
			for i := 0; i < len(v); i += step {
				found[v[i].(string)] = v[i+step-1]
			}
			return found
		}
	}
	return reply
}

func do(rdb *redis.Client, args []string) any {
	all := make([]any, len(args))
	for i := range args {
		all[i] = args[i]
	}
	reply, err := rdb.Do(context.Background(), all...).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	return reply
}

// Clients and scripts get the replies of Redis, and the content stays equal.
func TestCommands_LikeRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).ClientWith(t, func(o *redis.Options) { o.Protocol = 2 })
	r := rand.New(rand.NewPCG(1, 2))
	runner := NewRunner()
	defer runner.Close()
	db := &DB{Now: 1_764_000_000_000}
	for i := range 20_000 {
		c := randomCommand(r)
		var got, want any
		source := ""
		switch r.IntN(4) {
		case 0:
			source = "return redis.call(unpack(ARGV))"
		case 1:
			source = "return redis.pcall(unpack(ARGV))"
		}
		if source == "" {
			got, want = db.Do(c...), do(rdb, c)
		} else {
			got, want = runner.Eval(db, source, nil, c), do(rdb, append([]string{"EVAL", source, "0"}, c...))
		}
		if got, want := plain(c, got), plain(c, want); !reflect.DeepEqual(got, want) {
			t.Fatalf("command %d, %v by %q: %#v, Redis replies %#v. The keys:\n%s", i, c, source, got, want, db)
		}
		if again := db.Clone(); again.Encode() != db.Encode() {
			t.Fatalf("after command %d, %v: Clone returns\n%s, want\n%s", i, c, again, db)
		}
		if again := Decode(db.Encode(), db.Now); again.Encode() != db.Encode() || again.String() != db.String() {
			t.Fatalf("after command %d, %v: Decode returns\n%s, want\n%s", i, c, again, db)
		}
		if i%50 == 0 {
			again := &DB{Now: db.Now}
			for _, c := range db.Commands() {
				again.Do(c...)
			}
			if again.Encode() != db.Encode() {
				t.Fatalf("after command %d, %v: Commands give\n%s, want\n%s", i, c, again, db)
			}
		}
		if i%200 == 199 {
			db = &DB{Now: db.Now + 1}
			rdb.FlushAll(context.Background())
		}
	}
}

func TestEval_LikeRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).ClientWith(t, func(o *redis.Options) { o.Protocol = 2 })
	runner := NewRunner()
	defer runner.Close()
	db := &DB{}
	for _, script := range []string{
		"return 1", "return 3.9", "return -3.9", "return 'text'", "return true", "return false", "return nil", "return",
		"return {1, 'two', {3}, 4.5}", "return {1, nil, 3}", "return {1, false, 3}", "return {}",
		"return redis.error_reply('WRONGKIND of lock')", "return {err = 'CODE text'}", "return {ok = 'FINE'}",
		"return KEYS[1] .. ARGV[1] .. #ARGV", "return ARGV[9]",
		"return redis.call('SET', KEYS[1], 1.5)", "return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 1764000000000) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 7) return redis.call('INCR', KEYS[1]) + 1",
		"redis.call('SET', KEYS[1], 1e17) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
		"redis.call('DEL', KEYS[1]) return {redis.call('GET', KEYS[1]) == false}",
		"return {type(redis.call('SET', KEYS[1], 'a')), redis.call('SET', KEYS[1], 'a').ok}",
		"return redis.call('HGET', KEYS[1], 'f')", "return redis.pcall('HGET', KEYS[1], 'f').err",
		"local ok, e = pcall(redis.call, 'HGET', KEYS[1], 'f') return {tostring(ok), e.err or e}",
		"return redis.pcall('HGET', KEYS[1], 'f')",
		"return redis.call('PUBLISH', 'channel', 'message')",
		"redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], 1764000000123, 'm') return redis.call('ZSCORE', KEYS[1], 'm')",
		"redis.call('ZADD', KEYS[1], 2^40 + 300000, 'm') return tonumber(redis.call('ZSCORE', KEYS[1], 'm')) - 2^40",
		"return #redis.call('TIME')", "return {math.max(1, 2), math.floor(2.5), tonumber('12') + 1, #'abc'}",
		"local t = {} table.insert(t, 'a') for i, v in ipairs(t) do return i .. v end",
	} {
		got := plain([]string{""}, runner.Eval(db, script, []string{"k"}, []string{"a", "b"}))
		want := plain([]string{""}, do(rdb, []string{"EVAL", script, "1", "k", "a", "b"}))
		if fmt.Sprint(got) != fmt.Sprint(want) || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s: %#v, Redis replies %#v", script, got, want)
		}
	}
}

// Redis refuses scripts that use a global variable, so the runner must, too.
func TestEval_RefusesGlobals(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	runner := NewRunner()
	defer runner.Close()
	for _, script := range []string{"x = 1", "return x", "local function f() y = 2 end f()", "local = 1", "return redis.call()", "return redis.call('GET', {})", "return redis.call('NONE')"} {
		if reply, failed := runner.Eval(&DB{}, script, nil, nil).(Error); !failed {
			t.Errorf("%s: reply %v, want an error", script, reply)
		}
		if want := do(rdb, []string{"EVAL", script, "0"}); want == nil || reflect.TypeOf(want).Kind() == reflect.Int64 {
			t.Errorf("%s: Redis replies %v, and the test expects an error", script, want)
		}
	}
}

// The code of the error is that of Redis.
func TestCommands_RefusesWrongCalls(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for _, c := range [][]string{{"NONE"}, {"HGET", "k"}, {"HSET", "k", "f", "1", "g"}, {"LPOS", "k", "a", "MAXLEN"}, {"SET", "k", "v", "XX", "1"}, {"ZADD", "k", "1", "a", "2"}, {"ZRANGE", "k", "0", "1", "WITH"}} {
		got, failed := (&DB{}).Do(c...).(Error)
		want, _ := do(rdb, c).(error)
		if code, _, _ := strings.Cut(string(got), " "); !failed || want == nil || !strings.HasPrefix(want.Error(), code+" ") {
			t.Errorf("%v: %v, Redis replies %v", c, got, want)
		}
	}
}

// With full memory, the runner refuses the same commands as Redis: those that may need memory, if
// the script has not written before. A replica refuses all that write.
func TestRunner_RefusesWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command []any
		runner  Runner
	}{
		"full memory":      {[]any{"CONFIG", "SET", "maxmemory", "1"}, Runner{Full: true}},
		"replica":          {[]any{"REPLICAOF", "127.0.0.1", "1"}, Runner{ReadOnly: true}},
		"may not publish":  {[]any{"ACL", "SETUSER", "default", "-publish", "-spublish"}, Runner{NoPublish: true}},
		"nothing is amiss": {[]any{"PING"}, Runner{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, db, runner := redistest.Start(t).Client(t), &DB{}, NewRunner()
			defer runner.Close()
			runner.Full, runner.ReadOnly, runner.NoPublish = test.runner.Full, test.runner.ReadOnly, test.runner.NoPublish
			if err := rdb.Do(t.Context(), test.command...).Err(); err != nil {
				t.Fatal(err)
			}
			for _, script := range []string{
				"return redis.call('HSET', 'k', 'f', 1)",
				"redis.call('DEL', 'x') return redis.call('HSET', 'k', 'f', 1)",
				"redis.pcall('PEXPIRE', 'x', 1, 'GT') return redis.call('HSET', 'k', 'f', 2)",
				"return redis.call('HDEL', 'k', 'f')",
				"return redis.pcall('RPUSH', 'k', 'f')",
				"redis.call('HGET', 'k', 'f') return redis.call('INCR', 'n')",
				"return redis.call('PUBLISH', 'channel', 'message')",
				"redis.call('DEL', 'n') return redis.pcall('SPUBLISH', 'channel', 'message')",
			} {
				got, want := runner.Eval(db, script, nil, nil), do(rdb, []string{"EVAL", script, "0"})
				if code(got) != code(want) {
					t.Errorf("%s: %v, Redis replies %v", script, got, want)
				}
			}
		})
	}
}

// code returns the first word of an error, or another reply.
func code(reply any) any {
	if err, failed := reply.(error); failed {
		word, _, _ := strings.Cut(err.Error(), " ")
		return word
	}
	return reply
}

// HRANDFIELD returns different fields of a larger hash, as Redis does, if the database may draw.
func TestCommands_DrawsFields(t *testing.T) {
	t.Parallel()
	db := &DB{Rand: rand.New(rand.NewPCG(1, 2))}
	db.Do("HSET", "h", "a", "1", "b", "2", "c", "3")
	drawn := map[any]bool{}
	for range 100 {
		reply := db.Do("HRANDFIELD", "h", "2", "WITHVALUES").([]any)
		if len(reply) != 4 || reply[0] == reply[2] {
			t.Fatalf("reply %v, want two fields with their values", reply)
		}
		drawn[reply[0]] = true
	}
	if got := fmt.Sprint(db.Describe("h"), drawn); got != "h = a:1 b:2 c:3map[a:true b:true c:true]" {
		t.Errorf("%s, want all fields to be drawn, and none changed", got)
	}
}

// What a copy loses, its original keeps.
func TestClone_IsApart(t *testing.T) {
	t.Parallel()
	db := &DB{Now: 1}
	fill := [][]string{{"RPUSH", "l", "a", "b"}, {"HSET", "h", "f", "1"}, {"ZADD", "z", "1", "m"}, {"SET", "s", "1", "PX", "9"}}
	for _, c := range fill {
		db.Do(c...)
	}
	before, copied := db.Encode(), db.Clone()
	for _, c := range [][]string{{"LSET", "l", "0", "x"}, {"HSET", "h", "f", "2"}, {"ZADD", "z", "2", "m"}, {"INCR", "s"}, {"DEL", "l", "s"}} {
		copied.Do(c...)
	}
	if copied.Advance(9); db.Encode() != before {
		t.Errorf("the original has\n%s", db)
	}
}

// A database tells which keys its commands write, also those that they delete.
func TestWritten(t *testing.T) {
	t.Parallel()
	var written []string
	db := &DB{Written: func(key string) { written = append(written, key) }}
	for _, c := range [][]string{{"HSET", "a", "f", "1"}, {"HGET", "b", "f"}, {"HDEL", "a", "f"}, {"DEL", "c", "d"}, {"PTTL", "e"}, {"LSET", "a"}} {
		db.Do(c...)
	}
	if got := fmt.Sprint(written); got != "[a a c d]" {
		t.Errorf("written: %s", got)
	}
}

// A client reads and writes the protocol of go-redis.
func TestRESP(t *testing.T) {
	t.Parallel()
	commands, rest := ParseCommands([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$5\r\nab"))
	if got, want := fmt.Sprint(commands), "[[GET k] [PING]]"; got != want {
		t.Errorf("commands %s, want %s", got, want)
	}
	if got, want := string(rest), "*2\r\n$3\r\nGET\r\n$5\r\nab"; got != want {
		t.Errorf("rest %q, want %q", got, want)
	}
	got := string(AppendReply([]byte(">"), []any{nil, int64(-7), "a\r\nb", "", Status("OK"), Error("ERR no"), []any{}, []any{"x"}}))
	if want := ">*8\r\n$-1\r\n:-7\r\n$4\r\na\r\nb\r\n$0\r\n\r\n+OK\r\n-ERR no\r\n*0\r\n*1\r\n$1\r\nx\r\n"; got != want {
		t.Errorf("reply %q, want %q", got, want)
	}
}

func TestAdvance_ExpiresKeys(t *testing.T) {
	t.Parallel()
	db := &DB{Now: 1_000_123}
	db.Do("SET", "a", "1", "PX", "1000")
	db.Do("SET", "b", "1", "PX", "1001")
	db.Do("SET", "c", "1")
	db.Advance(1000)
	if got, want := fmt.Sprint(db.Keys(), db.TTL("b"), db.TTL("c"), db.Do("TIME")), "[b c] 1 -1 [1001 123000]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRename(t *testing.T) {
	t.Parallel()
	db := &DB{}
	db.Do("HSET", "{k}:o:1:end", "o:2", "1", "owner", "o:1")
	db.Do("RPUSH", "list", "o:1", "o:2")
	db.Do("ZADD", "set", "5", "o:1")
	db.Rename(strings.NewReplacer("o:1", "o:3", "o:2", "o:1"))
	want := "list = [o:3 o:1]\nset = o:3:+5\n{k}:o:3:end = o:1:1 owner:o:3\n"
	if db.String() != want {
		t.Errorf("\n%s, want\n%s", db, want)
	}
}
