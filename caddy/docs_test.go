package caddylock_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The Caddyfiles of the documentation are valid and formatted.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/caddy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 4 {
		t.Fatalf("found %d Caddyfiles", len(blocks))
	}
	p := &process{dir: t.TempDir(), port: "1"}
	for _, block := range blocks {
		for _, args := range [][]string{{"validate", "--config"}, {"fmt", "--diff"}} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			out, err := p.command(ctx, append(args, p.write(t, string(block[1])))...).CombinedOutput()
			cancel()
			if err != nil {
				t.Errorf("caddy %s: %v\n%s\n%s", args[0], err, block[1], out)
			}
		}
	}
}

// Each option is in the tables of the documentation, and in the comment that shows its directive.
func TestDocs_Options(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/caddy-options.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("caddyfile.go")
	if err != nil {
		t.Fatal(err)
	}
	options := regexp.MustCompile(`(?m)^\s+(?:options\["(\w+)"\] = |"(\w+)": +(?:\w+Option|a\.parse|func))`).FindAllStringSubmatch(string(source), -1)
	if len(options) < 35 {
		t.Fatalf("found %d options", len(options))
	}
	rows := strings.Join(regexp.MustCompile(`(?m)^\| .*$`).FindAllString(string(page), -1), "\n")
	for _, o := range options {
		name := o[1] + o[2]
		if !regexp.MustCompile("[`{;] ?" + name + "\\b").MatchString(rows) {
			t.Errorf("docs/reference/caddy-options.md lacks the option %s", name)
		}
		if !regexp.MustCompile(`(?m)^//\t+` + name + `\b`).Match(source) {
			t.Errorf("the comments lack the option %s", name)
		}
	}
}
