package core

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redistest"
)

// The engine repeats what was lost, and the operation is done once.
func TestRetry_LostReply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action  redistest.Action
		connect func(*bundle, testing.TB, ...func(*Options)) (*Client, *redistest.Proxy)
		most    int // tries
	}{
		"cut before execution": {redistest.CutBefore, (*bundle).proxied, 2},
		"cut after execution":  {redistest.CutAfter, (*bundle).proxied, 2},
		"reply lost":           {redistest.DropReply, (*bundle).lossy, 4}, // another may be late
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := test.connect(b, t)
			once := func(what string, script *lua.Script, do func()) {
				t.Helper()
				tries := counter(proxy, runs(script))
				proxy.OnMatch(1, runs(script), test.action)
				do()
				if n := tries(); n < 2 || n > test.most {
					t.Errorf("%s: %d tries, want 2", what, n)
				}
			}
			var lease, inner *Lease
			once("acquire", acquireScript, func() { lease = mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute}) })
			b.wantCount(t, lease, 1)
			once("re-entry", updateScript, func() { inner = mustEnter(t, lease.Context(), c, "a", AcquireOptions{}) })
			b.wantCount(t, lease, 2)
			once("partial release", updateScript, func() { mustRelease(t, inner) })
			b.wantCount(t, lease, 1)
			once("extension", updateScript, func() {
				if err := lease.Extend(bg, time.Hour); err != nil {
					t.Fatal(err)
				}
			})
			b.wantPTTL(t, "a", time.Hour)
			once("query", inspectScript, func() {
				if locked, err := c.Lock("a").IsLocked(bg); !locked || err != nil {
					t.Errorf("IsLocked: %v, %v", locked, err)
				}
			})
			once("release", releaseScript, func() { mustRelease(t, lease) })
			b.wantFields(t, "a", nil)
		})
	}
}

// ForceUnlock whose first reply was lost, and somebody takes the lock before its second try: that one was not meant.
func TestForceUnlock_LostReply(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	other := b.client(t)
	theirs := mustAcquire(t, other, "a", AcquireOptions{})
	lost := proxy.OnMatch(1, runs(forceScript), redistest.CutAfter)
	second := proxy.OnMatch(2, runs(forceScript), redistest.HoldRequest)
	freed := make(chan error, 1)
	go func() {
		ok, err := c.Lock("a").ForceUnlock(bg)
		if err == nil && !ok {
			err = errors.New("nobody held it")
		}
		freed <- err
	}()
	await(t, "the first try is executed", lost.Hit())
	await(t, "the second is on its way", second.Hit())
	next := mustAcquire(t, c, "a", AcquireOptions{})
	second.Release()
	if err := await(t, "ForceUnlock returns", freed); err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
	b.wantCount(t, next, 1)
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, next)
	wantErr(t, "the release of what was taken away", theirs.Release(bg), ErrLockLost)
}

