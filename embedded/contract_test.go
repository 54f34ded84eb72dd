package embedded

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// bothServers returns the addresses of an embedded server and of a redis-server. Examples and
// users' tests may rely on anything tested against both.
func bothServers(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"embedded":     start(t).Addr(),
		"redis-server": redistest.Start(t).Addr(),
	}
}

// The behaviour that reqlock's scripts rely on. Each case runs as EVAL, and as EVALSHA of a loaded
// script, with both protocol versions.
var scriptContract = []struct {
	name   string
	script string
	args   []any
	want   any
	// wide: it has integers of more than 32 bits, which an embedded server lacks on some platforms.
	wide bool
}{
	// The lock hash. Every case has a new key, KEYS[1].
	{name: "HSET of a new field", script: `return redis.call('HSET', KEYS[1], 'a', 1)`, want: int64(1)},
	{name: "HSET of an old field", script: `redis.call('HSET', KEYS[1], 'a', 1) return redis.call('HSET', KEYS[1], 'a', 2)`, want: int64(0)},
	{name: "HGET", script: `redis.call('HSET', KEYS[1], 'a', 2) return redis.call('HGET', KEYS[1], 'a')`, want: "2"},
	{name: "HGET of no field is false", script: `return redis.call('HGET', KEYS[1], 'a') == false`, want: int64(1)},
	{name: "HEXISTS", script: `redis.call('HSET', KEYS[1], 'a', 1) return {redis.call('HEXISTS', KEYS[1], 'a'), redis.call('HEXISTS', KEYS[1], 'b')}`, want: []any{int64(1), int64(0)}},
	{name: "HLEN", script: `redis.call('HSET', KEYS[1], 'a', 1, 'b', 1) return redis.call('HLEN', KEYS[1])`, want: int64(2)},
	{name: "HLEN of no key", script: `return redis.call('HLEN', KEYS[1])`, want: int64(0)},
	{name: "HINCRBY", script: `redis.call('HINCRBY', KEYS[1], 'a', 2) return redis.call('HINCRBY', KEYS[1], 'a', -1)`, want: int64(1)},
	{name: "HDEL", script: `redis.call('HSET', KEYS[1], 'a', 1) return {redis.call('HDEL', KEYS[1], 'a'), redis.call('HDEL', KEYS[1], 'a')}`, want: []any{int64(1), int64(0)}},
	{name: "HDEL of the last field removes the key", script: `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], 30000) redis.call('HDEL', KEYS[1], 'a') return {redis.call('EXISTS', KEYS[1]), redis.call('PTTL', KEYS[1])}`, want: []any{int64(0), int64(-2)}},
	{name: "DEL", script: `redis.call('HSET', KEYS[1], 'a', 1) return {redis.call('DEL', KEYS[1]), redis.call('DEL', KEYS[1])}`, want: []any{int64(1), int64(0)}},
	{name: "EXISTS", script: `return redis.call('EXISTS', KEYS[1])`, want: int64(0)},
	{name: "TYPE", script: `redis.call('HSET', KEYS[1], 'a', 1) return redis.call('TYPE', KEYS[1])['ok']`, want: "hash"},

	// TTLs.
	{name: "PTTL of no key", script: `return redis.call('PTTL', KEYS[1])`, want: int64(-2)},
	{name: "PTTL without a TTL", script: `redis.call('HSET', KEYS[1], 'a', 1) return redis.call('PTTL', KEYS[1])`, want: int64(-1)},
	{name: "PTTL of a fresh TTL", script: near + `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return near(30000)`, args: []any{30000}, want: int64(1)},
	{name: "PEXPIRE with a Lua number", script: near + `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[1]) * 2) return near(60000)`, args: []any{30000}, want: int64(1)},
	{name: "PEXPIRE answers", script: `local none = redis.call('PEXPIRE', KEYS[1], 30000) redis.call('HSET', KEYS[1], 'a', 1) return {none, redis.call('PEXPIRE', KEYS[1], 30000)}`, want: []any{int64(0), int64(1)}},
	{name: "PEXPIRE shortens", script: near + `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], 60000) redis.call('PEXPIRE', KEYS[1], 30000) return near(30000)`, want: int64(1)},
	{name: "PEXPIRE of 0 removes the key", script: `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], 0) return redis.call('EXISTS', KEYS[1])`, want: int64(0)},
	{name: "PEXPIRE for a century", script: near + `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return near(3153600000000)`, args: []any{int64(3153600000000)}, want: int64(1), wide: true},
	{name: "HSET keeps the TTL", script: near + `redis.call('HSET', KEYS[1], 'a', 1) redis.call('PEXPIRE', KEYS[1], 30000) redis.call('HSET', KEYS[1], 'b', 1) return near(30000)`, want: int64(1)},
	{name: "SET PX NX", script: `local first = redis.call('SET', KEYS[1], 'v', 'PX', 30000, 'NX') local second = redis.call('SET', KEYS[1], 'w', 'PX', 30000, 'NX') return {first['ok'], second == false, redis.call('GET', KEYS[1])}`, want: []any{"OK", int64(1), "v"}},

	// Queues and counters of other lock kinds.
	{name: "INCR", script: `redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[1])`, want: int64(2)},
	{name: "list", script: `redis.call('RPUSH', KEYS[1], 'a', 'b', 'c') redis.call('LREM', KEYS[1], 1, 'b') return {redis.call('LINDEX', KEYS[1], 0), redis.call('LPOP', KEYS[1]), redis.call('LLEN', KEYS[1])}`, want: []any{"a", "a", int64(1)}},
	{name: "LINDEX of no key is false", script: `return redis.call('LINDEX', KEYS[1], 0) == false`, want: int64(1)},
	{name: "sorted set", script: `redis.call('ZADD', KEYS[1], 1795232095587, 'a') redis.call('ZINCRBY', KEYS[1], -87, 'a') return {redis.call('ZSCORE', KEYS[1], 'a'), redis.call('ZREM', KEYS[1], 'a')}`, want: []any{"1795232095500", int64(1)}},

	// Conversion of values.
	{name: "table of one", script: `return {5}`, want: []any{int64(5)}},
	{name: "nested table", script: `return {1, {'a', {2}}}`, want: []any{int64(1), []any{"a", []any{int64(2)}}}},
	{name: "empty table", script: `return {}`, want: []any{}},
	{name: "false inside a table", script: `return {1, false, 3}`, want: []any{int64(1), nil, int64(3)}},
	{name: "a table ends at nil", script: `return {1, nil, 3}`, want: []any{int64(1)}},
	{name: "true", script: `return true`, want: int64(1)},
	{name: "false", script: `return false`, want: redis.Nil},
	{name: "nothing", script: `local x = 1`, want: redis.Nil},
	{name: "negative number", script: `return -2`, want: int64(-2)},
	{name: "fractions are cut off", script: `return 3.99`, want: int64(3)},
	{name: "large number", script: `return 9007199254740992`, want: int64(9007199254740992), wide: true},
	{name: "status", script: `return redis.status_reply('FINE')`, want: "FINE"},
	{name: "ARGV is text", script: `return type(ARGV[1])`, args: []any{7}, want: "string"},
	{name: "any byte in ARGV", script: `return ARGV[1]`, args: []any{"\x00\r\n\xff"}, want: "\x00\r\n\xff"},
	{name: "any byte in a field", script: `redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('HEXISTS', KEYS[1], ARGV[1])`, args: []any{"\x00\r\n\xff"}, want: int64(1)},
	{name: "ARGV past the end is nil", script: `return ARGV[2] == nil`, args: []any{"one"}, want: int64(1)},
	{name: "counts", script: `return {#KEYS, #ARGV}`, args: []any{"a", "b"}, want: []any{int64(1), int64(2)}},
	{name: "unpack", script: `return redis.call('RPUSH', KEYS[1], unpack(ARGV))`, args: []any{"a", "b", "c"}, want: int64(3)},
	{name: "TIME", script: `local t = redis.call('TIME') return tonumber(t[1]) > 1700000000 and tonumber(t[2]) < 1000000`, want: int64(1)},
	{name: "sha1hex", script: `return redis.sha1hex('')`, want: "da39a3ee5e6b4b0d3255bfef95601890afd80709"},

	// Publishing without subscribers; TestPublishFromScript has some.
	{name: "PUBLISH by call", script: `return redis.call('PUBLISH', KEYS[1], '0')`, want: int64(0)},
	{name: "PUBLISH by pcall", script: `return redis.pcall('PUBLISH', KEYS[1], '0')`, want: int64(0)},

	// Errors that a script catches. For a failing script, want is how its error begins.
	{name: "pcall answers a table with err", script: `redis.call('SET', KEYS[1], 'v') local r = redis.pcall('HSET', KEYS[1], 'a', 1) return {type(r), r['err'], redis.call('GET', KEYS[1])}`, want: []any{"table", wrongType, "v"}},
	{name: "pcall of no such command", script: `return type(redis.pcall('NOSUCHCOMMAND')['err'])`, want: "string"},
	{name: "pcall without an error has no err", script: `local r = redis.pcall('HSET', KEYS[1], 'a', 1) return {r, type(r)}`, want: []any{int64(1), "number"}},
	{name: "the error of pcall returned", script: `redis.call('SET', KEYS[1], 'v') return redis.pcall('HSET', KEYS[1], 'a', 1)`, want: errorReply(wrongType)},
	{name: "the error of pcall in a table", script: `redis.call('SET', KEYS[1], 'v') local r = redis.pcall('HSET', KEYS[1], 'a', 1) return {1, r['err']}`, want: []any{int64(1), wrongType}},
	{name: "error_reply", script: `return redis.error_reply('REQLOCK some text')`, want: errorReply("REQLOCK some text")},
	{name: "error_reply of one word", script: `return redis.error_reply('word')`, want: errorReply("ERR word")},
	{name: "table with err", script: `return {err = 'REQLOCK some text'}`, want: errorReply("REQLOCK some text")},
}

