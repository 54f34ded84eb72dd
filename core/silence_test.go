package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// moment is how long a call may take that waits for nothing, on a busy machine.
const moment = time.Second

// A server that hangs costs its callers one CommandTimeout, not one each. Then they fail at once,
// also those with a WaitTime, until the server answers. Holders keep their locks.
func TestSilence_FailsAtOnce(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const timeout = 3 * moment
	c := fx.newLocks(t, commandTimeout(timeout), watchdogTimeout(time.Minute), pollInterval(never))
	held := mustAcquire(t, bg, c.Lock("held"), AcquireOptions{})
	patient := acquireAsync(bg, mustHold(t, fx, c, "taken"), forever)
	eventuallyAsleep(t, c, "taken") // so that no answer is on its way

	fx.srv.Freeze(t)
	began := time.Now()
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	wantErr(t, "the first Acquire", err, redisop.ErrTimeout)
	if took := time.Since(began); took < timeout-100*time.Millisecond {
		t.Errorf("the first Acquire has failed after %s, before CommandTimeout", took)
	}
	for i := range 20 {
		began := time.Now()
		_, err := c.Lock(fmt.Sprint("a", i)).Acquire(bg, AcquireOptions{WaitTime: time.Duration(i%2) * time.Minute})
		wantErr(t, "a later Acquire", err, redisop.ErrTimeout)
		if took := time.Since(began); took > moment {
			t.Errorf("Acquire %d has failed after %s", i, took)
		}
	}
	if err := held.Err(); err != nil {
		t.Errorf("the held lock: %v", err)
	}

	fx.srv.Thaw(t)
	mustRelease(t, eventuallyAcquire(t, c, "a", AcquireOptions{}))
	mustRelease(t, held)
	fx.deleteKeys(t, "taken")
	fx.publishRelease(t, "taken")
	mustRelease(t, mustReceiveLease(t, "the caller that waits for ever", patient))
}

// mustHold makes another owner hold a lock, which it returns.
func mustHold(t *testing.T, fx *redisFixture, c *Client, name string) *Lock {
	t.Helper()
	if err := fx.rdb.HSet(bg, name, "other:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	fx.expire(t, name, time.Hour)
	return c.Lock(name)
}

// A client that closes ends the probe. So does a while without attempts.
func TestSilence_ProbeEnds(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.rdb, commandTimeout(moment))
	acquireAndRelease(t, c, "a")
	fx.srv.Freeze(t)
	if _, err := c.Lock("a").Acquire(bg, AcquireOptions{LeaseTime: moment}); err == nil {
		t.Fatal("a frozen server has granted a lock")
	}
	began := time.Now()
	mustClose(t, c) // TestMain finds what is left
	if took := time.Since(began); took > patience {
		t.Errorf("Close has taken %s", took)
	}
	fx.srv.Thaw(t)
	eventually(t, "what the stray has left to expire", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// A node that hangs does not fail the locks of others.
func TestSilence_OfOneNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "cluster-node-timeout 600000")
	rdb := cluster.Client(t)
	c := newUncheckedLocks(t, rdb, commandTimeout(moment))
	master := cluster.Masters(t)[0]
	var here, there string
	for i := 0; here == "" || there == ""; i++ {
		name := fmt.Sprint("lock-", i)
		if served, err := rdb.MasterForKey(bg, name); err != nil {
			t.Fatal(err)
		} else if served.Options().Addr == master.Addr() {
			here = name
		} else {
			there = name
		}
	}
	acquireAndRelease(t, c, here)
	acquireAndRelease(t, c, there)
	master.Freeze(t)
	failsFast := func() bool {
		began := time.Now()
		_, err := c.Lock(here).Acquire(bg, AcquireOptions{})
		return err != nil && time.Since(began) < moment/2
	}
	eventually(t, "the frozen node to fail its locks at once", failsFast)
	for range 5 {
		acquireAndRelease(t, c, there)
		if !failsFast() {
			t.Error("the locks of the frozen node are waited for again")
		}
	}
	master.Thaw(t)
	mustRelease(t, eventuallyAcquire(t, c, here, AcquireOptions{}))
	mustClose(t, c)
}