// 0 after an unknown try of a release is the echo of that try, as long as the lease would have lasted.
func TestRelease_RetryFindsNothing(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t)
		lease := mustAcquire(t, c, "a", AcquireOptions{})
		proxy.OnMatch(1, runs(releaseScript), redistest.CutAfter)
		mustRelease(t, lease)
		wantErr(t, "Err", lease.Err(), ErrReleased)
	})
	t.Run("after the deadline", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		const short = 3 * time.Second
		c, proxy := b.proxiedWith(t, readTimeout(short))
		lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: short})
		proxy.OnMatch(1, runs(releaseScript), redistest.DropReply) // heard of when the lease is over
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("a hand-over after the deadline", func(t *testing.T) { // nor is anything left of whom it was handed to
		t.Parallel()
		b := newBundle(t)
		const short = 3 * time.Second
		c, proxy := b.proxiedWith(t, readTimeout(short))
		opts := AcquireOptions{LeaseTime: short, WaitTime: patience}
		lease := mustAcquire(t, c, "a", opts)
		opts.LeaseTime = short / 2
		waiter := queueUp(t, bg, c, "a", opts)
		eventually(t, "the waiter has asked since it listens, and sleeps", func() bool {
			e := c.names.lock("a")
			defer e.unlock()
			return e.firstSleepsLocked()
		})
		lost := proxy.OnMatch(1, passes(), redistest.DropReply)
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
		await(t, "it was handed on", lost.Hit())
		mustRelease(t, mustGet(t, "the waiter", waiter))
	})
	t.Run("without an unknown try", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, _ := b.proxied(t)
		lease := mustAcquire(t, c, "a", AcquireOptions{})
		if err := b.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("after a busy try", func(t *testing.T) { // which was not executed, so the 0 is no echo
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t)
		lease := mustAcquire(t, c, "a", AcquireOptions{})
		if err := b.rdb.Del(bg, "a").Err(); err != nil {
			t.Fatal(err)
		}
		proxy.OnMatch(1, runs(releaseScript), redistest.ReplyWith("-TRYAGAIN not now\r\n"))
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	})
	t.Run("the lock taken away meanwhile", func(t *testing.T) { // this client knows: a loss was seen
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.lossy(t)
		lease := mustAcquire(t, c, "a", AcquireOptions{})
		held := proxy.OnMatch(1, runs(releaseScript), redistest.HoldRequest)
		released := make(chan error, 1)
		go func() { released <- lease.Release(bg) }()
		await(t, "the release is on its way", held.Hit())
		if _, err := c.Lock("a").ForceUnlock(bg); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Release", await(t, "Release returns", released), ErrLockLost)
		held.Release()
	})
}

// Where one command frees the lock for two leases that are released at the same time, its answer is for both.
func TestRelease_TwoByOneCommand(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	owner, opts := WithOwner(bg), AcquireOptions{LeaseTime: time.Hour}
	leases := []*Lease{mustEnter(t, owner, c, "a", opts), mustEnter(t, owner, c, "a", opts)}
	turn := proxy.OnMatch(1, runs(updateScript), redistest.HoldReply)
	defer turn.Release()
	extended := make(chan error, 1)
	go func() { extended <- leases[0].Extend(bg, 2*time.Hour) }()
	await(t, "the turn is taken", turn.Hit())
	b.free(t, "a")
	released := make(chan error, len(leases))
	for _, l := range leases {
		go func() { released <- l.Release(bg) }()
	}
	eventually(t, "both wait for the turn", func() bool {
		e := c.names.lock("a")
		defer e.unlock()
		return holdOf(leases[0]).turn.queue != nil && holdOf(leases[0]).turn.queue.next != nil
	})
	turn.Release()
	for range leases {
		wantErr(t, "Release", await(t, "a release", released), ErrLockLost)
	}
	wantErr(t, "Extend", await(t, "the extension", extended), ErrReleased)
}

