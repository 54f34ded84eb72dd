package redisclient

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A wrapper is a client of an application around another.
type wrapper struct{ redis.UniversalClient }

func (w *wrapper) Unwrap() redis.UniversalClient { return w.UniversalClient }

// Of accepts the two types that can keep locks, and what unwraps to them.
func TestOf(t *testing.T) {
	t.Parallel()
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	sentinel := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	pipelined, err := one.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []redis.UniversalClient{pipelined, one, cluster, sentinel, ring} {
		defer c.Close()
	}
	circle := &wrapper{}
	circle.UniversalClient = circle

	for name, rdb := range map[string]redis.UniversalClient{
		"a client": one, "unwraps to it": &wrapper{one}, "unwraps to it twice": &wrapper{&wrapper{one}},
	} {
		if c, err := Of(rdb); err != nil || c.UniversalClient != redis.UniversalClient(one) || c.Node() != one || c.Cluster != nil {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for name, rdb := range map[string]redis.UniversalClient{"a cluster client": cluster, "unwraps to it": &wrapper{cluster}} {
		if c, err := Of(rdb); err != nil || c.UniversalClient != redis.UniversalClient(cluster) || c.Cluster != cluster || c.Node() != nil {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if c, err := Of(sentinel); err != nil || c.Cluster != sentinel {
		t.Errorf("of sentinels, with reads from replicas: %+v, %v", c, err)
	}
	const wayOut = "Unwrap() redis.UniversalClient"
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		says string
	}{
		"nil":                     {nil, "is nil"},
		"a nil client":            {(*redis.Client)(nil), "a nil *redis.Client"},
		"a nil cluster client":    {(*redis.ClusterClient)(nil), "a nil *redis.ClusterClient"},
		"a nil ring":              {(*redis.Ring)(nil), "a nil *redis.Ring"},
		"a nil wrapper":           {(*wrapper)(nil), "a nil *redisclient.wrapper"},
		"a ring":                  {ring, "*redis.Ring, which moves keys"},
		"an auto-pipeliner":       {pipelined, "*redis.AutoPipeliner"},
		"embeds a client":         {struct{ *redis.Client }{one}, wayOut},
		"embeds a cluster client": {struct{ *redis.ClusterClient }{cluster}, wayOut},
		"embeds a ring":           {struct{ *redis.Ring }{ring}, wayOut},
		"embeds the interface":    {struct{ redis.UniversalClient }{one}, wayOut},
		"unwraps to a ring":       {&wrapper{ring}, "*redis.Ring, which moves keys"},
		"unwraps to nil":          {&wrapper{}, "is nil"},
		"unwraps to itself":       {circle, "leads back to itself"},
	} {
		if c, err := Of(test.rdb); err == nil || c != (Client{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, %v; want an error with %q", name, c, err, test.says)
		}
	}
}

// CheckServer tells one node of several from a server, and from a node that has all slots.
func TestCheckServer(t *testing.T) {
	t.Parallel()
	of := func(rdb redis.UniversalClient) Client {
		c, err := Of(rdb)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alone := redistest.Start(t, "cluster-enabled yes")
	if err := alone.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	if err := server.Client(t).Do(t.Context(), "ACL", "SETUSER", "limited", "on", "nopass", "~*", "+ping").Err(); err != nil {
		t.Fatal(err)
	}
	for name, rdb := range map[string]redis.UniversalClient{
		"one server":              server.Client(t),
		"a node with all":         alone.Client(t),
		"a server that denies it": server.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "any" }),
	} {
		if err := of(rdb).CheckServer(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	cluster := redistest.StartCluster(t)
	var wrong *WrongError
	for i, srv := range cluster.Servers {
		if err := of(srv.Client(t)).CheckServer(t.Context()); !errors.As(err, &wrong) || wrong.Cluster {
			t.Errorf("node %d of a cluster: %v", i, err)
		}
	}
	if err := of(cluster.Client(t)).CheckServer(t.Context()); err != nil {
		t.Errorf("a cluster client: %v", err)
	}
	none := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer none.Close()
	if _, err := of(none).Masters(t.Context()); !errors.As(err, &wrong) || !wrong.Cluster {
		t.Errorf("the masters of a server: %v", err)
	}
	if _, err := of(none).MasterForKey(t.Context(), "a"); !errors.As(err, &wrong) || !wrong.Cluster {
		t.Errorf("the master of a key, of a server: %v", err)
	}
	nowhere := of(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1}))
	defer nowhere.Close()
	if err := nowhere.CheckServer(t.Context()); err == nil || errors.As(err, &wrong) {
		t.Errorf("a server that is not there: %v", err)
	}
}

// Only an answer about the command says that the server cannot tell.
func TestDeclines(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	for text, want := range map[string]bool{
		"ERR This instance has cluster support disabled": true, "ERR unknown command 'CLUSTER'": true, "NOPERM this user has no permissions": true,
		"ERR max number of clients reached": false, "ERR invalid password": false, "WRONGPASS x": false, "NOAUTH x": false, "LOADING x": false,
		"MASTERDOWN x": false, "CLUSTERDOWN x": false, "BUSY x": false,
	} {
		proxy.OnMatch(1, func(args []string) bool { return strings.EqualFold(args[0], "CLUSTER") }, redistest.ReplyWith("-"+text+"\r\n"))
		err := proxy.ClientWith(t, func(o *redis.Options) { o.MaxRetries = -1 }).ClusterSlots(t.Context()).Err() //nolint:staticcheck // see CheckServer
		if Declines(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