// near checks the rest of a TTL that was just set. Not every version of Redis stops time inside a
// script.
const near = `
	local function near(ttl)
		local left = redis.call('PTTL', KEYS[1])
		return left <= ttl and left > ttl - 20000
	end
	`

const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"

// errorReply is the full error text of a failing script.
type errorReply string

func TestScriptContract(t *testing.T) {
	t.Parallel()
	for server, addr := range bothServers(t) {
		for _, protocol := range []int{2, 3} {
			rdb := speaking(t, addr, protocol)
			for i, test := range scriptContract {
				if test.wide && server == "embedded" && strconv.IntSize == 32 {
					continue // see Limits in doc.go
				}
				t.Run(fmt.Sprintf("%s/RESP%d/%s", server, protocol, test.name), func(t *testing.T) {
					t.Parallel()
					key := fmt.Sprintf("k:%d:%d", protocol, i)
					got, err := rdb.Eval(t.Context(), test.script, []string{key}, test.args...).Result()
					checkReply(t, "EVAL", test.want, got, err)

					if err := rdb.Del(t.Context(), key).Err(); err != nil {
						t.Fatal(err)
					}
					sha, err := rdb.ScriptLoad(t.Context(), test.script).Result()
					if err != nil {
						t.Fatal(err)
					}
					got, err = rdb.EvalSha(t.Context(), sha, []string{key}, test.args...).Result()
					checkReply(t, "EVALSHA", test.want, got, err)
				})
			}
		}
	}
}

