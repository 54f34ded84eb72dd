package core

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The client retries a command after a lost reply. The operation takes effect once.
func TestRetry_LostReply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action  redistest.Action
		connect func(*redisFixture, testing.TB, ...func(*Options)) (*Client, *redistest.Proxy)
		most    int // tries
	}{
		"cut before execution": {redistest.CutBefore, (*redisFixture).newProxiedLocks, 2},
		"cut after execution":  {redistest.CutAfter, (*redisFixture).newProxiedLocks, 2},
		"reply lost":           {redistest.DropReply, (*redisFixture).newLossyLocks, 4}, // another reply may be late
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := test.connect(fx, t)
			once := func(what string, script *lua.Script, do func()) {
				t.Helper()
				tries := countCommands(proxy, runsScript(script))
				proxy.OnMatch(1, runsScript(script), test.action)
				do()
				if n := tries(); n < 2 || n > test.most {
					t.Errorf("%s: %d tries, want 2", what, n)
				}
			}
			var lease, inner *Lease
			once("acquire", acquireScript, func() { lease = mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute}) })
			fx.wantCount(t, lease, 1)
			once("re-entry", updateScript, func() { inner = mustAcquire(t, lease.Context(), c.Lock("a"), AcquireOptions{}) })
			fx.wantCount(t, lease, 2)
			once("partial release", updateScript, func() { mustRelease(t, inner) })
			fx.wantCount(t, lease, 1)
			once("extension", updateScript, func() {
				if err := lease.Extend(bg, time.Hour); err != nil {
					t.Fatal(err)
				}
			})
			fx.wantPTTL(t, "a", time.Hour)
			once("query", inspectScript, func() {
				if locked, err := c.Lock("a").IsLocked(bg); !locked || err != nil {
					t.Errorf("IsLocked: %v, %v", locked, err)
				}
			})
			once("release", releaseScript, func() { mustRelease(t, lease) })
			fx.wantFields(t, "a", nil)
		})
	}
}

// A ForceUnlock loses the reply to its first try, and a new holder gets the lock. The retry must
// not free it.
func TestForceUnlock_LostReply(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	other := fx.newLocks(t)
	theirs := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	lost := proxy.OnMatch(1, runsScript(forceScript), redistest.CutAfter)
	second := proxy.OnMatch(2, runsScript(forceScript), redistest.HoldRequest)
	freed := make(chan error, 1)
	go func() {
		ok, err := c.Lock("a").ForceUnlock(bg)
		if err == nil && !ok {
			err = errors.New("the lock was not held")
		}
		freed <- err
	}()
	mustReceive(t, "Redis to run the first try", lost.Hit())
	mustReceive(t, "the retry to be sent", second.Hit())
	next := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	second.Release()
	if err := mustReceive(t, "ForceUnlock to return", freed); err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
	fx.wantCount(t, next, 1)
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, next)
	wantErr(t, "Release after ForceUnlock", theirs.Release(bg), ErrLockLost)
}

// The retry of a release finds nothing. If an earlier try has an unknown outcome and the lease is
// not over, the earlier try released the lock. Otherwise the lock was lost.
func TestRelease_RetryFindsNothing(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t)
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		proxy.OnMatch(1, runsScript(releaseScript), redistest.CutAfter)
		mustRelease(t, lease)
		wantErr(t, "Err", lease.Err(), ErrReleased)
	})
	t.Run("after the deadline", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		const short = 3 * time.Second
		c, proxy := fx.newProxiedLocksWith(t, readTimeout(short))
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: short})
		proxy.OnMatch(1, runsScript(releaseScript), redistest.DropReply) // the retry comes after the lease
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("hand-over after the deadline", func(t *testing.T) { // the new holder's lease is over too
		t.Parallel()
		fx := newRedis(t)
		const short = 3 * time.Second
		c, proxy := fx.newProxiedLocksWith(t, readTimeout(short))
		opts := AcquireOptions{LeaseTime: short, WaitTime: patience}
		lease := mustAcquire(t, bg, c.Lock("a"), opts)
		opts.LeaseTime = short / 2
		waiter := startWaiter(t, bg, c, "a", opts)
		eventually(t, "the waiter to subscribe, ask once more and sleep", func() bool {
			e := c.names.open("a", false)
			defer e.close()
			return e.firstSleepsLocked()
		})
		lost := proxy.OnMatch(1, runsHandOver(), redistest.DropReply)
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
		mustReceive(t, "the hand-over", lost.Hit())
		mustRelease(t, mustReceiveLease(t, "the waiter", waiter))
	})
	t.Run("without an unknown try", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, _ := fx.newProxiedLocks(t)
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		if err := fx.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("after a busy try", func(t *testing.T) { // Redis did not run it
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t)
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		if err := fx.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
		proxy.OnMatch(1, runsScript(releaseScript), redistest.ReplyWith("-TRYAGAIN not now\r\n"))
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("forced during the release", func(t *testing.T) { // the client knows of the loss
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newLossyLocks(t)
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		held := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldRequest)
		released := make(chan error, 1)
		go func() { released <- lease.Release(bg) }()
		mustReceive(t, "the release to be sent", held.Hit())
		if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Release", mustReceive(t, "Release to return", released), ErrLockLost)
		held.Release()
	})
}

