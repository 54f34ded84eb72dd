package demotest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait and the life of a program. Nothing waits for it to pass.
const patience = 3 * time.Minute

// A Program is a run of the binary.
type Program struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner // of standard output
	seen   []string       // lines read so far
	errors *bytes.Buffer  // standard error; read it after the program has ended
	ended  bool
}

// Start runs the binary on a free port with the given REDIS_URL. If that is empty, Redis is
// embedded.
func Start(t *testing.T, redisURL string, args ...string) *Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &Program{
		cmd:    exec.CommandContext(ctx, binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...),
		errors: new(bytes.Buffer),
	}
	p.cmd.Env = append(os.Environ(), "REDIS_URL="+redisURL)
	p.cmd.Stderr = p.errors
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill) // in case the test fails early
	return p
}

func (p *Program) kill() {
	if !p.ended {
		p.ended = true
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// stderr kills the program if it still runs, and returns its standard error.
func (p *Program) stderr() string {
	p.kill()
	return p.errors.String()
}

// Until reads standard output up to a line that contains text.
func (p *Program) Until(t *testing.T, text string) {
	t.Helper()
	for p.lines.Scan() {
		p.seen = append(p.seen, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("standard output ended before %q:\n%s\nstandard error:\n%s", text, p.Stdout(), p.stderr())
}

// Stdout returns the standard output read so far.
func (p *Program) Stdout() string { return strings.Join(p.seen, "\n") }

// End reads the rest, waits for the program, and checks how it ended.
func (p *Program) End(t *testing.T, wantCode int) {
	t.Helper()
	if text := p.wait(t, wantCode); wantCode == 0 && text != "" {
		t.Errorf("standard error is not empty:\n%s", text)
	}
}

// EndSaying is End for a program that ends with code 0 and says something on standard error.
func (p *Program) EndSaying(t *testing.T, want string) {
	t.Helper()
	if text := p.wait(t, 0); !strings.Contains(text, want) {
		t.Errorf("no %q in standard error:\n%s", want, text)
	}
}

// wait returns standard error.
func (p *Program) wait(t *testing.T, wantCode int) string {
	t.Helper()
	for p.lines.Scan() {
		p.seen = append(p.seen, p.lines.Text())
	}
	p.ended = true
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != wantCode {
		t.Fatalf("exit code %d, want %d\nstandard output:\n%s\nstandard error:\n%s", code, wantCode, p.Stdout(), p.stderr())
	}
	return p.stderr()
}

// Signal sends a signal.
func (p *Program) Signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// URL returns where the program serves, without a slash at the end. Read the output that says so
// first.
func (p *Program) URL(t *testing.T) string {
	t.Helper()
	return p.Find(t, `(http://[\d.]+:\d+)`)
}

// Process returns the id of its process.
func (p *Program) Process() string { return strconv.Itoa(p.cmd.Process.Pid) }

// Find returns the first group of a pattern in the output so far.
func (p *Program) Find(t *testing.T, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(p.Stdout())
	if match == nil {
		t.Fatalf("no %s in:\n%s", pattern, p.Stdout())
	}
	return match[1]
}

// Redis returns a client of the program's embedded Redis. Read the output that names it first.
func (p *Program) Redis(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.Find(t, `REDIS_URL=redis://(\S+)`), DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
