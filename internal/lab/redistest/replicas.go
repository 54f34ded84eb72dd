package redistest

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// replicaSettings make replication start, and notice a dead master, as quickly as possible.
var replicaSettings = []string{
	"repl-diskless-sync yes",
	"repl-diskless-sync-delay 0",
	"repl-ping-replica-period 1",
	"repl-timeout 5",
}

// Replicas is a master with replicas. No replica is promoted when the master dies; see [Sentinel]
// for that.
type Replicas struct {
	Master   *Server
	Replicas []*Server
}

// StartReplicas runs a master with n replicas until the test ends, and waits until each has caught
// up. directives are as for [Start], and apply to all of them.
func StartReplicas(t testing.TB, n int, directives ...string) *Replicas {
	t.Helper()
	directives = append(append([]string(nil), replicaSettings...), directives...)
	r := &Replicas{Master: Start(t, directives...)}
	of := append(directives, fmt.Sprintf("replicaof 127.0.0.1 %d", r.Master.claim.port))
	var err error
	if r.Replicas, err = startAll(t, n, func(int) []string { return of }); err != nil {
		t.Fatal(err)
	}
	r.AwaitReplicas(t)
	return r
}

// Client returns a new client of the master with default options; it is closed when the test ends.
func (r *Replicas) Client(t testing.TB) *redis.Client {
	t.Helper()
	return r.Master.Client(t)
}

// AwaitReplicas waits until every running replica is connected to the master and has all its
// writes.
func (r *Replicas) AwaitReplicas(t testing.TB) {
	t.Helper()
	awaitOrFail(t, "the replicas did not catch up", func() error { return inSync(r.Master, running(r.Replicas)) })
}

// inSync returns nil if the master has at least these replicas, and each has all of the master's
// writes.
func inSync(master *Server, replicas []*Server) error {
	info, err := master.info("replication")
	if err != nil {
		return err
	}
	if info["role"] != "master" {
		return fmt.Errorf("%s is a %s", master.Addr(), info["role"])
	}
	if n, _ := strconv.Atoi(info["connected_slaves"]); n < len(replicas) {
		return fmt.Errorf("%s has %d replicas, want %d", master.Addr(), n, len(replicas))
	}
	written, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return err
	}
	for _, s := range replicas {
		if err := follows(s, master, written); err != nil {
			return err
		}
	}
	return nil
}

// follows returns nil if a replica replicates this master and has everything up to the offset.
func follows(s, master *Server, offset int64) error {
	info, err := s.info("replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" || info["master_port"] != fmt.Sprint(master.claim.port) || info["master_link_status"] != "up" {
		return fmt.Errorf("%s is a %s of port %s, link %s", s.Addr(), info["role"], info["master_port"], info["master_link_status"])
	}
	if read, _ := strconv.ParseInt(info["slave_repl_offset"], 10, 64); read < offset {
		return fmt.Errorf("%s has read up to %d of %d", s.Addr(), read, offset)
	}
	return nil
}
