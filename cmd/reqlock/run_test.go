package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// beChild does what its arguments say, and ends the process.
func beChild(args []string) {
	signals := make(chan os.Signal, 8)
	self, _ := os.FindProcess(os.Getpid())
	switch args[0] {
	case "exit":
		code, _ := strconv.Atoi(args[1])
		os.Exit(code)
	case "die":
		_ = self.Kill()
		select {}
	case "environment":
		fmt.Printf("%s %q\n", os.Getenv("REQLOCK_NAME"), os.Getenv("REQLOCK_TOKEN"))
		os.Exit(0)
	case "ignored":
		fmt.Println(signal.Ignored(syscall.SIGHUP), signal.Ignored(syscall.SIGTERM))
		os.Exit(0)
	case "family":
		// It starts a child, which has the same output.
		child := exec.Command(os.Args[0], "stubborn")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		_ = child.Run()
		os.Exit(1)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	default:
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	fmt.Println("ready")
	// Its input tells how it ends: a line, or the end of the test.
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	for n := 0; ; n++ {
		select {
		case sig := <-signals:
			fmt.Println("got", sig)
			if args[0] == "wait" {
				os.Exit(7)
			}
		case text := <-line:
			fmt.Println("read", text, "after", n)
			os.Exit(8)
		}
	}
}

// A job is reqlock run with the test binary as its command.
type job struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  bytes.Buffer
}

// startJob runs reqlock with the options and the command that a line has.
func startJob(t *testing.T, url, line string, env ...string) *job {
	t.Helper()
	before, after, ok := strings.Cut(line, " -- ")
	if !ok {
		t.Fatal(line)
	}
	j := &job{cmd: program(url, append(words("run "+before+" -- "+os.Args[0]), words(after)...)...)}
	j.cmd.Env, j.cmd.Stderr = append(append(j.cmd.Env, childMode+"=1"), env...), &j.errs
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// The pipe is open as long as any process has it.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stdout, j.lines = w, bufio.NewScanner(r)
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = j.in.Close()
		_ = j.cmd.Process.Kill()
		_ = j.cmd.Wait()
		_ = r.Close()
	})
	return j
}

// await waits for the next line of the command.
func (j *job) await(t *testing.T, want string) {
	t.Helper()
	if !j.lines.Scan() {
		_ = j.cmd.Process.Kill()
		_ = j.cmd.Wait()
		t.Fatalf("the command ends or takes too long (%v), want %q; %s", j.lines.Err(), want, j.errs.String())
	}
	if j.lines.Text() != want {
		t.Errorf("the command says %q, want %q", j.lines.Text(), want)
	}
}

// end waits for the end of every process with the output, and of reqlock.
func (j *job) end(t *testing.T, code int, texts ...string) {
	t.Helper()
	var rest strings.Builder
	for j.lines.Scan() {
		rest.WriteString(j.lines.Text() + "\n")
	}
	if err := j.lines.Err(); err != nil {
		_ = j.cmd.Process.Kill()
		_ = j.in.Close()
		t.Errorf("the command goes on: %v", err)
	}
	_ = j.cmd.Wait()
	result{j.cmd.ProcessState.ExitCode(), rest.String(), j.errs.String()}.check(t, code, j.cmd.Args[1:], texts...)
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (j *job) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// The exit code is that of the command. The lock is free when the command has ended, whatever ended
// it.
func TestRun_ExitCode(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for command, code := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "die": 128 + 9} {
		for _, options := range []string{"", "--fair", "--lease 1h", "--limit 2", "--fenced"} {
			name := strings.ReplaceAll(command+options, " ", "")
			startJob(t, srv.URL(), name+" "+options+" -- "+command).end(t, code, "!reqlock:")
			call{redis: srv.URL()}.want(t, done, []string{"ls"}, "no locks")
		}
	}
}

// Redis shows the command and its host.
func TestRun_Shown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	j := startJob(t, srv.URL(), "backup -- wait")
	j.await(t, "ready")
	at := call{redis: srv.URL()}
	owner := regexp.MustCompile(fmt.Sprintf(`\.%d\.reqlock-test\.[a-z2-7]{8}`, j.cmd.Process.Pid))
	if r := at.want(t, done, words("ls backup")); !owner.MatchString(r.out) {
		t.Errorf("ls shows %s", r.out)
	}
	at.want(t, done, words("show backup"), fmt.Sprintf("pid %d, runs reqlock-test", j.cmd.Process.Pid))
	at.want(t, done, words("unlock backup --yes --reason test"), "backup is free")
	j.await(t, "got terminated")
	j.end(t, lockLost)
}

