package core

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

// A firewall has forgotten every pooled connection, and the Redis client would wait long for a reply: CommandTimeout bounds how
// long a dead connection is in the way of other commands.
func TestMuteConnections(t *testing.T) {
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
			c := newLooseClient(t, rdb, commandTimeout(timeout), watchdogTimeout(15*time.Second))
			t.Cleanup(func() { idle(t, c, srv.Client(t)) })
			kept := mustAcquire(t, c, "kept", AcquireOptions{})
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
			awaitRenewals(t, kept)
			mustRelease(t, kept)
		})
	}
}

// openConnections has a Redis client open a number of connections through a proxy, which are idle then.
func openConnections(t *testing.T, proxy *redistest.Proxy, rdb redis.UniversalClient, n int) {
	t.Helper()
	held := proxy.OnEvery(func(args []string) bool { return args[0] == "GET" && args[1] == "open" }, redistest.HoldReply)
	opened := make(chan error, n)
	before := proxy.Count("GET")
	for range n {
		go func() { opened <- rdb.Get(bg, "open").Err() }()
	}
	eventually(t, "all are open", func() bool { return proxy.Count("GET") == before+n })
	held.Remove()
	held.Release()
	for range n {
		if err := <-opened; err != redis.Nil {
			t.Fatal(err)
		}
	}
}

// dialInstead is a Dialer that connects to one address, whichever is wanted.
func dialInstead(addr string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}
