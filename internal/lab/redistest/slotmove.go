package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Slot returns the cluster slot of a key, as computed by a server of the cluster.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	up := running(c.Servers)
	if len(up) == 0 {
		t.Fatal("redistest: Slot: no node is running")
	}
	slot, err := up[0].do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return int(slot.(int64))
}

// A SlotMove is a slot that is moving from one master to another. Until Finish, the old master
// serves the keys it still has and redirects clients (ASK) for all others. A command with several
// keys that are not all on it gets TRYAGAIN.
type SlotMove struct {
	From, To *Server

	cluster *Cluster
	slot    int
}

// MoveSlot begins to move a slot to another master.
func (c *Cluster) MoveSlot(t testing.TB, slot int, to *Server) *SlotMove {
	t.Helper()
	m := &SlotMove{From: c.MasterOf(t, slot), To: to, cluster: c, slot: slot}
	m.set(t, to, "IMPORTING", id(t, m.From))
	m.set(t, m.From, "MIGRATING", id(t, to))
	return m
}

// MoveKeys moves keys of the slot, or all of them if none are given. It ignores missing keys.
func (m *SlotMove) MoveKeys(t testing.TB, keys ...string) {
	t.Helper()
	ctx := context.Background()
	from := m.From.admin()
	defer from.Close()
	for all := len(keys) == 0; ; {
		if all {
			var err error
			if keys, err = from.ClusterGetKeysInSlot(ctx, m.slot, 100).Result(); err != nil {
				t.Fatalf("redistest: MoveKeys: %v", err)
			}
			if len(keys) == 0 {
				return
			}
		}
		args := []any{"MIGRATE", "127.0.0.1", m.To.claim.port, "", 0, patience.Milliseconds(), "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := from.Do(ctx, args...).Err(); err != nil && err != redis.Nil {
			t.Fatalf("redistest: MoveKeys: %v", err)
		}
		if !all {
			return
		}
	}
}

// Finish moves the remaining keys, assigns the slot to its new master, and waits until all nodes
// know.
func (m *SlotMove) Finish(t testing.TB) {
	t.Helper()
	m.MoveKeys(t)
	owner := id(t, m.To)
	m.set(t, m.To, "NODE", owner) // first, so that the slot always has an owner
	m.set(t, m.From, "NODE", owner)
	m.cluster.AwaitMaster(t, m.slot, m.From)
}

func (m *SlotMove) set(t testing.TB, s *Server, what, node string) {
	t.Helper()
	if _, err := s.do("CLUSTER", "SETSLOT", m.slot, what, node); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

func id(t testing.TB, s *Server) string {
	t.Helper()
	id, err := s.do("CLUSTER", "MYID")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return id.(string)
}
