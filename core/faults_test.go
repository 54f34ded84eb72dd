package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A Redis that comes back with its data has lost nothing.
func TestFaults_RestartWithData(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(15*time.Second))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	fx.srv.Save(t)
	fx.srv.Kill(t)
	fx.srv.Restart(t)
	fx.eventuallyRenewed(t, "a")
	if err := lease.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if fields := fx.hash(t, "a"); fields[holdOf(lease).wire] != "1" {
		t.Errorf("fields: %v", fields)
	}
	mustRelease(t, lease)
}

// A Redis that comes back without its data has lost the lock. The holder finds out, and its next
// lock is renewed. Redisson: testLockAfterTimeout, testReadLockAfterTimeout,
// testWriteLockAfterTimeout.
func TestFaults_RestartWithoutData(t *testing.T) {
	t.Parallel()
	eachLockKind(t, func(t *testing.T, kind lockKind) {
		fx := newRedis(t)
		c := fx.newLocks(t, watchdogTimeout(9*time.Second))
		lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		fx.srv.Restart(t)
		mustReceive(t, "the holder to be told", lease.Done())
		wantErr(t, "the cause of its context", context.Cause(lease.Context()), ErrLockLost)
		wantErr(t, "Release", lease.Release(bg), ErrLockLost)
		next := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		fx.eventuallyRenewed(t, "a")
		wantHeld(t, next)
		mustRelease(t, next)
	})
}

// A holder that cannot reach Redis keeps the lock until its lease ends, and knows by then that it
// has lost it. Redisson: testAutoExpire.
func TestFaults_HolderCutOff(t *testing.T) {
	t.Parallel()
	eachOf(t, excludingKinds, func(t *testing.T, kind lockKind) {
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t, watchdogTimeout(4*time.Second))
		other := fx.newLocks(t, pollInterval(never))
		lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		waiter := acquireAsync(bg, kind.rival(other, "a"), forever)
		eventuallyWaiting(t, other)
		proxy.Cut()
		next := mustReceiveLease(t, "the lock to be free again", waiter)
		wantErr(t, "the holder", lease.Err(), ErrLockLost)
		mustReceive(t, "its context to end", lease.Context().Done())
		mustRelease(t, next)
		proxy.Restore()
	})
}

// When Redis freezes for longer than a lease, the holder is told on time. Once Redis thaws another
// owner gets the lock, and it alone.
func TestFaults_Frozen(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	for name, opts := range map[string]AcquireOptions{
		"watchdog":   {},
		"fixed time": {LeaseTime: lease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, watchdogTimeout(lease))
			other := fx.newLocks(t, commandTimeout(patience))
			held := mustAcquire(t, bg, c.Lock("a"), opts)
			fx.srv.Freeze(t)
			frozen := time.Now()
			result := acquireAsync(bg, other.Lock("a"), forever)

			mustReceive(t, "the holder to be told", held.Done())
			// A renewal that was granted just before cannot count for longer than a lease.
			if late := time.Since(frozen) - lease; late > patience/4 {
				t.Errorf("told %v after the lease was over", late)
			}
			if cause := context.Cause(held.Context()); !errors.Is(held.Err(), ErrLockLost) || !errors.Is(cause, ErrLockLost) {
				t.Errorf("Err: %v, cause: %v", held.Err(), cause)
			}
			fx.srv.Thaw(t)
			next := mustReceiveLease(t, "another owner to get it", result)
			// Once the old holder is idle, its last commands and clean-ups have reached Redis.
			eventually(t, "the old holder to have nothing at hand", func() bool { return c.Stats() == Stats{} })
			if fields := fx.hash(t, "a"); len(fields) != 1 || fields[holdOf(next).wire] != "1" {
				t.Errorf("fields: %v", fields)
			}
			mustRelease(t, next)
		})
	}
}

