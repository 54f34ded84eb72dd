package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait for a server. It is long because tests run many servers on few cores.
// Nothing waits for it to pass.
const patience = 30 * time.Second

// Server is a redis-server process on a port of 127.0.0.1, with its own data directory. It is safe
// for concurrent use.
type Server struct {
	binary string
	// flags follow the configuration on the command line.
	flags []string
	dir   string
	claim claim

	mu      sync.Mutex // one operation on the process at a time
	process *process
	closed  bool
}

// Start runs a redis-server until the test ends. directives are lines of redis.conf, such as
// "appendonly yes"; without any, nothing is persisted. It fails the test if redis-server is missing
// or does not start. Like all functions that start servers, it skips the test under go test -short.
func Start(t testing.TB, directives ...string) *Server {
	t.Helper()
	NeedsServer(t)
	s, err := Run(directives...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NeedsServer skips the test under go test -short. Call it in tests that start a server without
// this package's functions that take a testing.TB; those call it themselves.
func NeedsServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a redis-server; -short starts none")
	}
}

// Run is [Start] without a test, for TestMain: the caller calls Close. Otherwise the server dies
// with this process.
func Run(directives ...string) (*Server, error) {
	return runWith(nil, directives...)
}

func runWith(flags []string, directives ...string) (*Server, error) {
	binary, err := findBinary(os.Getenv(binaryVariable), exec.LookPath)
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, flags: flags}
	for range 10 {
		if err = s.open(directives); !errors.Is(err, errTryAgain) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open gives the server a port and a directory and starts it. It releases both on an error.
func (s *Server) open(directives []string) (err error) {
	if s.claim, err = claimPort(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.claim.release()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(s.dir)
		}
	}()
	text, err := config(s.claim.port, s.dir, directives)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(s.dir, configFile), []byte(text), 0o600); err != nil {
		return err
	}
	return s.launch()
}

// errTryAgain is wrapped if redis-server exited at once and another attempt may succeed.
var errTryAgain = errors.New("it ended at once")

// launch starts the process and waits until it answers PING. On an error it leaves no process.
func (s *Server) launch() error {
	p, err := spawn(s.binary, s.dir, s.flags...)
	if err != nil {
		return fmt.Errorf("redistest: cannot run %s: %w", s.binary, err)
	}
	if err := s.awaitReady(p); err != nil {
		p.kill()
		return fmt.Errorf("redistest: redis-server on port %d did not start: %w\n%s", s.claim.port, err, s.lastWords())
	}
	s.process = p
	return nil
}

func (s *Server) awaitReady(p *process) error {
	var err error
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if !p.alive() {
			if strings.Contains(s.read(outputFile), "FATAL CONFIG") {
				return errors.New("it rejected its configuration")
			}
			return errTryAgain
		}
		if err = s.probe(p.Pid); err == nil {
			return nil
		}
		select {
		case <-p.gone:
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("no PONG within %v: %w", patience, err)
}

// probe sends a PING and checks that this process answers, not another one on the same port.
func (s *Server) probe(pid int) error {
	if _, err := ask(s.Addr(), "PING"); err != nil {
		return err
	}
	info, err := ask(s.Addr(), "INFO", "server")
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
		return fmt.Errorf("a process other than %d answered", pid)
	}
	return nil
}

// lastWords returns redis-server's last output, for error messages.
func (s *Server) lastWords() string {
	lines := strings.Split(strings.TrimSpace(s.read(outputFile)+s.read(logFile)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

func (s *Server) read(file string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, file)) // no file means no output
	return string(text)
}

// Close kills the server in any state, waits until it is gone, and removes its directory. Further
// calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.process.kill()
	s.claim.release()
	return removeAll(s.dir)
}

// removeAll removes a directory even while a child that Redis forked to save its data writes to it.
func removeAll(dir string) error {
	deadline := time.Now().Add(patience)
	for {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Addr returns the server's address, as 127.0.0.1:port. A restart does not change it.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.claim.port) }

// URL returns Addr as a Redis URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the id of the process, or of the last one if the server is down.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid
}

// Client returns a new client with default options; it is closed when the test ends, before the
// server stops.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	return newClient(t, s.Addr(), nil)
}

// ClientWith is Client with options that change has edited.
func (s *Server) ClientWith(t testing.TB, change func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.Addr(), change)
}

// Kill ends the process like a crash and waits until it is gone. It does nothing if the server is
// down.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
}

// Restart starts the server again on the same port and data directory. It kills a running server
// first, and waits until the new one answers PING with its saved or appended data loaded.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		t.Fatal("redistest: Restart of a server that has been closed")
	}
	s.process.kill()
	// No test claims the port, but another program may hold it for a moment.
	deadline := time.Now().Add(patience)
	err := s.launch()
	for errors.Is(err, errTryAgain) && strings.Contains(err.Error(), "in use") && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
		err = s.launch()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Save writes the data to the disk (SAVE), so that it survives Kill and Restart.
func (s *Server) Save(t testing.TB) {
	t.Helper()
	s.tell(t, "SAVE")
}

// Freeze suspends the process (SIGSTOP) and waits until it has stopped. Connections stay open and
// new ones can be opened, but get no answer until Thaw.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(t, "Freeze", StopSignal)
	deadline := time.Now().Add(patience)
	for {
		is, err := stopped(s.process.Pid)
		if is {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("redistest: Freeze: the server did not stop within %v (%v)", patience, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// Thaw resumes a frozen server (SIGCONT). It does nothing to a running one.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(t, "Thaw", ContinueSignal)
}

func (s *Server) signal(t testing.TB, what string, sig os.Signal) {
	t.Helper()
	if err := s.process.Signal(sig); err != nil {
		t.Fatalf("redistest: %s: the server is not running: %v", what, err)
	}
}

// PauseClients stops the server from executing commands for d, at least a millisecond (CLIENT PAUSE
// ALL).
func (s *Server) PauseClients(t testing.TB, d time.Duration) {
	t.Helper()
	if d < time.Millisecond {
		t.Fatalf("redistest: PauseClients(%v): want at least 1ms", d)
	}
	s.tell(t, "CLIENT", "PAUSE", fmt.Sprint(d.Milliseconds()), "ALL")
}

// tell sends the server a command that must succeed.
func (s *Server) tell(t testing.TB, args ...string) {
	t.Helper()
	if _, err := ask(s.Addr(), args...); err != nil {
		t.Fatalf("redistest: %s: %v", strings.Join(args, " "), err)
	}
}
