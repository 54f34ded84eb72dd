package core

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A holder process that is stopped for longer than its leases, while others take its locks, knows
// when it continues, and does the others no harm.
func TestHolderStandsStill(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	other := fx.newLocks(t)
	holder := startHolder(t, fx.srv.Addr())
	if line := holder.read(t); line != "held" {
		t.Fatalf("the holder said %q", line)
	}
	fx.eventuallyRenewed(t, "watched")

	holder.freeze(t)
	leases := make(map[string]*Lease)
	for name := range holderLocks {
		leases[name] = mustAcquire(t, bg, other.Lock(name), AcquireOptions{WaitTime: patience})
	}
	holder.thaw(t)
	holder.writeLine(t, "go on")
	var report map[string]holderReport
	if err := json.Unmarshal([]byte(holder.read(t)), &report); err != nil {
		t.Fatal(err)
	}
	if err := holder.cmd.Wait(); err != nil {
		t.Errorf("the holder ended with %v", err)
	}
	for name := range holderLocks {
		if got, want := report[name], (holderReport{true, true, true, true}); got != want {
			t.Errorf("%s: the holder was told %+v, want %+v", name, got, want)
		}
		// Whatever it had to clean up it has cleaned up by now.
		lease := leases[name]
		if fields := fx.hash(t, name); len(fields) != 1 || fields[holdOf(lease).wire] != "1" {
			t.Errorf("%s: fields: %v", name, fields)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("%s: the next holder: %v", name, err)
		}
		mustRelease(t, lease)
	}
}

const holderWatchdog = 6 * time.Second

// holderLocks are the locks of the holder process.
var holderLocks = map[string]AcquireOptions{
	"watched": {},
	"fixed":   {LeaseTime: holderWatchdog},
}

// A holderReport says where the holder process found ErrLockLost.
type holderReport struct{ Err, Cause, Bound, Release bool }

const holderRedis = "REQLOCK_TEST_HOLDER_REDIS"

// TestHelperHolder is the holder process of TestHolderStandsStill, and no test.
func TestHelperHolder(t *testing.T) {
	addr := os.Getenv(holderRedis)
	if addr == "" {
		return
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	c := newUncheckedLocks(t, rdb, watchdogTimeout(holderWatchdog))
	leases := make(map[string]*Lease)
	bound := make(map[string]context.Context)
	for name, opts := range holderLocks {
		leases[name] = mustAcquire(t, bg, c.Lock(name), opts)
		ctx, unbind := leases[name].Bind(bg)
		defer unbind()
		bound[name] = ctx
	}
	fmt.Println("held")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	report := make(map[string]holderReport)
	lost := func(err error) bool { return errors.Is(err, ErrLockLost) }
	for name, lease := range leases {
		r := holderReport{Err: lost(lease.Err())} // asked before anything else has had time to notice
		mustReceive(t, "Done to be closed", lease.Done())
		mustReceive(t, "the lease's context to end", lease.Context().Done())
		mustReceive(t, "the bound context to end", bound[name].Done())
		r.Cause, r.Bound = lost(context.Cause(lease.Context())), lost(context.Cause(bound[name]))
		r.Release = lost(lease.Release(bg))
		report[name] = r
	}
	eventually(t, "the clean-ups to be done", func() bool { return c.Stats() == Stats{} })
	mustClose(t, c)
	line, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

// A holderProcess is this test binary, running TestHelperHolder.
type holderProcess struct {
	cmd   *exec.Cmd
	in    *os.File
	lines chan string
}

func startHolder(t *testing.T, redisAddr string) *holderProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperHolder$")
	cmd.Env = append(os.Environ(), holderRedis+"="+redisAddr)
	// The kernel kills it, even if stopped, with the thread that started it. This thread lives as
	// long as the test.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	childIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = childIn, childOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	childIn.Close()
	childOut.Close()
	h := &holderProcess{cmd: cmd, in: in, lines: make(chan string, 100)}
	go func() {
		defer close(h.lines)
		defer out.Close()
		for scan := bufio.NewScanner(out); scan.Scan(); {
			h.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		_ = cmd.Wait()
		in.Close()
		for range h.lines { // until its output has ended
		}
	})
	return h
}

func (h *holderProcess) read(t *testing.T) string {
	t.Helper()
	return mustReceive(t, "a line from the holder", h.lines)
}

func (h *holderProcess) writeLine(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		t.Fatal(err)
	}
}

func (h *holderProcess) freeze(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the holder to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

func (h *holderProcess) thaw(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
