package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A documented command is a command line of a page, with the output that the page shows.
type documented struct {
	args   []string
	output string // empty: not shown
}

// documentation returns the command lines in blocks of the type console.
func documentation(t *testing.T) (all []documented) {
	t.Helper()
	var text []byte
	for _, page := range []string{"commands", "run"} {
		read, err := os.ReadFile("../../docs/guides/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, read...)
	}
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		ours := false
		for line := range strings.Lines(block[1]) {
			switch command, ok := strings.CutPrefix(line, "$ reqlock "); {
			case ok:
				all, ours = append(all, documented{args: split(strings.TrimSpace(command))}), true
			case strings.HasPrefix(line, "$ "):
				ours = false
			case ours:
				all[len(all)-1].output += line
			}
		}
	}
	return all
}

// split splits a command line as a shell does, for plain and quoted words.
func split(line string) (args []string) {
	for _, word := range regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`).FindAllString(line, -1) {
		if word[0] == '"' || word[0] == '\'' {
			word = word[1 : len(word)-1]
		}
		args = append(args, word)
	}
	return args
}

var (
	durations = regexp.MustCompile(`\b\d+(ms|s|m|h|d)\d*[smh]?\b`)
	blanks    = regexp.MustCompile(` +`)
)

// normal replaces what depends on the moment.
func normal(output string) string {
	return blanks.ReplaceAllString(durations.ReplaceAllString(output, "T"), " ")
}

// Every command line in the pages about the command works, and prints what the page shows.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	hold := func(name, owner string) {
		t.Helper()
		if err := rdb.HSet(t.Context(), name, owner, 1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.PExpire(t.Context(), name, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	hold("reqlock:order:42", web1+":7")
	hold("reqlock:order:43", jvm+":57")
	for range 2 {
		listen(t, srv.Client(t), core.KeysOf("reqlock:order:42").Channel)
	}
	export, expiry := core.KeysOf("reqlock:export"), time.Now().Add(time.Hour).UnixMilli()
	for _, args := range [][]any{
		{"SET", export.Lock, 2},
		{"SET", export.Declared, "5 1764345600000"},
		{"ZADD", export.Taken, expiry, web1 + ":14", expiry, web1 + ":14:2", int64(922337203685477), "\x00\xff\r\n:{}%\x7f\x80ABCDEF"},
	} {
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	commands := documentation(t)
	if len(commands) < 9 {
		t.Fatalf("only %d commands found", len(commands))
	}
	for _, c := range commands {
		ctx := t.Context()
		if c.args[0] == "watch" {
			over, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			ctx = over
		}
		r := call{redis: srv.URL()}.run(ctx, c.args...)
		r.check(t, done, c.args)
		if c.output != "" && normal(r.out) != normal(c.output) {
			t.Errorf("reqlock %q prints\n%s\nwant\n%s", c.args, r.out, c.output)
		}
	}
}

// listen subscribes until the test ends.
func listen(t *testing.T, rdb *redis.Client, channel string) {
	t.Helper()
	connection := rdb.Subscribe(t.Context(), channel)
	if _, err := connection.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
}