// A pool whose connections are all taken is no server that hangs: the log says which setting to
// raise. Callers wait one CommandTimeout, and later ones fail at once, until a connection is free.
func TestSilence_EmptyPool(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var full atomic.Bool // refuses further connections, so that locks have none outside the pool
	small := fx.srv.ClientWith(t, func(o *redis.Options) {
		o.PoolSize, o.ReadTimeout = 2, 10*patience
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if full.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	taken := make(chan error, 2)
	take := func() {
		for range cap(taken) {
			go func() { taken <- small.BLPop(bg, 0, "nothing").Err() }()
		}
		eventually(t, "all connections to be taken", func() bool {
			info, err := fx.rdb.Info(bg, "clients").Result()
			return err == nil && strings.Contains(info, "blocked_clients:2")
		})
	}
	giveBack := func() {
		if err := fx.rdb.RPush(bg, "nothing", 1, 2).Err(); err != nil {
			t.Fatal(err)
		}
		for range cap(taken) {
			if err := <-taken; err != nil {
				t.Error(err)
			}
		}
	}
	take()
	giveBack()
	full.Store(true)
	var out lockedBuffer
	c := newUncheckedLocks(t, small, commandTimeout(moment), logTo(&out))
	acquireAndRelease(t, c, "a")
	take()

	const cause = "the pool of the Redis client has no free connection"
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	wantErr(t, "the first Acquire", err, redisop.ErrTimeout)
	if !strings.Contains(err.Error(), cause) || !strings.Contains(err.Error(), "PoolSize") {
		t.Errorf("%v, want it to name the pool", err)
	}
	eventually(t, "later Acquires to fail at once", func() bool {
		began := time.Now()
		_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
		if err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("a later Acquire has returned %v", err)
		}
		return time.Since(began) < moment/2
	})
	wantLines(t, &out, failing, 1)
	wantLines(t, &out, cause, 1)
	if n := c.Counters().Errors["pool_empty"]; n == 0 {
		t.Errorf("%v, want errors of type pool_empty", c.Counters().Errors)
	}

	giveBack()
	mustRelease(t, eventuallyAcquire(t, c, "a", AcquireOptions{}))
	mustClose(t, c)
	wantLines(t, &out, again+` cause="`+cause, 1)
}

// A blip is no silence: a caller that has lost one reply fails no other.
func TestSilence_NotByABlip(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(3*moment))
	acquireAndRelease(t, c, "a")
	lost := proxy.On("EVALSHA", 1, redistest.DropReply)
	_, _ = c.Lock("lost").Acquire(bg, AcquireOptions{LeaseTime: moment}) // fails if the connection was not idle
	mustReceive(t, "the lost reply", lost.Hit())
	acquireAndRelease(t, c, "a")
	rule := proxy.OnEvery(runsScript(), redistest.Delay(moment/2))
	acquireAndRelease(t, c, "a")
	rule.Remove()
	acquireAndRelease(t, c, "a")
}

// A firewall forgets the connections of a quiet service, and packets on them vanish. No caller fails:
// the first one finds out in time to connect again, and no caller after it tries an old connection.
func TestIdle_DroppedConnections(t *testing.T) {
	t.Parallel()
	const connections = 8
	fx := newRedis(t)
	const timeout = 9 * time.Second
	c, proxy := fx.newProxiedLocksWith(t, func(o *redis.Options) { o.PoolSize = 2 * connections }, commandTimeout(timeout))
	acquireAndRelease(t, c, "a") // the first attempt also asks whether the client fits the server
	openConnections(t, proxy, c.Redis(), connections)
	letConnectionsIdle(t)
	proxy.Mute()
	for i := range connections {
		began := time.Now()
		lease, err := c.Lock(fmt.Sprint("a", i)).Acquire(bg, AcquireOptions{})
		if err != nil {
			t.Fatalf("acquire %d: %v after %s", i, err, time.Since(began))
		}
		if took := time.Since(began); i > 0 && took > timeout/3 {
			t.Errorf("acquire %d has waited %s on an old connection", i, took)
		}
		mustRelease(t, lease)
	}
	eventually(t, "the client to be idle", func() bool { return c.Stats() == Stats{} })
}

// letConnectionsIdle waits until the pooled connections count as idle.
func letConnectionsIdle(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, "the connections to be idle", func() bool { return time.Since(began) > 200*time.Millisecond })
}

// The shorter time is for scripts only. A user's command may take as long as its own timeouts allow.
func TestIdle_OtherCommandsKeepTheirTime(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const timeout = 1500 * time.Millisecond
	c, _ := fx.newProxiedLocksWith(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = timeout, 1 }, commandTimeout(timeout))
	acquireAndRelease(t, c, "a")
	if _, err := c.Redis().BLPop(bg, timeout, "nothing").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP: %v, want it to end by its own time-out", err)
	}
	acquireAndRelease(t, c, "a")
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

// eventuallyAcquire acquires a plain lock once Redis is well. The Redis client returns its last dial
// error until its probe, once a second, finds the server, and a slow machine may be too slow for an
// ack.
func eventuallyAcquire(t testing.TB, c *Client, name string, opts AcquireOptions) (lease *Lease) {
	t.Helper()
	return eventuallyAcquireOf(t, c.Lock(name), opts)
}

// eventuallyAcquireOf is eventuallyAcquire for a lock of any kind.
func eventuallyAcquireOf(t testing.TB, l Locker, opts AcquireOptions) (lease *Lease) {
	t.Helper()
	eventually(t, "a lock to be granted", func() bool {
		var err error
		lease, err = l.Acquire(bg, opts)
		return err == nil
	})
	return lease
}
