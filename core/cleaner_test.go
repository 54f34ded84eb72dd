package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// An outage holds back an acquire that was given up. Afterwards Redis answers the cleaner first,
// more than CommandTimeout after the last failure, and then executes the acquire. The cleaner still
// frees the lock.
func TestCleaner_StrayAfterTheFirstAnswer(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocksWith(t, readTimeout(time.Second), commandTimeout(time.Second))

	stray := proxy.OnEvery(runsScript(acquireScript), redistest.HoldRequest)
	refused := proxy.OnEvery(runsScript(releaseScript), redistest.ReplyWith("-ERR some trouble\r\n"))
	if _, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: time.Hour}); err == nil {
		t.Fatal("Acquire succeeded without an answer")
	}
	eventually(t, "the clean-up to pause for as long as CommandTimeout", func() bool {
		c.cleaner.mu.Lock()
		defer c.cleaner.mu.Unlock()
		for u := range c.cleaner.pending {
			return u.claim.Failures() > 6
		}
		return false
	})
	answered := proxy.OnMatch(1, runsScript(releaseScript), redistest.Delay(1))
	refused.Remove()
	mustReceive(t, "an answer from Redis", answered.Hit())
	stray.Remove()
	stray.Release()
	mustReceive(t, "the stray to be executed", stray.Done())
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 && c.Stats().Cleanups == 0 })
}

// Redis freezes for longer than a lease and then executes an acquire. The cleaner frees the lock
// before the lease ends.
func TestOutage_LongerThanTheLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	const lease = 8 * time.Second
	c := fx.newLocks(t, watchdogTimeout(lease), commandTimeout(200*time.Millisecond))
	fx.srv.Freeze(t)
	began := time.Now()
	if _, err := c.Lock("a").Acquire(bg, AcquireOptions{}); err == nil {
		t.Fatal("Acquire succeeded without an answer")
	}
	eventually(t, "more than a lease to pass", func() bool { return time.Since(began) > lease+time.Second })
	fx.srv.Thaw(t)
	thawed := time.Now()
	eventually(t, "the lock to be free, and the client idle", func() bool {
		return len(fx.hash(t, "a")) == 0 && c.Stats() == Stats{}
	})
	if took := time.Since(thawed); took > lease-time.Second {
		t.Errorf("the lock was free after %v, want sooner than the lease", took)
	}
}

// Redis freezes for longer than two leases of a reader, and then executes renewals that were given
// up. Another reader keeps the hash, so a renewal puts the time-out key back. The cleaner frees the
// reader: it has not given up, although the lease has expired long ago.
func TestOutage_StrayRenewalOfAReader(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	const lease = 3 * time.Second
	name := "a"
	other := mustAcquire(t, bg, fx.newLocks(t).ReadWriteLock(name).Read(), AcquireOptions{LeaseTime: time.Hour})
	c := fx.newLocks(t, watchdogTimeout(lease), commandTimeout(time.Second))
	reader := mustAcquire(t, bg, c.ReadWriteLock(name).Read(), AcquireOptions{})
	fx.srv.Freeze(t)
	mustReceive(t, "the loss", reader.Context().Done())
	lost := time.Now()
	eventually(t, "more than a lease to pass", func() bool { return time.Since(lost) > lease+time.Second })
	if c.Stats().Cleanups == 0 {
		t.Error("the cleanup was given up, but a renewal may still be on its way")
	}
	fx.srv.Thaw(t)
	eventually(t, "the reader to be freed", func() bool {
		return c.Stats() == Stats{} && len(fx.hash(t, name)) == 2 // the other's and the mode
	})
	if err := reader.Release(bg); !errors.Is(err, ErrLockLost) {
		t.Errorf("Release: %v, want ErrLockLost", err)
	}
	mustRelease(t, other)
}