// If one command frees the lock for two concurrent releases, both return its result.
func TestRelease_TwoByOneCommand(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	owner, opts := WithOwner(bg), AcquireOptions{LeaseTime: time.Hour}
	leases := []*Lease{mustAcquire(t, owner, c.Lock("a"), opts), mustAcquire(t, owner, c.Lock("a"), opts)}
	turn := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	defer turn.Release()
	extended := make(chan error, 1)
	go func() { extended <- leases[0].Extend(bg, 2*time.Hour) }()
	mustReceive(t, "the extension to take the turn", turn.Hit())
	fx.deleteKeys(t, "a")
	released := make(chan error, len(leases))
	for _, l := range leases {
		go func() { released <- l.Release(bg) }()
	}
	eventually(t, "both releases to wait for the turn", func() bool {
		e := c.names.open("a", false)
		defer e.close()
		return holdOf(leases[0]).claim.Turn.Waiting() == 2
	})
	turn.Release()
	for range leases {
		wantErr(t, "Release", mustReceive(t, "Release to return", released), ErrLockLost)
	}
	wantErr(t, "Extend", mustReceive(t, "Extend to return", extended), ErrReleased)
}

// The caller's context does not reach the Redis client. Cancelling it neither interrupts a command
// nor costs the connection.
func TestCancel_DoesNotReachTheRedisClient(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) {
		o.ReadTimeout, o.ContextTimeoutEnabled = patience, true // the strictest setting
	})
	contexts := make(chan context.Context, 1000)
	rdb.AddHook(contextSpy{contexts})
	c := fx.newLocksOn(t, rdb)
	ctx, cancel := context.WithCancel(context.WithValue(WithOwner(bg), spyKey{}, "the caller's"))

	lease := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	inner := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	if err := lease.Extend(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Lock("a").HoldCount(ctx); n != 2 || err != nil {
		t.Errorf("HoldCount: %d, %v", n, err)
	}
	cancel()
	for _, l := range []*Lease{inner, lease} { // with a cancelled context
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	fx.wantFields(t, "a", nil)
	close(contexts)
	n := 0
	for ctx := range contexts {
		n++
		if ctx.Value(spyKey{}) != nil {
			t.Error("a command has the caller's context")
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a command has no deadline")
		}
	}
	if n < 6 {
		t.Errorf("%d commands seen, want at least 6", n)
	}
}

type spyKey struct{}

// contextSpy sends the context of each command that runs a script to seen.
type contextSpy struct{ seen chan<- context.Context }

func (contextSpy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s contextSpy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			s.seen <- ctx
		}
		return next(ctx, cmd)
	}
}

func (s contextSpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if strings.HasPrefix(cmd.Name(), "eval") {
				s.seen <- ctx
			}
		}
		return next(ctx, cmds)
	}
}