// While another has the lock, the command does not start, and the exit code is that of a fault that
// passes.
func TestRun_NotAcquired(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	locks := newLocks(t, srv.Client(t), "web-1.4242")
	lease := hold(t, locks.Lock("backup"))
	for _, options := range []string{"", "--wait 50ms", "--fair", "--fair --wait 50ms"} {
		startJob(t, srv.URL(), "backup "+options+" -- wait").end(t, notAcquired, "backup is held by web-1.4242.", "!ready")
	}
	j := startJob(t, srv.URL(), "backup --wait forever -- exit 5")
	rdb, channel := srv.Client(t), core.KeysOf("backup").Channel
	eventually(t, "it waits", func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.end(t, 5)
}

// A signal while it waits ends it, and leaves nothing in Redis.
func TestRun_InterruptedWhileItWaits(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, queue := srv.Client(t), core.KeysOf("backup").Queue
	lease := hold(t, newLocks(t, rdb, "web-1.4242").FairLock("backup"))
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		j := startJob(t, srv.URL(), "backup --fair --wait forever -- wait")
		eventually(t, "it queues up", func() bool { return rdb.LLen(t.Context(), queue).Val() == 1 })
		j.signal(t, sig)
		j.end(t, interrupted, "!ready")
		if n := rdb.Exists(t.Context(), queue).Val(); n != 0 {
			t.Errorf("after %s, it is still in the queue", sig)
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// When the lock is lost, the command ends as --on-lost says.
func TestRun_Lost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	unlock := func(name string) {
		t.Helper()
		call{redis: srv.URL()}.want(t, done, []string{"unlock", name, "--yes", "--reason", "test"})
	}
	start := func(line string) *job {
		t.Helper()
		j := startJob(t, srv.URL(), line)
		j.await(t, "ready")
		return j
	}

	term := start("term --grace 1h -- wait")
	unlock("term")
	term.await(t, "got terminated")
	term.end(t, lockLost, "term is lost: the command is told to end, and killed after 1h")

	grace := start("grace --grace 10ms -- stubborn")
	unlock("grace")
	grace.end(t, lockLost, "!read")

	kill := start("kill --on-lost kill -- wait")
	unlock("kill")
	kill.end(t, lockLost, "kill is lost: the command is killed", "!got")

	// What the command has started ends, too: otherwise its output would stay open.
	family := start("family --grace 10ms -- family")
	unlock("family")
	family.end(t, lockLost, "!read")

	ignore := start("ignore --on-lost ignore -- wait")
	unlock("ignore")
	call{redis: srv.URL()}.want(t, done, words("ls"), "no locks")
	if _, err := io.WriteString(ignore.in, "on\n"); err != nil {
		t.Fatal(err)
	}
	ignore.await(t, "read on after 0")
	ignore.end(t, 8)

	// A lease that is over is a loss. Redis frees the lock, though the command goes on.
	lease := start("lease --lease 3s --grace 1h -- stay") // it is ready within 3s
	lease.await(t, "got terminated")
	if _, err := io.WriteString(lease.in, "on\n"); err != nil {
		t.Fatal(err)
	}
	lease.await(t, "read on after 1")
	lease.end(t, lockLost, "lease is lost")

	// The holder hears of a lost key when it releases at the latest.
	gone := start("gone -- wait")
	if err := srv.Client(t).Del(t.Context(), "gone").Err(); err != nil {
		t.Fatal(err)
	}
	if err := gone.in.Close(); err != nil {
		t.Fatal(err)
	}
	gone.end(t, lockLost, "gone was lost before the command ended")
	gone = start("gone --on-lost ignore -- wait")
	if err := srv.Client(t).Del(t.Context(), "gone").Err(); err != nil {
		t.Fatal(err)
	}
	if err := gone.in.Close(); err != nil {
		t.Fatal(err)
	}
	gone.end(t, 8, "gone was lost before the command ended")
}

// An outage that is shorter than the lease does no harm to the command. At its end, the lock may
// have to wait for the end of its lease.
func TestRun_Outage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	j := startJob(t, srv.URL(), "backup --timeout 2s -- wait")
	j.await(t, "ready")
	srv.Kill(t)
	if err := j.in.Close(); err != nil {
		t.Fatal(err)
	}
	j.end(t, 8, "reqlock: backup could not be released, and is free when its lease is over: ", "!is lost")
}

// Signals are passed on, and the command decides what they mean.
func TestRun_Signals(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for sig, text := range map[os.Signal]string{os.Interrupt: "got interrupt", syscall.SIGTERM: "got terminated", syscall.SIGHUP: "got hangup"} {
		j := startJob(t, srv.URL(), "backup -- stay")
		j.await(t, "ready")
		for range 3 {
			j.signal(t, sig)
			j.await(t, text)
		}
		if n := srv.Client(t).Exists(t.Context(), "backup").Val(); n != 1 {
			t.Error("the lock is free while the command runs")
		}
		if err := j.in.Close(); err != nil {
			t.Fatal(err)
		}
		j.end(t, 8, "read after 3", "!reqlock:")
		call{redis: srv.URL()}.want(t, done, words("ls"), "no locks")
	}
}

// At most so many commands run at a time.
func TestRun_Limit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	one, two := startJob(t, srv.URL(), "export --limit 2 -- wait"), startJob(t, srv.URL(), "export --limit 2 -- wait")
	one.await(t, "ready")
	two.await(t, "ready")
	startJob(t, srv.URL(), "export --limit 2 -- wait").end(t, notAcquired, "export is held by ", "!ready")
	if err := one.in.Close(); err != nil {
		t.Fatal(err)
	}
	one.end(t, 8)
	startJob(t, srv.URL(), "export --limit 2 -- exit 0").end(t, 0)
	two.signal(t, syscall.SIGTERM)
	two.end(t, 7)
}

