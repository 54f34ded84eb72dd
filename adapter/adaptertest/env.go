package adaptertest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// patience bounds every wait for something that must happen. It is long enough for a slow machine,
// and shorter than a lease: a lock that becomes free within it was released, and did not expire.
const patience = 20 * time.Second

// background is for work after the end of the test's context.
var background = context.Background()

// An env is the environment of one test.
type env struct {
	*testing.T
	adapter Adapter
	redis   *redistest.Server
	// The test itself uses rdb. The guards use locks and log, and reach Redis through proxy if the
	// setup is proxied.
	rdb   *redis.Client
	locks *core.Client
	log   *journal
	proxy *redistest.Proxy
	// patience is how long this test waits for an event.
	patience time.Duration
	outcomes chan guard.Outcome

	// ends are called at the end, and stop and undo what the test did.
	ends []func()
	// clients have rdbs as their clients of Redis.
	clients []*core.Client
	rdbs    []*redis.Client
}

// A setup holds what a test may change in its env.
type setup struct {
	options  core.Options
	proxied  bool
	patience time.Duration
}

func newEnv(t *testing.T, a Adapter, changes ...func(*setup)) *env {
	t.Helper()
	s := setup{options: core.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience}, patience: patience}
	for _, change := range changes {
		change(&s)
	}
	e := &env{T: t, adapter: a, redis: redistest.Start(t), log: &journal{}, patience: s.patience, outcomes: make(chan guard.Outcome, 10_000)}
	e.rdb = e.redis.Client(t)
	addr := e.redis.Addr()
	if s.proxied {
		e.proxy = e.redis.Proxy(t)
		addr = e.proxy.Addr()
	}
	t.Cleanup(e.finish)
	e.locks = e.client(addr, s.options)
	return e
}

// client returns a lock client, as another process would have one.
func (e *env) client(addr string, options core.Options) *core.Client {
	e.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: options.CommandTimeout, ReadTimeout: options.CommandTimeout})
	e.rdbs = append(e.rdbs, rdb)
	c, err := core.New(rdb, options)
	if err != nil {
		e.Fatal(err)
	}
	e.clients = append(e.clients, c)
	return c
}

// finish stops everything that the test started, and checks that nothing is left.
func (e *env) finish() {
	for _, end := range e.ends {
		end()
	}
	for _, c := range e.clients {
		if !within(e.patience, func() bool { return c.Stats() == core.Stats{} }) {
			e.Errorf("timed out waiting until a lock client is idle: %+v", c.Stats())
		}
	}
	ctx := background
	var keys, channels []string
	var err error
	if !within(patience, func() bool {
		var noKeys, noChannels error
		keys, noKeys = e.rdb.Keys(ctx, "*").Result()
		// A client listens on a channel named reqlock:client:ID for a while after its last hold.
		channels, noChannels = e.rdb.PubSubChannels(ctx, "redisson*").Result()
		err = errors.Join(noKeys, noChannels)
		return err == nil && len(keys)+len(channels) == 0
	}) {
		e.Errorf("left in Redis: keys %.300q, channels %.300q (%v)", keys, channels, err)
	}
	for _, c := range e.clients {
		closing, cancel := context.WithTimeout(ctx, e.patience)
		if err := c.Close(closing); err != nil {
			e.Errorf("Close: %v", err)
		}
		cancel()
	}
	for _, rdb := range e.rdbs {
		_ = rdb.Close() // nothing uses it any more
	}
	if text := e.log.text(); strings.Contains(text, key) {
		e.Errorf("a guard has logged a key:\n%s", text)
	}
}

// within reports whether cond becomes true in time.
func within(d time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(d); ; time.Sleep(2 * time.Millisecond) {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// eventually ends the test unless cond becomes true in time.
func (e *env) eventually(what string, cond func() bool) {
	e.Helper()
	if !within(e.patience, cond) {
		e.Fatalf("timed out waiting until %s", what)
	}
}

// await ends the test unless c is closed or delivers a value in time.
func await[T any](e *env, what string, c <-chan T) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(e.patience):
		e.Fatalf("timed out waiting until %s", what)
	}
	return v
}

// The route of most tests, and the lock that guards it.
const (
	orders   = "/orders/{id}"
	order    = "/orders/" + key
	key      = "k3y-0f-a-test"
	lockName = "reqlock:" + key
)

// config guards by the path value id, with the log and outcomes of the env.
func (e *env) config(changes ...func(*guard.Config)) guard.Config {
	cfg := guard.Config{
		Key:     keyfuncs.PathValue("id"),
		Logger:  slog.New(slog.NewTextHandler(e.log, nil)),
		Observe: e.observe,
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// waits sets a WaitTime longer than any test.
func waits(cfg *guard.Config) { cfg.WaitTime = 3 * patience }

func (e *env) observe(r *http.Request, o guard.Outcome) { e.outcomes <- o }

// knownStatus returns the Outcome.Status of a handler's answer with that status.
func (e *env) knownStatus(status int) int {
	if e.adapter.TellsStatus {
		return status
	}
	return 0
}

// outcome returns the next outcome that a guard observed.
func (e *env) outcome() guard.Outcome {
	e.Helper()
	return await(e, "a guard observes an outcome", e.outcomes)
}

// stranger returns another lock client, as another process would have one.
func (e *env) stranger() *core.Client {
	return e.client(e.redis.Addr(), core.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience})
}

// hold takes a lock as another process would, and keeps it until release is called or the test
// ends.
func (e *env) hold(name string) (release func()) {
	e.Helper()
	lease, err := e.stranger().Lock(name).Acquire(background, core.AcquireOptions{})
	if err != nil {
		e.Fatal(err)
	}
	// The test may have released or lost it.
	e.ends = append(e.ends, func() { _ = lease.Release(background) })
	return func() {
		e.Helper()
		if err := lease.Release(background); err != nil {
			e.Errorf("the other process releases: %v", err)
		}
	}
}

// holds returns the hold counts of the owners of a lock in Redis; none: the lock is free.
func (e *env) holds(name string) []string {
	e.Helper()
	counts, err := e.rdb.HVals(background, name).Result()
	if err != nil {
		e.Error(err)
	}
	return counts
}

// wantFree fails the test unless the lock is free.
func (e *env) wantFree(name string) {
	e.Helper()
	if counts := e.holds(name); len(counts) > 0 {
		e.Errorf("lock %s is held: %v", name, counts)
	}
}

// wantHeld fails the test unless the lock is held.
func (e *env) wantHeld(name string) {
	e.Helper()
	if len(e.holds(name)) != 1 {
		e.Errorf("lock %s is not held", name)
	}
}

// becomesFree ends the test unless the lock is released in time.
func (e *env) becomesFree(name string) {
	e.Helper()
	e.eventually("lock "+name+" is free", func() bool { return len(e.holds(name)) == 0 })
}

// wantErr fails the test unless err matches target.
func (e *env) wantErr(what string, err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("%s: %v, want %v", what, err, target)
	}
}

// proxied puts a proxy between guards and Redis. A doubtful command is cleaned up after
// CommandTimeout, so that is short here, but long enough for a slow machine.
func proxied(s *setup) { s.proxied, s.options.CommandTimeout = true, 3*time.Second }

func watchdogTimeout(d time.Duration) func(*setup) {
	return func(s *setup) { s.options.WatchdogTimeout = d }
}

func commandTimeout(d time.Duration) func(*setup) {
	return func(s *setup) { s.options.CommandTimeout = d }
}
