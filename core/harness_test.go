package core

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

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

// newRedisWithInboxes is newRedis for tests of ForceUnlock in other clients. The clients of other
// bundles do not listen on their own channels: a client verifies its first holds when it begins to
// listen, which could be before or after a test takes their keys away.
func newRedisWithInboxes(t testing.TB) *redisFixture {
	t.Helper()
	fx := newRedis(t)
	fx.inboxes = true
	return fx
}

// newEmbeddedRedis starts the Redis that runs inside the process.
func newEmbeddedRedis(t testing.TB) *redisFixture {
	t.Helper()
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return &redisFixture{rdb: srv.Client(), connect: func(testing.TB) *redis.Client { return srv.Client() }}
}

// newLocks returns a lock client on the bundle's Redis. It must be idle when the test ends; see idle.
func (fx *redisFixture) newLocks(t testing.TB, opts ...func(*Options)) *Client {
	t.Helper()
	return fx.newLocksOn(t, fx.connect(t), opts...)
}

// newProxiedLocks returns a lock client that reaches Redis through a proxy. Its Redis client retries, as it
// does by default, and waits for replies as long as it takes, so that a slow machine does not
// change the number of commands. The scripts are loaded, so that each attempt is one EVALSHA.
func (fx *redisFixture) newProxiedLocks(t testing.TB, opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	return fx.newProxiedLocksWith(t, readTimeout(2*patience), opts...)
}

// newLossyLocks is proxied for tests that lose replies: the Redis client gives up a reply after two
// seconds. A late reply looks lost too, so there may be more attempts than the test wants.
func (fx *redisFixture) newLossyLocks(t testing.TB, opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	return fx.newProxiedLocksWith(t, readTimeout(2*time.Second), opts...)
}

