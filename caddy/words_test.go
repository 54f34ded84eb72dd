package caddylock

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/reqlock/reqlock/guard/routes"
)

// Caddy's JSON and a file of routes refuse the same values, with the same words.
func TestMistakes_SameWords(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		`"mode": "exclusif"`:            `mode is "exclusif"; want exclusive, fair, fenced, read, write or read_write`,
		`"wait": "-2s"`:                 `; want a duration such as 2s or 1m30s`,
		`"max_hold": "-1ns"`:            `; want a duration such as 2s or 1m30s`,
		`"lease": "10us"`:               `; want a duration of at least 1ms, or 0 to renew the lock`,
		`"max_waiters": -2`:             `max_waiters is -2; want a number, -1 for no bound, or 0 for 1024`,
		`"keys": ["a"], "mode": "fair"`: "",

		`"mode": "read", "fenced": true`:       `fenced is set with mode read, but readers have no tokens; leave fenced out, or use read_write`,
		`"keys": ["a", "b"], "fenced": true`:   `fenced is set, but several locks have no common token; use one key, or leave fenced out`,
		`"keys": ["a", "b"], "mode": "fenced"`: `mode is fenced, but several locks have no common token; use one key, or exclusive`,
		`"limit": 1`:                           `limit is 1; want 2 or more, or 0 for a lock, which lets one in at a time`,
		`"limit": -5`:                          `limit is -5; want 2 or more, or 0 for a lock`,
		`"limit": 5, "mode": "exclusive"`:      `the route has both mode and limit; a mode is a kind of lock`,
		`"limit": 5, "fenced": true`:           `fenced is set with a limit, but several requests are inside at a time, so none has a token`,
		`"limit": 5, "wait": "1s"`:             "",
		`"delegates": "yes"`:                   `delegates is "yes"; want none, together or one_at_a_time`,
		`"mode": "read_write", "fenced": true`: "",
		`"mode": "fenced", "fenced": true`:     "",
		`"lease": "1ms", "wait": "1m30s"`:      "",
	} {
		if !strings.Contains(members, `"keys"`) {
			members = `"keys": ["a"], ` + members
		}
		handler := new(Handler)
		if err := json.Unmarshal([]byte("{"+members+"}"), handler); err != nil {
			t.Fatal(err)
		}
		_, inCaddy := handler.config()
		_, inFile := routes.Parse("locks.json", []byte(`{"routes": [{"pattern": "/x", `+members+`}]}`), routes.Options{})
		wantMistake(t, inCaddy, want)
		wantMistake(t, inFile, want)
	}
	for members, want := range map[string]string{
		`"scope": "everybody"`:                       `scope is "everybody", the same for all callers; want a source such as {`,
		`"scope": "global", "on_unknown": "retry"`:   `on_unknown is "retry"; want rerun or refuse`,
		`"scope": "global", "lease": "10us"`:         `; want a duration of at least 1ms, or 0 to renew the lock`,
		`"scope": "{header.X-User}", "ttl": "1m30s"`: "",
	} {
		handler := new(Idempotent)
		if err := json.Unmarshal([]byte("{"+members+"}"), handler); err != nil {
			t.Fatal(err)
		}
		_, inCaddy := handler.config()
		_, inFile := routes.Parse("locks.json", []byte(`{"routes": [{"pattern": "/x", "idempotency": {`+members+`}}]}`), routes.Options{})
		wantMistake(t, inCaddy, want)
		wantMistake(t, inFile, want)
	}
}

// In JSON, too, a mistake names the directive and the option.
func TestMistakes_Coalesce(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		`"user": "alice"`:     `reqlock_coalesce: user is "alice", the same for all`,
		`"key": "{user}"`:     "reqlock_coalesce: key: ",
		`"vary": ["a b"]`:     "reqlock_coalesce: vary: ",
		`"unsafe": "a query"`: "reqlock_coalesce: unsafe: ",
		`"wait": "1us"`:       "reqlock_coalesce: wait: ",
		`"wait": "-2s"`:       "reqlock_coalesce: wait is -2s; want a duration such as 2s or 1m30s",
		`"lease": "10us"`:     "reqlock_coalesce: lease is 10µs; want a duration of at least 1ms, or 0 to renew the lock",
		`"max_waiters": -2`:   "reqlock_coalesce: max_waiters is -2; want a number, -1 for no bound, or 0 for 1024",
		`"keep": "2h"`:        "reqlock_coalesce: keep: ",
		`"error_for": "2h"`:   "reqlock_coalesce: error_for: ",
		`"max_answer": -1`:    "reqlock_coalesce: max_answer: ",
		`"limit": -1`:         "reqlock_coalesce: limit: ",
	} {
		handler := new(Coalesce)
		if err := json.Unmarshal([]byte("{"+members+"}"), handler); err != nil {
			t.Fatal(err)
		}
		wantMistake(t, handler.Provision(caddy.Context{}), want)
	}
	for _, members := range []string{`"error_for": -1`, `"user": "everyone", "keep": "1h"`, `"key": "{body.hash}", "unsafe": "a query"`} {
		handler := new(Coalesce)
		if err := json.Unmarshal([]byte("{"+members+"}"), handler); err != nil {
			t.Fatal(err)
		}
		if _, err := handler.config(); err != nil {
			t.Errorf("%s: %v", members, err)
		}
	}
}

// wantMistake fails the test unless err says that; "": unless there is none.
func wantMistake(t *testing.T, err error, says string) {
	t.Helper()
	if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
}
