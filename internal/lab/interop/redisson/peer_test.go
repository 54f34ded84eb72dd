//go:build interop

package redisson

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for an event. Nothing waits for it to pass.
const patience = 3 * time.Minute

// buildPeer compiles the JVM program against a version of Redisson, unless its jar is up to date,
// and returns the jar.
func buildPeer(v version) (string, error) {
	jar := filepath.Join("peer", "target", v.String(), "peer.jar")
	if upToDate(jar, filepath.Join("peer", "pom.xml"), filepath.Join("peer", "src")) {
		return jar, nil
	}
	mvn := exec.Command("mvn", "-q", "-B", "package", "-Dredisson.version="+v.String())
	mvn.Dir = "peer"
	if output, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn package with Redisson %v: %w\n%s", v, err, output)
	}
	now := time.Now() // Maven does not touch a jar whose content is unchanged
	return jar, os.Chtimes(jar, now, now)
}

// upToDate reports whether the file is at least as new as every file in the trees.
func upToDate(file string, trees ...string) bool {
	built, err := os.Stat(file)
	if err != nil {
		return false
	}
	for _, tree := range trees {
		err := filepath.WalkDir(tree, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			source, err := entry.Info()
			if err == nil && source.ModTime().After(built.ModTime()) {
				err = errors.New("newer")
			}
			return err
		})
		if err != nil {
			return false
		}
	}
	return true
}

// A peer is a JVM with a Redisson client. Its methods may be called from any goroutine.
type peer struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	errors strings.Builder // standard error; read it after the process has ended
	ended  chan struct{}   // closed when no more answers can come
	killed atomic.Bool

	mu      sync.Mutex
	last    int
	pending map[string]*reply
}

// A reply is the answer to a request, once it has arrived.
type reply struct {
	request string
	done    chan struct{}
	value   string
	err     error
	at      time.Time // when it was received
}

// peerOptions configure a peer's connection.
type peerOptions struct {
	jar       string
	topology  string
	watchdog  time.Duration // Redisson's lockWatchdogTimeout
	prefix    string        // its NameMapper puts this before names
	ahead     time.Duration // how far the clock of its semaphores is ahead
	addresses []string
}

// startPeer starts the program and waits until it has connected.
func startPeer(o peerOptions) (*peer, error) {
	args := []string{"-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dpeer.ahead=" + strconv.FormatInt(o.ahead.Milliseconds(), 10), "-jar", o.jar,
		o.topology, strconv.FormatInt(o.watchdog.Milliseconds(), 10), cmp.Or(o.prefix, "-")}
	for _, address := range o.addresses {
		args = append(args, "redis://"+address)
	}
	p := &peer{cmd: exec.Command("java", args...), pending: make(map[string]*reply), ended: make(chan struct{})}
	p.cmd.Stderr = &p.errors
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "ready" {
		err := fmt.Errorf("the peer is not ready; its output is %q", lines.Text())
		return nil, errors.Join(err, p.cmd.Process.Kill(), p.cmd.Wait(), errors.New(p.errors.String()))
	}
	go p.receive(lines)
	return p, nil
}

// receive delivers answers until the output ends.
func (p *peer) receive(lines *bufio.Scanner) {
	defer close(p.ended)
	for lines.Scan() {
		at := time.Now()
		id, answer, _ := strings.Cut(lines.Text(), " ")
		status, value, _ := strings.Cut(answer, " ")
		p.mu.Lock()
		r := p.pending[id]
		delete(p.pending, id)
		p.mu.Unlock()
		if r == nil {
			continue // not an answer; a missing answer fails the test
		}
		r.value, r.at = value, at
		if status != "ok" {
			r.err = fmt.Errorf("%s: %s", r.request, answer)
		}
		close(r.done)
	}
}

// kill ends the JVM like a crash, without closing or releasing anything.
func (p *peer) kill(t testing.TB) {
	t.Helper()
	p.killed.Store(true)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// freeze suspends the JVM with its connections open, until thaw or the end of the test. It waits
// until all threads have stopped.
func (p *peer) freeze(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { p.thaw(t) })
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	if err != nil || !status.Stopped() {
		t.Fatalf("the JVM did not stop: status %#x, error %v", status, err)
	}
}

// thaw resumes a frozen JVM. It does nothing to a running one.
func (p *peer) thaw(t testing.TB) { p.signal(t, syscall.SIGCONT) }

func (p *peer) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// close ends the JVM, unless it was killed, and waits for it. It kills a JVM that does not exit.
func (p *peer) close() error {
	err := p.input.Close()
	select {
	case <-p.ended:
	case <-time.After(patience):
		err = errors.Join(err, fmt.Errorf("the peer did not exit within %v", patience), p.cmd.Process.Kill())
		<-p.ended
	}
	if ended := p.cmd.Wait(); ended != nil && !p.killed.Load() {
		err = errors.Join(err, fmt.Errorf("the peer ended with %w\n%s", ended, p.errors.String()))
	}
	return err
}

// send makes a thread execute a command after its earlier ones. It does not wait for the answer.
func (p *peer) send(t testing.TB, thread, command string, args ...any) *reply {
	t.Helper()
	request := thread + " " + command
	for _, arg := range args {
		request += " " + fmt.Sprint(arg)
	}
	r := &reply{request: request, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	id := strconv.Itoa(p.last)
	p.pending[id] = r
	if _, err := fmt.Fprintln(p.input, id, request); err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return r
}

// result waits for an answer.
func (p *peer) result(t testing.TB, r *reply) (string, error) {
	t.Helper()
	select {
	case <-r.done:
		return r.value, r.err
	case <-p.ended:
		t.Fatalf("%s: the JVM exited", r.request)
	case <-time.After(patience):
		t.Fatalf("%s: no answer", r.request)
	}
	return "", nil
}

// ask sends a command and returns the answer, which must not be an error.
func (p *peer) ask(t testing.TB, thread, command string, args ...any) string {
	t.Helper()
	value, err := p.result(t, p.send(t, thread, command, args...))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// want is ask with an expected answer.
func (p *peer) want(t testing.TB, want any, thread, command string, args ...any) {
	t.Helper()
	if got := p.ask(t, thread, command, args...); got != fmt.Sprint(want) {
		t.Errorf("Redisson: %s %v: %q, want %q", command, args, got, fmt.Sprint(want))
	}
}

// milliseconds is ask for a number of milliseconds.
func (p *peer) milliseconds(t testing.TB, thread, command string, args ...any) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(p.ask(t, thread, command, args...), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}