// A client may be made before its Redis starts. Redisson: testRedisFailed.
func TestFaults_NotStartedYet(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	fx := newRedis(t)
	fx.srv.Kill(t)
	c := fx.newLocks(t, commandTimeout(timeout))
	for _, wait := range []time.Duration{0, time.Hour} {
		began := time.Now()
		_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: wait})
		if err == nil || errors.Is(err, ErrNotAcquired) {
			t.Errorf("Acquire without Redis: %v", err)
		}
		if took := time.Since(began); took > timeout+5*time.Second {
			t.Errorf("it took %v to fail", took)
		}
	}
	fx.srv.Restart(t)
	mustRelease(t, eventuallyAcquire(t, c, "a", AcquireOptions{WaitTime: patience}))
}

// A thousand waiters are told in time that Redis is gone. When it is back the client works as
// before.
func TestFaults_ThousandWaiters(t *testing.T) {
	t.Parallel()
	const (
		waiters = 1000
		poll    = 2 * time.Second
		timeout = 6 * time.Second
	)
	type fault struct {
		begin, end func(*redistest.Server, testing.TB)
	}
	faults := map[string]fault{
		"dies":         {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"stands still": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	}
	for name, fault := range faults {
		for _, names := range []int{1, waiters} {
			t.Run(fmt.Sprintf("%s, names: %d", name, names), func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c := fx.newLocks(t, pollInterval(poll), commandTimeout(timeout))
				held := make([]string, names)
				for i := range held {
					held[i] = fmt.Sprint("held:", i)
				}
				fx.lockAsStranger(t, time.Hour, held...)

				results := make([]<-chan acquireResult, waiters)
				for i := range results {
					results[i] = acquireAsync(bg, c.Lock(held[i%names]), long)
				}
				if !within(5*patience, func() bool { return c.Stats().Waiting == waiters && c.Stats().Channels == names }) {
					t.Fatalf("timed out waiting for %d waiters; %+v", waiters, c.Stats())
				}
				fault.begin(fx.srv, t)
				began := time.Now()
				for _, result := range results {
					r := mustReceive(t, "the waiter to be told", result)
					if r.err == nil || errors.Is(r.err, ErrNotAcquired) || errors.Is(r.err, ErrNotHeld) || errors.Is(r.err, context.DeadlineExceeded) {
						t.Fatalf("Acquire: %v, %v; want the trouble with Redis", r.lease, r.err)
					}
				}
				if took := time.Since(began); took > 3*(poll+timeout) {
					t.Errorf("the last was told after %v", took)
				}

				fault.end(fx.srv, t)
				eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
				fx.deleteKeys(t, held...)
				for _, name := range held[:min(names, 20)] {
					mustRelease(t, eventuallyAcquire(t, c, name, AcquireOptions{WaitTime: patience}))
				}
			})
		}
	}
}

// A caller leaves after an attempt whose reply was lost and before the next one. What the attempt
// acquired is released.
func TestFaults_CallerLeavesBetweenAttempts(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	ctx, leave := context.WithCancel(bg)
	defer leave()
	lost := proxy.OnEvery(runsScript(acquireScript), redistest.CutAfter)
	tries := countCommands(proxy, runsScript(acquireScript))
	var results []<-chan acquireResult
	for _, name := range []string{"a", "b", "c"} {
		results = append(results, acquireAsync(ctx, c.Lock(name), AcquireOptions{LeaseTime: time.Hour}))
	}
	eventually(t, "21 attempts, so that the pauses are long", func() bool { return tries() >= 21 })
	leave()
	for _, r := range results {
		wantErr(t, "the caller", mustReceive(t, "it to leave", r).err, context.Canceled)
	}
	lost.Remove()
	for _, name := range []string{"a", "b", "c"} {
		mustRelease(t, mustAcquire(t, bg, c.Lock(name), AcquireOptions{WaitTime: patience}))
	}
}