// A fencing token grows from command to command. Without --fenced there is none, not even that of
// an outer reqlock run.
func TestRun_Environment(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for token := 1; token <= 3; token++ {
		startJob(t, srv.URL(), "pay:42 --fenced -- environment", "REQLOCK_TOKEN=99").end(t, 0, fmt.Sprintf("pay:42 %q", strconv.Itoa(token)))
	}
	startJob(t, srv.URL(), "pay:42 -- environment", "REQLOCK_TOKEN=99", "REQLOCK_NAME=other").end(t, 0, `pay:42 ""`)
}

// What cannot work has an exit code that no command is likely to have, and starts nothing.
func TestRun_Fails(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	at := call{redis: srv.URL()}
	at.want(t, noCommand, words("run a -- no-such-command"), "no-such-command")
	at.want(t, noCommand, words("run a -- ./no-such-command"), "no-such-command")
	at.want(t, notExecutable, words("run a -- ./run_test.go"), "permission denied")
	if err := srv.Client(t).Set(t.Context(), "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	at.want(t, usage, words("run text -- "+os.Args[0]), "text")
}

// The form of the names is that of the owners, and show finds its parts again.
func TestJobID(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host          string
		pid           int
		command, want string
		shown         string
	}{
		{"web-1", 4242, "/usr/bin/pg_dump", "web-1.4242.pg_dump", "host web-1, pid 4242, runs pg_dump"},
		{"db.example.org", 7, "./nightly.sh", "db.7.nightly-sh", "host db, pid 7, runs nightly-sh"},
		{"orders-cron-28394-x7k2p", 1, "backup", "rs-cron-28394-x7k2p.1.backup", "host rs-cron-28394-x7k2p, pid 1, runs backup"},
		{"web-1", 4194304, "reconcile-all-of-it", "web-1.4194304.reconcile-al", "host web-1, pid 4194304, runs reconcile-al"},
		{"", 1, "7z.exe", "host.1.7z", "host host, pid 1, runs 7z"},
		{"ä", 1, "42", "host.1.run", "host host, pid 1, runs run"},
	} {
		id := jobID(test.host, test.pid, test.command)
		if id != test.want || len(id) > 28 {
			t.Errorf("jobID(%q, %d, %q) = %q, want %q", test.host, test.pid, test.command, id, test.want)
		}
		client, ok := core.ClientOf(id + ".k3j9x2ab:7")
		if shown := processOf(client, client+":7"); !ok || shown != test.shown {
			t.Errorf("%s is shown as %q, want %q", id, shown, test.shown)
		}
	}
	// Names of clients from before have these forms.
	for client, want := range map[string]string{
		"web-1.4242.k3j9x2ab": "host web-1, pid 4242", "10.0.0.1.4242.k3j9x2ab": "host 10.0.0.1, pid 4242", "orders.web-1.4242.k3j9x2ab": "host orders.web-1, pid 4242", "web-1.k3j9x2ab": "web-1",
	} {
		if got := processOf(client, client+":7"); got != want {
			t.Errorf("%s is shown as %q, want %q", client, got, want)
		}
	}
}
