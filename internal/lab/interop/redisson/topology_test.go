//go:build interop

package redisson

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const (
	watchdog = 30 * time.Second // of both sides, unless a test sets another
	poll     = time.Minute      // so long that polling cannot wake our waiters
)

// A topology is a way to run Redis and to connect to it.
type topology struct {
	name    string // known to the JVM
	masters int
	apart   bool // independent masters, each with its own clients
	publish func(version) core.PublishMode
	serve   func(t *testing.T) served

	// Set when it is started:
	version version
	jar     string
	served
	peer *peer
}

// served are running servers.
type served struct {
	rdbs    []redis.UniversalClient // one per independent master
	nodes   []*redis.Client         // every server a subscriber may be connected to
	servers []*redistest.Server
}

var topologies = []topology{
	{name: "single", serve: serveSingle, masters: 1, publish: auto},
	{name: "cluster", serve: serveCluster, masters: 3, publish: publishInCluster(core.PublishAuto)},
	{name: "cluster-plain", serve: serveCluster, masters: 3, publish: publishInCluster(core.PublishPlain)},
	{name: "masters", serve: serveMasters, masters: 3, apart: true, publish: auto},
}

func auto(version) core.PublishMode { return core.PublishAuto }

// publishInCluster returns a version's PublishMode in a cluster, as in docs/guides/redisson.md,
// given that of new versions.
func publishInCluster(latest core.PublishMode) func(version) core.PublishMode {
	return func(v version) core.PublishMode {
		switch {
		case v.before(hasSharded):
			return core.PublishPlain
		case v.before(sureOfSharded):
			return core.PublishBoth
		}
		return latest
	}
}

func serveSingle(t *testing.T) served {
	server := redistest.Start(t)
	return served{[]redis.UniversalClient{server.Client(t)}, []*redis.Client{server.Client(t)}, []*redistest.Server{server}}
}

func serveCluster(t *testing.T) served {
	// A slow machine must not cause a failover.
	cluster := redistest.StartCluster(t, "cluster-node-timeout 15000")
	s := served{rdbs: []redis.UniversalClient{cluster.Client(t)}, servers: cluster.Servers}
	for _, server := range cluster.Servers {
		s.nodes = append(s.nodes, server.Client(t))
	}
	return s
}

func serveMasters(t *testing.T) (s served) {
	s.servers = redistest.StartMany(t, 3)
	// Redisson acquires the locks of a MultiLock in the order given, which is the reverse of ours
	// here: we acquire those of one name in the order of addresses. Both sides must succeed all the
	// same.
	slices.SortFunc(s.servers, func(a, b *redistest.Server) int { return cmp.Compare(b.Addr(), a.Addr()) })
	for _, server := range s.servers {
		s.rdbs = append(s.rdbs, server.Client(t))
		s.nodes = append(s.nodes, server.Client(t))
	}
	return s
}

// without says briefly why a kind is not tested; empty: it is tested.
func (topo *topology) without(k kind) string {
	switch {
	case topo.version.before(k.since):
		return "from " + k.since.String()
	case topo.name == "cluster" && topo.version.before(hasSharded):
		return "no sharded channels"
	case topo.apart && !k.several:
		return "as on single" // it is on one of the masters
	case topo.masters == 1 && k.votes:
		return "no majority of one" // members on one server fail together
	}
	return ""
}

// seesListeners reports whether our clients can detect that a waiter for a fair lock is dead.
func (topo *topology) seesListeners() bool {
	return topo.masters == 1 || topo.publish(topo.version) == core.PublishAuto
}

// start starts the servers and the JVM until the test ends.
func (topo *topology) start(t *testing.T) {
	t.Helper()
	topo.served = topo.serve(t)
	topo.peer = topo.newPeer(t)
}

// fresh returns a topology like this one with its own servers and JVM.
func (topo topology) fresh(t *testing.T) *topology {
	t.Helper()
	topo.start(t)
	return &topo
}

// newPeer starts a JVM until the test ends. Its watchdog timeout is that of our clients.
func (topo *topology) newPeer(t *testing.T, change ...func(*peerOptions)) *peer {
	t.Helper()
	o := peerOptions{jar: topo.jar, topology: topo.name, watchdog: watchdog}
	for _, node := range topo.nodes {
		o.addresses = append(o.addresses, node.Options().Addr)
	}
	for _, f := range change {
		f(&o)
	}
	p, err := startPeer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// clients returns new clients of ours. They are closed when the test ends, and must be idle then.
func (topo *topology) clients(t *testing.T, change ...func(*core.Options)) (cs clients) {
	t.Helper()
	opts := core.Options{
		WatchdogTimeout: watchdog,
		PollInterval:    poll,
		PublishMode:     topo.publish(topo.version),
		Logger:          slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&opts)
	}
	for _, rdb := range topo.rdbs {
		c, err := core.New(rdb, opts)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
		t.Cleanup(func() {
			await(t, "our client to be idle", func() bool { return c.Stats() == core.Stats{} })
			if err := c.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return cs
}

// sum adds up a statistic of all clients.
func (cs clients) sum(of func(core.Stats) int) (n int) {
	for _, c := range cs {
		n += of(c.Stats())
	}
	return n
}

// listeners returns how many channels of a lock have subscribers, on any node.
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

// newName returns a name of a lock or thread that no test has used.
func newName(what string) string { return fmt.Sprintf("%s-%d", what, names.Add(1)) }

// await fails the test unless a condition comes true in time.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
