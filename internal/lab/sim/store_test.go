package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The store and the scripter give the same replies as a real Redis, to commands from clients and
// from scripts.
func TestStore_AgreesWithRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), Protocol: 2, DisableIdentity: true})
	defer rdb.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	s := newStore(rng)
	s.now = 1_700_000_000_000
	sc := newScripter(s)
	defer sc.state.Close()
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	refused := make(map[string]int)
	for range rounds {
		args := randomCommand(rng)
		var ours, theirs any
		var err error
		source := "return redis.pcall(unpack(ARGV))"
		switch rng.IntN(4) {
		case 0:
			source = "return redis.call(unpack(ARGV))"
			fallthrough
		case 1:
			ours = sc.run(source, nil, args)
			theirs, err = rdb.Eval(t.Context(), source, nil, toAny(args)...).Result()
		case 2: // numbers and tables pass through Lua
			source = `
				local r = redis.pcall(unpack(ARGV))
				if type(r) == 'table' and r.err then return r.err end
				return {r, type(r), type(r) == 'number' and r / 2 or false, #ARGV}`
			ours = sc.run(source, nil, args)
			theirs, err = rdb.Eval(t.Context(), source, nil, toAny(args)...).Result()
		default:
			ours = s.do(args[0], args[1:])
			theirs, err = rdb.Do(t.Context(), toAny(args)...).Result()
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			text, failed := ours.(errorReply)
			if code, _, _ := strings.Cut(string(text), " "); !failed || !strings.HasPrefix(err.Error(), code) {
				t.Fatalf("%q: Redis says %v, the store %v", args, err, ours)
			}
			refused[args[0]]++
			continue
		}
		if got, want := normalize(args[0], ours), normalize(args[0], theirs); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q by %q: Redis says %#v, the store %#v", args, source, want, got)
		}
	}
	if len(refused) == 0 {
		t.Error("no command was refused")
	}
}

func toAny(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// normalize makes equal replies comparable. A TTL may differ: time passes on the real server.
func normalize(command string, reply any) any {
	switch r := reply.(type) {
	case status:
		return string(r)
	case errorReply:
		code, _, _ := strings.Cut(string(r), " ")
		return code
	case string:
		if code, _, isError := strings.Cut(r, " "); isError {
			return code
		}
		if f, err := strconv.ParseFloat(r, 64); err == nil {
			return f
		}
	case int64:
		if command == "PTTL" && r > 1000 {
			return "a time to live"
		}
	case []any:
		items := []any{}
		for _, item := range r {
			items = append(items, normalize(command, item))
		}
		return items
	}
	return reply
}

// randomCommand draws a command on one of a few keys of all types.
func randomCommand(rng *rand.Rand) []string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	key := pick("hash", "hash2", "list", "zset", "text", "number", "any")
	name := pick("a", "b", "c")
	number := strconv.Itoa(rng.IntN(7) - 3)
	if rng.IntN(10) > 0 { // use a key of the right type
		key = ""
	}
	on := func(std string) string {
		if key == "" {
			return std
		}
		return key
	}
	all := [][]string{
		{"DEL", pick("hash", "hash2", "list", "zset", "text", "number", "any")},
		{"EXISTS", on("hash")}, {"PTTL", on("hash")}, {"PTTL", on("text")},
		{"PEXPIRE", on("hash"), fmt.Sprint(100_000 + rng.IntN(100_000)*1000)},
		{"PEXPIRE", on("hash"), fmt.Sprint(100_000 + rng.IntN(1000)*100_000), "GT"},
		{"PEXPIRE", on("zset"), "-1"}, {"PEXPIRE", on("text"), "1", "GT"},
		{"SET", on("text"), name}, {"SET", on("text"), name, "PX", "1000000"}, {"SET", on("text"), name, "PX", "0"},
		{"GET", on("text")}, {"GET", on("number")}, {"INCR", on("number")}, {"INCR", on("text")},
		{"HSET", on("hash"), name, number}, {"HSET", on("hash2"), "a", "1", "b", number}, {"HSETNX", on("hash"), name, number},
		{"HGET", on("hash"), name}, {"HMGET", on("hash"), "a", name}, {"HDEL", on("hash"), name}, {"HDEL", on("hash2"), "a", "b"},
		{"HEXISTS", on("hash"), name}, {"HLEN", on("hash")}, {"HKEYS", on("hash")}, {"HRANDFIELD", on("hash"), "9", "WITHVALUES"},
		{"RPUSH", on("list"), name}, {"LINDEX", on("list"), number}, {"LPOS", on("list"), name}, {"LRANGE", on("list"), number, "-1"},
		{"LPOS", on("list"), name, "MAXLEN", "2"}, {"LLEN", on("list")}, {"LSET", on("list"), number, name},
		{"LRANGE", on("list"), "1", number}, {"LREM", on("list"), "0", name}, {"LREM", on("list"), pick("1", "-1", "-2"), name},
		{"ZADD", on("zset"), number, name}, {"ZINCRBY", on("zset"), number, name}, {"ZREM", on("zset"), name}, {"ZSCORE", on("zset"), name},
		{"ZREM", on("zset"), "a", name}, {"ZRANK", on("zset"), name}, {"ZCARD", on("zset")},
		{"PUBLISH", "channel", name}, {"SPUBLISH", "channel", name}, {"NONE"}, {"HGET", "hash"},
	}
	return all[rng.IntN(len(all))]
}

// With full memory, the scripter refuses the same commands as Redis: those that may need memory, if
// the script has not written before.
func TestScripter_Refuses(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := newStore(rand.New(rand.NewPCG(1, 2)))
	sc := newScripter(s)
	defer sc.state.Close()
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	sc.full = true
	for _, source := range []string{
		"return redis.call('HSET', 'k', 'f', 1)",
		"redis.call('DEL', 'x') return redis.call('HSET', 'k', 'f', 1)",
		"redis.pcall('PEXPIRE', 'x', 1, 'GT') return redis.call('HSET', 'k', 'f', 2)",
		"return redis.call('HDEL', 'k', 'f')",
		"return redis.pcall('RPUSH', 'k', 'f')",
		"redis.call('HGET', 'k', 'f') return redis.call('INCR', 'n')",
	} {
		ours := sc.run(source, nil, nil)
		theirs, err := rdb.Eval(t.Context(), source, nil).Result()
		if err != nil {
			theirs = errorReply(err.Error())
		}
		if got, want := normalize("", ours), normalize("", theirs); got != want {
			t.Errorf("%q with a full memory: Redis says %v, the scripter %v", source, theirs, ours)
		}
	}
}
