package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// writes sets a key until that succeeds, as a program that waits out a failover would.
func writes(t *testing.T, c redis.UniversalClient, key, value string) {
	t.Helper()
	eventually(t, "a client to write "+key, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if cluster, ok := c.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx) // left alone, it may look for a dead master for a minute
		}
		return c.Set(ctx, key, value, 0).Err() == nil
	})
}

func reads(t *testing.T, c redis.UniversalClient, key, want string) {
	t.Helper()
	if got, err := c.Get(t.Context(), key).Result(); err != nil || got != want {
		t.Errorf("%s is %q (%v), want %q", key, got, err, want)
	}
}

func TestStartManyIndependent(t *testing.T) {
	t.Parallel()
	servers := StartMany(t, 3)
	for i, s := range servers {
		set(t, s.Client(t), "k", fmt.Sprint(i))
	}
	for i, s := range servers {
		wantValue(t, s.Client(t), "k", fmt.Sprint(i))
	}
	if failure := failureOf(t, func(t testing.TB) { StartMany(t, 2, "databases none") }); !strings.Contains(failure, "FATAL CONFIG") {
		t.Errorf("StartMany failed with %q", failure)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	r := StartReplicas(t, 2)
	c := r.Client(t)
	set(t, c, "k", "v")
	if n, err := c.Wait(t.Context(), 2, patience).Result(); n != 2 || err != nil {
		t.Errorf("WAIT: %d replicas (%v), want 2", n, err)
	}
	frozen := r.Replicas[0]
	frozen.Freeze(t)
	set(t, c, "k", "w")
	// In the first, the other replica answers, however slow it is.
	for i, timeout := range []time.Duration{patience, 100 * time.Millisecond} {
		if n, err := c.Wait(t.Context(), i+1, timeout).Result(); n != 1 || err != nil {
			t.Errorf("WAIT %d: %d replicas (%v) with one of them frozen, want 1", i+1, n, err)
		}
	}
	r.AwaitReplicas(t)
	wantValue(t, r.Replicas[1].Client(t), "k", "w")
	frozen.Thaw(t)
	r.AwaitReplicas(t)
	wantValue(t, frozen.Client(t), "k", "w")

	r.Replicas[1].Kill(t)
	r.Replicas[1].Restart(t)
	r.AwaitReplicas(t)
	wantValue(t, r.Replicas[1].Client(t), "k", "w")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s := StartSentinel(t, 2)
	t.Logf("started after %s", time.Since(begun))
	c := s.Client(t)
	set(t, c, "k", "v")

	begun = time.Now()
	second := s.Failover(t)
	if second == s.Servers[0] {
		t.Error("the master has not changed")
	}
	t.Logf("swapped after %s", time.Since(begun))
	writes(t, c, "swapped", "1")
	wantValue(t, second.Client(t), "k", "v")
	wantValue(t, second.Client(t), "swapped", "1")

	begun = time.Now()
	second.Kill(t)
	third := s.AwaitMaster(t, second)
	t.Logf("replaced after %s", time.Since(begun))
	writes(t, c, "replaced", "1")
	wantValue(t, third.Client(t), "replaced", "1")

	second.Restart(t)
	if master := s.AwaitMaster(t, nil); master != third {
		t.Errorf("the master that came back took over again: %s", master.Addr())
	}
	wantValue(t, second.Client(t), "replaced", "1")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	cluster := StartCluster(t)
	t.Logf("started after %s", time.Since(begun))
	c := cluster.Client(t)
	keys := []string{"a", "b", "c"}
	masters := make(map[*Server]bool)
	for _, key := range keys {
		writes(t, c, key, "v")
		masters[cluster.MasterOf(t, cluster.Slot(t, key))] = true
	}
	if len(masters) != 3 || len(cluster.Masters(t)) != 3 {
		t.Fatalf("three keys of three thirds have %d masters, there are %d", len(masters), len(cluster.Masters(t)))
	}

	t.Run("a slot moves", func(t *testing.T) {
		slot := cluster.Slot(t, "a")
		from, to := cluster.MasterOf(t, slot), cluster.MasterOf(t, cluster.Slot(t, "b"))
		writes(t, c, "{a}2", "v")
		m := cluster.MoveSlot(t, slot, to)
		if m.From != from || m.To != to {
			t.Errorf("it moves from %s to %s", m.From.Addr(), m.To.Addr())
		}
		m.MoveKeys(t, "{a}2", "{a}missing")
		for server, key := range map[*Server]string{from: "a", to: "{a}2"} {
			// Each node has half of the keys, and redirects for the others.
			direct := server.ClientWith(t, once)
			if server == to {
				if err := direct.Get(t.Context(), key).Err(); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
					t.Errorf("GET without ASKING: %v", err)
				}
			} else {
				wantValue(t, direct, key, "v")
			}
			reads(t, c, key, "v")
		}
		if err := c.MGet(t.Context(), "a", "{a}2").Err(); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
			t.Errorf("MGET across the move: %v", err)
		}
		m.Finish(t)
		if now := cluster.MasterOf(t, slot); now != to {
			t.Errorf("the slot's master is %s, not %s", now.Addr(), to.Addr())
		}
		wantValue(t, to.Client(t), "a", "v")
		wantValue(t, to.Client(t), "{a}2", "v")
	})
	t.Run("a master steps back", func(t *testing.T) {
		slot := cluster.Slot(t, "b")
		old := cluster.MasterOf(t, slot)
		next := cluster.Failover(t, old)
		if next == old || cluster.MasterOf(t, slot) != next {
			t.Error("the master has not changed")
		}
		wantValue(t, next.Client(t), "b", "v")
	})
	t.Run("a master dies", func(t *testing.T) {
		slot := cluster.Slot(t, "c")
		old := cluster.MasterOf(t, slot)
		begun := time.Now()
		old.Kill(t)
		next := cluster.AwaitMaster(t, slot, old)
		t.Logf("replaced after %s", time.Since(begun))
		wantValue(t, next.Client(t), "c", "v")
		writes(t, c, "c", "w")
		old.Restart(t)
		cluster.AwaitHealthy(t)
		if cluster.MasterOf(t, slot) != next {
			t.Error("the master that came back took over again")
		}
		eventually(t, "it to have the writes made meanwhile", func() bool {
			replica := old.ClientWith(t, once)
			conn := replica.Conn()
			defer conn.Close()
			return conn.ReadOnly(t.Context()).Err() == nil && conn.Get(t.Context(), "c").Val() == "w"
		})
	})
}