// Releases of many levels while Redis is silent do not wait for each other's time-out.
func TestFaults_ManyLevelsReleased(t *testing.T) {
	t.Parallel()
	for name, remain := range map[string]int{"all": 0, "all but one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 3 * time.Second
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(timeout))
			ctx := WithOwner(bg)
			var levels []*Lease
			for range 12 {
				levels = append(levels, mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{}))
			}
			proxy.Stall()
			begun := time.Now()
			var wg sync.WaitGroup
			for _, l := range levels[remain:] {
				wg.Go(func() {
					if err := l.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
						t.Errorf("Release without Redis: %v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(begun); took > 4*timeout {
				t.Errorf("the releases took %s, with a command timeout of %s", took, timeout)
			}
			proxy.Restore()
			eventually(t, "a probe to hear from Redis", func() bool {
				lease, err := c.Lock("b").Acquire(bg, AcquireOptions{})
				return err == nil && lease.Release(bg) == nil
			})
			for _, l := range levels[:remain] {
				wantHeld(t, l)
				mustRelease(t, mustAcquire(t, l.Context(), c.Lock("a"), AcquireOptions{}))
				mustRelease(t, l)
			}
			mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{WaitTime: patience}))
		})
	}
}

// A firewall drops every pooled connection silently, and the Redis client would wait long for a
// reply. CommandTimeout bounds how long a dead connection blocks other commands.
func TestFaults_MuteConnections(t *testing.T) {
	t.Parallel()
	const connections = 12 // more than a lane has commands under way
	const readTimeout = 2 * patience
	for name, connect := range map[string]func(t *testing.T) (*redistest.Server, *redistest.Proxy, redis.UniversalClient){
		"server": func(t *testing.T) (*redistest.Server, *redistest.Proxy, redis.UniversalClient) {
			srv := redistest.Start(t)
			proxy := srv.Proxy(t)
			return srv, proxy, proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = readTimeout, 2*connections })
		},
		"cluster": func(t *testing.T) (*redistest.Server, *redistest.Proxy, redis.UniversalClient) {
			srv := startClusterOfOne(t)
			proxy := srv.Proxy(t)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs:       []string{srv.Addr()},
				Dialer:      dialInstead(proxy.Addr()),
				ReadTimeout: readTimeout,
				PoolSize:    2 * connections,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			return srv, proxy, rdb
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, proxy, rdb := connect(t)
			const timeout = time.Second
			c := newUncheckedLocks(t, rdb, commandTimeout(timeout), watchdogTimeout(15*time.Second))
			t.Cleanup(func() { checkIdleAndClose(t, c, srv.Client(t)) })
			var kept *Lease
			eventually(t, "the first lock", func() bool { // on a busy machine, connecting may take long
				lease, err := c.Lock("kept").Acquire(bg, AcquireOptions{})
				kept = lease
				return err == nil
			})
			openConnections(t, proxy, rdb, connections)

			proxy.Mute()
			var passed atomic.Int32
			inParallel(2*connections, func(i int) {
				within(patience, func() bool {
					began := time.Now()
					lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{})
					if took := time.Since(began); took > timeout+patience/4 {
						t.Errorf("Acquire has taken %s (%v)", took, err)
					}
					if err != nil {
						return false
					}
					passed.Add(1)
					return lease.Release(bg) == nil
				})
			})
			if n := passed.Load(); n < 2*connections {
				t.Fatalf("%d callers got their locks, want %d", n, 2*connections)
			}
			mustBeRenewed(t, kept)
			mustRelease(t, kept)
		})
	}
}

// openConnections has a Redis client open a number of idle connections through a proxy.
func openConnections(t *testing.T, proxy *redistest.Proxy, rdb redis.UniversalClient, n int) {
	t.Helper()
	held := proxy.OnEvery(func(args []string) bool { return args[0] == "GET" && args[1] == "open" }, redistest.HoldReply)
	opened := make(chan error, n)
	before := proxy.Count("GET")
	for range n {
		go func() { opened <- rdb.Get(bg, "open").Err() }()
	}
	eventually(t, "all connections to be open", func() bool { return proxy.Count("GET") == before+n })
	held.Remove()
	held.Release()
	for range n {
		if err := <-opened; err != redis.Nil {
			t.Fatal(err)
		}
	}
}

// dialInstead returns a Dialer that connects to one address, whatever it is asked for.
func dialInstead(addr string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}
