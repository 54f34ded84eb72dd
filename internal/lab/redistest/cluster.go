package redistest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots          = 16384
	clusterMasters = 3
)

// Cluster is three masters with a third of the slots each, and a replica of each. A replica
// replaces a master that has not answered for five seconds: a busy machine may stall for two.
type Cluster struct {
	// Whose roles change; the first three begin as masters, Servers[i+3] as the replica of
	// Servers[i].
	Servers []*Server
}

// StartCluster runs a cluster until the test ends, and waits until every node serves all slots and
// every replica has caught up. That takes at least two seconds, in which Redis refuses writes on
// new masters. directives are as for [Start], for all nodes.
func StartCluster(t testing.TB, directives ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	var err error
	c.Servers, err = runAll(t, 2*clusterMasters, func(int) (*Server, error) { return runNode(t, directives) })
	if err == nil {
		err = c.join()
	}
	if err != nil {
		t.Fatalf("redistest: the cluster did not start: %v", err)
	}
	c.AwaitHealthy(t)
	return c
}

// runNode runs a cluster node. Its bus port is claimed too: the default, 10000 higher, may be in
// use.
func runNode(t testing.TB, directives []string) (*Server, error) {
	bus, err := claimPort()
	if err != nil {
		return nil, err
	}
	t.Cleanup(bus.release)
	return Run(slices.Concat(replicaSettings, []string{
		"cluster-enabled yes",
		fmt.Sprintf("cluster-port %d", bus.port),
		"cluster-node-timeout 5000",
		// A replica may stand for election however long it was cut off.
		"cluster-replica-validity-factor 0",
	}, directives)...)
}

