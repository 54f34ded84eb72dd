package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const (
	web1 = "web-1.4242.k3j9x2ab"
	web2 = "web-2.991.p0q2w1cd"
	jvm  = "301aaf8b-4c7e-4a6e-9f0e-1d2c3b4a5968"
)

// fill writes locks as their holders do, with TTLs that do not change what is printed.
func fill(t *testing.T, rdb *redis.Client) {
	t.Helper()
	do := func(args ...any) {
		t.Helper()
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	hold := func(name string, fields ...any) {
		t.Helper()
		do(append([]any{"HSET", name}, fields...)...)
		do("PEXPIRE", name, (3*time.Hour + 30*time.Minute + 59*time.Second).Milliseconds())
	}
	hold("order:42", web1+":7", 2)
	hold("order:43", jvm+":57", 1)
	hold("order:44", web1+":8", 1)
	do("RPUSH", core.KeysOf("order:44").Queue, web2+":3", jvm+":58")
	do("SET", core.KeysOf("order:44").Tokens, 12)
	deadline := time.Now().Add(5*time.Hour + 59*time.Second).UnixMilli()
	do("ZADD", core.KeysOf("order:44").Deadlines, deadline, web2+":3", deadline, jvm+":58")
	hold("order:45", "mode", "read", web1+":9", 1, web2+":4", 1, jvm+":59", 1)
	do("SET", core.KeysOf("order:45").ReadTimeout(web1+":9", 1), 1, "PX", (2*time.Hour + 59*time.Second).Milliseconds())
	do("SET", core.KeysOf("order:45").ReadTimeout(jvm+":59", 1), 1, "PX", (2*time.Hour + 59*time.Second).Milliseconds())
	hold("order:46", "mode", "write", web1+":10:write", 1)
	do("SET", core.KeysOf("order:46").Tokens, 7)
	hold("order:47", web1+":11", 1)
	do("SET", core.KeysOf("order:47").Tokens, 33)
	do("HSET", "order:48", jvm+":60", 1) // without a TTL
	do("HSET", core.KeysOf("order:49").Record, "record", strings.Repeat("x", 2000), "owner", web1+":12", "ttl", 26*3600*1000)
	do("PEXPIRE", core.KeysOf("order:49").Record, (23*time.Hour + 59*time.Second).Milliseconds())
	do("SET", core.KeysOf("order:50").Tokens, 1)
	hold("order:\x1b[31mred", web1+":13", 1)
	do("SET", "order:other", "a key of another program")
	expiry := time.Now().Add(4*time.Hour + 59*time.Second).UnixMilli()
	do("SET", "export:pdf", 2)
	do("SET", core.KeysOf("export:pdf").Declared, "5 1764345600000")
	do("ZADD", core.KeysOf("export:pdf").Taken, expiry, web1+":14", expiry, web1+":14:2", int64(922337203685477), "\x00\xff\r\n:{}%\x7f\x80ABCDEF", 1, web2+":5")
	do("DECR", "export:pdf") // the permit that has expired is taken until the next acquire
	do("SET", "export:csv", 4)
	do("SET", core.KeysOf("export:csv").Declared, "4 1764345600000")
	do("SET", "export:xls", -1)
	do("SET", core.KeysOf("export:xls").Declared, "1 1764345600000")
	do("ZADD", core.KeysOf("export:xls").Taken, expiry, web1+":15", expiry, web2+":6")
	do("ZADD", core.KeysOf("export:old").Taken, expiry, web1+":16")
}

func TestGolden(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fill(t, srv.Client(t))
	pipe := call{redis: srv.URL()}
	narrow := call{redis: srv.URL(), columns: 60}
	for name, test := range map[string]struct {
		call
		args string
	}{
		"ls":          {pipe, "ls"},
		"ls_prefix":   {pipe, "ls order:43"},
		"ls_free":     {pipe, "ls order: --free"},
		"ls_narrow":   {narrow, "ls"},
		"ls_80":       {call{redis: srv.URL(), columns: 80}, "ls"},
		"ls_color":    {call{redis: srv.URL(), columns: 120, color: true}, "ls order:4"},
		"ls_json":     {pipe, "ls --json order:44"},
		"show_lock":   {pipe, "show order:42"},
		"show_jvm":    {pipe, "show order:43"},
		"show_fair":   {pipe, "show order:44"},
		"show_read":   {pipe, "show order:45"},
		"show_write":  {pipe, "show order:46"},
		"show_fenced": {pipe, "show order:47"},
		"show_stuck":  {pipe, "show order:48"},
		"show_once":   {pipe, "show order:49"},
		"show_free":   {pipe, "show order:50"},
		"show_json":   {pipe, "show --json order:45"},

		"ls_semaphores":          {pipe, "ls export: --free"},
		"ls_semaphores_json":     {pipe, "ls export:pdf --json"},
		"show_semaphore":         {pipe, "show export:pdf"},
		"show_semaphore_free":    {pipe, "show export:csv"},
		"show_semaphore_lowered": {pipe, "show export:xls"},
		"show_semaphore_unknown": {pipe, "show export:old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := test.run(t.Context(), words(test.args)...)
			if r.code != 0 || r.err != "" {
				t.Fatalf("exit code %d: %s", r.code, r.err)
			}
			golden(t, name, hideTimes(r.out))
		})
	}
}

