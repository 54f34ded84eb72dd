// Package redisclient says which kind of Redis client a caller gave to reqlock. It is the one place
// that knows the types of go-redis.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Client is a client that can keep locks: a *redis.Client, with or without sentinels, or a
// *redis.ClusterClient. The zero value has none.
type Client struct {
	redis.UniversalClient
	// Cluster is the client itself if it is one of a cluster; nil: it is one of a single server.
	Cluster *redis.ClusterClient
}

// An Unwrapper is a client of the application around another client.
type Unwrapper interface{ Unwrap() redis.UniversalClient }

// maxWrappers bounds how many clients may be around one another. A client that unwraps to itself
// exceeds it.
const maxWrappers = 16

// Of returns the client within rdb that reqlock sends its commands to. The error says what is wrong
// with rdb, and what to use. It sends nothing.
//
// A type that embeds one of go-redis's clients has all of its methods, but is none of them to a type
// switch. Whether it leads to a single server, a cluster or a ring decides how locks work, so Of
// refuses what it does not know.
func Of(rdb redis.UniversalClient) (Client, error) {
	for range maxWrappers {
		if isNil(rdb) {
			return Client{}, fmt.Errorf("the Redis client is %s; use redis.NewClient, redis.NewFailoverClient or redis.NewClusterClient",
				nilName(rdb))
		}
		switch c := rdb.(type) {
		case *redis.Client:
			return Client{UniversalClient: c}, nil
		case *redis.ClusterClient:
			return Client{UniversalClient: c, Cluster: c}, nil
		case *redis.Ring:
			return Client{}, errors.New("the Redis client is a *redis.Ring, which moves keys to other servers when one is down, " +
				"so a lock could have two holders; use a *redis.Client or *redis.ClusterClient")
		case *redis.AutoPipeliner:
			return Client{}, errors.New("the Redis client is a *redis.AutoPipeliner, which holds commands back; " +
				"use the *redis.Client or *redis.ClusterClient that it came from: locks batch their commands themselves")
		case Unwrapper:
			rdb = c.Unwrap()
		default:
			return Client{}, fmt.Errorf("the Redis client is a %T, which hides whether it is for one server or for a cluster; "+
				"use the *redis.Client or *redis.ClusterClient in it, with AddHook for traces and metrics, "+
				"or give the type the method Unwrap() redis.UniversalClient, which returns it", rdb)
		}
	}
	return Client{}, fmt.Errorf("the Redis client is a %T whose Unwrap leads back to itself, or through more than %d clients; "+
		"make it return the *redis.Client or *redis.ClusterClient in it", rdb, maxWrappers)
}

func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func nilName(rdb redis.UniversalClient) string {
	if rdb == nil {
		return "nil"
	}
	return fmt.Sprintf("a nil %T", rdb)
}

// Node returns the client of the single server; nil: it is one of a cluster.
func (c Client) Node() *redis.Client {
	node, _ := c.UniversalClient.(*redis.Client)
	return node
}

// Database returns the database. Clients of one server with different ones share no keys.
func (c Client) Database() int {
	if c.Cluster != nil {
		return 0
	}
	return c.Node().Options().DB
}

// Timeouts returns the time-outs of a read and of a write.
func (c Client) Timeouts() (read, write time.Duration) {
	if c.Cluster != nil {
		return c.Cluster.Options().ReadTimeout, c.Cluster.Options().WriteTimeout
	}
	return c.Node().Options().ReadTimeout, c.Node().Options().WriteTimeout
}

// A WrongError shows that a client does not fit the server, which the type of the client cannot
// tell.
type WrongError struct {
	// Cluster reports that the client is for a cluster, but the server is none. Otherwise the client
	// is for one server, and the server is one of several in a cluster.
	Cluster bool
	How     error // what shows it
}

func (e *WrongError) Error() string { return e.How.Error() }

// What is wrong with a client, and what to change.
const (
	OneNode    = "the server is a node of a cluster, and the Redis client is for one server"
	UseCluster = "use redis.NewClusterClient; redis.NewUniversalClient makes one only from several addresses or with IsClusterMode"
	NoCluster  = "the server is not a cluster, and the Redis client is for one"
	UseServer  = "use redis.NewClient, or redis.NewFailoverClient with Sentinel"
)

