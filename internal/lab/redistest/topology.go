package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartMany runs n independent servers until the test ends, started at the same time. directives
// are as for [Start].
func StartMany(t testing.TB, n int, directives ...string) []*Server {
	t.Helper()
	servers, err := startAll(t, n, func(int) []string { return directives })
	if err != nil {
		t.Fatal(err)
	}
	return servers
}

// startAll starts n servers at the same time, each with its own directives. It closes them when the
// test ends, even if others failed to start.
func startAll(t testing.TB, n int, directives func(i int) []string) ([]*Server, error) {
	return runAll(t, n, func(i int) (*Server, error) { return Run(directives(i)...) })
}

func runAll(t testing.TB, n int, run func(i int) (*Server, error)) ([]*Server, error) {
	t.Helper()
	NeedsServer(t)
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = run(i) })
	}
	wg.Wait()
	for _, s := range servers {
		if s == nil {
			continue
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return servers, errors.Join(errs...)
}

// running reports whether the process exists and is not frozen.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.process.alive() {
		return false
	}
	frozen, err := stopped(s.process.Pid)
	return err == nil && !frozen
}

// running returns the servers that are running.
func running(servers []*Server) (up []*Server) {
	for _, s := range servers {
		if s.running() {
			up = append(up, s)
		}
	}
	return up
}

func byAddr(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// admin returns a client that does not retry. The caller closes it.
func (s *Server) admin() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 2,
		DialTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
	})
}

// do sends one command over a new client.
func (s *Server) do(args ...any) (any, error) {
	c := s.admin()
	defer c.Close()
	reply, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %w", s.Addr(), args, err)
	}
	return reply, nil
}

// info returns the fields of a section of INFO.
func (s *Server) info(section string) (map[string]string, error) {
	reply, err := s.do("INFO", section)
	if err != nil {
		return nil, err
	}
	return fieldsOf(reply.(string)), nil
}

// fieldsOf parses lines of name:value.
func fieldsOf(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// agreement bounds the wait until servers agree. It exceeds patience, because a sentinel whose
// timer was late by 2 s, as on a busy machine, does nothing for 30 s (TILT).
const agreement = 2 * time.Minute

// until polls a condition until it returns no error, and returns the last error if that does not
// happen in time.
func until(condition func() error) error {
	var err error
	for deadline := time.Now().Add(agreement); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = condition(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("not within %v: %w", agreement, err)
}

func awaitOrFail(t testing.TB, what string, condition func() error) {
	t.Helper()
	if err := until(condition); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}
