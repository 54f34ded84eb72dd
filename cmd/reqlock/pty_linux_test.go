package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A console is the program on a terminal of 100 columns and 20 rows.
type console struct {
	keyboard *os.File
	cmd      *exec.Cmd

	mu      sync.Mutex
	shown   bytes.Buffer
	changed chan struct{}
	drained chan struct{}
}

func newConsole(t *testing.T, env []string, args ...string) *console {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 100}); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &console{keyboard: master, cmd: program("", args...), changed: make(chan struct{}, 1), drained: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = terminal, terminal, terminal
	c.cmd.Env = append(append(c.cmd.Env, "NO_COLOR=", "COLUMNS=", "TERM=xterm"), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	go c.read()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		<-c.drained
		_ = master.Close()
	})
	return c
}

// read ends when the program has closed the terminal.
func (c *console) read() {
	defer close(c.drained)
	b := make([]byte, 4096)
	for {
		n, err := c.keyboard.Read(b)
		c.mu.Lock()
		c.shown.Write(b[:n])
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// await waits until the terminal has got a text since the last call, and forgets what came before.
func (c *console) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		all := c.shown.String()
		_, after, found := strings.Cut(all, text)
		if found {
			c.shown.Reset()
			c.shown.WriteString(after)
		}
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-c.changed:
		case <-late:
			t.Fatalf("the terminal never shows %q, but\n%q", text, all)
		}
	}
}

// awaitExit waits for the end of the program, and returns what the terminal has got since.
func (c *console) awaitExit(t *testing.T, code int) string {
	t.Helper()
	ended := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-ended
		t.Errorf("the program does not end")
	}
	<-c.drained
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%q", got, code, c.shown.String())
	}
	return c.shown.String()
}

func (c *console) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := c.keyboard.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

const ctrlC = "\x03"

func TestTerminal_Colors(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fill(t, srv.Client(t))
	url := "REDIS_URL=" + srv.URL()
	if got := newConsole(t, []string{url}, "ls").awaitExit(t, done); !strings.Contains(got, "\x1b[36mlock") || strings.Contains(got, "\x1b[31mred") {
		t.Errorf("on a terminal: %q", got)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if got := newConsole(t, []string{url, env}, "ls").awaitExit(t, done); strings.Contains(got, "\x1b") || !strings.Contains(got, "order:42") {
			t.Errorf("with %s: %q", env, got)
		}
	}
	for line := range strings.Lines(newConsole(t, []string{url, "NO_COLOR=1", "COLUMNS=60"}, "ls").awaitExit(t, done)) {
		if n := runewidth.StringWidth(strings.TrimRight(line, "\r\n")); n > 60 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Unlock asks, and does nothing without a yes, or if the holder has changed meanwhile.
func TestTerminal_Unlock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	url := []string{"REDIS_URL=" + srv.URL()}
	fill(t, rdb)
	held := func(owner string) {
		t.Helper()
		if !rdb.HExists(t.Context(), "order:42", owner).Val() {
			t.Errorf("%s no longer holds order:42", owner)
		}
	}
	for answer, code := range map[string]int{"no\r": notHeld, "\r": notHeld, "\x04": notHeld, ctrlC: interrupted} {
		c := newConsole(t, url, "unlock", "order:42", "--reason", "test")
		c.await(t, "order:42 (lock) is held by "+web1+" and expires in 3h")
		c.await(t, "Waiting: no client.")
		c.await(t, "Type yes: ")
		c.press(t, answer)
		c.awaitExit(t, code)
		held(web1 + ":7")
	}

	c := newConsole(t, url, "unlock", "order:42", "--reason", "test")
	c.await(t, "Type yes: ")
	if err := rdb.Del(t.Context(), "order:42").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.HSet(t.Context(), "order:42", web2+":1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	c.press(t, "yes\r")
	if got := c.awaitExit(t, notHeld); !strings.Contains(got, "held by another owner by now: "+web2) {
		t.Errorf("the holder has changed: %q", got)
	}
	held(web2 + ":1")

	c = newConsole(t, url, "unlock", "order:42", "--reason", "test")
	c.await(t, "Type yes: ")
	c.press(t, "yes\r")
	c.await(t, "order:42 is free; it was held by "+web2)
	c.awaitExit(t, done)
	if n := rdb.Exists(t.Context(), "order:42").Val(); n != 0 {
		t.Error("order:42 is still there")
	}
}

// Watch redraws the terminal, survives a restart of Redis, and leaves the terminal as it was.
func TestTerminal_Watch(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "appendonly yes", "appendfsync always")
	rdb := srv.Client(t)
	locks, err := core.New(rdb, core.Options{ClientID: "web-1.4242"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a failed test has not released
		defer cancel()
		_ = locks.Close(ctx)
	}()

	c := newConsole(t, []string{"REDIS_URL=" + srv.URL()}, "watch", "order:", "--every", "20ms", "--timeout", "2s")
	c.await(t, "\x1b[?1049h") // the alternate screen
	c.await(t, "that begin with order:")
	c.await(t, "no locks")
	lease, err := locks.Lock("order:42").Acquire(t.Context(), core.AcquireOptions{LeaseTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c.await(t, "1 lock")
	c.await(t, "order:42")
	c.await(t, "web-1.4242.")
	srv.Freeze(t)
	c.await(t, "no reply so far")
	srv.Thaw(t)
	c.await(t, "\x1b[K\r\n\x1b[K\r\n") // no error line
	srv.Kill(t)
	c.await(t, "no answer for")
	c.await(t, "order:42") // the last picture stays
	srv.Restart(t)
	c.await(t, "\x1b[K\r\n\x1b[K\r\n") // no error line
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.await(t, "0 locks")
	c.press(t, ctrlC)
	if got := c.awaitExit(t, done); !strings.HasSuffix(got, "\x1b[?25h\x1b[?1049l") {
		t.Errorf("at the end: %q", got)
	}
}

// Watch leaves when q is pressed, says which locks may be meant, and when it is. The terminal is
// left as it was.
func TestTerminal_WatchLeaves(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	if err := srv.Client(t).HSet(t.Context(), "reqlock:order:42", web1+":7", 1).Err(); err != nil {
		t.Fatal(err)
	}
	c := newConsole(t, []string{"REDIS_URL=" + srv.URL(), "TZ=UTC"}, "watch", "order:", "--every", "20ms")
	before, err := unix.IoctlGetTermios(int(c.keyboard.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	c.await(t, time.Now().UTC().Format("2006-01-02 "))
	c.await(t, " UTC  q leaves  0 locks")
	c.await(t, "no locks begin with order:; 1 begins with reqlock:order:")
	c.press(t, "xq")
	c.awaitExit(t, done)
	after, err := unix.IoctlGetTermios(int(c.keyboard.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal was %+v and is %+v, %v", before, after, err)
	}
}
