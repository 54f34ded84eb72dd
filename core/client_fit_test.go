package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisclient"
)

const (
	useClusterClient = redisclient.UseCluster
	useOneServer     = redisclient.UseServer
)

func wantMisconfigured(t *testing.T, what string, err error, change string) {
	t.Helper()
	wantErr(t, what, err, ErrMisconfigured)
	if err == nil {
		return
	}
	if text := err.Error(); !strings.Contains(text, change) || strings.Contains(text, "\n") || strings.Contains(text, "in time") {
		t.Errorf("%s: %q; want one line that says %s", what, text, change)
	}
	if heals(err) {
		t.Errorf("%s: %v counts as one that heals", what, err)
	}
}

// A client of one node of a cluster gets no lock, wherever the key is, and says what to use.
func TestMisfit_NodeOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for i, srv := range cluster.Servers {
		c := newUncheckedLocks(t, redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{srv.Addr()}}))
		defer c.Redis().Close()
		for n := range 8 {
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			_, err := c.Lock(fmt.Sprint("order:", n)).Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
			wantMisconfigured(t, fmt.Sprintf("node %d, Acquire", i), err, useClusterClient)
		}
		_, _, err := c.Once("once").Acquire(bg, AcquireOptions{})
		wantMisconfigured(t, fmt.Sprintf("node %d, Once", i), err, useClusterClient)
		for range 4 {
			wantPing(t, c, useClusterClient)
		}
		mustClose(t, c)
	}
	for _, srv := range cluster.Servers {
		if keys := srv.Client(t).Keys(bg, "*").Val(); len(keys) > 0 {
			t.Errorf("%s has %q", srv.Addr(), keys)
		}
	}
}

// A server that becomes one of several is found when it first redirects, and no lock is acquired
// from then on.
func TestMisfit_ClusterGrows(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "cluster-enabled yes")
	node := srv.Client(t)
	if err := node.ClusterAddSlotsRange(bg, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	proxy := srv.Proxy(t)
	c := newUncheckedLocks(t, proxy.Client(t))
	eventually(t, "the cluster to serve", func() bool { return c.Ping(bg) == nil })
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	proxy.OnMatch(1, runsScript(allKinds["plain"].acquire), redistest.ReplyWith("-MOVED 1 127.0.0.1:1\r\n"))
	proxy.OnEvery(func(args []string) bool { return strings.EqualFold(args[0], "CLUSTER") }, redistest.ReplyWith(twoMasters))
	for _, name := range []string{"b", "b", "c"} {
		_, err := c.Lock(name).Acquire(bg, AcquireOptions{})
		wantMisconfigured(t, "Acquire", err, useClusterClient)
	}
	mustRelease(t, lease) // its key is still here
	mustClose(t, c)
}

// twoMasters is a reply to CLUSTER SLOTS.
const twoMasters = "*2\r\n" +
	"*3\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\na\r\n" +
	"*3\r\n:8192\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:2\r\n$1\r\nb\r\n"

// A client of a cluster says that the server is none, at once.
func TestMisfit_NoCluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer rdb.Close()
	for _, acks := range []int{0, 1} {
		c := newUncheckedLocks(t, rdb, func(o *Options) { o.ReplicaAcks = acks })
		_, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: patience})
		wantMisconfigured(t, "Acquire", err, useOneServer)
		wantMisconfigured(t, "ForceUnlock", func() error { _, err := c.Lock("a").ForceUnlock(bg); return err }(), useOneServer)
		wantPing(t, c, useOneServer)
		mustClose(t, c)
	}
}

// The client asks the server once, before the first acquire, and no more than once for many callers.
func TestMisfit_AskedOnce(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	held := proxy.OnMatch(1, func(args []string) bool { return strings.EqualFold(args[0], "CLUSTER") }, redistest.HoldReply)
	ctx, cancel := context.WithCancel(bg)
	left := make(chan error, 1)
	go func() {
		_, err := c.Lock("left").Acquire(ctx, AcquireOptions{})
		left <- err
	}()
	mustReceive(t, "the server to be asked", held.Hit())
	cancel()
	wantErr(t, "Acquire of a caller that leaves", mustReceive(t, "the caller to leave", left), context.Canceled)
	var waiting []<-chan acquireResult
	for i := range 5 {
		waiting = append(waiting, startWaiter(t, bg, c, fmt.Sprint("a", i), forever))
	}
	held.Release()
	for _, result := range waiting {
		mustRelease(t, mustReceive(t, "the lock", result).lease)
	}
	fx.rdb.ConfigResetStat(bg)
	mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
	if stats := fx.rdb.Info(bg, "commandstats").Val(); strings.Contains(stats, "cmdstat_cluster") {
		t.Errorf("the server was asked again:\n%s", stats)
	}
}

// An acquire fails as it would without the question while the server cannot be asked, and asks
// again afterwards.
func TestMisfit_Unreachable(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(2*time.Second))
	proxy.Cut()
	_, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	if err == nil || !heals(err) {
		t.Fatalf("Acquire: %v", err)
	}
	proxy.Restore()
	eventually(t, "the lock", func() bool {
		lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
		return err == nil && lease.Release(bg) == nil
	})
}

// A client that unwraps to a cluster client hears releases, and checks braces, as a bare one does.
func TestNew_UnwrapsACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	bare, wrapped := newUncheckedLocks(t, cluster.Client(t)), newUncheckedLocks(t, wrapper{cluster.Client(t)})
	if _, given := wrapped.Redis().(wrapper); !given {
		t.Errorf("Redis returns a %T", wrapped.Redis())
	}
	_, err := wrapped.Lock("a{b").Acquire(bg, AcquireOptions{})
	wantErr(t, "Acquire", err, ErrInvalidName)
	for _, order := range [][2]*Client{{bare, wrapped}, {wrapped, bare}} {
		lease := mustAcquire(t, bg, order[0].Lock("a"), AcquireOptions{LeaseTime: time.Hour})
		waiting := startWaiter(t, bg, order[1], "a", forever)
		eventuallyAsleep(t, order[1], "a")
		mustRelease(t, lease)
		mustRelease(t, mustReceive(t, "the release to be heard", waiting).lease)
	}
	for _, c := range []*Client{bare, wrapped} {
		wantPing(t, c)
		mustClose(t, c)
	}
}

// The client of redis.NewFailoverClusterClient reads from replicas. Locks go to the master.
func TestNew_SentinelsWithReplicas(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, 2)
	for _, route := range []func(*redis.FailoverOptions){
		func(o *redis.FailoverOptions) { o.RouteByLatency = true }, func(o *redis.FailoverOptions) { o.RouteRandomly = true },
	} {
		var o redis.FailoverOptions
		_ = sentinel.ClientWith(t, func(own *redis.FailoverOptions) { o = *own })
		route(&o)
		rdb := redis.NewFailoverClusterClient(&o)
		c := newUncheckedLocks(t, rdb)
		for i := range 10 {
			wantPing(t, c)
			lease := mustAcquire(t, bg, c.Lock(fmt.Sprint("a", i)), AcquireOptions{})
			waiting := startWaiter(t, bg, c, fmt.Sprint("a", i), forever)
			mustRelease(t, lease)
			mustRelease(t, mustReceive(t, "the lock", waiting).lease)
		}
		mustClose(t, c)
		_ = rdb.Close()
	}
}
