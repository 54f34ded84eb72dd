package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const readOnly = "-READONLY You can't write against a read only replica.\r\n"

// An endpoint is a name that leads to the primary of the day, as managed services have one.
type endpoint struct {
	t     testing.TB
	main  *redistest.Server
	spare *redistest.Server
	now   atomic.Pointer[redistest.Server]
}

func newEndpoint(t testing.TB) *endpoint {
	servers := redistest.StartMany(t, 2, "repl-diskless-sync-delay 0")
	e := &endpoint{t: t, main: servers[0], spare: servers[1]}
	e.follow(e.spare, e.main)
	e.now.Store(e.main)
	return e
}

func (e *endpoint) follow(replica, primary *redistest.Server) {
	_, port, _ := net.SplitHostPort(primary.Addr())
	rdb := replica.Client(e.t)
	if err := rdb.Do(bg, "REPLICAOF", "127.0.0.1", port).Err(); err != nil {
		e.t.Fatal(err)
	}
	eventually(e.t, "the replica to have caught up", func() bool {
		return strings.Contains(rdb.Info(bg, "replication").Val(), "master_link_status:up")
	})
}

// failOver swaps the servers once the replica has all data. Connections to the old primary stay
// open.
func (e *endpoint) failOver() {
	primary := e.main.Client(e.t).Conn()
	defer primary.Close()
	if err := primary.Publish(bg, "nothing", "").Err(); err != nil { // replicated, and changes nothing
		e.t.Fatal(err)
	}
	if n, err := primary.Wait(bg, 1, patience).Result(); n != 1 {
		e.t.Fatalf("%d replicas have all data: %v", n, err)
	}
	if err := e.spare.Client(e.t).Do(bg, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		e.t.Fatal(err)
	}
	e.now.Store(e.spare)
	e.follow(e.main, e.spare)
}

func (e *endpoint) client(fx *redisFixture, opts ...func(*Options)) *Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "primary.example:6379",
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, e.now.Load().Addr())
		},
	})
	e.t.Cleanup(func() { _ = rdb.Close() })
	return fx.newLocksOn(e.t, rdb, opts...)
}

// A connection that was open before a failover leads to a server that is a replica by now. It costs
// no caller anything: not the first, not those who wait, and no holder.
func TestReadOnly_Failover(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	fx := &redisFixture{srv: e.spare, rdb: e.spare.Client(t)}
	one, two := e.client(fx, watchdogTimeout(15*time.Second)), e.client(fx, watchdogTimeout(15*time.Second))
	const connections = 8
	open := func(c *Client) {
		leases := make(chan *Lease, connections)
		for i := range connections {
			go func() {
				lease, err := c.Lock(fmt.Sprint("open", i)).Acquire(bg, AcquireOptions{})
				if err != nil {
					t.Error(err)
				}
				leases <- lease
			}()
		}
		for range connections {
			mustRelease(t, <-leases)
		}
	}
	open(one)
	open(two)
	held := map[Locker]*Lease{}
	for name, k := range excludingKinds {
		l := k.lock(one, name)
		held[l] = mustAcquire(t, bg, l, AcquireOptions{})
	}
	var waiting []<-chan acquireResult
	for name, k := range excludingKinds {
		if !k.shared {
			waiting = append(waiting, acquireAsync(bg, k.rival(two, name), AcquireOptions{WaitTime: 3 * patience}))
		}
	}
	eventually(t, "the waiters to sleep", func() bool { return two.Stats().Waiting == len(waiting) })

	e.failOver()
	for i := range 3 * connections {
		lease, err := one.Lock(fmt.Sprint("new", i)).Acquire(bg, AcquireOptions{})
		if err != nil {
			t.Fatalf("acquire %d after the failover: %v", i, err)
		}
		mustRelease(t, lease)
	}
	mustBeRenewed(t, slices.Collect(maps.Values(held))...)
	for _, lease := range held {
		mustRelease(t, lease)
	}
	for _, w := range waiting {
		mustRelease(t, mustReceiveLease(t, "a waiter to get its lock", w))
	}
}

// A replica refuses a script before it writes. The attempt goes on for CommandTimeout, alone or in
// a crowd that shares pipelines.
func TestReadOnly_Retried(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{1, 50} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			var left atomic.Int32
			left.Store(20)
			proxy.OnEvery(func(args []string) bool { return runsScript()(args) && left.Add(-1) >= 0 }, redistest.ReplyWith(readOnly))
			results := make(chan error, callers)
			for i := range callers {
				go func() {
					lease, err := c.Lock(fmt.Sprint("a", i)).Acquire(bg, AcquireOptions{})
					if err == nil {
						err = lease.Release(bg)
					}
					results <- err
				}()
			}
			for range callers {
				if err := mustReceive(t, "a caller", results); err != nil {
					t.Error(err)
				}
			}
			if left.Load() > 0 {
				t.Errorf("%d refusals are left", left.Load())
			}
		})
	}
}

// A server that stays a replica is reported as one. Who waits goes on waiting, and gets that error
// at the end.
func TestReadOnly_Stays(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const timeout = 1500 * time.Millisecond
	c, proxy := fx.newProxiedLocks(t, commandTimeout(timeout))
	rule := proxy.OnEvery(runsScript(), redistest.ReplyWith(readOnly))
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	wantErr(t, "Acquire", err, ErrReadOnly)
	began := time.Now()
	_, err = c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: 4 * timeout})
	wantErr(t, "Acquire and wait", err, ErrReadOnly)
	if took := time.Since(began); took < 4*timeout {
		t.Errorf("the waiter has lost its wait after %s", took)
	}
	if errors.Is(err, ErrMisconfigured) {
		t.Error("a failover is no misconfiguration")
	}
	waiting := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: patience})
	eventually(t, "the waiter to have failed once", func() bool { return c.Stats().Waiting == 1 && hasFailed(c, "a") })
	rule.Remove()
	mustRelease(t, mustReceiveLease(t, "the waiter", waiting))
}

// hasFailed reports whether the first waiter of a name has failed at least once.
func hasFailed(c *Client, name string) bool {
	e := c.names.open(name, false)
	defer e.close()
	return e.queue.Len() > 0 && e.queue.Waiters()[0].Item.failureLocked() != nil
}
