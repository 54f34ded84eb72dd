package batch

import (
	"context"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// Left alone, go-redis watches the context of a command only while the command waits for a connection. After that the client's
// time-outs count, which are the user's. A client that minds contexts throughout has to be made so, or be derived from another,
// and then it has no hooks. So a command goes through the user's client, and the innermost of its hooks, which is ours, hands the
// command over to a derived client on the same connections.

// Bounded returns a context that bounds the commands it is used with, whatever the time-outs of the Redis client are. That is
// true of the clients that a batcher has been given, and of the nodes that a cluster's client has met since.
func Bounded(ctx context.Context) context.Context { return context.WithValue(ctx, boundedKey{}, true) }

type boundedKey struct{}

// bind makes a client mind contexts that are bounded. It reports false if rdb is a client of a type that cannot.
func bind(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case *redis.Client:
		once(c, func() { c.AddHook(handOver{mindful(c)}) })
		return true
	case *redis.ClusterClient:
		once(c, func() { c.OnNewNode(func(node *redis.Client) { bind(node) }) })
	}
	return false
}

// mindful is a client with the same connections and time-outs that minds contexts. It has no hooks.
func mindful(c *redis.Client) *redis.Client {
	own := c.Options()
	m := c.WithTimeout(max(0, own.ReadTimeout))
	o := m.Options() // a copy that nothing has read yet; there is no other way
	o.WriteTimeout, o.ContextTimeoutEnabled = max(0, own.WriteTimeout), true
	return m
}

// handOver is a hook that sends commands with bounded contexts through another client.
type handOver struct{ to *redis.Client }

func (handOver) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h handOver) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(boundedKey{}) != nil {
			return h.to.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (h handOver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(boundedKey{}) != nil {
			return pipeline(ctx, h.to, cmds)
		}
		return next(ctx, cmds)
	}
}

// pipeline sends commands together. The error is that of the first command that has one, or of all.
func pipeline(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder) error {
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // queues them, and never fails
	_, err := pipe.Exec(ctx)
	return err
}

// bound are weak pointers to the clients that have been bound: hooks cannot be removed, and batchers may share a client.
var bound = struct {
	sync.Mutex
	clients map[any]bool
}{clients: make(map[any]bool)}

// once calls f unless that has been done for the client.
func once[T any](client *T, f func()) {
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