// A caller that hangs up during an acquire returns at once. The client settles the acquire in the
// background.
func TestCancel_DuringAcquire(t *testing.T) {
	t.Parallel()
	// leave cancels an acquire that rule delays and waits for it to return.
	leave := func(t *testing.T, c *Client, rule *redistest.Rule) {
		t.Helper()
		cause := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(bg)
		result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
		mustReceive(t, "the acquire to reach the proxy", rule.Hit())
		cancel(cause)
		r := mustReceive(t, "Acquire to return", result)
		if r.lease != nil || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
			t.Fatalf("Acquire: %v, %v", r.lease, r.err)
		}
	}

	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, commandTimeout(patience), pollInterval(never))
		rule := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		if len(fx.hash(t, "a")) != 1 {
			t.Fatal("Redis did not grant the lock")
		}
		next := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
		rule.Release()
		mustRelease(t, mustReceiveLease(t, "the next waiter, woken without a poll", next))
	})

	t.Run("granted, waiter in another client", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
		rule := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		other := fx.newLocks(t, pollInterval(time.Hour))
		next := acquireAsync(bg, other.Lock("a"), AcquireOptions{WaitTime: patience})
		eventually(t, "the other client to subscribe", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 1 })
		rule.Release()
		r := mustReceive(t, "the other client to get the lock", next)
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.lease)
	})

	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
		theirs := mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{})
		commands := countCommands(proxy, runsScript())
		rule := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		rule.Release()
		// Once a second operation is over, the client has read the first reply.
		wantHeldByOther(t, c, "a")
		eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
		if n := commands(); n != 2 {
			t.Errorf("%d commands, want 2: a refusal needs no clean-up", n)
		}
		fx.wantCount(t, theirs, 1)
		mustRelease(t, theirs)
	})

	t.Run("reply lost", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
		rule := proxy.OnMatch(1, runsScript(acquireScript), redistest.DropReply)
		leave(t, c, rule)
		eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
		eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
		proxy.Cut() // else the dead connection delays Close by ReadTimeout
		proxy.Restore()
	})

	t.Run("executed later", func(t *testing.T) {
		t.Parallel()
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
		rule := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
		leave(t, c, rule)
		rule.Release()
		mustReceive(t, "Redis to grant the lock", rule.Done())
		eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
	})
}

// A caller that leaves the queue sends nothing, leaves nothing behind and delays no other waiter.
func TestCancel_InTheQueue(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, pollInterval(time.Hour))
	holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	first := startWaiter(t, bg, c, "a", forever)
	eventuallyAsleep(t, c, "a")

	commands := countCommands(proxy, runsScript())
	var leaving []<-chan acquireResult
	leavingCtx, hangUp := context.WithCancel(bg)
	for range 20 {
		leaving = append(leaving, acquireAsync(leavingCtx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever}))
	}
	eventually(t, "all callers to wait", func() bool { return c.Stats().Waiting == 21 })
	before := commands()
	hangUp()
	for _, result := range leaving {
		r := mustReceive(t, "Acquire to return", result)
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v, %v", r.lease, r.err)
		}
	}
	if n := c.Stats().Waiting; n != 1 {
		t.Errorf("%d waiters, want 1", n)
	}
	if n := commands(); n != before {
		t.Errorf("%d commands sent for callers that left the queue, want none", n-before)
	}
	mustRelease(t, holder)
	mustRelease(t, mustReceiveLease(t, "the first waiter", first))
}

// Hundreds of callers hang up at different moments and leave nothing behind.
func TestCancel_Hundreds(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(bg, time.Duration(i%30)*time.Millisecond)
			defer cancel()
			lease, err := clients[i%2].Lock("a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
			switch {
			case err == nil:
				if err := lease.Release(ctx); err != nil {
					t.Errorf("Release: %v", err)
				}
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("Acquire: %v", err)
			}
		})
	}
	wg.Wait()
	eventually(t, "the clean-ups to end", func() bool {
		return clients[0].Stats().Cleanups+clients[1].Stats().Cleanups == 0
	})
	next := mustAcquire(t, bg, clients[0].Lock("a"), AcquireOptions{WaitTime: patience}) // a late grant may still need its clean-up
	mustRelease(t, next)
}