// A caller's context never reaches the library: a command that is under way is neither interrupted nor does it cost the
// connection.
func TestCancel_DoesNotReachTheRedisClient(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	proxy := b.srv.Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) {
		o.ReadTimeout, o.ContextTimeoutEnabled = patience, true // the library's strictest
	})
	contexts := make(chan context.Context, 1000)
	rdb.AddHook(contextSpy{contexts})
	c := b.clientOn(t, rdb)
	ctx, cancel := context.WithCancel(context.WithValue(WithOwner(bg), spyKey{}, "the caller's"))

	lease := mustEnter(t, ctx, c, "a", AcquireOptions{LeaseTime: time.Minute})
	inner := mustEnter(t, ctx, c, "a", AcquireOptions{})
	if err := lease.Extend(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Lock("a").HoldCount(ctx); n != 2 || err != nil {
		t.Errorf("HoldCount: %d, %v", n, err)
	}
	cancel()
	for _, l := range []*Lease{inner, lease} { // with a context that has ended
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	b.wantFields(t, "a", nil)
	close(contexts)
	n := 0
	for ctx := range contexts {
		n++
		if ctx.Value(spyKey{}) != nil {
			t.Error("a command carries the caller's context")
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a command carries no deadline")
		}
	}
	if n < 6 {
		t.Errorf("%d commands were seen", n)
	}
}

type spyKey struct{}

// A contextSpy notes the context of every command that runs a script.
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

// A caller that hangs up while its acquire is under way goes at once. What becomes of the acquire is found out behind it.
func TestCancel_DuringAcquire(t *testing.T) {
	t.Parallel()
	// leave has a caller leave while its acquire is held up, and returns when it has gone.
	leave := func(t *testing.T, c *Client, rule *redistest.Rule) {
		t.Helper()
		cause := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(bg)
		result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
		await(t, "the acquire is under way", rule.Hit())
		cancel(cause)
		r := await(t, "the caller is let go", result)
		if r.lease != nil || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
			t.Fatalf("Acquire: %v, %v", r.lease, r.err)
		}
	}

	t.Run("granted", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t, commandTimeout(patience), pollInterval(never))
		rule := proxy.OnMatch(1, runs(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		if len(b.fields(t, "a")) != 1 {
			t.Fatal("Redis has not granted it")
		}
		next := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
		rule.Release()
		mustRelease(t, mustGet(t, "the next one is told, and does not just ask again", next))
	})

	t.Run("granted, seen from elsewhere", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t, commandTimeout(patience))
		rule := proxy.OnMatch(1, runs(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		other := b.client(t, pollInterval(time.Hour))
		next := acquireAsync(bg, other.Lock("a"), AcquireOptions{WaitTime: patience})
		eventually(t, "somebody else waits", func() bool { return len(b.rdb.PubSubChannels(bg, "*").Val()) == 1 })
		rule.Release()
		r := await(t, "somebody else gets it", next)
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.lease)
	})

	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t, commandTimeout(patience))
		theirs := mustAcquire(t, b.client(t), "a", AcquireOptions{})
		commands := counter(proxy, runs())
		rule := proxy.OnMatch(1, runs(acquireScript), redistest.HoldReply)
		leave(t, c, rule)
		rule.Release()
		// A second operation: by its end the first reply has long been read.
		wantHeldByOther(t, c, "a")
		eventually(t, "the client is idle", func() bool { return c.Stats() == Stats{} })
		if n := commands(); n != 2 {
			t.Errorf("%d commands: a refusal that nobody waits for was followed by something", n)
		}
		b.wantCount(t, theirs, 1)
		mustRelease(t, theirs)
	})

	t.Run("not answered", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t, commandTimeout(3*time.Second))
		rule := proxy.OnMatch(1, runs(acquireScript), redistest.DropReply)
		leave(t, c, rule)
		eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
		eventually(t, "nothing is left to do", func() bool { return c.Stats() == Stats{} })
		proxy.Cut() // or the deaf connection keeps Close for as long as the library waits
		proxy.Restore()
	})

	t.Run("executed later", func(t *testing.T) {
		t.Parallel()
		b := newBundle(t)
		c, proxy := b.proxied(t, commandTimeout(patience))
		rule := proxy.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
		leave(t, c, rule)
		rule.Release()
		await(t, "Redis grants it", rule.Done())
		eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
	})
}

// A caller that leaves the queue has sent nothing, leaves nothing behind, and holds up nobody.
func TestCancel_InTheQueue(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, pollInterval(time.Hour))
	holder := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour})
	first := queueUp(t, bg, c, "a", forever)
	listened(t, c, "a")

	commands := counter(proxy, runs())
	var leaving []<-chan acquired
	leavingCtx, hangUp := context.WithCancel(bg)
	for range 20 {
		leaving = append(leaving, acquireAsync(leavingCtx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever}))
	}
	eventually(t, "all wait", func() bool { return c.Stats().Waiting == 21 })
	before := commands()
	hangUp()
	for _, result := range leaving {
		r := await(t, "the caller is let go", result)
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v, %v", r.lease, r.err)
		}
	}
	if n := c.Stats().Waiting; n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
	if n := commands(); n != before {
		t.Errorf("%d commands were sent for callers that left the queue", n-before)
	}
	mustRelease(t, holder)
	mustRelease(t, mustGet(t, "the first gets it", first))
}

