package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// run is reqlock run.
type run struct {
	wait   waitTime
	lease  time.Duration
	fair   bool
	fenced bool
	limit  int
	onLost string
	grace  time.Duration
}

// What to do with the command when its lock is lost.
const (
	onLostTerm   = "term"
	onLostKill   = "kill"
	onLostIgnore = "ignore"
)

func (c *run) flags(fs *flag.FlagSet) {
	fs.Var(&c.wait, "wait", "how long to wait while others hold the lock: a `duration`, or forever; 0: try once")
	fs.DurationVar(&c.lease, "lease", 0, "how long to hold the lock at most; 0: it is renewed until the command ends")
	fs.BoolVar(&c.fair, "fair", false, "queue up, over all hosts, for a lock that is granted in order of arrival")
	fs.BoolVar(&c.fenced, "fenced", false, "draw a fencing token, for REQLOCK_TOKEN; its counter stays in Redis")
	fs.IntVar(&c.limit, "limit", 0, "let this `number` of commands run at a time, by a semaphore; 0: one, by a lock")
	fs.StringVar(&c.onLost, "on-lost", onLostTerm, "when the lock is lost: `term`, kill or ignore")
	fs.DurationVar(&c.grace, "grace", 10*time.Second, "how long after term the command is killed")
}

// A waitTime is a duration, or forever.
type waitTime time.Duration

func (w *waitTime) String() string {
	if time.Duration(*w) == core.WaitForever {
		return "forever"
	}
	return time.Duration(*w).String()
}

func (w *waitTime) Set(s string) error {
	if s == "forever" {
		*w = waitTime(core.WaitForever)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("use for example 30s, or forever")
	}
	*w = waitTime(d)
	return nil
}

func (c *run) check() error {
	switch {
	case c.lease < 0:
		return usageError("--lease is %s; use 0, or for example 10m", c.lease)
	case c.grace < 0:
		return usageError("--grace is %s; use 0 to kill at once, or for example 10s", c.grace)
	case c.limit < 0:
		return usageError("--limit is %d; use the number of commands that may run at a time", c.limit)
	case c.limit > 0 && (c.fair || c.fenced):
		return usageError("--limit makes a semaphore, which is neither --fair nor --fenced")
	case !slices.Contains([]string{onLostTerm, onLostKill, onLostIgnore}, c.onLost):
		return usageError("--on-lost is %q; use term, kill or ignore", c.onLost)
	}
	return nil
}

// locker returns the lock or semaphore of a name.
func (c *run) locker(locks *core.Client, name string) core.Locker {
	if c.limit > 0 {
		return locks.Semaphore(name, c.limit)
	}
	lock := locks.Lock(name)
	if c.fair {
		lock = locks.FairLock(name)
	}
	if c.fenced {
		lock = lock.Fenced()
	}
	return lock
}

// run runs a command under a lock. The first argument is the name, the others are the command.
func (c *run) run(ctx context.Context, s *session, args []string) error {
	if err := c.check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(args[1]); err != nil {
		return cannotRun(err)
	}
	// A signal that comes between the grant and the start of the command is passed on to it.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded()...)
	defer signal.Stop(signals)
	err := s.with(func(rdb *client) error { return c.under(ctx, s, rdb, args[0], args[1:], signals) })
	exit := (*exitError)(nil)
	switch {
	case err == nil, errors.As(err, &exit), ctx.Err() != nil:
		return err
	case errors.Is(err, core.ErrInvalidName), errors.Is(err, core.ErrInvalidOptions), errors.Is(err, core.ErrWrongKind):
		return usageError("%s", bare(err))
	}
	text := bare(err)
	if !redisacl.Denied(err) { // The error says already what to grant.
		text = explain(err)
	}
	return &exitError{unavailable, text}
}

