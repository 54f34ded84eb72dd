package coalesce

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
)

// doomedVariable makes a process of this test binary a doomed one. It has the address of Redis.
const doomedVariable = "REQLOCK_COALESCE_DOOMED"

// killedLease is the lease of a run that is killed. All who share come within it.
const killedLease = 5 * time.Second

// doomed serves a request and calls a Do, which run until the process is killed, or its parent ends.
func doomed(addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		return err
	}
	g, err := New(locks, Config{LeaseTime: killedLease})
	if err != nil {
		return err
	}
	run := func() {
		fmt.Println("running")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}
	go func() {
		_, _, _ = Do(bg, locks, "sum", Options{LeaseTime: killedLease}, func(context.Context) (int, error) { run(); return 0, nil })
	}()
	g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "http://shop/report", nil), func(*http.Request, *Recorder) { run() })
	return nil
}

// The process that runs is killed with SIGKILL. When its lease is over, one of those who wait in other
// processes runs, and all get what it makes.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, Config{LeaseTime: killedLease})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), doomedVariable+"="+s.server.Addr())
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for range 2 {
		if !lines.Scan() {
			t.Fatalf("the other process does not run: %v, %v", lines.Err(), cmd.Wait())
		}
	}

	var answers []<-chan *httptest.ResponseRecorder
	sums := make(chan returned[int], 6)
	began := make(chan struct{}, 6)
	for i := range 6 {
		answers = append(answers, s.get(i%2))
		go func() {
			sum, shared, err := Do(bg, s.locks[i%2], "sum", Options{LeaseTime: killedLease}, func(context.Context) (int, error) {
				began <- struct{}{}
				return 7, nil
			})
			sums <- returned[int]{sum, shared, err}
		}()
	}
	s.gather(12)
	s.finish(write("sold: 7"))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	shared := 0
	for _, answer := range answers {
		w := receive(t, "an answer", answer)
		if w.Code != http.StatusOK || w.Body.String() != "sold: 7" {
			t.Errorf("answer %d %q", w.Code, w.Body)
		}
		if w.Header().Get(sharedHeader) != "" {
			shared++
		}
	}
	if len(s.running) != 1 || shared != 5 {
		t.Errorf("%d runs and %d shared answers after the kill, want 1 and 5", len(s.running), shared)
	}
	for range 6 {
		if sum := receive(t, "a sum", sums); sum.err != nil || sum.result != 7 {
			t.Errorf("Do: %+v", sum)
		}
	}
	if len(began) != 1 {
		t.Errorf("%d runs of Do after the kill, want 1", len(began))
	}
}
