package hub

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// names are channels in three different thirds of the slots. The first two are in one slot.
var names = []string{"x{a}", "y{a}", "z{b}", "z{c}"}

// subscriptions returns the running nodes on which a channel is subscribed, and how often.
func subscriptions(t *testing.T, cluster *redistest.Cluster, shards bool, channel string) map[*redistest.Server]int64 {
	t.Helper()
	found := make(map[*redistest.Server]int64)
	for _, master := range cluster.Masters(t) {
		rdb := redis.NewClient(&redis.Options{Addr: master.Addr()})
		count := rdb.PubSubNumSub
		if shards {
			count = rdb.PubSubShardNumSub
		}
		counts, err := count(context.Background(), channel).Result()
		_ = rdb.Close()
		if err != nil {
			t.Fatal(err)
		}
		if counts[channel] > 0 {
			found[master] = counts[channel]
		}
	}
	return found
}

// announceSharded is announce for a sharded channel.
func announceSharded(t *testing.T, rdb *redis.ClusterClient, channel string, l *listener) (sent int) {
	t.Helper()
	return announce(t, l, func() error {
		rdb.ReloadState(t.Context())
		return rdb.SPublish(t.Context(), channel, "0").Err()
	})
}

// Sharded channels are subscribed on the masters of their slots, wherever those move.
func TestShardedInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	h := newHub(t, cluster.Client(t), func(c *Config) { c.Commands = commands(false, true) })
	listeners := make([]*listener, len(names))
	for i, name := range names {
		listeners[i] = listen(h, name)
	}
	for _, l := range listeners {
		awaitHeard(t, l, 1)
	}
	// at checks that a channel is subscribed on its master only.
	at := func(t *testing.T, i int) *redistest.Server {
		t.Helper()
		master := cluster.MasterOf(t, cluster.Slot(t, names[i]))
		eventually(t, fmt.Sprintf("%s on its master only", names[i]), func() bool {
			found := subscriptions(t, cluster, true, names[i])
			return len(found) == 1 && found[master] == 1
		})
		return master
	}

	t.Run("at three masters", func(t *testing.T) {
		masters := make(map[*redistest.Server]bool)
		for i := range names {
			masters[at(t, i)] = true
			heard := listeners[i].heard()
			sent := announceSharded(t, rdb, names[i], listeners[i])
			if n := listeners[i].heard() - heard; n > sent {
				t.Errorf("%d notifications of %d messages", n, sent)
			}
		}
		if len(masters) != 3 {
			t.Errorf("channels on %d masters", len(masters))
		}
		for master := range masters {
			if got := connections(t, master.Client(t)); len(got) != 1 {
				t.Errorf("%s: connections %q", master.Addr(), got)
			}
		}
	})
	t.Run("a slot moves", func(t *testing.T) {
		slot := cluster.Slot(t, names[0])
		to := cluster.MasterOf(t, cluster.Slot(t, names[2]))
		heard, others := listeners[0].heard(), listeners[2].heard()+listeners[3].heard()
		move := cluster.MoveSlot(t, slot, to)
		// Through the old master while it has the slot.
		announceSharded(t, rdb, names[0], listeners[0])
		second := listen(h, names[1]+"second")
		awaitHeard(t, second, 1)
		move.Finish(t)
		eventually(t, "a confirmation by the new master", func() bool { return listeners[0].heard() >= heard+2 })
		if at(t, 0) != to || at(t, 1) != to {
			t.Error("the channels did not follow the slot")
		}
		for _, i := range []int{0, 1} {
			announceSharded(t, rdb, names[i], listeners[i])
		}
		if now := listeners[2].heard() + listeners[3].heard(); now != others {
			t.Errorf("channels that did not move were notified %d times", now-others)
		}
		second.Close()
		eventually(t, "the second to be unsubscribed", func() bool { return h.Len() == len(names) })
	})
	t.Run("a master steps back", func(t *testing.T) {
		cluster.Failover(t, cluster.MasterOf(t, cluster.Slot(t, names[2])))
		for _, i := range []int{0, 1, 2} {
			announceSharded(t, rdb, names[i], listeners[i])
		}
	})
	t.Run("a master dies", func(t *testing.T) {
		slot := cluster.Slot(t, names[3])
		heard := listeners[3].heard()
		old := cluster.MasterOf(t, slot)
		old.Kill(t)
		fresh := listen(h, "fresh{c}") // no node serves it for a while
		cluster.AwaitMaster(t, slot, old)
		eventually(t, "a confirmation by the new master", func() bool { return listeners[3].heard() > heard && fresh.heard() > 0 })
		at(t, 3)
		announceSharded(t, rdb, names[3], listeners[3])
		announceSharded(t, rdb, "fresh{c}", fresh)
		fresh.Close()
	})
	for _, l := range listeners {
		l.Close()
	}
	eventually(t, "all subscriptions to end", func() bool {
		for _, name := range append(names, names[1]+"second", "fresh{c}") {
			if len(subscriptions(t, cluster, true, name)) > 0 {
				return false
			}
		}
		return h.Len() == 0
	})
}

