package batch

import (
	"context"
	"net"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// By default go-redis watches a command's context only while the command waits for a connection.
// After that only the client's timeouts count, and those belong to the user. A client that obeys
// contexts throughout must be configured so, or derived from another client, and a derived client
// has no hooks. So commands go through the user's client, and its innermost hook, which is ours,
// passes them to a derived client on the same connections.

// Bounded returns a context that bounds its commands whatever the timeouts of the Redis client are.
// It works on clients that a batcher was given, and on the nodes of a cluster client found since.
func Bounded(ctx context.Context) context.Context { return context.WithValue(ctx, boundedKey{}, true) }

type boundedKey struct{}

// A flightContext is a bounded context that tells our hook which flight a command is.
type flightContext struct {
	context.Context
	flight *flight
}

// Value returns the flight.
func (c *flightContext) Value(key any) any {
	if key == (boundedKey{}) {
		return c.flight
	}
	return c.Context.Value(key)
}

// sentinelAddr is what go-redis puts in place of an address if Sentinel tells it.
const sentinelAddr = "FailoverClient"

// bind makes a client obey bounded contexts, and follows the connections that it dials from now on.
func bind(c *redis.Client) *conns {
	return onceFor(c, func() *conns {
		all := &conns{tls: c.Options().TLSConfig != nil, sentinel: c.Options().Addr == sentinelAddr}
		c.AddHook(boundedHook{withContextTimeouts(c), all})
		return all
	})
}

// bindCluster binds the clients of nodes that a cluster client creates from now on.
func bindCluster(c *redis.ClusterClient) {
	onceFor(c, func() *conns {
		c.OnNewNode(func(node *redis.Client) { bind(node) })
		return nil
	})
}

// withContextTimeouts returns a client on the same connections and with the same timeouts that
// obeys contexts. It has no hooks.
func withContextTimeouts(c *redis.Client) *redis.Client {
	own := c.Options()
	m := c.WithTimeout(max(0, own.ReadTimeout))
	o := m.Options() // not read yet; go-redis has no other way to set these on a derived client
	o.WriteTimeout, o.ContextTimeoutEnabled = max(0, own.WriteTimeout), true
	return m
}

// boundedHook sends commands with bounded contexts through another client, and follows connections.
type boundedHook struct {
	to  *redis.Client
	all *conns
}

func (h boundedHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return h.all.dial(ctx, network, addr, next)
	}
}

func (h boundedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch f := ctx.Value(boundedKey{}).(type) {
		case nil:
			return next(ctx, cmd)
		case *flight:
			if f.line != nil {
				f.cmd[0] = cmd
				return f.exchange(f.cmd[:])
			}
		}
		return h.to.Process(ctx, cmd)
	}
}

func (h boundedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		switch f := ctx.Value(boundedKey{}).(type) {
		case nil:
			return next(ctx, cmds)
		case *flight:
			if f.line != nil {
				return f.exchange(cmds)
			}
		}
		return pipeline(ctx, h.to, cmds)
	}
}

// pipeline sends commands together. It returns the first command's error, or the pipeline's.
func pipeline(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder) error {
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // only queues, never fails
	_, err := pipe.Exec(ctx)
	return err
}

// bound holds weak pointers to the clients that have been bound, and their connections. Hooks cannot
// be removed, and batchers may share a client.
var bound = struct {
	sync.Mutex
	clients map[any]*conns
}{clients: make(map[any]*conns)}

// onceFor calls f unless it was already called for the client, and returns its result.
func onceFor[T any](client *T, f func() *conns) *conns {
	key := any(weak.Make(client))
	bound.Lock()
	defer bound.Unlock()
	if all, ok := bound.clients[key]; ok {
		return all
	}
	all := f()
	bound.clients[key] = all
	runtime.AddCleanup(client, func(key any) {
		bound.Lock()
		defer bound.Unlock()
		delete(bound.clients, key)
	}, key)
	return all
}