// The first try of an acquire arrives after the retry got the lock and the lease was released. The
// first try makes a hold without a lease, so the client releases it.
func TestStray_AcquireAfterRelease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour}) // The retry gets it.
	releases := countCommands(proxy, runsScript(releaseScript))
	mustRelease(t, lease)
	fx.wantFields(t, "a", nil)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want 1", n)
	}

	stray.Release()
	mustReceive(t, "Redis to run the stray", stray.Done())
	fx.wantFields(t, "a", map[string]string{holdOf(lease).wire: "1"})
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
	eventually(t, "the clean-up to end", func() bool { return c.Stats().Cleanups == 0 })
	if n := releases(); n < 2 || n > 4 { // a reply may be late
		t.Errorf("%d releases, want one by the holder and one after the stray", n)
	}
}

// A stray acquire arrives after a hand-over to a waiter and the waiter's release. The stray is the
// holder's try, or the waiter's for a fair lock.
func TestStray_AcquireAfterHandOver(t *testing.T) {
	t.Parallel()
	for kind, ofWaiter := range map[string]bool{"lock": false, "fair": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second), pollInterval(never))
			l := lockKinds[kind].lock(c, "a")
			opts := AcquireOptions{LeaseTime: time.Hour, WaitTime: WaitForever}
			acquires := runsScript(acquireScript, fairAcquireScript)
			nth := 1
			if ofWaiter {
				nth = 2
			}
			stray := proxy.OnMatch(nth, acquires, redistest.HoldRequest)
			handedOn := countCommands(proxy, runsHandOver())
			holder := mustAcquire(t, bg, l, opts)
			waiter := acquireAsync(bg, l, opts)
			eventuallyAsleep(t, c, "a")
			mustRelease(t, holder)
			next := mustReceiveLease(t, "the waiter", waiter)
			if handedOn() == 0 {
				t.Error("the lock was not handed over")
			}
			mustRelease(t, next)
			late := holder
			if ofWaiter {
				late = next
			}
			fx.wantFields(t, "a", nil)
			if n := c.Stats().Cleanups; n != 1 {
				t.Fatalf("%d clean-ups, want 1 for the stray", n)
			}

			stray.Release()
			mustReceive(t, "Redis to run the stray", stray.Done())
			fx.wantFields(t, "a", map[string]string{holdOf(late).wire: "1"})
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
		})
	}
}

// A stray acquire arrives after its retry was refused, because another owner held the lock.
func TestStray_AcquireAfterRefusal(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	other := fx.newLocks(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runsScript(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	mustReceive(t, "the first try to be sent", stray.Hit())
	theirs := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	early.Release()
	r := mustReceive(t, "Acquire to return", result)
	wantErr(t, "Acquire", r.err, ErrNotAcquired)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want 1", n)
	}
	mustRelease(t, theirs)
	eventually(t, "a release before the stray", func() bool { return fx.commandCalls(t)["hdel"] >= 2 })

	stray.Release()
	mustReceive(t, "Redis to run the stray", stray.Done())
	if len(fx.hash(t, "a")) != 1 {
		t.Fatal("Redis did not grant the stray")
	}
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// A stray acquire arrives after its caller left without waiting for the refusal of the retry.
func TestStray_AcquireAfterCancel(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	other := fx.newLocks(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runsScript(acquireScript), redistest.HoldRequest)
	second := proxy.OnMatch(2, runsScript(acquireScript), redistest.HoldReply)
	ctx, cancel := context.WithCancel(bg)
	result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	mustReceive(t, "the first try to be sent", stray.Hit())
	theirs := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	early.Release()
	mustReceive(t, "Redis to refuse the retry", second.Hit())
	cancel()
	wantErr(t, "Acquire", mustReceive(t, "Acquire to return", result).err, context.Canceled)
	second.Release()
	eventually(t, "a release before the stray", func() bool { return fx.commandCalls(t)["hdel"] >= 1 })
	mustRelease(t, theirs)

	stray.Release()
	mustReceive(t, "Redis to run the stray", stray.Done())
	if len(fx.hash(t, "a")) != 1 {
		t.Fatal("Redis did not grant the stray")
	}
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// Stray acquires arrive after Acquire failed.
func TestStray_AcquireAfterFailure(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(4*time.Second))
	strays := proxy.OnEvery(runsScript(acquireScript), redistest.HoldRequest)
	lease, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
	if err == nil || errors.Is(err, ErrNotAcquired) {
		t.Fatalf("Acquire: %v, %v", lease, err)
	}
	eventually(t, "a release before the strays", func() bool { return fx.commandCalls(t)["hdel"] >= 1 })
	strays.Release()
	mustReceive(t, "Redis to run the strays", strays.Done())
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// The outcome of a waiter's first attempt is unknown. The next attempt has another wire
// owner, so the clean-up of the first does not free the lock.
func TestCleanup_SparesTheNextAttempt(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	other := fx.newLocks(t)
	c, proxy := fx.newLossyLocks(t, commandTimeout(4*time.Second))
	stray := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runsScript(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	mustReceive(t, "the first try to be sent", stray.Hit())
	theirs := mustAcquire(t, bg, other.Lock("a"), AcquireOptions{})
	early.Release()
	eventually(t, "the refusal of the retry", func() bool { return c.Stats().Cleanups == 1 })
	mustRelease(t, theirs)
	r := mustReceive(t, "Acquire to return", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	eventually(t, "the clean-up to end", func() bool { return c.Stats().Cleanups == 0 })
	fx.wantCount(t, r.lease, 1)
	if err := r.lease.Err(); err != nil {
		t.Error(err)
	}
	stray.Release()
	mustReceive(t, "Redis to run the stray", stray.Done())
	fx.wantCount(t, r.lease, 1)
	mustRelease(t, r.lease)
}

// The client drops a clean-up at the end of the lease if Redis does not reply.
func TestCleanup_EndsWithTheLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(2*time.Second))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: 6 * time.Second})
	proxy.Cut()
	if err := lease.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("Release: %v", err)
	}
	wantErr(t, "Err", lease.Err(), ErrReleased)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want 1", n)
	}
	eventually(t, "the client to drop the clean-up", func() bool { return c.Stats().Cleanups == 0 })
	proxy.Restore()
}

