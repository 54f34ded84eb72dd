package core

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Most tests need these ten helpers and no more. What one file needs stands in that file,
// scripts_test.go knows the scripts, and redis_state_test.go looks at the hash of a lock.
//
//	fx := newRedis(t)              a redis-server of the test's own; fx.rdb looks into it
//	fx.newLocks(t)                 a lock client, which must be idle when the test ends
//	fx.newProxiedLocks(t)          the same behind a proxy that loses, delays or changes replies
//	runsScript(acquireScript)      which commands the proxy acts on: those that run these scripts
//	mustAcquire(t, bg, lock, opts) acquires a lock of any kind; with bg it is for a new owner
//	acquireAsync(bg, lock, opts)   does it on a goroutine; the channel gives the lease or the error
//	mustRelease(t, lease)          releases it
//	eventually(t, what, cond)      waits until the condition is true
//	mustReceive(t, what, channel)  waits until the channel gives a value or is closed
//	wantErr(t, what, err, target)  checks that an error is the one that a test wants
//
// commandTimeout, watchdogTimeout and pollInterval change the options of a client.

// bg is the default context of tests.
var bg = context.Background()

// A redisFixture is a Redis of the test's own, with a plain client to look into it.
type redisFixture struct {
	srv     *redistest.Server // nil: the embedded server
	rdb     *redis.Client
	connect func(t testing.TB) *redis.Client
	inboxes bool // its clients listen on their own channels; see newRedisWithInboxes
}

// newRedis starts a redis-server.
func newRedis(t testing.TB) *redisFixture {
	t.Helper()
	srv := redistest.Start(t)
	return &redisFixture{srv: srv, rdb: srv.Client(t), connect: srv.Client}
}

// newLocks returns a lock client on the fixture's Redis. It must be idle when the test ends; see
// checkIdleAndClose.
func (fx *redisFixture) newLocks(t testing.TB, opts ...func(*Options)) *Client {
	t.Helper()
	return fx.newLocksOn(t, fx.connect(t), opts...)
}

// newProxiedLocks returns a lock client that reaches Redis through a proxy. Its Redis client
// retries, as it does by default, and waits for replies as long as it takes, so that a slow machine
// does not change the number of commands. The scripts are loaded, so that each attempt is one
// EVALSHA.
func (fx *redisFixture) newProxiedLocks(t testing.TB, opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	return fx.newProxiedLocksWith(t, readTimeout(2*patience), opts...)
}

func commandTimeout(d time.Duration) func(*Options) {
	return func(o *Options) { o.CommandTimeout = d }
}

func watchdogTimeout(d time.Duration) func(*Options) {
	return func(o *Options) { o.WatchdogTimeout = d }
}

func pollInterval(d time.Duration) func(*Options) {
	return func(o *Options) { o.PollInterval = d }
}

// mustAcquire acquires a lock of any kind. With bg it is for a new owner.
func mustAcquire(t testing.TB, ctx context.Context, l Locker, opts AcquireOptions) *Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, opts)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lease
}

// acquireResult is what Acquire returned.
type acquireResult struct {
	lease *Lease
	err   error
}

// acquireAsync calls Acquire on a goroutine. The channel gives the result, once.
func acquireAsync(ctx context.Context, l Locker, opts AcquireOptions) <-chan acquireResult {
	result := make(chan acquireResult, 1)
	go func() {
		lease, err := l.Acquire(ctx, opts)
		result <- acquireResult{lease, err}
	}()
	return result
}

func mustRelease(t testing.TB, lease interface{ Release(context.Context) error }) {
	t.Helper()
	if err := lease.Release(bg); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// tryAcquire tries to acquire a lock for another owner, without waiting.
func tryAcquire(l Locker) error {
	lease, err := l.Acquire(bg, AcquireOptions{})
	if err == nil {
		return errors.Join(errors.New("acquired"), lease.Release(bg))
	}
	return err
}

// eventually fails the test unless cond becomes true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !within(patience, cond) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

// mustReceive fails the test unless the channel is closed or gives a value.
func mustReceive[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
	return v
}

// patience bounds every wait for something that must happen. It is long because machines are slow;
// no test waits for it to pass.
const patience = 20 * time.Second

// wantErr fails the test unless err matches target.
func wantErr(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: %v, want %v", what, err, target)
	}
}

// newRedisWithInboxes is newRedis for tests of ForceUnlock in other clients. The clients of other
// fixtures do not listen on their own channels: a client verifies its first holds when it begins to
// listen, which could be before or after a test takes their keys away.
func newRedisWithInboxes(t testing.TB) *redisFixture {
	t.Helper()
	fx := newRedis(t)
	fx.inboxes = true
	return fx
}

