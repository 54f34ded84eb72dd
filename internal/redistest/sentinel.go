package redistest

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// sentinels is how many watch over one master; two of them decide.
const sentinels = 3

// masterName is what the sentinels call the master.
const masterName = "redistest"

// sentinelPeriods are those that do not suit a test, in milliseconds (SENTINEL DEBUG): most are too long, and a machine that
// stands still for two seconds would have Sentinel do nothing for half a minute.
var sentinelPeriods = []any{"info-period", 1000, "publish-period", 100, "ask-period", 200, "tilt-trigger", 30_000}

// Sentinel is a master with replicas and three sentinels, which make a replica the master when the master has not
// answered for four seconds: a machine that is busy elsewhere for a moment is to cost nobody its place.
type Sentinel struct {
	Servers   []*Server // whose roles change; the first begins as the master
	Sentinels []*Server
}

// StartSentinel runs a master with n replicas and three sentinels until the test ends, and waits until all of them know
// each other. directives are as for [Start], for master and replicas.
func StartSentinel(t testing.TB, n int, directives ...string) *Sentinel {
	t.Helper()
	r := StartReplicas(t, n, directives...)
	s := &Sentinel{Servers: append([]*Server{r.Master}, r.Replicas...)}
	var err error
	s.Sentinels, err = runAll(t, sentinels, func(int) (*Server, error) {
		return runWith([]string{"--sentinel"},
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", masterName, r.Master.claim.port, sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s 4000", masterName),
			fmt.Sprintf("sentinel failover-timeout %s 5000", masterName),
			fmt.Sprintf("sentinel parallel-syncs %s %d", masterName, n))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sentinel := range s.Sentinels {
		if _, err := sentinel.do(append([]any{"SENTINEL", "DEBUG"}, sentinelPeriods...)...); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
	s.AwaitMaster(t, nil)
	return s
}

// Client is a new client that asks the sentinels for the master; it is closed when the test ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	return s.ClientWith(t, nil)
}

// ClientWith is Client with options that change has edited.
func (s *Sentinel) ClientWith(t testing.TB, change func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opts := &redis.FailoverOptions{MasterName: masterName}
	for _, sentinel := range s.Sentinels {
		opts.SentinelAddrs = append(opts.SentinelAddrs, sentinel.Addr())
	}
	if change != nil {
		change(opts)
	}
	client := redis.NewFailoverClient(opts)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it itself
	return client
}

// Failover has the sentinels swap the master, which keeps running, for a replica, and returns the new master when all
// sentinels know it and all others copy it. What the old master had written last may be lost, as always.
func (s *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	old := s.AwaitMaster(t, nil)
	awaitOrFail(t, "the sentinels do not swap the master", func() error {
		_, err := s.Sentinels[0].do("SENTINEL", "FAILOVER", masterName)
		return err
	})
	return s.AwaitMaster(t, old)
}

// AwaitMaster waits until the sentinels agree on a master other than old, which may be nil, and the servers that run
// copy it; it returns the master. After [Server.Kill] or [Server.Freeze] of a master, it is how to wait for the next.
func (s *Sentinel) AwaitMaster(t testing.TB, old *Server) (master *Server) {
	t.Helper()
	awaitOrFail(t, "there is no master that all agree on", func() (err error) {
		master, err = s.agreed(old)
		return err
	})
	return master
}

func (s *Sentinel) agreed(old *Server) (*Server, error) {
	var master *Server
	up := running(s.Sentinels)
	for _, sentinel := range up {
		m, err := s.masterBy(sentinel, len(up))
		switch {
		case err != nil:
			return nil, err
		case master != nil && m != master:
			return nil, fmt.Errorf("the sentinels name %s and %s", master.Addr(), m.Addr())
		}
		master = m
	}
	if master == nil || master == old {
		return nil, fmt.Errorf("%d sentinels name no new master", len(up))
	}
	var others []*Server
	for _, server := range running(s.Servers) {
		if server != master {
			others = append(others, server)
		}
	}
	return master, inSync(master, others)
}

// masterBy is the master by the word of one sentinel that knows the others, has no failover under way, and knows who
// could be the next.
func (s *Sentinel) masterBy(sentinel *Server, sentinels int) (*Server, error) {
	ctx := context.Background()
	c := sentinel.admin()
	defer c.Close()
	states, err := records(c.Do(ctx, "SENTINEL", "MASTERS"))
	if err != nil || len(states) != 1 {
		return nil, fmt.Errorf("%s watches over %d masters: %w", sentinel.Addr(), len(states), err)
	}
	m := states[0]
	if m["flags"] != "master" {
		return nil, fmt.Errorf("%s has the master as %s", sentinel.Addr(), m["flags"])
	}
	if m["num-other-sentinels"] != fmt.Sprint(sentinels-1) && sentinels == len(s.Sentinels) {
		return nil, fmt.Errorf("%s knows %s other sentinels", sentinel.Addr(), m["num-other-sentinels"])
	}
	replicas, err := records(c.Do(ctx, "SENTINEL", "REPLICAS", masterName))
	if err != nil {
		return nil, err
	}
	ready := 0
	for _, r := range replicas {
		if r["flags"] == "slave" && r["master-link-status"] == "ok" {
			ready++
		}
	}
	if want := len(running(s.Servers)) - 1; ready < want {
		return nil, fmt.Errorf("%s knows %d replicas that are ready, want %d", sentinel.Addr(), ready, want)
	}
	server := byAddr(s.Servers, net.JoinHostPort(m["ip"], m["port"]))
	if server == nil || !server.running() {
		return nil, fmt.Errorf("%s names %s:%s, which does not run", sentinel.Addr(), m["ip"], m["port"])
	}
	return server, nil
}

// records reads the replies of SENTINEL MASTERS and SENTINEL REPLICAS, which come as maps or as lists.
func records(cmd *redis.Cmd) (all []map[string]string, err error) {
	list, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	for _, item := range list {
		fields := make(map[string]string)
		switch item := item.(type) {
		case map[any]any:
			for name, value := range item {
				fields[fmt.Sprint(name)] = fmt.Sprint(value)
			}
		case []any:
			for i := 0; i+1 < len(item); i += 2 {
				fields[fmt.Sprint(item[i])] = fmt.Sprint(item[i+1])
			}
		}
		all = append(all, fields)
	}
	return all, nil
}
