package core

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

// A cluster of one node refuses what crosses slots, as a larger one does: locks, waiting and batched renewals must not.
func TestClusterOfOneNode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	srv := startClusterOfOne(t)
	rdb := srv.Client(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })

	c := newLooseClient(t, cluster, watchdogTimeout(6*time.Second))
	t.Cleanup(func() { idle(t, c, rdb) })
	var leases []*Lease
	for i := range 50 {
		leases = append(leases, mustAcquire(t, c, fmt.Sprint("cluster:", i), AcquireOptions{}))
	}

	other := newLooseClient(t, cluster)
	t.Cleanup(func() { idle(t, other, rdb) })
	got := make(chan error, 1)
	go func() {
		lease, err := other.Lock("cluster:0").Acquire(ctx, AcquireOptions{WaitTime: patience})
		if err == nil {
			err = lease.Release(ctx)
		}
		got <- err
	}()
	eventually(t, "the other client listens", func() bool {
		const channel = "redisson_lock__channel:{cluster:0}"
		return rdb.PubSubShardNumSub(ctx, channel).Val()[channel] == 1 // as a cluster has it, from Redis 7.0 on
	})

	// They live on renewals, which go slot by slot.
	for range 2 {
		awaitRenewals(t, leases...)
	}
	for _, lease := range leases {
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Some services are a cluster of one node, and are used as if they were none. It refuses a command for locks of several slots
// all the same: then each call goes by itself, and nobody notices.
func TestClusterOfOneNode_AsAServer(t *testing.T) {
	t.Parallel()
	rdb := startClusterOfOne(t).Client(t)
	flights := new(flightCounter)
	rdb.AddHook(flights)
	c := newLooseClient(t, rdb)
	t.Cleanup(func() { idle(t, c, rdb) })
	for range 20 {
		inParallel(100, func(i int) {
			lease, err := c.Lock(fmt.Sprint("k", i)).Acquire(bg, AcquireOptions{})
			if err != nil {
				t.Errorf("Acquire: %v", err)
			} else if err := lease.Release(bg); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	if n := flights.parcels.Load(); n == 0 || n > 20 {
		t.Errorf("%d commands for several locks, want one or a few, which were under way when the first was refused", n)
	}
}

func startClusterOfOne(t *testing.T) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, "cluster-enabled yes", fmt.Sprintf("cluster-port %d", freePort(t)))
	rdb := srv.Client(t)
	if err := rdb.Do(bg, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is up", func() bool {
		return rdb.Set(bg, "up", 1, 0).Err() == nil && rdb.Del(bg, "up").Err() == nil
	})
	return srv
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
