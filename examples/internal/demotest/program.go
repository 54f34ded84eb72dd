package demotest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait; nothing waits for it to pass.
const patience = 30 * time.Second

// A Program is a run of the binary.
type Program struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner // of its standard output
	seen   []string       // lines that were read
	stderr bytes.Buffer
}

// Start runs the binary on a free port, with REDIS_URL as given; empty: Redis is embedded.
func Start(t *testing.T, redisURL string, args ...string) *Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &Program{cmd: exec.CommandContext(ctx, binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...)}
	p.cmd.Env = append(os.Environ(), "REDIS_URL="+redisURL)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test has failed before the end
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// Until reads standard output up to a line that holds text.
func (p *Program) Until(t *testing.T, text string) {
	t.Helper()
	for p.lines.Scan() {
		p.seen = append(p.seen, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("standard output ended before %q:\n%s\nstandard error:\n%s", text, p.Stdout(), p.stderr.String())
}

// Stdout is what was read of the standard output.
func (p *Program) Stdout() string { return strings.Join(p.seen, "\n") }

// End reads the rest, waits for the program, and checks how it ended.
func (p *Program) End(t *testing.T, wantCode int) {
	t.Helper()
	for p.lines.Scan() {
		p.seen = append(p.seen, p.lines.Text())
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != wantCode {
		t.Fatalf("exit code %d, want %d\nstandard output:\n%s\nstandard error:\n%s", code, wantCode, p.Stdout(), p.stderr.String())
	}
	if wantCode == 0 && p.stderr.Len() > 0 {
		t.Errorf("standard error is not empty:\n%s", p.stderr.String())
	}
}

// Signal sends a signal.
func (p *Program) Signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Find returns the first group of a pattern in the output so far.
func (p *Program) Find(t *testing.T, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(p.Stdout())
	if match == nil {
		t.Fatalf("no %s in:\n%s", pattern, p.Stdout())
	}
	return match[1]
}

// Redis is a client of the Redis that the program has embedded; the output is to have been read to its end.
func (p *Program) Redis(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.Find(t, `REDIS_URL=redis://(\S+)`), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