// Hang-ups are ordinary: hundreds of callers come and go at any moment, and nothing stays.
func TestCancel_Hundreds(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t)}
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
	eventually(t, "nothing is left to do", func() bool {
		return clients[0].Stats().Cleanups+clients[1].Stats().Cleanups == 0
	})
	next := mustAcquire(t, clients[0], "a", AcquireOptions{WaitTime: patience}) // the last grants are just being cleaned up
	mustRelease(t, next)
}

// A first try of an acquire arrives when the hold that its second try made has been released: it makes a hold of nobody.
func TestStray_AcquireAfterRelease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour}) // by its second try
	releases := counter(proxy, runs(releaseScript))
	mustRelease(t, lease)
	b.wantFields(t, "a", nil)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want one for the hold", n)
	}

	stray.Release()
	await(t, "the stray was executed", stray.Done())
	b.wantFields(t, "a", map[string]string{holdOf(lease).field: "1"})
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
	eventually(t, "the clean-up is over", func() bool { return c.Stats().Cleanups == 0 })
	if n := releases(); n < 2 || n > 4 { // a reply may be late
		t.Errorf("released %d times, want once by the holder and once after the stray", n)
	}
}

// The same where the hold was handed on to a waiter meanwhile; and where it is the waiter's try that arrives, when the hold is over that
// was handed to it.
func TestStray_AcquireAfterHandOver(t *testing.T) {
	t.Parallel()
	for kind, ofWaiter := range map[string]bool{"lock": false, "fair": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t, commandTimeout(6*time.Second), pollInterval(never))
			l := lockKinds[kind].lock(c, "a")
			opts := AcquireOptions{LeaseTime: time.Hour, WaitTime: WaitForever}
			acquires := runs(acquireScript, fairAcquireScript)
			nth := 1
			if ofWaiter {
				nth = 2
			}
			stray := proxy.OnMatch(nth, acquires, redistest.HoldRequest)
			handedOn := counter(proxy, passes())
			holder := mustTake(t, bg, l, opts)
			waiter := acquireAsync(bg, l, opts)
			listened(t, c, "a")
			mustRelease(t, holder)
			next := mustGet(t, "the waiter", waiter)
			if handedOn() == 0 {
				t.Error("it was not handed on")
			}
			mustRelease(t, next)
			late := holder
			if ofWaiter {
				late = next
			}
			b.wantFields(t, "a", nil)
			if n := c.Stats().Cleanups; n != 1 {
				t.Fatalf("%d clean-ups, want one for the hold whose try is on its way", n)
			}

			stray.Release()
			await(t, "the stray was executed", stray.Done())
			b.wantFields(t, "a", map[string]string{holdOf(late).field: "1"})
			eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
		})
	}
}

// The same where the second try was refused, because somebody else had the lock by then.
func TestStray_AcquireAfterRefusal(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	other := b.client(t)
	c, proxy := b.lossy(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runs(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	await(t, "the first try is on its way", stray.Hit())
	theirs := mustAcquire(t, other, "a", AcquireOptions{})
	early.Release()
	r := await(t, "Acquire returns", result)
	wantErr(t, "Acquire", r.err, ErrNotAcquired)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want 1", n)
	}
	mustRelease(t, theirs)
	eventually(t, "it is released once before the stray", func() bool { return b.calls(t)["hdel"] >= 2 })

	stray.Release()
	await(t, "the stray was executed", stray.Done())
	if len(b.fields(t, "a")) != 1 {
		t.Fatal("the stray was not granted")
	}
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
}

// And where the caller had left before the second try was refused.
func TestStray_AcquireAfterCancel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	other := b.client(t)
	c, proxy := b.lossy(t, commandTimeout(6*time.Second))
	stray := proxy.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runs(acquireScript), redistest.HoldRequest)
	second := proxy.OnMatch(2, runs(acquireScript), redistest.HoldReply)
	ctx, cancel := context.WithCancel(bg)
	result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	await(t, "the first try is on its way", stray.Hit())
	theirs := mustAcquire(t, other, "a", AcquireOptions{})
	early.Release()
	await(t, "the second try is refused", second.Hit())
	cancel()
	wantErr(t, "Acquire", await(t, "the caller is let go", result).err, context.Canceled)
	second.Release()
	eventually(t, "it is released once before the stray", func() bool { return b.calls(t)["hdel"] >= 1 })
	mustRelease(t, theirs)

	stray.Release()
	await(t, "the stray was executed", stray.Done())
	if len(b.fields(t, "a")) != 1 {
		t.Fatal("the stray was not granted")
	}
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
}

