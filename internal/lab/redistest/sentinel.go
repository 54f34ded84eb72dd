package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// sentinels is how many sentinels watch a master. Two of them are a quorum.
const sentinels = 3

// masterName is the master's name in the sentinels.
const masterName = "redistest"

// sentinelPeriods replaces default periods, in milliseconds (SENTINEL DEBUG). Most defaults are too
// long for tests, and after a stall of two seconds Sentinel would do nothing for half a minute.
var sentinelPeriods = []any{"info-period", 1000, "publish-period", 100, "ask-period", 200, "tilt-trigger", 30_000}

// Sentinel is a master with replicas and three sentinels. They promote a replica when the master
// has not answered for four seconds, so that a short stall of the machine causes no failover.
type Sentinel struct {
	// Servers change their roles. The first begins as the master.
	Servers   []*Server
	Sentinels []*Server
}

// StartSentinel runs a master with n replicas and three sentinels until the test ends, and waits
// until they know each other. directives are as for [Start], and apply to master and replicas.
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

// Client returns a new client that asks the sentinels for the master; it is closed when the test
// ends.
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
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

// Failover makes the sentinels replace the running master by a replica. It returns the new master
// when all sentinels know it and all other servers replicate it. The old master's last writes may
// be lost.
func (s *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	old := s.AwaitMaster(t, nil)
	var master *Server
	awaitOrFail(t, "the sentinels did not replace the master", func() (err error) {
		if master, err = s.agreed(nil); err != nil || master != old {
			return err
		}
		// No failover is running. On a busy machine one may be aborted, and sentinels do not repeat
		// one that was asked for.
		if _, err := s.Sentinels[0].do("SENTINEL", "FAILOVER", masterName); err != nil {
			return err
		}
		return errors.New("a failover has just begun")
	})
	return master
}

// AwaitMaster waits until the sentinels agree on a master other than old, which may be nil, and the
// running servers replicate it. It returns that master. Use it after [Server.Kill] or
// [Server.Freeze] of a master.
func (s *Sentinel) AwaitMaster(t testing.TB, old *Server) (master *Server) {
	t.Helper()
	awaitOrFail(t, "the sentinels did not agree on a master", func() (err error) {
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

// masterBy returns the master according to one sentinel, if it knows the other sentinels and the
// replicas, and no failover is running.
func (s *Sentinel) masterBy(sentinel *Server, sentinels int) (*Server, error) {
	ctx := context.Background()
	c := sentinel.admin()
	defer c.Close()
	states, err := records(c.Do(ctx, "SENTINEL", "MASTERS"))
	if err != nil || len(states) != 1 {
		return nil, fmt.Errorf("%s watches %d masters: %w", sentinel.Addr(), len(states), err)
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
		return nil, fmt.Errorf("%s knows %d ready replicas, want %d", sentinel.Addr(), ready, want)
	}
	server := byAddr(s.Servers, net.JoinHostPort(m["ip"], m["port"]))
	if server == nil || !server.running() {
		return nil, fmt.Errorf("%s names %s:%s, which is not running", sentinel.Addr(), m["ip"], m["port"])
	}
	return server, nil
}

// records reads the replies of SENTINEL MASTERS and SENTINEL REPLICAS, which come as maps or as
// lists.
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
