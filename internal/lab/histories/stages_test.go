package histories

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// onSingle runs rounds on one server with an append-only file. Each process reaches it through a
// proxy.
func onSingle(t *testing.T) *stage {
	server := redistest.Start(t, durable...)
	var proxies []*redistest.Proxy
	for range processes {
		proxies = append(proxies, server.Proxy(t))
	}
	cut := func(what string, begin, end func(p *redistest.Proxy)) faultKind {
		return faultKind{what: what, do: func(_ *testing.T, r *round) {
			p := proxies[r.random.IntN(len(proxies))]
			begin(p)
			r.pause()
			end(p)
		}}
	}
	restore := (*redistest.Proxy).Restore
	return &stage{
		topology: "single", kinds: allKinds, records: true,
		addrs:   func(process int) []string { return []string{proxies[process%processes].Addr()} },
		direct:  func() []string { return []string{server.Addr()} },
		eachKey: each(func() []*redistest.Server { return []*redistest.Server{server} }),
		faults: slices.Concat(processFaults, []faultKind{
			{what: "Redis is killed and comes back", do: func(t *testing.T, r *round) {
				server.Kill(t)
				r.pause()
				server.Restart(t)
			}},
			{what: "Redis is killed and comes back empty", loss: All, do: func(t *testing.T, r *round) { restartEmpty(t, r, server) }},
			{what: "FLUSHALL", loss: All, do: func(t *testing.T, _ *round) { command(t, server, "FLUSHALL") }},
			{what: "SCRIPT FLUSH", do: func(t *testing.T, _ *round) { command(t, server, "SCRIPT", "FLUSH") }},
			{what: "Redis is stopped", do: func(t *testing.T, r *round) { freeze(t, r, server) }},
			{what: "Redis pauses its clients", do: func(t *testing.T, r *round) {
				d := 50*time.Millisecond + time.Duration(r.random.Int64N(int64(watchdog)))
				server.PauseClients(t, d)
				time.Sleep(d)
			}},
			cut("a process is cut off", (*redistest.Proxy).Cut, restore),
			cut("the network of a process stalls", (*redistest.Proxy).Stall, restore),
			cut("connections of a process die in silence", (*redistest.Proxy).Mute, restore),
			stray(proxies, "a command arrives late", redistest.HoldRequest),
			stray(proxies, "a reply arrives late", redistest.HoldReply),
			stray(proxies, "a connection breaks after a command", redistest.CutAfter),
			stray(proxies, "a reply is lost", redistest.DropReply),
			{what: "messages are lost", do: func(_ *testing.T, r *round) {
				p := proxies[r.random.IntN(len(proxies))]
				await(r, p.SwallowMessages(1+r.random.IntN(3)))
			}},
		}),
	}
}

