package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisclient"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	top := onCluster(cluster)
	t.Run("kinds", top.testKinds)
	t.Run("no trouble at all", func(t *testing.T) { checkCrowd(t, top.client(t, asleep), top.client(t, asleep)) })
	t.Run("publish modes", func(t *testing.T) { testClusterPublishModes(t, top) })
	t.Run("users with few rights", func(t *testing.T) { testClusterUsers(t, top) })
	t.Run("a slot moves", func(t *testing.T) { testSlotMoves(t, cluster, top) })
	top.wantEmpty(t)
	t.Run("a master steps back under load", func(t *testing.T) {
		top.testFailover(t, "{steps back}", time.Hour, func(t testing.TB) {
			cluster.Failover(t, cluster.MasterOf(t, cluster.Slot(t, "{steps back}")))
		})
	})
	t.Run("a master dies with what no replica has", func(t *testing.T) {
		top.testUnreplicated(t, "{unheard of}").Restart(t) // as a replica
	})
	top.wantEmpty(t)
	t.Run("a master dies under load", func(t *testing.T) {
		top.testFailover(t, "{c}", time.Hour, top.failOver("{c}", (*redistest.Server).Kill))
	})
	t.Run("a master freezes under load", func(t *testing.T) { // no connection breaks: pings and time-outs tell
		top.testFailover(t, "{b}", time.Second, top.failOver("{b}", (*redistest.Server).Freeze))
	})
	top.wantEmpty(t)
}

// Clients that share a publish mode, or listen to both, hear of a release, as on one server.
// PublishAuto is PublishSharded.
func testClusterPublishModes(t *testing.T, top *topology) {
	for name, modes := range map[string][2]PublishMode{
		"auto, sharded": {PublishAuto, PublishSharded},
		"sharded, auto": {PublishSharded, PublishAuto},
		"plain, plain":  {PublishPlain, PublishPlain},
		"both, plain":   {PublishBoth, PublishPlain},
		"both, auto":    {PublishBoth, PublishAuto},
		"plain, both":   {PublishPlain, PublishBoth},
		"sharded, both": {PublishSharded, PublishBoth},
		"auto at once":  {PublishAuto, PublishAuto},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mode := func(m PublishMode) func(*Options) {
				return func(o *Options) { o.PublishMode, o.PollInterval = m, time.Hour }
			}
			holder, waiter := top.client(t, mode(modes[0])), top.client(t, mode(modes[1]))
			lease := mustAcquire(t, bg, holder.Lock(name), AcquireOptions{LeaseTime: time.Hour})
			waiting := acquireAsync(bg, waiter.Lock(name), AcquireOptions{WaitTime: patience})
			top.eventuallySubscribed(t, name)
			mustRelease(t, lease)
			mustRelease(t, mustReceiveLease(t, "the waiter to be woken", waiting))
			want := modes[0]
			if want == PublishAuto {
				want = PublishSharded
			}
			eventually(t, "the mode to be known", func() bool { return holder.publishMode() == want })
		})
	}
}

// PublishAuto finds sharded channels if the user may ask for them. Otherwise it uses plain ones.
func testClusterUsers(t *testing.T, top *topology) {
	const basics = "+ping +eval +evalsha +publish +subscribe +unsubscribe +pttl +pexpire +hset +hget +hkeys +hlen +hmget +hexists +hdel +del +cluster|slots"
	for name, user := range map[string]struct {
		rights string
		mode   PublishMode
	}{
		"told":     {basics + " +pubsub|shardnumsub +spublish +ssubscribe +sunsubscribe", PublishSharded},
		"not told": {basics, PublishPlain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			login := strings.ReplaceAll(name, " ", "")
			rule := []any{"ACL", "SETUSER", login, "on", "nopass", "~" + login + ":*", "resetchannels", "&redisson_lock__channel:*", "-@all"}
			for right := range strings.FieldsSeq(user.rights) {
				rule = append(rule, right)
			}
			if err := top.look(t, func(ctx context.Context, rdb *redis.Client) error { return rdb.Do(ctx, rule...).Err() }); err != nil {
				t.Fatal(err)
			}
			limited := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: top.connect(t).(*redis.ClusterClient).Options().Addrs, Username: login, Password: "any",
			})
			t.Cleanup(func() { _ = limited.Close() })
			waiter := newUncheckedLocks(t, limited, pollInterval(time.Hour))
			t.Cleanup(func() { _ = waiter.Close(bg) })
			holder := top.client(t, func(o *Options) { o.PublishMode = user.mode })

			lock := login + ":lock"
			lease := mustAcquire(t, bg, holder.Lock(lock), AcquireOptions{})
			waiting := acquireAsync(bg, waiter.Lock(lock), AcquireOptions{WaitTime: patience})
			top.eventuallySubscribed(t, lock)
			mustRelease(t, lease)
			mustRelease(t, mustReceiveLease(t, "the waiter to be woken", waiting))
			if mode := waiter.publishMode(); mode != user.mode {
				t.Errorf("mode %d, want %d", mode, user.mode)
			}
		})
	}
}