// Explain says what is wrong and what to change.
func (e *WrongError) Explain() string {
	if e.Cluster {
		return NoCluster + ": " + e.Error() + " (" + UseServer + ")"
	}
	return OneNode + ": " + e.Error() + " (" + UseCluster + ")"
}

// Unwrap returns what shows it.
func (e *WrongError) Unwrap() error { return e.How }

// Redirected returns err, as a *WrongError if it is a redirection to another node that the client of
// a single server does not follow.
func (c Client) Redirected(err error) error {
	if err != nil && c.Cluster == nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		return &WrongError{How: err}
	}
	return err
}

// CheckServer returns a *WrongError if the client is for one server, and the server belongs to a
// cluster in which several masters have slots. Such a server refuses the keys of the others. A
// cluster with one master has all keys there, so CheckServer accepts it, as it does a server that
// does not know the command or denies it. Any other error leaves it open.
//
// A client of a cluster asks for the slots itself, before its first command.
func (c Client) CheckServer(ctx context.Context) error {
	if c.Cluster != nil {
		return nil
	}
	slots, err := c.Node().ClusterSlots(ctx).Result() //nolint:staticcheck // Redis 6.2 lacks CLUSTER SHARDS
	if err != nil {
		if Declines(err) {
			return nil
		}
		return err
	}
	masters := make(map[string]bool)
	for _, s := range slots {
		if len(s.Nodes) > 0 {
			masters[s.Nodes[0].ID+" "+s.Nodes[0].Addr] = true
		}
	}
	if len(masters) > 1 {
		return &WrongError{How: fmt.Errorf("%d masters share its slots", len(masters))}
	}
	return nil
}

// Declines reports whether a server has answered that it does not know a command or does not permit
// it. Other answers say that it cannot serve any command at the moment, or not on this connection.
func Declines(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	for _, ofConnection := range []string{"ERR max number of clients", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid password"} {
		if strings.HasPrefix(text, ofConnection) {
			return false
		}
	}
	return strings.HasPrefix(text, "ERR ") || strings.HasPrefix(text, "NOPERM")
}

// CheckSharded returns an error if the server has no sharded channels, or the user may not use them.
// An error may also mean that the server does not say.
func CheckSharded(ctx context.Context, rdb redis.UniversalClient) error {
	return rdb.Do(ctx, "PUBSUB", "SHARDNUMSUB").Err()
}

// slotsError returns a *WrongError if err is the answer of a server that is not a cluster. A client
// with ClusterSlots, such as that of redis.NewFailoverClusterClient, asks no server for them.
func (c Client) slotsError(err error) error {
	if c.Cluster.Options().ClusterSlots == nil && Declines(err) && !redis.HasErrorPrefix(err, "NOPERM") {
		return &WrongError{Cluster: true, How: err}
	}
	return err
}

// MasterForKey returns the master of a key by the slots that are known, or the single server.
func (c Client) MasterForKey(ctx context.Context, key string) (*redis.Client, error) {
	if c.Cluster == nil {
		return c.Node(), nil
	}
	node, err := c.Cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, c.slotsError(err)
	}
	return node, nil
}

// Masters reads the slots of the cluster again and returns the masters, or the single server.
func (c Client) Masters(ctx context.Context) (nodes []*redis.Client, err error) {
	if c.Cluster == nil {
		return []*redis.Client{c.Node()}, nil
	}
	var mu sync.Mutex
	err = c.Cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	switch {
	case err != nil:
		return nil, c.slotsError(err)
	case len(nodes) == 0:
		return nil, errors.New("the cluster has no masters")
	}
	return nodes, nil
}

// ForEachMaster reads the slots of the cluster again and calls fn for all masters at the same time,
// or for the single server. It returns one of the errors.
func (c Client) ForEachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	nodes, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(nodes))
	var running sync.WaitGroup
	for i, node := range nodes {
		running.Go(func() { errs[i] = fn(ctx, node) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