// stray delays or loses one command of a process, or its reply.
func stray(proxies []*redistest.Proxy, what string, do redistest.Action) faultKind {
	isScript := func(args []string) bool { return strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") }
	return faultKind{what: what, do: func(_ *testing.T, r *round) {
		p := proxies[r.random.IntN(len(proxies))]
		await(r, p.OnMatch(1+r.random.IntN(5), isScript, do))
	}}
}

// await waits until a rule has triggered, and a little longer. Then it ends what the rule holds.
func await(r *round, rule *redistest.Rule) {
	select {
	case <-rule.Hit():
		r.pause()
	case <-time.After(2 * time.Second): // a stopped process does not get that far
	}
	rule.Remove()
	rule.Release()
}

// restartEmpty kills a server, deletes its data and starts it again.
func restartEmpty(t *testing.T, r *round, server *redistest.Server) {
	t.Helper()
	dir := command(t, server, "CONFIG", "GET", "dir").(map[any]any)["dir"].(string)
	server.Kill(t)
	r.pause()
	if err := os.RemoveAll(filepath.Join(dir, "appendonlydir")); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
}

func freeze(t *testing.T, r *round, server *redistest.Server) {
	t.Helper()
	server.Freeze(t)
	r.pause()
	server.Thaw(t)
}

func command(t *testing.T, server *redistest.Server, args ...any) any {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	reply, err := rdb.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// onSentinel runs rounds on a master with two replicas and three sentinels. With acks of both
// replicas, a failover loses no lock. It may lose records, which replicas do not confirm.
func onSentinel(t *testing.T, acks int) *stage {
	s := redistest.StartSentinel(t, 2)
	loss := LastSome
	if acks > 0 {
		loss = Nothing
	}
	var sentinels []string
	for _, sentinel := range s.Sentinels {
		sentinels = append(sentinels, sentinel.Addr())
	}
	always := func(int) []string { return sentinels }
	return &stage{
		topology: "sentinel", acks: acks, kinds: allKinds, records: acks == 0,
		addrs: always, direct: func() []string { return sentinels },
		eachKey: each(func() []*redistest.Server { return []*redistest.Server{s.AwaitMaster(t, nil)} }),
		faults: slices.Concat(processFaults, []faultKind{
			{what: "sentinels replace the master", loss: loss, do: func(t *testing.T, _ *round) { s.Failover(t) }},
			{what: "the master is killed", loss: loss, do: func(t *testing.T, r *round) {
				old := s.AwaitMaster(t, nil)
				old.Kill(t)
				s.AwaitMaster(t, old)
				old.Restart(t)
				s.AwaitMaster(t, nil) // all servers follow it then
			}},
		}),
	}
}

// onCluster runs rounds on three masters with a replica each. No data is lost: masters step down in
// order, and slots move.
func onCluster(t *testing.T) *stage {
	c := redistest.StartCluster(t)
	slotOf := func(t *testing.T, r *round) int {
		sites := r.sites[0].Names
		return c.Slot(t, sites[r.random.IntN(len(sites))].Name)
	}
	return &stage{
		topology: "cluster", kinds: allKinds, records: true,
		addrs: func(int) []string { return addrs(c.Servers) }, direct: func() []string { return addrs(c.Servers) },
		eachKey: each(func() []*redistest.Server { return c.Masters(t) }),
		faults: slices.Concat(processFaults, []faultKind{
			{what: "a slot moves", do: func(t *testing.T, r *round) {
				slot := slotOf(t, r)
				from, masters := c.MasterOf(t, slot), c.Masters(t)
				to := masters[r.random.IntN(len(masters))]
				for to == from {
					to = masters[r.random.IntN(len(masters))]
				}
				move := c.MoveSlot(t, slot, to)
				time.Sleep(time.Duration(r.random.Int64N(int64(300 * time.Millisecond))))
				move.MoveKeys(t)
				time.Sleep(time.Duration(r.random.Int64N(int64(300 * time.Millisecond))))
				move.Finish(t)
			}},
			{what: "a master steps down", do: func(t *testing.T, r *round) {
				c.Failover(t, c.MasterOf(t, slotOf(t, r)))
				c.AwaitHealthy(t)
			}},
		}),
	}
}

// onMasters runs rounds on three masters with a RedLock over them. One of them at a time is
// stopped, or comes back empty after all leases are over.
func onMasters(t *testing.T) *stage {
	servers := redistest.StartMany(t, 3)
	always := func() []string { return addrs(servers) }
	one := func(r *round) *redistest.Server { return servers[r.random.IntN(len(servers))] }
	return &stage{
		topology: "red", kinds: []string{"red"}, addrs: func(int) []string { return always() }, direct: always,
		eachKey: each(func() []*redistest.Server { return servers }),
		faults: slices.Concat(processFaults, []faultKind{
			{what: "a master is stopped", do: func(t *testing.T, r *round) { freeze(t, r, one(r)) }},
			{what: "a master comes back empty after a lease", do: func(t *testing.T, r *round) {
				s := one(r)
				s.Kill(t)
				time.Sleep(watchdog + 500*time.Millisecond)
				s.Restart(t)
			}},
		}),
	}
}
