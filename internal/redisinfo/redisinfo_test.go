package redisinfo

import (
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# Server\r\nredis_version:7.0.15\r\n":                                "Redis 7.0.15",
		"# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.1\r\n":         "Valkey 8.1.1, compatible with Redis 7.2.4",
		"# Server\r\nredis_version:6.3.4\r\n\r\n# KeyDB\r\nmvcc_depth:0\r\n":  "KeyDB 6.3.4",
		"# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n": "Dragonfly v1.27.1, compatible with Redis 7.4.0",
		"# Server\r\nsomething_else:1\r\n":                                    "a server of an unknown version",
	} {
		if got := Parse(text).Server(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestRisks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"maxmemory_policy:noeviction\r\nmaxmemory:100\r\naof_enabled:1":  "",
		"maxmemory_policy:allkeys-lru\r\nmaxmemory:100\r\naof_enabled:1": "fencing tokens first",
		"maxmemory_policy:volatile-ttl\r\nmaxmemory:100\r\n":             "two owners",
		"maxmemory_policy:volatile-ttl\r\nmaxmemory:0\r\n":               "no effect",
		"aof_enabled:0": "no append-only file",
		"role:master":   "",
	} {
		i := Parse(text)
		got := ""
		for _, r := range []*Risk{i.Eviction(), i.Persistence()} {
			if r != nil {
				got += r.Finding
				if r.Change == "" {
					t.Errorf("%q: no change", text)
				}
				if r.Serious != strings.Contains(r.Finding, "two owners") {
					t.Errorf("%q: serious %t", text, r.Serious)
				}
			}
		}
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
