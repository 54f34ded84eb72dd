package batch

import (
	"context"
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

// bind makes a client obey bounded contexts.
func bind(c *redis.Client) {
	onceFor(c, func() { c.AddHook(boundedHook{withContextTimeouts(c)}) })
}

// bindCluster binds the clients of nodes that a cluster client creates from now on.
func bindCluster(c *redis.ClusterClient) { onceFor(c, func() { c.OnNewNode(bind) }) }

// withContextTimeouts returns a client on the same connections and with the same timeouts that
// obeys contexts. It has no hooks.
func withContextTimeouts(c *redis.Client) *redis.Client {
	own := c.Options()
	m := c.WithTimeout(max(0, own.ReadTimeout))
	o := m.Options() // not read yet; go-redis has no other way to set these on a derived client
	o.WriteTimeout, o.ContextTimeoutEnabled = max(0, own.WriteTimeout), true
	return m
}

// boundedHook sends commands with bounded contexts through another client.
type boundedHook struct{ to *redis.Client }

func (boundedHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h boundedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(boundedKey{}) != nil {
			return h.to.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (h boundedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(boundedKey{}) != nil {
			return pipeline(ctx, h.to, cmds)
		}
		return next(ctx, cmds)
	}
}

// pipeline sends commands together. It returns the first command's error, or the pipeline's.
func pipeline(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder) error {
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // only queues, never fails
	_, err := pipe.Exec(ctx)
	return err
}

// bound holds weak pointers to the clients that have been bound. Hooks cannot be removed, and
// batchers may share a client.
var bound = struct {
	sync.Mutex
	clients map[any]bool
}{clients: make(map[any]bool)}

// onceFor calls f unless it was already called for the client.
func onceFor[T any](client *T, f func()) {
	key := any(weak.Make(client))
	bound.Lock()
	defer bound.Unlock()
	if bound.clients[key] {
		return
	}
	bound.clients[key] = true
	runtime.AddCleanup(client, func(key any) {
		bound.Lock()
		defer bound.Unlock()
		delete(bound.clients, key)
	}, key)
	f()
}