func checkReply(t *testing.T, command string, want, got any, err error) {
	t.Helper()
	switch want := want.(type) {
	case errorReply:
		if err == nil || err.Error() != string(want) {
			t.Errorf("%s returned %#v, error %v; want error %q", command, got, err, string(want))
		}
	case error:
		if err != want {
			t.Errorf("%s returned %#v, error %v; want error %v", command, got, err, want)
		}
	default:
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s returned %#v, error %v; want %#v", command, got, err, want)
		}
	}
}

func speaking(t *testing.T, addr string, protocol int) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// An error from redis.call ends the script, but its writes stay. Only the text differs from Redis,
// where it begins with the code.
func TestErrorRaisedInScript(t *testing.T) {
	t.Parallel()
	rdb := start(t).Client()
	ctx := t.Context()
	if err := rdb.Set(ctx, "text", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	err := rdb.Eval(ctx, `
		redis.call('SET', KEYS[2], 'written')
		redis.call('HSET', KEYS[1], 'a', 1)
		redis.call('SET', KEYS[2], 'never')`, []string{"text", "other"}).Err()
	if err == nil || !strings.Contains(err.Error(), wrongType) {
		t.Errorf("HSET of a string by redis.call: %v; want an error with %q in it", err, wrongType)
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Error("the error begins with WRONGTYPE as in Redis now: say so in doc.go")
	}
	if got, err := rdb.Get(ctx, "other").Result(); got != "written" || err != nil {
		t.Errorf("the script's write before the error is %q, %v; want it to stay", got, err)
	}

	// Outside a script the text is that of Redis.
	if err := rdb.HSet(ctx, "text", "a", 1).Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("HSET of a string: %v; want WRONGTYPE", err)
	}
}

