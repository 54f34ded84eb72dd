package main

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demotest"
	"github.com/reqlock/reqlock/guard"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// A request with a smaller token than that of the row changes nothing. No piece is sold twice.
func TestFencing(t *testing.T) {
	t.Setenv("DATABASE_URL", startPostgres(t))
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	buy := func() demotest.Answer { return p.Ask(t, "POST", "/items/teapot/buy", "") }
	if a := buy(); a.Status != 200 || a.Body != "teapot bought, 4 left\n" {
		t.Fatalf("answer %+v", a)
	}
	// The next request gets a token that was given before, as if it had been late.
	counter, rdb := core.KeysOf("reqlock:item:teapot").Tokens, p.Redis(t)
	if err := rdb.Set(t.Context(), counter, 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if a := buy(); a.Status != 409 {
		t.Errorf("with an old token: %+v", a)
	}

	answers := make(chan demotest.Answer)
	for range 10 {
		go func() {
			a := buy()
			for strings.Contains(a.Body, guard.ProblemWaitTimeout) { // on a slow machine
				a = buy()
			}
			answers <- a
		}()
	}
	count := make(map[int]int)
	for range 10 {
		count[(<-answers).Status]++
	}
	if count[200] != 4 || count[410] != 6 {
		t.Errorf("answers %v, want 4 of 200 and 6 of 410", count)
	}
	p.Signal(t, syscall.SIGTERM)
	p.End(t, 0)
}

// startPostgres starts a Postgres with an empty database.
func startPostgres(t *testing.T) (url string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short, because a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // Postgres refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		t.Helper()
		path, err := exec.LookPath(name)
		if err != nil { // Debian does not put it into PATH
			found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
			if len(found) == 0 {
				t.Fatalf("%v; make modules installs Postgres", err)
			}
			path = found[len(found)-1]
		}
		cmd := exec.Command(path, append([]string{"-D", filepath.Join(dir, "data")}, args...)...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	if out, err := command("initdb", "--username=postgres", "--auth=trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := command("postgres", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once
		<-ended
	})
	url = "postgres://postgres@/postgres?host=" + dir
	for {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
			return url
		}
		select {
		case <-ended:
			t.Fatalf("Postgres ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
