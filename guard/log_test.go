package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A fault that every request meets is one line a minute.
func TestLog_OneLineForManyRequests(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(t.Context()) })
	for name, test := range map[string]struct {
		key  keyfuncs.Func
		text string
	}{
		"Redis is down":            {keyfuncs.Const("a"), "runs without a lock"},
		"a key function fails":     {func(*http.Request) (string, error) { return "", errors.New("broken") }, `a key function failed, the request gets 400" error=broken change="wrap keyfuncs.`},
		"a guard is misconfigured": {func(*http.Request) (string, error) { return "", keyfuncs.ErrNoRoute }, "guard is misconfigured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			g, err := guard.New(locks, guard.Config{Key: test.key, FailOpen: true, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/orders/", i), nil)
				g.Serve(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {})
			}
			if n := strings.Count(out.String(), test.text); n != 1 || !strings.Contains(out.String(), "requests=1") {
				t.Errorf("%d lines, want 1:\n%s", n, out.String())
			}
		})
	}
}

// While requests are refused there is one line a minute and lock, which says who holds it. The time
// for which it is held is known if a client of this process holds it.
func TestLog_RefusedByAHolder(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	elsewhere, err := core.New(l.rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = elsewhere.Close(context.Background()) })
	two := []keyfuncs.Func{keyfuncs.Const("two:a"), keyfuncs.Const("two:b")}
	for name, test := range map[string]struct {
		cfg     guard.Config
		lock    func(*core.Client) core.Locker
		status  int
		problem string
	}{
		"a lock":       {guard.Config{Key: keyfuncs.Const("x")}, func(c *core.Client) core.Locker { return c.Lock("reqlock:x") }, 409, "locked"},
		"a WaitTime":   {guard.Config{Key: keyfuncs.Const("w"), WaitTime: time.Millisecond}, func(c *core.Client) core.Locker { return c.Lock("reqlock:w") }, 409, "wait-timeout"},
		"a writer":     {guard.Config{Key: keyfuncs.Const("r"), Mode: guard.ModeRead}, func(c *core.Client) core.Locker { return c.ReadWriteLock("reqlock:r").Write() }, 409, "locked"},
		"several keys": {guard.Config{Keys: two}, func(c *core.Client) core.Locker { return c.Lock("reqlock:two:b") }, 409, "locked"},
		"a limit":      {guard.Config{Key: keyfuncs.Const("l"), Limit: 2}, func(c *core.Client) core.Locker { return c.Semaphore("reqlock:%limit:2:l", 2) }, 429, "limit"},
	} {
		for where, holder := range map[string]*core.Client{"here": l.locks, "elsewhere": elsewhere} {
			t.Run(name+" "+where, func(t *testing.T) {
				var out bytes.Buffer
				cfg := test.cfg
				cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
				g, err := guard.New(l.locks, cfg)
				if err != nil {
					t.Fatal(err)
				}
				var leases []*core.Lease
				for range max(1, cfg.Limit) {
					lease, err := test.lock(holder).Acquire(context.Background(), core.AcquireOptions{})
					if err != nil {
						t.Fatal(err)
					}
					leases = append(leases, lease)
				}
				for range 20 {
					if w := serve(t.Context(), func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }, g); w.Code != test.status {
						t.Fatalf("status %d, want %d", w.Code, test.status)
					}
				}
				if n := strings.Count(out.String(), "\n"); n != 1 {
					t.Errorf("%d lines, want 1:\n%s", n, out.String())
				}
				for _, part := range []string{"requests are refused because the lock is held", "requests=1 ", "holder=", holder.ID() + ":", "since=",
					"problem=" + test.problem + " ", fmt.Sprint("status=", test.status), "lock=#"} {
					if !strings.Contains(out.String(), part) {
						t.Errorf("the line lacks %q: %s", part, out.String())
					}
				}
				if known := strings.Contains(out.String(), " held="); known != (where == "here") {
					t.Errorf("the time it is held is known: %t: %s", known, out.String())
				}
				for _, lease := range leases {
					if err := lease.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// Requests choose keys, so there are at most a hundred lines or so a minute. Another lock has a line
// of its own.
func TestLog_RefusalsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	var out bytes.Buffer
	g := l.newGuard(func(c *guard.Config) {
		c.Key, c.Limit, c.Logger = keyfuncs.Query("k"), 0, slog.New(slog.NewTextHandler(&out, nil))
	})
	for i := range 150 {
		lease, err := l.locks.Lock(fmt.Sprint("reqlock:", i)).Acquire(context.Background(), core.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprint("/?k=", i), nil), nil)
		if err := lease.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "requests are refused"); n < 100 || n > 101 {
		t.Errorf("%d lines for 150 locks, want 101 at most", n)
	}
}

// A request that Redis does not serve is one line a minute and route, with the error.
func TestLog_RefusedByRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(t.Context()) })
	var out bytes.Buffer
	g, err := guard.New(locks, guard.Config{Key: keyfuncs.Query("k"), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprint("/?k=", i), nil), nil)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, out.String())
	}
	for _, part := range []string{"Redis does not give locks", "status=503", "connection refused", "reqlock doctor"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the line lacks %q: %s", part, out.String())
		}
	}
}
