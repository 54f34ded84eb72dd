package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// If reqlock itself is killed, nothing renews the lock, so the command ends.
func TestRun_Killed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	term := startJob(t, srv.URL(), "term -- wait")
	term.await(t, "ready")
	term.signal(t, os.Kill)
	term.await(t, "got terminated")
	term.end(t, -1)
	kill := startJob(t, srv.URL(), "kill --on-lost kill -- wait")
	kill.await(t, "ready")
	kill.signal(t, os.Kill)
	kill.end(t, -1, "!got")
}

// A signal that nohup has told reqlock to ignore is one that the command ignores.
func TestRun_Nohup(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0], "run", "backup", "--", os.Args[0], "ignored")
	cmd.Env = append(program(srv.URL()).Env, childMode+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "true false\n" {
		t.Errorf("the command ignores HUP and TERM: %s, %v", out, err)
	}
}

// On a terminal, the command is in the foreground: it reads what is typed, and gets Ctrl-C once.
func TestTerminal_Run(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := newConsole(t, []string{"REDIS_URL=" + srv.URL(), childMode + "=1"}, "run", "backup", "--", os.Args[0], "stay")
	c.await(t, "ready")
	c.press(t, ctrlC)
	c.await(t, "got interrupt")
	c.press(t, "on\r")
	c.await(t, "read on after 1")
	c.awaitExit(t, 8)
	call{redis: srv.URL()}.want(t, done, words("ls"), "no locks")
}