// And where the acquire failed altogether.
func TestStray_AcquireAfterFailure(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t, commandTimeout(4*time.Second))
	strays := proxy.OnEvery(runs(acquireScript), redistest.HoldRequest)
	lease, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
	if err == nil || errors.Is(err, ErrNotAcquired) {
		t.Fatalf("Acquire: %v, %v", lease, err)
	}
	eventually(t, "it is released once before the strays", func() bool { return b.calls(t)["hdel"] >= 1 })
	strays.Release()
	await(t, "the strays were executed", strays.Done())
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
}

// A hold in doubt whose lease is used up by its stray: the waiter's next attempt has a wire owner of its own, so that
// the clean-up of the old one does not take the lock from it.
func TestCleanup_SparesTheNextAttempt(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	other := b.client(t)
	c, proxy := b.lossy(t, commandTimeout(4*time.Second))
	stray := proxy.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
	early := proxy.OnMatch(2, runs(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	await(t, "the first try is on its way", stray.Hit())
	theirs := mustAcquire(t, other, "a", AcquireOptions{})
	early.Release()
	eventually(t, "the second try was refused", func() bool { return c.Stats().Cleanups == 1 })
	mustRelease(t, theirs)
	r := await(t, "Acquire returns", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	eventually(t, "the clean-up is over", func() bool { return c.Stats().Cleanups == 0 })
	b.wantCount(t, r.lease, 1)
	if err := r.lease.Err(); err != nil {
		t.Error(err)
	}
	stray.Release()
	await(t, "the stray was executed", stray.Done())
	b.wantCount(t, r.lease, 1)
	mustRelease(t, r.lease)
}

// A clean-up that Redis does not answer is dropped when the lease is over.
func TestCleanup_EndsWithTheLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(2*time.Second))
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: 6 * time.Second})
	proxy.Cut()
	if err := lease.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("Release: %v", err)
	}
	wantErr(t, "Err", lease.Err(), ErrReleased)
	if n := c.Stats().Cleanups; n != 1 {
		t.Fatalf("%d clean-ups, want 1", n)
	}
	eventually(t, "it is dropped", func() bool { return c.Stats().Cleanups == 0 })
	proxy.Restore()
}

// When Redis is back before, the lock is free at once.
func TestCleanup_GoesOnWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(3*time.Second))
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour})
	proxy.Cut()
	if err := lease.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
		t.Fatalf("Release: %v", err)
	}
	b.wantCount(t, lease, 1)
	proxy.Restore()
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
}

// New talks to nobody, and neither does a client that is not used.
func TestNew_SendsNothing(t *testing.T) {
	t.Parallel()
	dialled := make(chan struct{}, 100)
	dial := func(context.Context, string, string) (net.Conn, error) {
		dialled <- struct{}{}
		return nil, errors.New("nobody may dial")
	}
	for name, rdb := range map[string]redis.UniversalClient{
		"single":   redis.NewClient(&redis.Options{Dialer: dial}),
		"cluster":  redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: dial}),
		"sentinel": redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Dialer: dial}),
	} {
		c := newLooseClient(t, rdb)
		c.Lock("a")
		if s := c.Stats(); s != (Stats{}) {
			t.Errorf("%s: a new client has something at hand: %+v", name, s)
		}
		if err := c.Close(bg); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if err := rdb.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(dialled); n != 0 {
		t.Errorf("%d connections were opened", n)
	}
}

