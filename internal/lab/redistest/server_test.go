package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// once disables a client's retries.
func once(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
}

func impatient(o *redis.Options) {
	once(o)
	o.ReadTimeout = 100 * time.Millisecond
}

func set(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

// wantValue checks a key; "" means that it is missing.
func wantValue(t *testing.T, c *redis.Client, key, want string) {
	t.Helper()
	got, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	if got != want {
		t.Fatalf("%s is %q, want %q", key, got, want)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client(t)
	set(t, c, "k", "v")
	wantValue(t, c, "k", "v")
	if want := "redis://" + s.Addr(); s.URL() != want || !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("Addr %q, URL %q", s.Addr(), s.URL())
	}
	for key, want := range map[string]string{"save": "", "appendonly": "no", "bind": "127.0.0.1", "dir": s.dir} {
		if got := c.ConfigGet(t.Context(), key).Val()[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if info := c.Info(t.Context(), "server").Val(); !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.Pid())) {
		t.Errorf("Pid() is %d, the server says\n%s", s.Pid(), info)
	}
}

func TestStartMany(t *testing.T) {
	t.Parallel()
	NeedsServer(t)
	var mu sync.Mutex
	ports := make(map[string]bool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Run()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if ports[s.Addr()] {
				t.Errorf("two servers on %s", s.Addr())
			}
			ports[s.Addr()] = true
			mu.Unlock()
			t.Cleanup(func() { _ = s.Close() })
		})
	}
	wg.Wait()
}

func TestDirectives(t *testing.T) {
	t.Parallel()
	c := Start(t, "maxclients 77", "timeout 5").Client(t)
	for key, want := range map[string]string{"maxclients": "77", "timeout": "5"} {
		if got := c.ConfigGet(t.Context(), key).Val()[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func TestBadDirectives(t *testing.T) {
	t.Parallel()
	NeedsServer(t)
	for directive, want := range map[string]string{
		"port 1":                    `"port 1": port is set by the package`,
		"Requirepass x":             "is set by the package",
		"":                          "want one line of redis.conf",
		"appendonly":                "want one line of redis.conf",
		"appendonly yes\ntimeout 5": "want one line of redis.conf",
		"databases none":            "FATAL CONFIG", // what redis-server itself says about it
	} {
		t.Run(directive, func(t *testing.T) {
			t.Parallel()
			s, err := Run(directive)
			if err == nil {
				_ = s.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to say %q", err, want)
			}
		})
	}
}

func TestBinaryMissing(t *testing.T) {
	t.Parallel()
	nothing := func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} }
	for name, override := range map[string]string{"not in the PATH": "", "variable leads nowhere": "/nowhere/redis-server"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := findBinary(override, nothing)
			if !errors.Is(err, exec.ErrNotFound) {
				t.Fatalf("got %v, want exec.ErrNotFound", err)
			}
			for _, want := range []string{"apt-get update && apt-get install -y redis-server", "REQLOCK_REDIS_SERVER", override} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
		})
	}
}

// TestStartWithoutBinary changes the environment, so it is not parallel.
func TestStartWithoutBinary(t *testing.T) {
	t.Setenv("REQLOCK_REDIS_SERVER", "/nowhere/redis-server")
	failure := failureOf(t, func(t testing.TB) { Start(t) })
	if !strings.Contains(failure, "apt-get install -y redis-server") {
		t.Errorf("Start failed with %q, want the install command", failure)
	}
}

func TestBinaryFromVariable(t *testing.T) {
	NeedsServer(t)
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nowhere")
	t.Setenv("REQLOCK_REDIS_SERVER", path)
	Start(t)
}

func TestBinaryThatIsNoServer(t *testing.T) {
	path, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("REQLOCK_REDIS_SERVER", path)
	if failure := failureOf(t, func(t testing.TB) { Start(t) }); !strings.Contains(failure, "ended at once") {
		t.Errorf("Start failed with %q", failure)
	}
}

