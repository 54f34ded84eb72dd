package main

import (
	"strings"
	"testing"
)

// The log of a service has no password, even if REDIS_URL has a mistake.
func TestRun_HidesPasswords(t *testing.T) {
	for _, url := range []string{
		"redis://user:secret@127.0.0.1:port", "redis://default:/secret@127.0.0.1:6379", "redis://default:12/secret@127.0.0.1:6379",
		"redis://default:12#secret@127.0.0.1:6379", "redis://default:/secret", "redis://127.0.0.1/?dial_timeout=secret", "secret",
	} {
		t.Setenv("REDIS_URL", url)
		err := run(t.Context(), "127.0.0.1:0", "none", "")
		if err == nil || !strings.HasPrefix(err.Error(), "REDIS_URL: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