// Clients on which locks cannot be kept are refused.
func TestNew_RefusesClients(t *testing.T) {
	t.Parallel()
	single := func(d time.Duration) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: d})
	}
	cluster := func(d time.Duration) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: d})
	}
	for name, tc := range map[string]struct {
		rdb  redis.UniversalClient
		opts Options
		says string // "": it is taken
	}{
		"single":                   {single(0), Options{}, ""},
		"single, no time-out":      {single(-1), Options{}, "ReadTimeout"},
		"single, no deadlines":     {single(-2), Options{}, "ReadTimeout"},
		"cluster":                  {cluster(0), Options{}, ""},
		"cluster, no time-out":     {cluster(-1), Options{}, "ReadTimeout"},
		"cluster, no deadlines":    {cluster(-2), Options{}, "ReadTimeout"},
		"failover, no time-out":    {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ReadTimeout: -1}), Options{}, "ReadTimeout"},
		"ring":                     {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}), Options{}, "*redis.Ring"},
		"nothing":                  {nil, Options{}, "nil"},
		"a nil *redis.Client":      {(*redis.Client)(nil), Options{}, "nil"},
		"a nil *redis.Ring":        {(*redis.Ring)(nil), Options{}, "*redis.Ring"},
		"a nil cluster client":     {(*redis.ClusterClient)(nil), Options{}, "nil"},
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
			t.Errorf("%s: %v, %v; want an error that says %s", name, c, err, tc.says)
		}
		closeQuietly(tc.rdb)
	}
}

// closeQuietly closes a client that may be nil.
func closeQuietly(rdb redis.UniversalClient) {
	switch c := rdb.(type) {
	case *redis.Client:
		if c != nil {
			_ = c.Close()
		}
	case *redis.ClusterClient:
		if c != nil {
			_ = c.Close()
		}
	case *redis.Ring:
		if c != nil {
			_ = c.Close()
		}
	}
}

// The first try of an acquire is held back and its retry granted. The owner enters again for longer; then the first try
// arrives. It must change neither the count nor any time to live.
func TestAcquire_StrayAfterReentry(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		lock   func(c *Client, name string) *Lock
		script *lua.Script
		suffix string // of the field
	}{
		"plain":  {(*Client).Lock, acquireScript, ""},
		"fenced": {(*Client).FencedLock, fencedAcquireScript, ""},
		"fair":   {(*Client).FairLock, fairAcquireScript, ""},
		"read":   {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Read() }, readAcquireScript, ""},
		"write":  {func(c *Client, name string) *Lock { return c.ReadWriteLock(name).Write() }, writeAcquireScript, ":write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.lossy(t)
			other := b.client(t)
			ctx := WithOwner(bg)

			stray := proxy.OnMatch(1, runs(kind.script), redistest.HoldRequest)
			first := mustTake(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: patience + 5*time.Second})
			again := mustTake(t, ctx, kind.lock(c, "a"), AcquireOptions{LeaseTime: time.Hour})
			before := b.timesToLive(t)
			stray.Release()
			await(t, "the stray acquire was executed", stray.Done())

			if count := b.fields(t, "a")[holdOf(first).field+kind.suffix]; count != "2" {
				t.Errorf("count %q after the stray, want 2", count)
			}
			for key, ttl := range b.timesToLive(t) {
				if ttl < before[key]-patience {
					t.Errorf("%q had %v to live and has %v after the stray", key, before[key], ttl)
				}
			}
			if name == "read" { // a reader that leaves looks at the keys of the others
				mustRelease(t, mustTake(t, bg, kind.lock(other, "a"), AcquireOptions{}))
				wantErr(t, "a writer beside a reader", second(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			}
			wantHeld(t, first)
			wantHeld(t, again)
			mustRelease(t, again)
			if count := b.fields(t, "a")[holdOf(first).field+kind.suffix]; count != strconv.Itoa(1) {
				t.Errorf("count %q after a release, want 1", count)
			}
			mustRelease(t, first)
		})
	}
}

// timesToLive maps each key to the time it has left.
func (b *bundle) timesToLive(t testing.TB) map[string]time.Duration {
	t.Helper()
	times := make(map[string]time.Duration)
	for _, key := range b.rdb.Keys(context.Background(), "*").Val() {
		if ttl := b.pttl(t, key); ttl > 0 {
			times[key] = ttl
		}
	}
	return times
}
