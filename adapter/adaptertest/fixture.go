package adaptertest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
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

// An fixture is the environment of one test.
type fixture struct {
	*testing.T
	adapter Adapter
	redis   *redistest.Server
	// The test itself uses rdb. The guards use locks and log, and reach Redis through proxy if the
	// setup is proxied.
	rdb   *redis.Client
	locks *core.Client
	log   *testLog
	proxy *redistest.Proxy
	// patience is how long this test waits for an event.
	patience time.Duration
	outcomes chan guard.Outcome
	// asleep counts the calls of Acquire that have begun to wait, by all clients. Such a call has been
	// refused, or waits behind one that has. Stats().Waiting counts first attempts under way as well.
	asleep atomic.Int64

	// ends are called at the end, and stop and undo what the test did.
	ends []func()
	// clients have rdbs as their clients of Redis.
	clients []*core.Client
	rdbs    []*redis.Client
}

// A setup holds what a test may change in its fixture.
type setup struct {
	options  core.Options
	proxied  bool
	patience time.Duration
}

func newFixture(t *testing.T, a Adapter, changes ...func(*setup)) *fixture {
	t.Helper()
	s := setup{options: core.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience}, patience: patience}
	for _, change := range changes {
		change(&s)
	}
	fx := &fixture{T: t, adapter: a, redis: redistest.Start(t), log: &testLog{}, patience: s.patience, outcomes: make(chan guard.Outcome, 10_000)}
	fx.rdb = fx.redis.Client(t)
	addr := fx.redis.Addr()
	if s.proxied {
		fx.proxy = fx.redis.Proxy(t)
		addr = fx.proxy.Addr()
	}
	t.Cleanup(fx.finish)
	fx.locks = fx.newLocks(addr, s.options)
	return fx
}

// newLocks returns a lock client, as another process would have one.
func (fx *fixture) newLocks(addr string, options core.Options) *core.Client {
	fx.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: options.CommandTimeout, ReadTimeout: options.CommandTimeout})
	fx.rdbs = append(fx.rdbs, rdb)
	options.Observer.Waiting = func(context.Context, core.Event) { fx.asleep.Add(1) }
	c, err := core.New(rdb, options)
	if err != nil {
		fx.Fatal(err)
	}
	fx.clients = append(fx.clients, c)
	return c
}

// finish stops everything that the test started, and checks that nothing is left.
func (fx *fixture) finish() {
	for _, end := range fx.ends {
		end()
	}
	for _, c := range fx.clients {
		if !within(fx.patience, func() bool { return c.Stats() == core.Stats{} }) {
			fx.Errorf("timed out waiting until a lock client is idle: %+v", c.Stats())
		}
	}
	ctx := background
	var keys, channels []string
	var err error
	if !within(patience, func() bool {
		var noKeys, noChannels error
		keys, noKeys = fx.rdb.Keys(ctx, "*").Result()
		// A client listens on a channel named reqlock:client:ID for a while after its last hold.
		channels, noChannels = fx.rdb.PubSubChannels(ctx, "redisson*").Result()
		err = errors.Join(noKeys, noChannels)
		return err == nil && len(keys)+len(channels) == 0
	}) {
		fx.Errorf("left in Redis: keys %.300q, channels %.300q (%v)", keys, channels, err)
	}
	for _, c := range fx.clients {
		closing, cancel := context.WithTimeout(ctx, fx.patience)
		if err := c.Close(closing); err != nil {
			fx.Errorf("Close: %v", err)
		}
		cancel()
	}
	for _, rdb := range fx.rdbs {
		_ = rdb.Close() // nothing uses it any more
	}
	if text := fx.log.text(); strings.Contains(text, key) {
		fx.Errorf("a guard has logged a key:\n%s", text)
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
func (fx *fixture) eventually(what string, cond func() bool) {
	fx.Helper()
	if !within(fx.patience, cond) {
		fx.Fatalf("timed out waiting until %s", what)
	}
}

// mustReceive ends the test unless c is closed or delivers a value in time.
func mustReceive[T any](fx *fixture, what string, c <-chan T) (v T) {
	fx.Helper()
	select {
	case v = <-c:
	case <-time.After(fx.patience):
		fx.Fatalf("timed out waiting until %s", what)
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

// config guards by the path value id, with the log and outcomes of the fixture.
func (fx *fixture) config(changes ...func(*guard.Config)) guard.Config {
	cfg := guard.Config{
		Key:     keyfuncs.PathValue("id"),
		Logger:  slog.New(slog.NewTextHandler(fx.log, nil)),
		Observe: fx.observe,
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// waits sets a WaitTime longer than any test.
func waits(cfg *guard.Config) { cfg.WaitTime = 3 * patience }

func (fx *fixture) observe(r *http.Request, o guard.Outcome) { fx.outcomes <- o }

// knownStatus returns the Outcome.Status of a handler's answer with that status.
func (fx *fixture) knownStatus(status int) int {
	if fx.adapter.TellsStatus {
		return status
	}
	return 0
}

// outcome returns the next outcome that a guard observed.
func (fx *fixture) outcome() guard.Outcome {
	fx.Helper()
	return mustReceive(fx, "a guard observes an outcome", fx.outcomes)
}

// newOtherLocks returns another lock client, as another process would have one.
func (fx *fixture) newOtherLocks() *core.Client {
	return fx.newLocks(fx.redis.Addr(), core.Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience})
}

// mustHold takes a lock as another process would, and keeps it until release is called or the test
// ends.
func (fx *fixture) mustHold(name string) (release func()) {
	fx.Helper()
	lease, err := fx.newOtherLocks().Lock(name).Acquire(background, core.AcquireOptions{})
	if err != nil {
		fx.Fatal(err)
	}
	// The test may have released or lost it.
	fx.ends = append(fx.ends, func() { _ = lease.Release(background) })
	return func() {
		fx.Helper()
		if err := lease.Release(background); err != nil {
			fx.Errorf("the other process releases: %v", err)
		}
	}
}

// holds returns the hold counts of the owners of a lock in Redis; none: the lock is free.
func (fx *fixture) holds(name string) []string {
	fx.Helper()
	counts, err := fx.rdb.HVals(background, name).Result()
	if err != nil {
		fx.Error(err)
	}
	return counts
}

// wantFree fails the test unless the lock is free.
func (fx *fixture) wantFree(name string) {
	fx.Helper()
	if counts := fx.holds(name); len(counts) > 0 {
		fx.Errorf("lock %s is held: %v", name, counts)
	}
}

// wantHeld fails the test unless the lock is held.
func (fx *fixture) wantHeld(name string) {
	fx.Helper()
	if len(fx.holds(name)) != 1 {
		fx.Errorf("lock %s is not held", name)
	}
}

// eventuallyFree ends the test unless the lock is released in time.
func (fx *fixture) eventuallyFree(name string) {
	fx.Helper()
	fx.eventually("lock "+name+" is free", func() bool { return len(fx.holds(name)) == 0 })
}

// wantErr fails the test unless err matches target.
func (fx *fixture) wantErr(what string, err, target error) {
	fx.Helper()
	if !errors.Is(err, target) {
		fx.Errorf("%s: %v, want %v", what, err, target)
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