// newLocksOn returns a lock client on a Redis client. It discards its log unless an option says
// otherwise.
func (fx *redisFixture) newLocksOn(t testing.TB, rdb redis.UniversalClient, opts ...func(*Options)) *Client {
	t.Helper()
	c := newUncheckedLocks(t, rdb, opts...)
	if !fx.inboxes {
		withoutInbox(c)
	}
	t.Cleanup(func() { checkIdleAndClose(t, c, fx.rdb) })
	return c
}

// newUncheckedLocks returns a lock client that the test closes itself.
func newUncheckedLocks(t testing.TB, rdb redis.UniversalClient, opts ...func(*Options)) *Client {
	t.Helper()
	c, err := New(rdb, testOptions(opts))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newLossyLocks is newProxiedLocks for tests that lose replies: the Redis client gives up a reply
// after two seconds. A late reply looks lost too, so there may be more attempts than the test wants.
func (fx *redisFixture) newLossyLocks(t testing.TB, opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	return fx.newProxiedLocksWith(t, readTimeout(2*time.Second), opts...)
}

// newProxiedLocksWith is newProxiedLocks with other options of the Redis client.
func (fx *redisFixture) newProxiedLocksWith(t testing.TB, change func(*redis.Options), opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	return fx.newLocksOn(t, proxy.ClientWith(t, change), opts...), proxy
}

// readTimeout sets how long a Redis client waits for a reply.
func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

// testOptions allows for slow machines: CommandTimeout is ten seconds unless a test changes it. Any
// waiter polls within patience, also one that hears its channel: tests free locks without a message.
func testOptions(changes []func(*Options)) Options {
	o := Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience / 2, PollInterval: patience / 10}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// withoutInbox makes a client never listen on its own channel, so that only the commands and
// connections of its locks count.
func withoutInbox(c *Client) *Client {
	c.inbox.open.Store(true)
	return c
}

// checkIdleAndClose closes a client. It fails the test unless the client soon has nothing to do and
// has left nothing in Redis, neither subscriptions nor keys. Counters of fencing tokens stay for
// ever, those of permits for a day, and the client's own channel until it is closed. A test deletes the keys that it wrote
// itself.
//
// Clean-ups that wait for strays may be pending: Close ends them. A test of clean-ups waits for
// them itself.
func checkIdleAndClose(t testing.TB, c *Client, rdb *redis.Client) {
	t.Helper()
	eventuallyIdle(t, c)
	var keys, channels []string
	var err error
	if !within(patience, func() bool {
		var noKeys, noChannels error
		keys, noKeys = rdb.Keys(bg, "*").Result()
		keys = withoutTokens(keys)
		channels, noChannels = rdb.PubSubChannels(bg, "redisson*").Result()
		err = errors.Join(noKeys, noChannels)
		return err == nil && len(keys)+len(channels) == 0
	}) {
		t.Errorf("left in Redis: keys %.300q, channels %.300q (%v)", keys, channels, err)
	}
	mustClose(t, c)
	own := wire.ClientChannel(c.id)
	if !within(patience, func() bool {
		listeners, err := rdb.PubSubNumSub(bg, own).Result()
		return err == nil && listeners[own] == 0
	}) {
		t.Errorf("a closed client still listens on %s", own)
	}
}

// eventuallyIdle fails the test unless a client soon has nothing to do but clean-ups.
func eventuallyIdle(t testing.TB, c *Client) {
	t.Helper()
	if !within(patience, func() bool { return isIdle(c) }) {
		t.Errorf("the client is not idle: %+v", c.Stats())
	}
}

// isIdle reports whether a client has nothing to do but clean-ups.
func isIdle(c *Client) bool {
	s := c.Stats()
	s.Cleanups = 0
	return s == Stats{}
}

// withoutTokens drops the counters of fencing tokens, which stay for ever.
func withoutTokens(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, "redisson_lock_token:") || strings.HasSuffix(key, ":permits") ||
			slices.ContainsFunc(keys, func(other string) bool { return other == wire.PermitsDeclared(key) })
	})
}

// mustClose closes a client, which need not be idle but holds no lock.
func mustClose(t testing.TB, c *Client) {
	t.Helper()
	if err := c.Close(contextWithTimeout(t, patience)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func contextWithTimeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	t.Cleanup(cancel)
	return ctx
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

// inParallel calls f on n goroutines and waits for them.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
