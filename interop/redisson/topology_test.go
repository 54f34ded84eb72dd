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
	serve   func(*topology) error

	peer    *peer
	rdb     redis.UniversalClient
	nodes   []*redis.Client // everyone whom a subscriber may have chosen
	closers []func() error  // in the order of opening
}

var topologies = []*topology{
	{name: "single", serve: serveSingle},
}

func serveSingle(topo *topology) error {
	server, err := redistest.Run()
	if err != nil {
		return err
	}
	topo.closers = append(topo.closers, server.Close)
	topo.connect([]string{server.Addr()}, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	return nil
}

// connect sets the client that locks are kept with, and makes one for each node.
func (topo *topology) connect(addresses []string, rdb redis.UniversalClient) {
	topo.rdb = rdb
	topo.closers = append(topo.closers, rdb.Close)
	for _, address := range addresses {
		node := redis.NewClient(&redis.Options{Addr: address})
		topo.nodes = append(topo.nodes, node)
		topo.closers = append(topo.closers, node.Close)
	}
}

// start starts the servers and the JVM. After an error, nothing is left.
func (topo *topology) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, topo.close())
		}
	}()
	if err := topo.serve(topo); err != nil {
		return err
	}
	var addresses []string
	for _, node := range topo.nodes {
		if err := node.Ping(ctx).Err(); err != nil {
			return err
		}
		addresses = append(addresses, node.Options().Addr)
	}
	if topo.peer, err = startPeer(jar, topo.name, addresses); err != nil {
		return err
	}
	topo.closers = append(topo.closers, topo.peer.close)
	return nil
}

// close undoes start, last things first.
func (topo *topology) close() (err error) {
	for len(topo.closers) > 0 {
		last := len(topo.closers) - 1
		err = errors.Join(err, topo.closers[last]())
		topo.closers = topo.closers[:last]
	}
	return err
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

// everywhere runs a test in each topology.
func everywhere(t *testing.T, test func(t *testing.T, topo *topology)) {
	for _, topo := range topologies {
		t.Run(topo.name, func(t *testing.T) {
			t.Parallel()
			test(t, topo)
		})
	}
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