var times = regexp.MustCompile(`("(?:ttl|deadline|age)_ms": )\d+`)

// hideTimes replaces times in JSON, which change every millisecond.
func hideTimes(s string) string { return times.ReplaceAllString(s, "${1}0") }

func TestHelp(t *testing.T) {
	t.Parallel()
	golden(t, "help", call{}.want(t, done, words("help")).out)
	for _, e := range entries {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			help := call{redis: "redis://user:secret@127.0.0.1:1"}.want(t, done, []string{"help", e.name}, "usage: reqlock "+e.name, "!secret")
			if same := (call{}.want(t, done, []string{e.name, "-h"})); same.out != help.out {
				t.Errorf("reqlock %s -h prints\n%s", e.name, same.out)
			}
			golden(t, "help_"+e.name, help.out)
		})
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0ms": 0, "999ms": 999 * time.Millisecond, "1s": 1999 * time.Millisecond, "59s": 59 * time.Second, "1m": time.Minute, "1m1s": 61 * time.Second,
		"2h": 2 * time.Hour, "47h59m": 48*time.Hour - time.Second, "2d": 48 * time.Hour, "3d4h": 76 * time.Hour, "-5s": -5 * time.Second,
	} {
		if got := short(d.Milliseconds()); got != want {
			t.Errorf("short(%s) = %s, want %s", d, got, want)
		}
	}
	for want, n := range map[string]int64{"0 B": 0, "1023 B": 1023, "1.0 KiB": 1024, "1.5 MiB": 3 << 19, "2048.0 TiB": 2 << 50} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]string{"abcdefghij": "abcdefghij", "abcdefghijk": "abcd…ghijk", "äöüäöüäöüäöü": "äöüä…öüäöü",
		"订单订单订单": "订单…订单", "e\u0301e\u0301e\u0301": "e\u0301e\u0301e\u0301"} {
		if got := cut(text, 10); got != want {
			t.Errorf("cut(%s) = %s, want %s", text, got, want)
		}
	}
	if got := fmt.Sprint(printable("a b"), printable(""), printable("a\nb"), printable("\xff")); got != `a b""`+`"a\nb""\xff"` {
		t.Error(got)
	}
}

// TestTable_WideNames checks that columns stand below each other where a character fills two
// columns of a terminal, or none.
func TestTable_WideNames(t *testing.T) {
	t.Parallel()
	var names table
	names.head("LOCK", "KIND")
	for _, name := range []string{"订单:42", "order:42", "cafe\u0301:4"} {
		names.add(cell{text: name}, cell{text: "lock"})
	}
	want := []string{"LOCK      KIND", "订单:42   lock", "order:42  lock", "cafe\u0301:4    lock"}
	if got := names.lines(screen{}, 0); !slices.Equal(got, want) {
		t.Errorf("the table is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	names.shrink = []shrink{{0, narrowest}}
	if got := names.lines(screen{}, 12)[1]; got != "订单:42   lock" {
		t.Errorf("a column that shrinks to %d shows %q", narrowest, got)
	}
}
