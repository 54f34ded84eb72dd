//go:build interop

package redisson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redistest"
)

const (
	watchdog = 30 * time.Second // of both sides
	poll     = time.Minute      // so that no poll can be what wakes a waiter of ours
)

// A topology is a Redis and a way to use it, with a JVM that does.
type topology struct {
	name    string // which the JVM knows, too
	publish core.PublishMode
	serve   func(t *testing.T) (rdb redis.UniversalClient, nodes []*redis.Client)

	// Once it is started:
	rdb   redis.UniversalClient
	nodes []*redis.Client // everyone whom a subscriber may have chosen
	peer  *peer
}

var topologies = []*topology{
	{name: "single", serve: serveSingle},
	{name: "cluster", serve: serveCluster},
	{name: "cluster-plain", serve: serveCluster, publish: core.Plain}, // Redisson's shardedSubscriptionMode is OFF
}

func serveSingle(t *testing.T) (redis.UniversalClient, []*redis.Client) {
	server := redistest.Start(t)
	return server.Client(t), []*redis.Client{server.Client(t)}
}

func serveCluster(t *testing.T) (redis.UniversalClient, []*redis.Client) {
	cluster := redistest.StartCluster(t, "cluster-node-timeout 15000") // however slow the machine is, no master is replaced
	var nodes []*redis.Client
	for _, server := range cluster.Servers {
		nodes = append(nodes, server.Client(t))
	}
	return cluster.Client(t), nodes
}

// start starts the servers and the JVM, for as long as the test runs.
func (topo *topology) start(t *testing.T, jar string) {
	t.Helper()
	topo.rdb, topo.nodes = topo.serve(t)
	var addresses []string
	for _, node := range topo.nodes {
		addresses = append(addresses, node.Options().Addr)
	}
	var err error
	if topo.peer, err = startPeer(jar, topo.name, addresses); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := topo.peer.close(); err != nil {
			t.Error(err)
		}
	})
}

// locks is a client of ours, which is closed when the test ends and must then have nothing at hand.
func (topo *topology) locks(t *testing.T, change ...func(*core.Options)) *core.Client {
	t.Helper()
	opts := core.Options{
		WatchdogTimeout: watchdog,
		PollInterval:    poll,
		PublishMode:     topo.publish,
		Logger:          slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&opts)
	}
	locks, err := core.New(topo.rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		await(t, "our client is idle", func() bool { return locks.Stats() == core.Stats{} })
		if err := locks.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locks
}

// listeners is on how many channels of a lock somebody listens, at any node.
func (topo *topology) listeners(t *testing.T, name string) (n int) {
	t.Helper()
	for _, node := range topo.nodes {
		plain, noPlain := node.PubSubChannels(t.Context(), "*"+name+"*").Result()
		sharded, noSharded := node.PubSubShardChannels(t.Context(), "*"+name+"*").Result()
		if err := errors.Join(noPlain, noSharded); err != nil {
			t.Fatal(err)
		}
		n += len(plain) + len(sharded)
	}
	return n
}

var names atomic.Int64

// newName is a name, of a lock or a thread, that no test has used.
func newName(what string) string { return fmt.Sprintf("%s-%d", what, names.Add(1)) }

// await fails the test unless something comes true.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("it never happened: %s", what)
		}
	}
}
