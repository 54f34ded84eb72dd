package demotest

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/reqlock/reqlock/internal/redistest"
)

// A Check looks at what a demonstration has printed. It fails the test if there is anything that must not be, and returns what of
// the show has been missed: on a machine that stands still at the wrong moment, requests do not meet as they are meant to. Empty:
// nothing.
type Check func(t *testing.T, output string) (missed string)

// OnEachRedis runs the demonstration on the embedded Redis and on a real one, in which nothing may be left afterwards.
func OnEachRedis(t *testing.T, check Check) {
	for name, redisURL := range map[string]func(*testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"REDIS_URL": func(t *testing.T) string {
			server := redistest.Start(t)
			rdb := server.Client(t)
			t.Cleanup(func() { checkEmpty(t, rdb) })
			return server.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demonstrate(t, redisURL(t), check)
		})
	}
}

// Demonstrate is OnEachRedis on the embedded one alone.
func Demonstrate(t *testing.T, check Check) {
	t.Helper()
	demonstrate(t, "", check)
}

// demonstrate runs the program until nothing is missed, a few times at most.
func demonstrate(t *testing.T, redisURL string, check Check) {
	t.Helper()
	for try := 1; ; try++ {
		p := Start(t, redisURL, "-once")
		p.End(t, 0)
		missed := check(t, p.Stdout())
		if strings.Contains(p.Stdout(), "Serving until") {
			t.Error("-once promises to serve on")
		}
		if missed != "" && try == 5 {
			t.Errorf("time and again: %s", missed)
		}
		if t.Failed() {
			t.Logf("the program's output:\n%s", p.Stdout())
		}
		if missed == "" || t.Failed() {
			return
		}
	}
}

// A Probe is a request to a program: what it asks for, which lock it needs, and what its handler answers.
type Probe struct {
	Path, JSON, Lock, Want string
	Write                  bool // the lock is the write side of a read/write lock
}

// Signals checks that a signal lets the request that holds a lock finish, sends away the one that waits, and ends the program
// with code 0. No key is left by the demonstration that comes before.
//
// Redis has the lock a moment before its holder knows. A signal in between sends the holder away before its handler has begun,
// as it should, and then this says nothing about handlers that run; nor does it where the handler had ended before the signal. So
// it is tried again, a few times.
func Signals(t *testing.T, waiter, holder Probe) {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			for range 5 {
				if a, early := signalWhileServing(t, sig, waiter, holder); !early && !a.shutDown() {
					if a.Status != http.StatusOK || a.Body != holder.Want {
						t.Errorf("the holder got %+v", a)
					}
					return
				}
			}
			t.Error("no handler has run when the signal came: each time the holder of the lock had not begun, or was done")
		})
	}
}

// signalWhileServing returns what the holder got, and whether it had that before the signal.
func signalWhileServing(t *testing.T, sig os.Signal, waiter, holder Probe) (answer Answer, early bool) {
	t.Helper()
	p := Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	base, rdb := p.Find(t, `(http://[^/ ]+)/`), p.Redis(t)
	AwaitFree(t, rdb)

	hold := Hold
	if waiter.Write {
		hold = HoldWrite
	}
	hold(t, rdb, waiter.Lock) // so that the one who waits does so for as long as need be
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	waiting := Post(client, base+waiter.Path, waiter.JSON)
	AwaitWaiter(t, rdb, waiter.Lock)
	running := Post(client, base+holder.Path, holder.JSON)
	AwaitHolder(t, rdb, holder.Lock, running)

	early = len(running) > 0
	p.Signal(t, sig)
	if a := <-waiting; !a.shutDown() {
		t.Errorf("the waiter got %+v", a)
	}
	answer = <-running
	p.End(t, 0)
	if last := p.seen[len(p.seen)-1]; last != "Shutting down." {
		t.Errorf("last line %q", last)
	}
	return answer, early
}

// shutDown reports whether the request was sent away, without its handler.
func (a Answer) shutDown() bool {
	return a.Status == http.StatusServiceUnavailable && strings.Contains(a.Body, "urn:reqlock:problem:shutting-down")
}

// SignalDuringDemonstration checks that Ctrl-C ends the program in the middle of it, on a Redis in which nothing is left.
func SignalDuringDemonstration(t *testing.T) {
	server := redistest.Start(t, "notify-keyspace-events Eh") // a lock is a hash
	rdb := server.Client(t)
	const event = "__keyevent@0__:hset"
	taken := rdb.Subscribe(t.Context(), event)
	defer taken.Close()
	if _, err := taken.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := Start(t, server.URL())
	p.Until(t, " its locks in Redis at ")
	if _, err := taken.ReceiveTimeout(t.Context(), patience); err != nil {
		t.Fatalf("nobody takes a lock: %v", err)
	}
	p.Signal(t, syscall.SIGINT)
	_ = taken.Close()
	await(t, "somebody who listens for "+event, func(ctx context.Context) bool { return rdb.PubSubNumSub(ctx, event).Val()[event] == 0 })
	p.End(t, 0)
	checkEmpty(t, rdb)
}

// Failures checks that what cannot work is said in one line.
func Failures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const deaf = "127.0.0.1:1" // a port of the system's on which nobody listens
	for test, c := range map[string]struct {
		redisURL string
		args     []string
		want     []string
	}{
		"port taken":            {args: []string{"-addr", taken.Addr().String()}, want: []string{taken.Addr().String(), "in use", "-addr"}},
		"address without port":  {args: []string{"-addr", "localhost"}, want: []string{"missing port", "-addr"}},
		"unexpected argument":   {args: []string{"once"}, want: []string{`"once"`, "-help"}},
		"Redis does not listen": {redisURL: "redis://user:secret@" + deaf, want: []string{"REDIS_URL", deaf, "refused"}},
		"no Redis URL":          {redisURL: "http://user:secret@" + deaf, want: []string{"REDIS_URL", "redis://"}},
	} {
		t.Run(test, func(t *testing.T) {
			p := Start(t, c.redisURL, append(c.args, "-once")...)
			p.End(t, 1)
			got := p.stderr()
			if !strings.HasPrefix(got, name+": ") || strings.Count(got, "\n") != 1 || strings.Contains(got, "secret") {
				t.Errorf("standard error is not one clear line:\n%s", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %s", want, got)
				}
			}
			if len(p.seen) > 0 {
				t.Errorf("standard output is not empty:\n%s", p.Stdout())
			}
		})
	}
}
