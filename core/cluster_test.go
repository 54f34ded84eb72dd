package core

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Some services run a cluster of one node and are used through a client for a single server. Once
// Redis refuses a command for several slots, each call goes by itself, and the callers do not
// notice.
func TestClusterOfOneNode_AsAServer(t *testing.T) {
	t.Parallel()
	rdb := startClusterOfOne(t).Client(t)
	flights := new(flightCounter)
	rdb.AddHook(flights)
	c := newUncheckedLocks(t, rdb)
	t.Cleanup(func() { checkIdleAndClose(t, c, rdb) })
	for range 20 {
		inParallel(100, func(i int) {
			acquireAndRelease(t, c, fmt.Sprint("k", i))
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
	eventually(t, "the cluster to be up", func() bool {
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

// startCluster starts three masters and returns them with a client that is patient with a busy
// node.
func startCluster(t *testing.T) ([]*redistest.Server, *redis.ClusterClient) {
	t.Helper()
	const n, slots = 3, 16384
	var servers []*redistest.Server
	var addrs []string
	for i := range n {
		srv := startNode(t, i+1, servers)
		rdb := srv.Client(t)
		if err := rdb.Do(bg, "CLUSTER", "ADDSLOTSRANGE", i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		servers, addrs = append(servers, srv), append(addrs, srv.Addr())
	}
	for _, srv := range servers {
		awaitSlots(t, srv)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: 2 * patience})
	t.Cleanup(func() { _ = cluster.Close() })
	return servers, cluster
}

// awaitSlots waits until a node knows all slots.
func awaitSlots(t *testing.T, srv *redistest.Server) {
	t.Helper()
	rdb := srv.Client(t)
	eventually(t, "the node to know all slots", func() bool {
		info := rdb.ClusterInfo(bg).Val()
		return strings.Contains(info, "cluster_slots_assigned:16384") && strings.Contains(info, "cluster_state:ok")
	})
}

// startNode starts a node without slots, with an epoch unless that is 0, and introduces it to the
// first of the others.
func startNode(t *testing.T, epoch int, others []*redistest.Server) *redistest.Server {
	t.Helper()
	bus := freePort(t)
	srv := redistest.Start(t, "cluster-enabled yes", fmt.Sprintf("cluster-port %d", bus),
		"cluster-require-full-coverage no", "cluster-node-timeout 60000", "repl-diskless-sync-delay 0")
	if epoch > 0 { // which is refused once it knows another
		if err := srv.Client(t).Do(bg, "CLUSTER", "SET-CONFIG-EPOCH", epoch).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(others) > 0 {
		host, port, _ := strings.Cut(srv.Addr(), ":")
		if err := others[0].Client(t).Do(bg, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// startReplica starts a replica of a master, and waits until it knows all slots and acknowledges
// writes.
func startReplica(t *testing.T, servers []*redistest.Server, master *redistest.Server, key string) {
	t.Helper()
	id := master.Client(t).ClusterMyID(bg).Val()
	srv := startNode(t, 0, servers)
	rdb := srv.Client(t)
	eventually(t, "the replica to know its master", func() bool { return rdb.ClusterReplicate(bg, id).Err() == nil })
	awaitSlots(t, srv)
	conn := master.Client(t).Conn()
	defer conn.Close()
	eventually(t, "the replica to listen", func() bool {
		pipe := conn.Pipeline()
		pipe.Do(bg, "ASKING")
		pipe.Set(bg, key, 1, time.Minute)
		pipe.Do(bg, "ASKING")
		pipe.Del(bg, key)
		acks := pipe.Do(bg, "WAIT", 1, 100)
		_, err := pipe.Exec(bg)
		n, _ := acks.Int()
		return err == nil && n == 1
	})
}