func (c *run) under(ctx context.Context, s *session, rdb *client, name string, command []string, signals <-chan os.Signal) error {
	host, _ := os.Hostname()
	locks, closeLocks, err := s.locksOf(rdb, jobID(host, os.Getpid(), command[0]), slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err != nil {
		return err
	}
	defer closeLocks()
	lease, err := c.locker(locks, name).Acquire(ctx, core.AcquireOptions{WaitTime: time.Duration(c.wait), LeaseTime: c.lease})
	if errors.Is(err, core.ErrNotAcquired) {
		return s.notAcquired(ctx, rdb, name)
	}
	if err != nil {
		return err
	}
	s.tends.Store(true) // From now on, a signal ends the command, which may take its time.
	lost := false
	if err = ctx.Err(); err == nil {
		lost, err = c.start(s, lease, command, signals)
	}
	failure := lease.Release(context.WithoutCancel(ctx))
	if !lost && errors.Is(failure, core.ErrLockLost) {
		lost = true
		fmt.Fprintf(s.err, "reqlock: %s was lost before the command ended\n", printable(name))
	}
	switch {
	case lost && c.onLost != onLostIgnore:
		return &exitError{lockLost, ""}
	case !lost && failure != nil:
		fmt.Fprintf(s.err, "reqlock: %s could not be released, and is free when its lease is over: %s\n", printable(name), bare(failure))
	}
	return err
}

// notAcquired says who has the lock.
func (s *session) notAcquired(ctx context.Context, rdb *client, name string) error {
	text := printable(name) + " is held by others"
	if l, err := s.look(ctx, rdb, name); err == nil && l.Held() {
		text = fmt.Sprintf("%s is held by %s", printable(name), holders(l))
	}
	return &exitError{notAcquired, text}
}

// start runs the command, and reports whether the lock was lost before it ended. The error has the
// exit code of the command.
func (c *run) start(s *session, lease *core.Lease, command []string, signals <-chan os.Signal) (lost bool, err error) {
	// Linux ends the command when the thread that has started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = s.in, s.out, s.err, environment(os.Environ(), lease)
	// On a terminal, the command stays in the foreground with reqlock, and can read from it. Elsewhere
	// it has a process group, so that signals reach what it has started, too.
	p := &process{Cmd: cmd, group: !s.attended}
	p.prepare(c.onLost)
	if err := p.Start(); err != nil {
		return false, cannotRun(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = p.Wait() // ProcessState has the exit code.
		close(ended)
	}()
	var overdue <-chan time.Time
	for gone := lease.Done(); ; {
		select {
		case <-ended:
			if overdue != nil {
				p.finish(overdue)
			}
			if code := p.exitCode(); code != 0 {
				err = &exitError{code, ""}
			}
			return lost, err
		case sig := <-signals:
			p.passOn(sig)
		case <-gone:
			gone, lost = nil, true
			overdue = c.end(s, lease, p)
		case <-overdue:
			overdue = nil
			p.kill()
		}
	}
}

// end does what --on-lost says. The channel it returns tells when to kill the command.
func (c *run) end(s *session, lease *core.Lease, p *process) (kill <-chan time.Time) {
	what := "goes on without it"
	switch {
	case c.onLost == onLostIgnore:
	case c.onLost == onLostTerm && c.grace > 0 && p.terminate():
		what = fmt.Sprintf("is told to end, and killed after %s", c.grace)
		kill = time.After(c.grace)
	default:
		what = "is killed"
		p.kill()
	}
	fmt.Fprintf(s.err, "reqlock: %s is lost: the command %s\n", printable(lease.Name()), what)
	return kill
}

// environment is that of the command.
func environment(env []string, lease *core.Lease) []string {
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "REQLOCK_TOKEN=") })
	env = append(env, "REQLOCK_NAME="+lease.Name())
	if token, ok := lease.Token(); ok {
		env = append(env, "REQLOCK_TOKEN="+strconv.FormatUint(token, 10))
	}
	return env
}

func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exitError{noCommand, err.Error()}
	}
	return &exitError{notExecutable, err.Error()}
}

// jobID is what Redis shows of the process: host, process ID and command, such as
// web-1.4242.pg_dump. Of long names, it has the first characters of the command, and the last ones
// of the host, which tell pods apart.
func jobID(host string, pid int, command string) string {
	const most, mostCommand = 28, 12
	only := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
				return r
			}
			return '-'
		}, s)
	}
	command = only(strings.TrimSuffix(filepath.Base(command), ".exe"))
	if !strings.ContainsFunc(command, func(r rune) bool { return r > '9' }) {
		command = "run"
	}
	end := "." + strconv.Itoa(pid) + "." + strings.TrimRight(command[:min(len(command), mostCommand)], "-")
	host, _, _ = strings.Cut(host, ".")
	host = only(host)
	host = strings.TrimLeft(host[max(0, len(host)-(most-len(end))):], "-_")
	return cmp.Or(host, "host") + end
}