// newProxiedLocksWith is proxied with other options of the Redis client.
func (fx *redisFixture) newProxiedLocksWith(t testing.TB, change func(*redis.Options), opts ...func(*Options)) (*Client, *redistest.Proxy) {
	t.Helper()
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	return fx.newLocksOn(t, proxy.ClientWith(t, change), opts...), proxy
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

// testOptions allows for slow machines: CommandTimeout is ten seconds unless a test changes it. Any
// waiter polls within patience, also one that hears its channel: tests free locks without a message.
func testOptions(changes []func(*Options)) Options {
	o := Options{Logger: slog.New(slog.DiscardHandler), CommandTimeout: patience / 2, PollInterval: patience / 10}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// withoutInbox makes a client never listen, so that only the commands and connections of its locks count.
func withoutInbox(c *Client) *Client {
	c.inbox.open.Store(true)
	return c
}

// readTimeout sets how long a Redis client waits for a reply.
func readTimeout(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
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

// Scripts that rules of a proxy match.
var (
	acquireScript = lua.Acquire("", "", 0).Script
	updateScript  = lua.Update("", "", 0, 0).Script
	releaseScript = lua.Release("", "", lua.Announcement{}).Script
	forceScript   = lua.ForceRelease("", nil, lua.Announcement{}).Script
	holdersScript = lua.Holders("").Script
	presentScript = lua.Present("", nil).Script
	renewScript   = lua.Renew(nil, 0).Script
	inspectScript = lua.Inspect("", "").Script

	passScript               = lua.Pass("", "", "", 0).Script
	fairPassScript           = lua.PassFair(&lua.Fair{}, "", "", 0).Script
	fencedPassScript         = lua.PassFenced("", "", "", "", 0).Script
	fencedAcquireScript      = lua.AcquireFenced("", "", "", 0).Script
	fencedFairPassScript     = lua.PassFencedFair(&lua.Fair{}, "", "", 0).Script
	fencedFairAcquireScript  = lua.AcquireFencedFair(&lua.Fair{}, "", 0, 0, 0).Script
	fencedWriteAcquireScript = lua.AcquireFencedWrite("", "", "", 0).Script
	readAcquireScript        = lua.AcquireRead("", "", "", 0).Script
	writeAcquireScript       = lua.AcquireWrite("", "", 0).Script
	readWriteUpdateScript    = lua.UpdateReadWrite(lua.ReadWriteHold{}, 0, lua.Announcement{}).Script
	fairAcquireScript        = lua.AcquireFair(&lua.Fair{}, "", 0, 0, 0).Script
	fairReleaseScript        = lua.ReleaseFair(&lua.Fair{}, "").Script
	fairForceScript          = lua.ForceReleaseFair(&lua.Fair{}, nil).Script

	manyScript = lua.Many(nil).Script // acquire and release, of several locks

	onceAcquireScript = lua.OnceAcquire("", "", "", 0, lua.Marks{}).Script
	onceLookScript    = lua.OnceLook("", "", "").Script
	onceRecordScript  = lua.OnceRecord("", "", "", 0, lua.Record{}, lua.Announcement{}).Script
	onceCountScript   = lua.OnceCount("", "", 0, 0).Script
	onceReleaseScript = lua.OnceRelease("", "", "", lua.Removal{}, lua.Announcement{}).Script

	onceScripts = []*lua.Script{onceAcquireScript, onceLookScript, onceRecordScript, onceReleaseScript}
	allScripts  = append([]*lua.Script{
		passScript, fencedPassScript, fairPassScript, fencedAcquireScript, readAcquireScript, writeAcquireScript, readWriteUpdateScript, fairAcquireScript, fairReleaseScript, fairForceScript,
		fencedFairPassScript, fencedFairAcquireScript, fencedWriteAcquireScript,
		acquireScript, updateScript, releaseScript, manyScript, forceScript, holdersScript, presentScript, renewScript, inspectScript,
	}, onceScripts...)
)

// runsScript matches commands that run one of the scripts, or any script.
func runsScript(scripts ...*lua.Script) func(args []string) bool {
	if len(scripts) == 0 {
		scripts = allScripts
	}
	return func(args []string) bool {
		return len(args) > 1 && slices.ContainsFunc(scripts, func(s *lua.Script) bool {
			return args[0] == "EVALSHA" && args[1] == s.SHA || args[0] == "EVAL" && args[1] == s.Source
		})
	}
}

// countCommands counts the commands that match from now on.
func countCommands(proxy *redistest.Proxy, match func(args []string) bool) func() int {
	var n atomic.Int64
	proxy.OnEvery(func(args []string) bool {
		if match(args) {
			n.Add(1)
		}
		return false // let it pass
	}, redistest.Delay(1))
	return func() int { return int(n.Load()) }
}

// patience bounds every wait for something that must happen. It is long because machines are slow;
// no test waits for it to pass.
const patience = 20 * time.Second

// checkIdleAndClose closes a client. It fails the test unless the client soon has nothing to do and has left
// nothing in Redis, neither subscriptions nor keys. Counters of fencing tokens stay for ever, and
// the client's own channel until it is closed. A test deletes the keys that it wrote itself.
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

// withoutTokens drops the counters of fencing tokens, which stay for ever.
func withoutTokens(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") })
}

// isIdle reports whether a client has nothing to do but clean-ups.
func isIdle(c *Client) bool {
	s := c.Stats()
	s.Cleanups = 0
	return s == Stats{}
}

// eventuallyIdle fails the test unless a client soon has nothing to do but clean-ups.
func eventuallyIdle(t testing.TB, c *Client) {
	t.Helper()
	if !within(patience, func() bool { return isIdle(c) }) {
		t.Errorf("the client is not idle: %+v", c.Stats())
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

// eventuallySubscribed waits until a client has subscribed to the releases of a lock.
func (fx *redisFixture) eventuallySubscribed(t testing.TB, name string) {
	t.Helper()
	channel := wire.LockChannel(name)
	eventually(t, "a subscriber to releases of "+name, func() bool {
		return fx.rdb.PubSubNumSub(bg, channel).Val()[channel] > 0
	})
}

// eventuallyWaiting waits until a client has one waiter, which has subscribed to releases. Its first
// attempt, which does not subscribe, is over then.
func eventuallyWaiting(t testing.TB, c *Client) {
	t.Helper()
	eventually(t, "a waiter that has subscribed", func() bool {
		s := c.Stats()
		return s.Waiting == 1 && s.Channels == 1
	})
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

// merge returns a channel that gives the results of several Acquires as they return.
func merge(results ...<-chan acquireResult) <-chan acquireResult {
	all := make(chan acquireResult, len(results))
	for _, result := range results {
		go func() { all <- <-result }()
	}
	return all
}

// releaseAsync calls Release on a goroutine. The channel gives its error.
func releaseAsync(lease interface{ Release(context.Context) error }) <-chan error {
	released := make(chan error, 1)
	go func() { released <- lease.Release(bg) }()
	return released
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

// mustBeRenewed waits for one more renewal of each lease, and fails the test if one is lost.
func mustBeRenewed(t testing.TB, leases ...*Lease) {
	t.Helper()
	renewed := func(l *Lease) clock.Instant {
		l.mu().Lock()
		defer l.mu().Unlock()
		return holdOf(l).renewed
	}
	before := make([]clock.Instant, len(leases))
	for i, l := range leases {
		before[i] = renewed(l)
	}
	for i, l := range leases {
		eventually(t, "a renewal of "+l.Name(), func() bool { return l.Err() != nil || renewed(l) != before[i] })
		wantHeld(t, l)
	}
}

func mustRelease(t testing.TB, lease interface{ Release(context.Context) error }) {
	t.Helper()
	if err := lease.Release(bg); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// wantErr fails the test unless err matches target.
func wantErr(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: %v, want %v", what, err, target)
	}
}

// hash returns the hash of a lock in Redis.
func (fx *redisFixture) hash(t testing.TB, key string) map[string]string {
	t.Helper()
	m, err := fx.rdb.HGetAll(bg, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pttl returns the time to live of a key.
func (fx *redisFixture) pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	d, err := fx.rdb.PTTL(bg, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// expire sets the time to live of a key, which must exist.
func (fx *redisFixture) expire(t testing.TB, key string, ttl time.Duration) {
	t.Helper()
	if ok, err := fx.rdb.PExpire(bg, key, ttl).Result(); err != nil || !ok {
		t.Fatalf("PEXPIRE %s: %v, %v", key, ok, err)
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

// inParallel calls f on n goroutines and waits for them.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// checkExclusion has goroutines acquire a lock in rounds, and fails the test if two of them hold it at
// once.
func checkExclusion(t *testing.T, goroutines, rounds int, opts AcquireOptions, lock func(i int) Locker) {
	t.Helper()
	var inside atomic.Int32
	inParallel(goroutines, func(i int) {
		for range rounds {
			err := Do(bg, lock(i), opts, func(ctx context.Context) error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// acquireAndRelease acquires and releases a lock, on any goroutine.
func acquireAndRelease(t *testing.T, c *Client, name string) {
	lease, err := c.Lock(name).Acquire(bg, AcquireOptions{WaitTime: patience})
	if err != nil {
		t.Errorf("Acquire: %v", err)
	} else if err := lease.Release(bg); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// mustClose closes a client, which need not be idle but holds no lock.
func mustClose(t testing.TB, c *Client) {
	t.Helper()
	if err := c.Close(contextWithTimeout(t, patience)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// eventuallyRenewed waits until the time to live of a lock goes up.
func (fx *redisFixture) eventuallyRenewed(t testing.TB, key string) {
	t.Helper()
	lowest := fx.pttl(t, key)
	eventually(t, "a renewal of "+key, func() bool {
		ttl := fx.pttl(t, key)
		lowest = min(lowest, ttl)
		return ttl > lowest
	})
}

func (fx *redisFixture) wantFree(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if f := fx.hash(t, name); len(f) > 0 {
			t.Errorf("%s is locked: %v", name, f)
		}
	}
}

func (fx *redisFixture) wantLocked(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if f := fx.hash(t, name); len(f) != 1 {
			t.Errorf("%s is not locked: %v", name, f)
		}
	}
}

func wantHoldCount(t testing.TB, ctx context.Context, l *Lock, want int) {
	t.Helper()
	if n, err := l.HoldCount(ctx); n != want || err != nil {
		t.Errorf("%s is entered %d times (%v), want %d", l.Name(), n, err, want)
	}
}

// eventuallyAcquire acquires a plain lock once Redis is well. The Redis client returns its last dial
// error until its probe, once a second, finds the server, and a slow machine may be too slow for an
// ack.
func eventuallyAcquire(t testing.TB, c *Client, name string, opts AcquireOptions) (lease *Lease) {
	t.Helper()
	eventually(t, "a lock to be granted", func() bool {
		var err error
		lease, err = c.Lock(name).Acquire(bg, opts)
		return err == nil
	})
	return lease
}

// holdOf returns the hold behind a lease of one lock.
func holdOf(l *Lease) *hold { return l.backend.(*level).hold }
