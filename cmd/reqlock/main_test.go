package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// These variables make this test binary the program, and a command that it runs under a lock.
const (
	programMode = "REQLOCK_TEST_PROGRAM"
	childMode   = "REQLOCK_TEST_CHILD"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(programMode) != "":
		_ = os.Unsetenv(programMode)
		main()
	case os.Getenv(childMode) != "":
		beChild(os.Args[1:])
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}

// program returns the program as a process of its own.
func program(url string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programMode+"=1", "REDIS_URL="+url)
	return cmd
}

// A result is what the program has printed, and its exit code.
type result struct {
	code     int
	out, err string
}

// A call runs the program in this process.
type call struct {
	redis string
	// columns is 0 if the output is no terminal.
	columns int
	color   bool
	// answer has the answers to questions. nil: there is no terminal to ask.
	answer io.Reader
}

func (c call) run(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	a := &app{
		in:  c.answer,
		out: &out,
		err: &errs,
		getenv: func(name string) string {
			if name == "REDIS_URL" {
				return c.redis
			}
			return ""
		},
		screen: screen{terminal: c.columns > 0, color: c.color, size: func() (int, int) { return c.columns, 24 }},
		asks:   c.answer != nil,
	}
	code := a.main(ctx, args)
	return result{code, out.String(), errs.String()}
}

// want fails the test unless the program exits with a code and prints texts: those that begin with
// "!" must not be there.
func (c call) want(t *testing.T, code int, args []string, texts ...string) result {
	t.Helper()
	r := c.run(t.Context(), args...)
	r.check(t, code, args, texts...)
	return r
}

func (r result) check(t *testing.T, code int, args []string, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("reqlock %q exits with %d, want %d\n%s%s", args, r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		absent, not := strings.CutPrefix(text, "!")
		if strings.Contains(blanks.ReplaceAllString(r.out+r.err, " "), blanks.ReplaceAllString(absent, " ")) == not {
			t.Errorf("reqlock %q prints\n%s%s\nwant %q", args, r.out, r.err, text)
		}
	}
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func words(line string) []string { return strings.Fields(line) }