// The clean-up frees the lock at once if Redis is back before the lease ends.
func TestCleanup_GoesOnWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	proxy.Cut()
	if err := lease.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("Release: %v", err)
	}
	fx.wantCount(t, lease, 1)
	proxy.Restore()
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// New opens no connection, and neither does a client before its first command.
func TestNew_SendsNothing(t *testing.T) {
	t.Parallel()
	dialled := make(chan struct{}, 100)
	dial := func(context.Context, string, string) (net.Conn, error) {
		dialled <- struct{}{}
		return nil, errors.New("unexpected dial")
	}
	for name, rdb := range map[string]redis.UniversalClient{
		"single":   redis.NewClient(&redis.Options{Dialer: dial}),
		"cluster":  redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: dial}),
		"sentinel": redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Dialer: dial}),
	} {
		c := newUncheckedLocks(t, rdb)
		c.Lock("a")
		if s := c.Stats(); s != (Stats{}) {
			t.Errorf("%s: Stats of a new client: %+v, want zero", name, s)
		}
		if err := c.Close(bg); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if err := rdb.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(dialled); n != 0 {
		t.Errorf("%d connections opened, want none", n)
	}
}

// New refuses Redis clients that cannot keep locks.
func TestNew_RefusesClients(t *testing.T) {
	t.Parallel()
	single := func(d time.Duration) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: d})
	}
	cluster := func(d time.Duration) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: d})
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	for name, tc := range map[string]struct {
		rdb  redis.UniversalClient
		opts Options
		says string // "": New accepts it
	}{
		"single":                   {single(0), Options{}, ""},
		"single, no time-out":      {single(-1), Options{}, "ReadTimeout"},
		"single, no deadlines":     {single(-2), Options{}, "ReadTimeout"},
		"cluster":                  {cluster(0), Options{}, ""},
		"cluster, no time-out":     {cluster(-1), Options{}, "ReadTimeout"},
		"cluster, no deadlines":    {cluster(-2), Options{}, "ReadTimeout"},
		"failover, no time-out":    {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ReadTimeout: -1}), Options{}, "ReadTimeout"},
		"ring":                     {ring, Options{}, "*redis.Ring"},
		"embeds a ring":            {struct{ *redis.Ring }{ring}, Options{}, "Unwrap() redis.UniversalClient"},
		"embeds a client":          {struct{ redis.UniversalClient }{single(0)}, Options{}, "Unwrap() redis.UniversalClient"},
		"unwraps":                  {wrapper{single(0)}, Options{}, ""},
		"unwraps, no time-out":     {wrapper{single(-1)}, Options{}, "ReadTimeout"},
		"nil":                      {nil, Options{}, "nil"},
		"nil *redis.Client":        {(*redis.Client)(nil), Options{}, "nil"},
		"nil *redis.Ring":          {(*redis.Ring)(nil), Options{}, "*redis.Ring"},
		"nil cluster client":       {(*redis.ClusterClient)(nil), Options{}, "nil"},
		"universal, single":        {redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}), Options{}, ""},
		"universal, no time-out":   {redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: -1}), Options{}, "ReadTimeout"},
		"universal, failover":      {redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, MasterName: "m"}), Options{}, ""},
		"universal, two addresses": {redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}), Options{}, ""},
	} {
		c, err := New(tc.rdb, tc.opts)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.says == "":
			if err := c.Close(bg); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
		case c != nil || !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "reqlock:"):
			t.Errorf("%s: %v, %v; want an error with %q", name, c, err, tc.says)
		}
		closeQuietly(tc.rdb)
	}
}

