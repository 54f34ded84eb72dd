package core

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A publishProbe finds out which commands announce releases. With PublishAuto on a cluster, that depends on the servers. New does not
// ask them; the first to need the mode does. The hub waits for the answer before it subscribes. A release does not wait: until the
// answer is there, both commands announce it, and waiters hear one of them.
type publishProbe struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	mode    atomic.Int32 // a PublishMode; PublishAuto: not known yet
	asking  atomic.Bool  // on behalf of releases
}

func newPublishProbe(rdb redis.UniversalClient, opts Options) *publishProbe {
	p := &publishProbe{rdb: rdb, timeout: opts.CommandTimeout}
	mode := opts.PublishMode
	if mode == PublishAuto && !isCluster(rdb) {
		mode = PublishPlain
	}
	p.mode.Store(int32(mode))
	return p
}

// isCluster reports whether rdb is for a real cluster. A client with ClusterSlots is for one master and its replicas.
func isCluster(rdb redis.UniversalClient) bool {
	cluster, ok := rdb.(*redis.ClusterClient)
	return ok && cluster.Options().ClusterSlots == nil
}

// ask returns the mode, and asks a server if it is not known. A server that answers PUBSUB SHARDNUMSUB has sharded channels. One that
// does not know the command, or forbids it, gets plain ones, as with Redisson. After any other error the next call asks again.
func (p *publishProbe) ask(ctx context.Context) (PublishMode, error) {
	if mode := PublishMode(p.mode.Load()); mode != PublishAuto {
		return mode, nil
	}
	ctx, cancel := context.WithTimeout(batch.Bounded(ctx), p.timeout)
	defer cancel()
	mode, err := PublishSharded, p.rdb.Do(ctx, "PUBSUB", "SHARDNUMSUB").Err()
	switch {
	case err == nil:
	case redisop.IsAnswer(err) && strings.HasPrefix(err.Error(), "ERR "), redisop.HasCode(err, "NOPERM"):
		mode = PublishPlain
	default:
		return PublishAuto, err
	}
	p.mode.Store(int32(mode))
	return mode, nil
}

// subscribeCommands reports which channels the hub listens to.
func (p *publishProbe) subscribeCommands(ctx context.Context) (plain, sharded bool, err error) {
	mode, err := p.ask(ctx)
	return mode != PublishSharded, mode == PublishSharded || mode == PublishBoth, err
}

// publishMode returns how to announce a release now. It does not block.
func (c *engine) publishMode() PublishMode {
	p := c.publish
	if mode := PublishMode(p.mode.Load()); mode != PublishAuto {
		return mode
	}
	if p.asking.CompareAndSwap(false, true) {
		if !c.background.Go(func() {
			_, _ = p.ask(context.Background()) // after an error the next release asks again
			p.asking.Store(false)
		}) {
			p.asking.Store(false)
		}
	}
	return PublishBoth
}

// countsListeners reports whether a PUBLISH returns how many clients have received the message. Those that listen to a plain channel
// of a cluster may be at any node.
func (c *engine) countsListeners() bool { return c.cluster == nil || c.publishMode() == PublishSharded }

// checkSlot refuses names whose keys a cluster would keep in different slots.
func (c *engine) checkSlot(key string) error {
	if c.cluster == nil || wire.OneSlot(key) {
		return nil
	}
	return invalid(ErrInvalidName, "its braces make no hash tag, and a cluster would have the keys of the lock in different slots; use a name without braces, or with a part of it in braces, such as {order}:42")
}