// join connects the nodes to a cluster.
func (c *Cluster) join() error {
	ids := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		id, err := s.do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		ids[i] = id.(string)
	}
	for i, s := range c.Servers[:clusterMasters] {
		// Otherwise the nodes must resolve conflicting epochs first.
		if _, err := s.do("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if _, err := s.do("CLUSTER", "ADDSLOTSRANGE", slots*i/clusterMasters, slots*(i+1)/clusterMasters-1); err != nil {
			return err
		}
	}
	for i, s := range c.Servers {
		for _, other := range c.Servers[:i] { // every pair, because gossip alone is slow
			if err := meet(s, other); err != nil {
				return err
			}
		}
	}
	for i, s := range c.Servers[clusterMasters:] {
		if err := until(func() error { // it knows its master
			_, err := s.do("CLUSTER", "REPLICATE", ids[i])
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func meet(s, other *Server) error {
	bus, err := other.do("CONFIG", "GET", "cluster-port")
	if err != nil {
		return err
	}
	port := bus.(map[any]any)["cluster-port"]
	_, err = s.do("CLUSTER", "MEET", "127.0.0.1", other.claim.port, port)
	return err
}

// Client returns a new cluster client with default options; it is closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	return c.ClientWith(t, nil)
}

// ClientWith is Client with options that change has edited.
func (c *Cluster) ClientWith(t testing.TB, change func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opts := &redis.ClusterOptions{}
	for _, s := range c.Servers {
		opts.Addrs = append(opts.Addrs, s.Addr())
	}
	if change != nil {
		change(opts)
	}
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

// AwaitHealthy waits until the running nodes agree on a running master for every slot, and the
// running replicas have caught up.
func (c *Cluster) AwaitHealthy(t testing.TB) {
	t.Helper()
	awaitOrFail(t, "the cluster did not become healthy", func() error {
		_, err := c.masters()
		return err
	})
}

// Masters waits until all running nodes agree, and returns the nodes that have slots.
func (c *Cluster) Masters(t testing.TB) (masters []*Server) {
	t.Helper()
	awaitOrFail(t, "the nodes did not agree on their masters", func() error {
		all, err := c.masters()
		if err != nil {
			return err
		}
		masters = nil
		for _, s := range c.Servers {
			if slices.Contains(all, s) {
				masters = append(masters, s)
			}
		}
		return nil
	})
	return masters
}

// MasterOf waits until all running nodes agree, and returns the node that serves a slot. See
// [Slot].
func (c *Cluster) MasterOf(t testing.TB, slot int) *Server {
	t.Helper()
	return c.AwaitMaster(t, slot, nil)
}

// AwaitMaster waits until all running nodes agree on a master of a slot other than old, which may
// be nil. Use it after [Server.Kill] or [Server.Freeze] of a master.
func (c *Cluster) AwaitMaster(t testing.TB, slot int, old *Server) (master *Server) {
	t.Helper()
	awaitOrFail(t, fmt.Sprintf("slot %d has no master that all agree on", slot), func() error {
		all, err := c.masters()
		if err != nil {
			return err
		}
		if master = all[slot]; master == old {
			return fmt.Errorf("it is still %s", old.Addr())
		}
		return nil
	})
	return master
}

// Failover swaps a master and its replica without data loss. It waits until all nodes know, and
// returns the new master.
func (c *Cluster) Failover(t testing.TB, master *Server) *Server {
	t.Helper()
	owners, err := view(master)
	slot := slices.Index(owners, master.Addr())
	if err != nil || slot < 0 {
		t.Fatalf("redistest: Failover: %s is not a master with slots (%v)", master.Addr(), err)
	}
	var asked time.Time
	awaitOrFail(t, "no replica took over", func() error {
		owners, err := view(master)
		if err != nil || owners[slot] != master.Addr() {
			return err
		}
		if time.Since(asked) < manualFailover {
			return errors.New("the other masters have not all voted for it")
		}
		for _, s := range running(c.Servers) {
			if inSync(master, []*Server{s}) == nil {
				if _, err := s.do("CLUSTER", "FAILOVER"); err != nil {
					return err
				}
				asked = time.Now()
				return errors.New("a failover was just requested")
			}
		}
		return errors.New("the master has no running replica")
	})
	return c.AwaitMaster(t, slot, master)
}

// manualFailover is a little longer than a replica's attempt at a manual failover. The attempt
// fails if a voting master does not know yet whose replica it is.
const manualFailover = 6 * time.Second

// masters returns the master of each slot, if all running nodes agree and are healthy.
func (c *Cluster) masters() ([]*Server, error) {
	up := running(c.Servers)
	var owners []string
	for _, s := range up {
		info, err := s.do("CLUSTER", "INFO")
		if err != nil {
			return nil, err
		}
		if fields := fieldsOf(info.(string)); fields["cluster_state"] != "ok" {
			return nil, fmt.Errorf("%s: the cluster's state is %s", s.Addr(), fields["cluster_state"])
		}
		v, err := view(s)
		if err != nil {
			return nil, err
		}
		if owners != nil && !slices.Equal(owners, v) {
			return nil, errors.New("the nodes do not agree")
		}
		owners = v
	}
	masters := make([]*Server, slots)
	for slot, addr := range owners {
		if slot > 0 && addr == owners[slot-1] {
			masters[slot] = masters[slot-1]
			continue
		}
		if masters[slot] = byAddr(up, addr); masters[slot] == nil {
			return nil, fmt.Errorf("%q has slot %d and is not running", addr, slot)
		}
	}
	return masters, c.replicasInSync(up, masters)
}

// replicasInSync returns nil if all nodes without slots have caught up with their masters.
func (c *Cluster) replicasInSync(up, masters []*Server) error {
	for _, s := range up {
		if slices.Contains(masters, s) {
			continue
		}
		info, err := s.info("replication")
		if err != nil {
			return err
		}
		master := byAddr(up, net.JoinHostPort(info["master_host"], info["master_port"]))
		if master == nil {
			return fmt.Errorf("%s is a %s without a running master", s.Addr(), info["role"])
		}
		if err := inSync(master, []*Server{s}); err != nil {
			return err
		}
	}
	return nil
}

// view returns the address of each slot's master as one node sees it.
func view(s *Server) ([]string, error) {
	reply, err := s.do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	owners := make([]string, slots)
	for _, item := range reply.([]any) {
		entry := item.([]any) // first slot, last slot, master, replicas
		master := entry[2].([]any)
		addr := net.JoinHostPort(fmt.Sprint(master[0]), fmt.Sprint(master[1]))
		for slot := entry[0].(int64); slot <= entry[1].(int64); slot++ {
			owners[slot] = addr
		}
	}
	return owners, nil
}