func TestScriptCache(t *testing.T) {
	t.Parallel()
	for server, addr := range bothServers(t) {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			testScriptCache(t, speaking(t, addr, 3))
		})
	}
}

func testScriptCache(t *testing.T, rdb *redis.Client) {
	ctx := t.Context()
	const source = "return 'cached'"
	script := redis.NewScript(source)

	noScript := func(when string) {
		t.Helper()
		if err := rdb.EvalSha(ctx, script.Hash(), nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("EVALSHA %s: %v; want NOSCRIPT", when, err)
		}
		if known, err := rdb.ScriptExists(ctx, script.Hash()).Result(); err != nil || known[0] {
			t.Errorf("SCRIPT EXISTS %s = %v, %v; want false", when, known, err)
		}
	}
	found := func(when string) {
		t.Helper()
		if got, err := rdb.EvalSha(ctx, script.Hash(), nil).Result(); got != "cached" || err != nil {
			t.Errorf("EVALSHA %s = %v, %v; want the script's reply", when, got, err)
		}
	}

	noScript("of a script never seen")
	if sha, err := rdb.ScriptLoad(ctx, source).Result(); sha != script.Hash() || err != nil {
		t.Errorf("SCRIPT LOAD = %q, %v; want %q", sha, err, script.Hash())
	}
	found("after SCRIPT LOAD")
	if err := rdb.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	noScript("after SCRIPT FLUSH")
	if err := rdb.Eval(ctx, source, nil).Err(); err != nil {
		t.Fatal(err)
	}
	found("after EVAL")

	// In a pipeline the missing script fails alone.
	var cmds [3]*redis.Cmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		cmds[0] = p.EvalSha(ctx, script.Hash(), nil)
		cmds[1] = p.EvalSha(ctx, strings.Repeat("f", 40), nil)
		cmds[2] = p.EvalSha(ctx, script.Hash(), nil)
		return nil
	})
	if !redis.HasErrorPrefix(err, "NOSCRIPT") || !redis.HasErrorPrefix(cmds[1].Err(), "NOSCRIPT") {
		t.Errorf("the unknown script in a pipeline: %v; want NOSCRIPT", cmds[1].Err())
	}
	if cmds[0].Val() != "cached" || cmds[2].Val() != "cached" {
		t.Errorf("its neighbours returned %v and %v", cmds[0], cmds[2])
	}
}