// Redis refuses every release for a while. Close retries until it has freed a lock with a long
// lease and a place in the queue of a fair lock.
func TestClose_RepeatsCleanups(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"-READONLY You can't write against a read only replica.\r\n",
		"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
		"-LOADING Redis is loading the dataset in memory\r\n",
	} {
		t.Run(reply[1:8], func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			other := fx.newLocks(t)
			fx.loadScripts(t)
			proxy := fx.srv.Proxy(t)
			c := newUncheckedLocks(t, proxy.Client(t))
			lease := mustAcquire(t, bg, c.Lock("plain"), AcquireOptions{LeaseTime: time.Hour})
			holder := mustAcquire(t, bg, other.FairLock("a"), AcquireOptions{})
			fx.queueWaiters(t, c)
			refused := proxy.OnEvery(runsScript(releaseScript, fairReleaseScript), redistest.ReplyWith(reply))
			tries := countCommands(proxy, runsScript(releaseScript, fairReleaseScript))
			released := make(chan error, 1)
			go func() { released <- lease.Release(bg) }()
			mustReceive(t, "the refusal of a release", refused.Hit())
			closing := make(chan error, 1)
			go func() { closing <- c.Close(bg) }()
			eventually(t, "Close to begin", func() bool { return c.state.Load() != open })
			before := tries()
			eventually(t, "Close to retry", func() bool { return tries() > before+4 })
			refused.Remove()
			_ = mustReceive(t, "Close to return", closing)
			_ = mustReceive(t, "Release to return", released)
			fx.wantFields(t, "plain", nil)
			if n := fx.rdb.LLen(bg, wire.FairQueue("a")).Val(); n != 0 {
				t.Errorf("%d dead waiters in the queue, want none", n)
			}
			mustRelease(t, holder)
		})
	}
}

// Redis runs out of memory, refuses connections, and stalls for longer than any timeout of two
// processes. Then it executes what they sent, even on connections that they have closed since.
// Within a few CommandTimeouts no lock is left, and waiters without a limit get their locks.
func TestOutage_LeavesNothingLocked(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	fx.loadScripts(t)
	proxy := fx.srv.Proxy(t)
	const timeout = 250 * time.Millisecond
	var clients []*Client
	for range 2 {
		rdb := proxy.ClientWith(t, readTimeout(time.Second))
		clients = append(clients, newUncheckedLocks(t, rdb, commandTimeout(timeout)))
	}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 48 {
		c := clients[i%len(clients)]
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				cycleInTrouble(c, fmt.Sprint("name ", (i+n)%8), i+n)
			}
		})
	}
	// The sleeps are the length of each fault, and of the rest between two.
	time.Sleep(300 * time.Millisecond)
	fx.rdb.ConfigSet(bg, "maxmemory", "1")
	time.Sleep(500 * time.Millisecond)
	fx.rdb.ConfigSet(bg, "maxmemory", "0")
	time.Sleep(200 * time.Millisecond)
	for range 3 {
		proxy.Cut()
		time.Sleep(50 * time.Millisecond)
		proxy.Restore()
		time.Sleep(100 * time.Millisecond)
	}
	proxy.Stall()
	time.Sleep(1700 * time.Millisecond)
	proxy.Restore()
	time.Sleep(200 * time.Millisecond)
	close(stop)
	finished := make(chan struct{})
	go func() {
		callers.Wait()
		close(finished)
	}()
	mustReceive(t, "all callers to return", finished)
	var left []string
	if !within(patience, func() bool {
		left = withoutTokens(fx.rdb.Keys(bg, "*").Val())
		return len(left) == 0
	}) {
		for _, key := range left {
			t.Errorf("key %q is left, TTL %v", key, fx.pttl(t, key))
		}
	}
	for _, c := range clients {
		eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
		if err := c.Close(bg); err != nil {
			t.Error(err)
		}
	}
}

// cycleInTrouble acquires a lock of some kind and releases it. Errors do not matter.
func cycleInTrouble(c *Client, name string, n int) {
	lock := []func() *Lock{
		func() *Lock { return c.Lock("plain " + name) },
		func() *Lock { return c.FencedLock("fenced " + name) },
		func() *Lock { return c.FairLock("fair " + name) },
		func() *Lock { return c.ReadWriteLock("rw " + name).Read() },
		func() *Lock { return c.ReadWriteLock("rw " + name).Write() },
	}[n%5]()
	opts := AcquireOptions{
		WaitTime:  []time.Duration{0, 50 * time.Millisecond, time.Second, WaitForever}[rand.N(4)],
		LeaseTime: []time.Duration{0, time.Second, 10 * time.Second, time.Minute}[rand.N(4)],
	}
	lease, err := lock.Acquire(bg, opts)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	time.Sleep(rand.N(5 * time.Millisecond))
	_ = lease.Release(bg)
}