// Every node gets plain messages, so one connection to any of them is enough.
func TestPlainInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	t.Run("both commands", func(t *testing.T) { testBothInCluster(t, cluster, rdb) })

	h := newHub(t, cluster.Client(t))
	for _, name := range names {
		l := listen(h, name)
		awaitHeard(t, l, 1)
		if err := rdb.Publish(t.Context(), name, "0").Err(); err != nil {
			t.Fatal(err)
		}
		awaitHeard(t, l, 2)
	}
	found := subscriptions(t, cluster, false, names[0])
	if len(found) != 1 {
		t.Fatalf("channel on %d nodes", len(found))
	}
	a := listen(h, names[0]) // already confirmed
	heard := a.heard()
	for node := range found {
		for _, name := range names {
			if subscriptions(t, cluster, false, name)[node] != 1 {
				t.Errorf("%s is not on the same connection", name)
			}
		}
		node.Kill(t)
	}
	eventually(t, "a confirmation by another node", func() bool { return a.heard() > heard })
}

// With both commands, a channel is subscribed on any node and on its master, and confirmed when
// both are.
func testBothInCluster(t *testing.T, cluster *redistest.Cluster, rdb *redis.ClusterClient) {
	h := newHub(t, cluster.Client(t), func(c *Config) { c.Commands = commands(true, true) })
	for _, name := range names {
		l := listen(h, name)
		awaitHeard(t, l, 1)
		if err := rdb.Publish(t.Context(), name, "0").Err(); err != nil {
			t.Fatal(err)
		}
		awaitHeard(t, l, 2)
		if err := rdb.SPublish(t.Context(), name, "0").Err(); err != nil {
			t.Fatal(err)
		}
		awaitHeard(t, l, 3)
		l.Close()
	}
	eventually(t, "all subscriptions to end", func() bool {
		for _, name := range names {
			if len(subscriptions(t, cluster, true, name))+len(subscriptions(t, cluster, false, name)) > 0 {
				return false
			}
		}
		return h.Len() == 0
	})
}

// If Config.Commands fails, the hub retries. It can be closed meanwhile.
func TestCommandsUnknown(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	asked := 0
	h := newHub(t, rdb, func(c *Config) {
		c.Commands = func(context.Context) (bool, bool, error) {
			if asked++; asked < 3 {
				return false, false, context.DeadlineExceeded
			}
			return true, false, nil
		}
	})
	awaitHeard(t, listen(h, "a"), 1)

	never := make(chan struct{})
	var once bool
	h = newHub(t, rdb, func(c *Config) {
		c.Commands = func(context.Context) (bool, bool, error) {
			if !once {
				once = true
				close(never)
			}
			return false, false, context.DeadlineExceeded
		}
	})
	if l := listen(h, "a"); l.confirmed {
		t.Error("confirmed without a command")
	}
	<-never
	closes(t, h)
}
