package redisurl

import (
	"errors"
	"strings"
	"testing"
)

// No error has a password in it, wherever a URL has one.
func TestOptions(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{ // "": it is usable
		"redis://127.0.0.1:6379":                      "",
		"redis://u:secret@127.0.0.1:6379/1":           "",
		"redis://u:secret@[::1]:6379/1?protocol=2":    "",
		"rediss://:secret%2F%40%3F@127.0.0.1":         "",
		"unix://u:secret@/run/redis.sock?db=1":        "",
		"redis://default:/secret@127.0.0.1:6379":      "not shown",
		"redis://default:12/secret@127.0.0.1:6379":    "not shown",
		"redis://default:12?secret@127.0.0.1:6379":    "not shown",
		"redis://default:12#secret@127.0.0.1:6379":    "not shown",
		"redis://default:12/?client_name=secret@a":    "not shown",
		"redis://u:secret@127.0.0.1:port":             "not shown",
		"redis://u:sec\nret@127.0.0.1":                "not shown",
		"redis:secret":                                "not shown",
		"secret":                                      "not shown",
		"redis://default:/secret":                     "invalid database number",
		"redis://127.0.0.1/0/secret":                  "invalid database number",
		"redis://127.0.0.1?db=secret":                 "invalid value of a parameter",
		"redis://127.0.0.1?dial_timeout=secret":       "invalid value of dial_timeout",
		"redis://127.0.0.1?pool_size=secret":          "invalid value of pool_size",
		"redis://127.0.0.1?pool_fifo=secret":          "invalid value of pool_fifo",
		"redis://127.0.0.1?b=secret&a=1":              "unexpected option: a, b",
		"http://u:secret@127.0.0.1":                   "invalid URL scheme: http",
		"unix://u:secret@":                            "empty unix socket path",
		"redis+cluster://u:secret@127.0.0.1:6379?a=b": "invalid URL scheme: redis+cluster",
	} {
		opts, err := Options(raw)
		switch {
		case want == "":
			if err != nil || opts == nil {
				t.Errorf("%s: %v", raw, err)
			}
		case err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	if _, err := Parse("redis://default:/secret@127.0.0.1:6379"); !errors.Is(err, ErrHidden) {
		t.Error(err)
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://127.0.0.1:6379":                    "redis://127.0.0.1:6379",
		"redis://u:secret@127.0.0.1:6379/1?a=b#c":   "redis://***@127.0.0.1:6379/1",
		"redis://default:/secret":                   "redis://default:/***",
		"unix://u:secret@/run/redis.sock?db=secret": "unix://***@/run/redis.sock",
	} {
		u, err := Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := Shown(u); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}
