package demotest

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A Check examines the output of a demonstration. It fails the test for anything wrong. It returns
// what did not happen only because a slow machine kept requests from colliding; empty: nothing.
type Check func(t *testing.T, output string) (missed string)

// OnEachRedis runs the demonstration on the embedded Redis and on a real one, where it must leave
// nothing.
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

// Demonstrate is OnEachRedis on the embedded Redis only.
func Demonstrate(t *testing.T, check Check) {
	t.Helper()
	demonstrate(t, "", check)
}

// demonstrate runs the program until nothing is missed, up to a few times.
func demonstrate(t *testing.T, redisURL string, check Check) {
	t.Helper()
	for try := 1; ; try++ {
		p := Start(t, redisURL, "-once")
		p.End(t, 0)
		missed := check(t, p.Stdout())
		if strings.Contains(p.Stdout(), "Serving until") {
			t.Error("-once announced that it would keep serving")
		}
		if missed != "" && try == 5 {
			t.Errorf("in every attempt: %s", missed)
		}
		if t.Failed() {
			t.Logf("the program's output:\n%s", p.Stdout())
		}
		if missed == "" || t.Failed() {
			return
		}
	}
}

// A Probe is a request to a program: its target, the lock it needs, and the handler's answer.
type Probe struct {
	Path, JSON, Lock, Want string
	Write                  bool // the lock is the write side of a read/write lock
}

// Signals checks that a signal lets the request that holds a lock finish, refuses the one that
// waits, and ends the program with code 0. The demonstration before it must leave no key.
//
// Redis grants the lock a moment before the holder knows. A signal in between correctly refuses the
// holder before its handler begins, and then this shows nothing about running handlers. Neither
// does a handler that ends before the signal. Signals retries a few times in both cases.
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
			t.Error("no handler was running at the signal in any attempt")
		})
	}
}

// signalWhileServing returns what the holder got, and whether it got it before the signal.
func signalWhileServing(t *testing.T, sig os.Signal, waiter, holder Probe) (answer Answer, early bool) {
	t.Helper()
	p := Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	base, rdb := p.URL(t), p.Redis(t)
	AwaitFree(t, rdb)

	hold := Hold
	if waiter.Write {
		hold = HoldWrite
	}
	hold(t, rdb, waiter.Lock) // so that the waiter waits as long as necessary
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

// shutDown reports whether the guard refused the request because of the shutdown.
func (a Answer) shutDown() bool {
	return a.Status == http.StatusServiceUnavailable && strings.Contains(a.Body, "urn:reqlock:problem:shutting-down")
}

// SignalDuringDemonstration checks that Ctrl-C ends the program midway and leaves nothing in Redis.
func SignalDuringDemonstration(t *testing.T) {
	server := redistest.Start(t, "notify-keyspace-events Ehz") // a lock is a hash, permits are in a sorted set
	rdb := server.Client(t)
	const lock, permit = "__keyevent@0__:hset", "__keyevent@0__:zadd"
	taken := rdb.Subscribe(t.Context(), lock, permit)
	defer taken.Close()
	for range 2 {
		if _, err := taken.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p := Start(t, server.URL())
	p.Until(t, " its locks in Redis at ")
	if _, err := taken.ReceiveTimeout(t.Context(), patience); err != nil {
		t.Fatalf("no lock was acquired: %v", err)
	}
	p.Signal(t, syscall.SIGINT)
	_ = taken.Close()
	Await(t, "still a subscriber to events", func(ctx context.Context) bool {
		n := rdb.PubSubNumSub(ctx, lock, permit).Val()
		return n[lock]+n[permit] == 0
	})
	p.End(t, 0)
	checkEmpty(t, rdb)
}

// Terminates checks that SIGTERM ends a program that serves with code 0.
func Terminates(t *testing.T) {
	t.Helper()
	p := Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	p.Signal(t, syscall.SIGTERM)
	p.End(t, 0)
}

// Help checks what -help prints.
func Help(t *testing.T) {
	t.Helper()
	p := Start(t, "", "-help")
	p.End(t, 0)
	for _, want := range []string{"go run ", name, "SIGTERM", "REDIS_URL", "-addr host:port"} {
		if !strings.Contains(p.Stdout(), want) {
			t.Errorf("-help has no %q:\n%s", want, p.Stdout())
		}
	}
}

// Failures checks that -help prints help, and that each start-up failure is reported in one line.
func Failures(t *testing.T) {
	Help(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const deaf = "127.0.0.1:1" // a system port without a listener
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
			p := Start(t, c.redisURL, c.args...)
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