func TestPublishFromScript(t *testing.T) {
	t.Parallel()
	for server, addr := range bothServers(t) {
		for _, protocol := range []int{2, 3} {
			for _, call := range []string{"call", "pcall"} {
				t.Run(fmt.Sprintf("%s/RESP%d/%s", server, protocol, call), func(t *testing.T) {
					t.Parallel()
					testPublishFromScript(t, speaking(t, addr, protocol), call)
				})
			}
		}
	}
}

// Every message arrives, in order.
func testPublishFromScript(t *testing.T, rdb *redis.Client, call string) {
	channel := "c:" + t.Name()
	sub := subscribe(t, rdb, channel)

	publish := fmt.Sprintf("return redis.%s('PUBLISH', ARGV[1], ARGV[2])", call)
	const count = 100
	for i := range count {
		if n, err := rdb.Eval(t.Context(), publish, nil, channel, i).Int(); n != 1 || err != nil {
			t.Fatalf("PUBLISH = %d, %v; want 1: one subscriber", n, err)
		}
	}
	for i := range count {
		if got := receive[*redis.Message](t, sub); got.Channel != channel || got.Payload != strconv.Itoa(i) {
			t.Fatalf("message %d is %v", i, got)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		// New servers, because PUBSUB CHANNELS lists all channels.
		for server, addr := range bothServers(t) {
			t.Run(fmt.Sprintf("%s/RESP%d", server, protocol), func(t *testing.T) {
				t.Parallel()
				testSubscriptions(t, speaking(t, addr, protocol))
			})
		}
	}
}

func testSubscriptions(t *testing.T, rdb *redis.Client) {
	ctx := t.Context()

	channels := func(want ...string) {
		t.Helper()
		got, err := rdb.PubSubChannels(ctx, "*").Result()
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("PUBSUB CHANNELS = %q, %v; want %q", got, err, want)
		}
	}

	channels()
	sub := subscribe(t, rdb, "a{x}", "b")
	channels("a{x}", "b")
	if got, err := rdb.PubSubNumSub(ctx, "b", "none").Result(); err != nil || got["b"] != 1 || got["none"] != 0 {
		t.Errorf("PUBSUB NUMSUB = %v, %v; want b 1, none 0", got, err)
	}

	if err := sub.Ping(ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	if got := receive[*redis.Pong](t, sub); got.Payload != "hello" {
		t.Errorf("PING while subscribed = %v", got)
	}

	if err := sub.Unsubscribe(ctx, "a{x}"); err != nil {
		t.Fatal(err)
	}
	if got := receive[*redis.Subscription](t, sub); got.Kind != "unsubscribe" || got.Channel != "a{x}" || got.Count != 1 {
		t.Errorf("UNSUBSCRIBE confirmation: %v", got)
	}
	channels("b")
	if n, err := rdb.Publish(ctx, "a{x}", "m").Result(); n != 0 || err != nil {
		t.Errorf("PUBLISH to a channel without subscribers = %d, %v; want 0", n, err)
	}

	// The last channel is unsubscribed, and the connection subscribes again.
	if err := sub.Unsubscribe(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if got := receive[*redis.Subscription](t, sub); got.Count != 0 {
		t.Errorf("the last UNSUBSCRIBE confirmation: %v", got)
	}
	channels()
	if err := sub.Subscribe(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	if got := receive[*redis.Subscription](t, sub); got.Channel != "d" || got.Count != 1 {
		t.Errorf("SUBSCRIBE confirmation: %v", got)
	}
	if n, err := rdb.Publish(ctx, "d", "m").Result(); n != 1 || err != nil {
		t.Errorf("PUBLISH = %d, %v; want 1", n, err)
	}
	if got := receive[*redis.Message](t, sub); got.Payload != "m" {
		t.Errorf("message %v", got)
	}

	// A closed subscriber is not counted.
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := rdb.PubSubChannels(ctx, "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("PUBSUB CHANNELS = %q after the subscriber left", got)
		}
	}
}

// subscribe subscribes and waits until every channel is confirmed.
func subscribe(t *testing.T, rdb *redis.Client, channels ...string) *redis.PubSub {
	t.Helper()
	sub := rdb.Subscribe(t.Context(), channels...)
	t.Cleanup(func() { _ = sub.Close() })
	for i, channel := range channels {
		if got := receive[*redis.Subscription](t, sub); got.Kind != "subscribe" || got.Channel != channel || got.Count != i+1 {
			t.Fatalf("SUBSCRIBE %s is confirmed by %v", channel, got)
		}
	}
	return sub
}

func receive[T any](t *testing.T, sub *redis.PubSub) T {
	t.Helper()
	got, err := sub.ReceiveTimeout(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	message, ok := got.(T)
	if !ok {
		t.Fatalf("received %T %v, want %T", got, got, message)
	}
	return message
}

// A connection uses RESP2 until HELLO 3. Then maps and pushes have their own types.
func TestHello(t *testing.T) {
	t.Parallel()
	tests := []struct{ protocol, hello, push string }{
		{protocol: "2", hello: "*", push: "*3\r\n$9\r\nsubscribe\r\n"},
		{protocol: "3", hello: "%", push: ">3\r\n$9\r\nsubscribe\r\n"},
	}
	for server, addr := range bothServers(t) {
		for _, test := range tests {
			t.Run(server+"/RESP"+test.protocol, func(t *testing.T) {
				t.Parallel()
				got := helloAndSubscribe(t, addr, test.protocol)
				if !strings.HasPrefix(got, test.hello) {
					t.Errorf("HELLO %s returned %q, want it to begin with %q", test.protocol, got, test.hello)
				}
				if !strings.HasSuffix(got, test.push+confirmation) {
					t.Errorf("SUBSCRIBE returned %q, want %q at the end", got, test.push+confirmation)
				}
			})
		}
	}
}

const confirmation = "$1\r\nc\r\n:1\r\n" // how the answer to SUBSCRIBE c ends

// helloAndSubscribe returns both replies as raw bytes.
func helloAndSubscribe(t *testing.T, addr, protocol string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "*2\r\n$5\r\nHELLO\r\n$1\r\n%s\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n", protocol)

	var got strings.Builder
	for buf := make([]byte, 4096); !strings.HasSuffix(got.String(), confirmation); {
		n, err := conn.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
	}
	return got.String()
}

// Missing commands fail at once with a clear error and leave the connection usable. If one of these
// begins to work, update doc.go.
func TestMissingCommands(t *testing.T) {
	t.Parallel()
	rdb := start(t).Client()
	ctx := t.Context()
	for _, command := range [][]any{
		{"SPUBLISH", "c", "0"},
		{"SSUBSCRIBE", "c"},
		{"PUBSUB", "SHARDNUMSUB"},
		{"CLIENT", "PAUSE", "1"},
		{"CONFIG", "GET", "maxmemory"},
	} {
		if got, err := rdb.Do(ctx, command...).Result(); err == nil || !strings.Contains(err.Error(), "unknown") {
			t.Errorf("%v = %v, %v; want an error that says unknown", command, got, err)
		}
	}

	const spublish = `
		redis.call('HSET', KEYS[1], 'a', 1)
		local sent = redis.pcall('SPUBLISH', KEYS[1], '0')
		return {redis.call('HDEL', KEYS[1], 'a'), sent['err'] ~= nil}`
	if got, err := rdb.Eval(ctx, spublish, []string{"k"}).Int64Slice(); err != nil || !reflect.DeepEqual(got, []int64{1, 1}) {
		t.Errorf("a script that tries SPUBLISH by pcall = %v, %v; want it to go on with an error in hand", got, err)
	}
	if n, err := rdb.Wait(ctx, 1, time.Millisecond).Result(); n != 0 || err != nil {
		t.Errorf("WAIT = %d, %v; want 0 replicas", n, err)
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Error(err)
	}
}