func TestRunAndClose(t *testing.T) {
	t.Parallel()
	NeedsServer(t)
	for name, before := range map[string]func(*testing.T, *Server){
		"running": func(*testing.T, *Server) {},
		"frozen":  func(t *testing.T, s *Server) { s.Freeze(t) },
		"killed":  func(t *testing.T, s *Server) { s.Kill(t) },
		"paused":  func(t *testing.T, s *Server) { s.PauseClients(t, time.Hour) },
		"closed":  func(_ *testing.T, s *Server) { _ = s.Close() },
		"saving in the background": func(t *testing.T, s *Server) {
			if err := s.Client(t).BgSave(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		},
		"shut down": func(t *testing.T, s *Server) {
			_ = s.ClientWith(t, once).ShutdownNoSave(t.Context()).Err()
			await(t, "SHUTDOWN", s.process.gone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Run()
			if err != nil {
				t.Fatal(err)
			}
			before(t, s)
			for range 2 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if s.process.alive() {
				t.Error("the process is alive")
			}
			if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			}
			if _, err := ask(s.Addr(), "PING"); err == nil {
				t.Error("it still answers")
			}
		})
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		directives []string
		before     func(*testing.T, *Server)
		want       string
	}{
		"nothing saved":      {nil, func(t *testing.T, s *Server) { s.Kill(t) }, ""},
		"saved":              {nil, func(t *testing.T, s *Server) { s.Save(t); s.Kill(t) }, "v"},
		"append only":        {[]string{"appendonly yes", "appendfsync always"}, func(t *testing.T, s *Server) { s.Kill(t) }, "v"},
		"without a Kill":     {nil, func(t *testing.T, s *Server) { s.Save(t) }, "v"},
		"frozen":             {nil, func(t *testing.T, s *Server) { s.Save(t); s.Freeze(t) }, "v"},
		"killed twice":       {nil, func(t *testing.T, s *Server) { s.Save(t); s.Kill(t); s.Kill(t) }, "v"},
		"saved, then paused": {nil, func(t *testing.T, s *Server) { s.Save(t); s.PauseClients(t, time.Hour) }, "v"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, test.directives...)
			c := s.Client(t)
			set(t, c, "k", "v")
			addr, pid := s.Addr(), s.Pid()
			test.before(t, s)
			s.Restart(t)
			if s.Addr() != addr || s.Pid() == pid {
				t.Errorf("was %d on %s, is %d on %s", pid, addr, s.Pid(), s.Addr())
			}
			wantValue(t, s.Client(t), "k", test.want)
			wantValue(t, c, "k", test.want) // the old client reconnects
		})
	}
}

func TestKilledServerRefuses(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill(t)
	if err := s.ClientWith(t, once).Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	if failure := failureOf(t, func(t testing.TB) { s.Freeze(t) }); !strings.Contains(failure, "not running") {
		t.Errorf("Freeze failed with %q", failure)
	}
	if failure := failureOf(t, func(t testing.TB) { s.Save(t) }); !strings.Contains(failure, "SAVE") {
		t.Errorf("Save failed with %q", failure)
	}
}

func TestRestartAfterClose(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if failure := failureOf(t, func(t testing.TB) { s.Restart(t) }); !strings.Contains(failure, "has been closed") {
		t.Errorf("Restart failed with %q", failure)
	}
}

// No other server of this package gets a killed server's port.
func TestPortIsKept(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill(t)
	if c, err := tryPort(s.claim.port); err == nil {
		c.release()
		t.Fatal("the port of a killed server was given away")
	}
	s.Restart(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantFreePort(t, s.claim.port)
}

// Another program on the port only delays a restart.
func TestRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill(t)
	stranger, err := net.Listen("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		s.Restart(t)
	}()
	eventually(t, "redis-server to find its port in use", func() bool { return strings.Contains(s.read(logFile), "in use") })
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "Restart", restarted)
	set(t, s.Client(t), "k", "v")
}

// wantFreePort waits until a port can be claimed. A process being forked holds our sockets for a
// moment.
func wantFreePort(t *testing.T, port int) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d is free", port), func() bool {
		c, err := tryPort(port)
		if err == nil {
			c.release()
		}
		return err == nil
	})
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client(t)
	set(t, c, "k", "old")
	s.Freeze(t)
	if is, err := stopped(s.Pid()); !is || err != nil {
		t.Fatalf("stopped: %v, %v", is, err)
	}
	if err := s.ClientWith(t, impatient).Get(t.Context(), "k").Err(); err == nil {
		t.Fatal("a frozen server answers")
	}
	answered := make(chan error, 1)
	go func() {
		answered <- s.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = patience }).Set(context.Background(), "k", "new", 0).Err()
	}()
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	wantValue(t, c, "k", "new")
}

func TestPauseClients(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.ClientWith(t, func(o *redis.Options) { once(o); o.ReadTimeout = patience })
	set(t, c, "k", "v")
	const pause = 300 * time.Millisecond
	start := time.Now()
	s.PauseClients(t, pause)
	wantValue(t, c, "k", "v")
	if took := time.Since(start); took < pause {
		t.Errorf("answered after %v, though paused for %v", took, pause)
	}
	if failure := failureOf(t, func(t testing.TB) { s.PauseClients(t, time.Microsecond) }); !strings.Contains(failure, "at least 1ms") {
		t.Errorf("PauseClients failed with %q", failure)
	}
}

// The kernel kills a server when the thread that forked it ends, so that must not be the thread of
// Run's caller.
func TestServerOutlivesItsStarter(t *testing.T) {
	t.Parallel()
	NeedsServer(t)
	var s *Server
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocks: its thread ends with it
		s, err = Run()
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	select {
	case <-s.process.gone:
		t.Fatal("the server died with the thread of its starter")
	case <-time.After(100 * time.Millisecond):
	}
	if _, err := ask(s.Addr(), "PING"); err != nil {
		t.Fatal(err)
	}
}
