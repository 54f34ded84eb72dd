package redisacl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The texts are those of Redis 6.2 and 7.0, and of their scripts.
func TestRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'hget' command":                                       "+hget",
		"NOPERM User orders has no permissions to run the 'cluster|slots' command":                            "+cluster|slots",
		"NOPERM this user has no permissions to run the 'publish' command or its channel":                     "+publish",
		"NOPERM No permissions to access a key":                                                               "~orders:*",
		"NOPERM this user has no permissions to access one of the keys used as arguments":                     "~orders:*",
		"NOPERM No permissions to access a channel":                                                           "&events:*",
		"NOPERM this user has no permissions to access one of the channels used as arguments":                 "&events:*",
		"ERR The user executing the script can't publish to the channel mentioned in the command":             "&events:*",
		"ERR The user executing the script can't run this command or subcommand":                              "+hset",
		"ERR The user executing the script can't access at least one of the keys mentioned":                   "~orders:*",
		"ERR ACL failure in script: User orders has no permissions to run the 'hset' command script: 1, on @": "+hset",
	} {
		err := errors.New(text)
		if got := (Denial{Err: err, Key: "orders:*", Channel: "events:*", InScript: "hset"}).Rule(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if !Denied(err) || !Denied(fmt.Errorf("reqlock: ping: %w", err)) {
			t.Errorf("%s: not seen as a denial", text)
		}
	}
	if got := (Denial{Err: errors.New("NOPERM no reason"), Channel: "events:*"}).Rule(); got != "&events:*" {
		t.Errorf("a command without keys: %s", got)
	}
	if Denied(nil) || Denied(errors.New("OOM command not allowed when used memory > 'maxmemory'")) {
		t.Error("another error is seen as a denial")
	}
}

// The error has each rule once, in the order of the denials, and wraps the first.
func TestLacks(t *testing.T) {
	t.Parallel()
	publish := errors.New("NOPERM this user has no permissions to run the 'publish' command")
	denied := []Denial{{Err: publish}, {Err: errors.New("NOPERM No permissions to access a key"), Key: "a:*"}, {Err: publish}}
	for user, want := range map[User]string{
		"orders": `the Redis user "orders" lacks permissions: ACL SETUSER orders +publish ~a:* (` + publish.Error() + ")",
		"":       `the Redis user "default" lacks permissions: ACL SETUSER default +publish ~a:* (` + publish.Error() + ")",
	} {
		if err := user.Lacks(denied); err.Error() != want || !errors.Is(err, publish) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Redis answers May without running the command and without a line in its ACL log, and accepts what
// Grant says.
func TestMay(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	may := func() int {
		t.Helper()
		n, err := rdb.Eval(ctx, May("'HSET', KEYS[1], 'f', '1'"), []string{"a"}).Int()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	grant := func(rule string) {
		t.Helper()
		words := []any{}
		for _, word := range strings.Fields(User("").Grant(rule)) {
			words = append(words, word)
		}
		if err := rdb.Do(ctx, words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if may() != 1 {
		t.Error("the default user may not run HSET")
	}
	grant("-hset")
	if may() != 0 {
		t.Error("a user without HSET may run it")
	}
	grant("+hset")
	if may() != 1 {
		t.Error("the rule of Grant permits nothing")
	}
	if n := rdb.Exists(ctx, "a").Val(); n != 0 {
		t.Error("May ran the command")
	}
	if log := rdb.ACLLog(ctx, 10).Val(); len(log) > 0 {
		t.Errorf("denied: %+v", log[0])
	}
}
