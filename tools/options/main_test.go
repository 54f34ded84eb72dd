package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]string{
		"Wait is how long a request waits. More about it. 0: 30s, at least 10ms. Redisson: waitTime.": "How long a request waits. 0: 30s, at least 10ms.",
		"Wait bounds it: 0: none.":     "Bounds it: 0: none.",
		"Wait logs.\nnil: slog.\n":     "Logs. nil: slog.",
		"Wait picks a|b and T<x>.":     `Picks a\|b and T&lt;x>.`,
		"Wait waits. 0: 1024; -1: no.": "Waits. 0: 1024; -1: no.",
		"":                             "",
	} {
		if got := summary("Wait", comment); got != want {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "options.md")
	if err := run("../..", document, true); err != nil {
		t.Fatal(err)
	}
	if err := run("../..", document, false); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n| `WaitTime` | `time.Duration` | How long a request waits for a held lock. 0: it gets 409 at once. |\n") {
		t.Errorf("no row of guard.Config.WaitTime:\n%s", text)
	}
	if err := os.WriteFile(document, append(text, "more"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run("../..", document, false); err == nil {
		t.Error("a changed document passes")
	}
	if _, err := (subject{dir: "guard", name: "Nothing"}).rows("../.."); err == nil {
		t.Error("a struct that does not exist passes")
	}
}