// Before a server has answered, waiters may listen in either way.
func TestPublishAuto_Unknown(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1})
	defer rdb.Close()
	c := newUncheckedLocks(t, rdb)
	defer mustClose(t, c)
	if mode := c.publishMode(); mode != PublishBoth {
		t.Errorf("mode %d, want %d", mode, PublishBoth)
	}
}

// A server that is busy with a script does not settle the mode, and is asked again.
func TestPublishAuto_Busy(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "cluster-enabled yes", "lua-time-limit 10", "cluster-announce-ip 127.0.0.1")
	plain := srv.Client(t)
	if err := plain.Do(bg, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}, MaxRedirects: -1})
	defer rdb.Close()
	eventually(t, "the cluster to serve", func() bool { return rdb.Get(bg, "x").Err() == redis.Nil })
	other := srv.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = 3 * patience })
	killed := make(chan error, 1)
	go func() { killed <- other.Eval(bg, "while true do end", nil).Err() }()
	eventually(t, "the server to be busy", func() bool { return redis.HasErrorPrefix(plain.Get(bg, "x").Err(), "BUSY") })

	h := newPublishProbe(redisClient(t, rdb), Options{CommandTimeout: patience})
	if mode, err := h.detect(bg); mode != PublishAuto || err == nil {
		t.Errorf("while it is busy: mode %d, %v; nothing is known yet", mode, err)
	}
	if err := plain.ScriptKill(bg).Err(); err != nil {
		t.Fatal(err)
	}
	if err := mustReceive(t, "the script to end", killed); err == nil {
		t.Error("the script was not killed")
	}
	if mode, err := h.detect(bg); mode != PublishSharded || err != nil {
		t.Errorf("afterwards: mode %d, %v", mode, err)
	}
}

// Only an answer about the command settles the mode. A password that is wrong for now does not, nor
// does a replica without its master.
func TestPublishAuto_Answers(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	for text, want := range map[string]PublishMode{
		"ERR unknown subcommand 'SHARDNUMSUB'.": PublishPlain, "NOPERM this user has no permissions": PublishPlain,
		"WRONGPASS invalid username-password pair": PublishAuto, "NOAUTH Authentication required.": PublishAuto, "MASTERDOWN Link with MASTER is down": PublishAuto,
		"CLUSTERDOWN The cluster is down": PublishAuto, "BUSY x": PublishAuto, "LOADING x": PublishAuto,
	} {
		proxy.OnMatch(1, func(args []string) bool { return strings.EqualFold(args[0], "PUBSUB") }, redistest.ReplyWith("-"+text+"\r\n"))
		h := &publishProbe{rdb: redisClient(t, proxy.ClientWith(t, func(o *redis.Options) { o.MaxRetries = -1 })), timeout: patience}
		if mode, err := h.detect(bg); mode != want || (err == nil) == (want == PublishAuto) {
			t.Errorf("%s: mode %d, %v; want %d", text, mode, err, want)
		}
		if mode, err := h.detect(bg); want == PublishAuto && (mode != PublishSharded || err != nil) {
			t.Errorf("%s, afterwards: mode %d, %v", text, mode, err)
		}
	}
}

// Only a real cluster is asked.
func TestPublishAuto_WithoutCluster(t *testing.T) {
	t.Parallel()
	nowhere := []string{"127.0.0.1:1"}
	clients := map[string]redis.UniversalClient{
		"one server":          redis.NewClient(&redis.Options{Addr: nowhere[0]}),
		"sentinels":           redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: nowhere}),
		"sentinels, replicas": redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: nowhere}),
	}
	for name, rdb := range clients {
		h := newPublishProbe(redisClient(t, rdb), Options{})
		if mode, err := h.detect(bg); mode != PublishPlain || err != nil {
			t.Errorf("%s: mode %d, %v", name, mode, err)
		}
		_ = rdb.Close()
	}
	down := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nowhere})
	defer down.Close()
	h := newPublishProbe(redisClient(t, down), Options{CommandTimeout: time.Second})
	if mode, err := h.detect(bg); mode != PublishAuto || err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("a cluster that is down: mode %d, %v; nothing is known yet", mode, err)
	}
}

// redisClient classifies a Redis client, as New does.
func redisClient(t *testing.T, rdb redis.UniversalClient) redisclient.Client {
	t.Helper()
	c, err := redisclient.Of(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