// A wrapper is a client of an application around another.
type wrapper struct{ redis.UniversalClient }

func (w wrapper) Unwrap() redis.UniversalClient { return w.UniversalClient }

// closeQuietly closes a client that may be nil.
func closeQuietly(rdb redis.UniversalClient) {
	if v := reflect.ValueOf(rdb); rdb != nil && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		_ = rdb.Close()
	}
}

// The first try of an acquire is delayed, and the retry gets the lock. The owner enters again with
// a longer lease, then the first try arrives. It must change neither the count nor a time to live.
func TestAcquire_StrayAfterReentry(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		lock   func(c *Client, name string) *Lock
		script *lua.Script
		suffix string // of the field
	}{
		"plain":        {(*Client).Lock, acquireScript, ""},
		"fenced":       {(*Client).FencedLock, fencedAcquireScript, ""},
		"fair":         {(*Client).FairLock, fairAcquireScript, ""},
		"fenced-fair":  {fencedFairLock, fencedFairAcquireScript, ""},
		"fenced-write": {fencedWriteSide, fencedWriteAcquireScript, ":write"},
		"read":         {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Read() }, readAcquireScript, ""},
		"write":        {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }, writeAcquireScript, ":write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newLossyLocks(t)
			other := fx.newLocks(t)
			ctx := WithOwner(bg)

			stray := proxy.OnMatch(1, runsScript(kind.script), redistest.HoldRequest)
			first := mustAcquire(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: patience + 5*time.Second})
			again := mustAcquire(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			before := fx.timesToLive(t)
			stray.Release()
			mustReceive(t, "Redis to run the stray", stray.Done())

			if count := fx.hash(t, "a")[holdOf(first).wire+kind.suffix]; count != "2" {
				t.Errorf("count %q after the stray, want 2", count)
			}
			for key, ttl := range fx.timesToLive(t) {
				if ttl < before[key]-patience {
					t.Errorf("%q: %v to live before the stray, %v after it", key, before[key], ttl)
				}
			}
			if name == "read" { // a reader's release checks the keys of the other readers
				mustRelease(t, mustAcquire(t, bg, kind.lock(other, "a"), AcquireOptions{}))
				wantErr(t, "a writer beside a reader", tryAcquire(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			}
			wantHeld(t, first)
			wantHeld(t, again)
			mustRelease(t, again)
			if count := fx.hash(t, "a")[holdOf(first).wire+kind.suffix]; count != strconv.Itoa(1) {
				t.Errorf("count %q after a release, want 1", count)
			}
			mustRelease(t, first)
		})
	}
}

// timesToLive returns the time to live of each key that has one.
func (fx *redisFixture) timesToLive(t testing.TB) map[string]time.Duration {
	t.Helper()
	times := make(map[string]time.Duration)
	for _, key := range fx.rdb.Keys(context.Background(), "*").Val() {
		if ttl := fx.pttl(t, key); ttl > 0 {
			times[key] = ttl
		}
	}
	return times
}
