package core

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A herald knows by which commands releases are announced and listened for. In PublishAuto on a cluster that depends on
// the servers, which New does not ask: whoever needs to know first does. The hub waits for the answer before it subscribes to
// anything. A release does not wait: until the answer is there it is announced by both commands, one of which is heard.
type herald struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	mode    atomic.Int32 // a PublishMode; Auto: not known yet
	asking  atomic.Bool  // on behalf of releases
}

func newHerald(rdb redis.UniversalClient, opts Options) *herald {
	h := &herald{rdb: rdb, timeout: opts.CommandTimeout}
	mode := opts.PublishMode
	if mode == PublishAuto && !isCluster(rdb) {
		mode = PublishPlain
	}
	h.mode.Store(int32(mode))
	return h
}

// isCluster: where the slots are made up, as for a master behind sentinels whose replicas are read from, there is none.
func isCluster(rdb redis.UniversalClient) bool {
	cluster, ok := rdb.(*redis.ClusterClient)
	return ok && cluster.Options().ClusterSlots == nil
}

// ask is the mode, by the word of a server where need be: one that knows PUBSUB SHARDNUMSUB has sharded channels, one that
// does not, or forbids it, is PublishPlain, as Redisson has it. What says nothing of that is an error, and the next to ask asks again.
func (h *herald) ask(ctx context.Context) (PublishMode, error) {
	if mode := PublishMode(h.mode.Load()); mode != PublishAuto {
		return mode, nil
	}
	ctx, cancel := context.WithTimeout(batch.Bounded(ctx), h.timeout)
	defer cancel()
	mode, err := PublishSharded, h.rdb.Do(ctx, "PUBSUB", "SHARDNUMSUB").Err()
	switch {
	case err == nil:
	case isAnswer(err) && strings.HasPrefix(err.Error(), "ERR "), hasCode(err, "NOPERM"):
		mode = PublishPlain
	default:
		return PublishAuto, err
	}
	h.mode.Store(int32(mode))
	return mode, nil
}

// subscribeCommands is ask for the hub.
func (h *herald) subscribeCommands(ctx context.Context) (plain, sharded bool, err error) {
	mode, err := h.ask(ctx)
	return mode != PublishSharded, mode == PublishSharded || mode == PublishBoth, err
}

// publishMode is how a release is announced now.
func (c *Client) publishMode() PublishMode {
	h := c.herald
	if mode := PublishMode(h.mode.Load()); mode != PublishAuto {
		return mode
	}
	if h.asking.CompareAndSwap(false, true) {
		if !c.background.Go(func() {
			_, _ = h.ask(context.Background()) // after an error the next release asks again
			h.asking.Store(false)
		}) {
			h.asking.Store(false)
		}
	}
	return PublishBoth
}

// countsBy is the subcommand of PUBSUB by which the server that has a lock counts all who listen for its release; "": there is none.
func (c *Client) countsBy() string {
	switch mode := c.publishMode(); {
	case mode == PublishPlain && !c.cluster:
		return "NUMSUB"
	case mode == PublishSharded:
		return "SHARDNUMSUB"
	}
	return "" // plain channels of a cluster have their listeners at any node
}

// A lookout has a cluster's slots read again when a node was not reached, or did not answer: another may have taken over.
// Left alone, the library would go on to look for a dead master for a minute. It asks one node, whichever, and when that is
// the one that does not answer, it waits for it: so that others may look meanwhile.
type lookout struct {
	cluster *redis.ClusterClient // nil: there is one server
	last    atomic.Int64         // when somebody began to look, in ns
	looking atomic.Int32
}

const (
	lookPause = 200 * time.Millisecond
	lookouts  = 4 // at a time
)

// lookAround looks at what became of a try.
func (c *Client) lookAround(f fate, err error) {
	o := &c.lookout
	if o.cluster == nil || f != lost && !isDial(err) {
		return
	}
	now, last := time.Now().UnixNano(), o.last.Load()
	if now-last < int64(lookPause) || o.looking.Load() >= lookouts || !o.last.CompareAndSwap(last, now) {
		return
	}
	o.looking.Add(1)
	if !c.background.Go(func() { o.look(c.opts.CommandTimeout) }) {
		o.looking.Add(-1)
	}
}

func (o *lookout) look(timeout time.Duration) {
	defer o.looking.Add(-1)
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), timeout)
	defer cancel()
	_ = o.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // reads the slots first
}

// sameServer reports whether two keys are at one server, as far as the Redis client knows its
// cluster.
func (c *Client) sameServer(a, b string) bool {
	if c.lookout.cluster == nil || a == b {
		return true
	}
	one, err1 := c.lookout.cluster.MasterForKey(context.Background(), a)
	other, err2 := c.lookout.cluster.MasterForKey(context.Background(), b)
	return err1 == nil && err2 == nil && one == other
}

// checkSlot refuses names of which a cluster would have some keys in one slot and some in another.
func (c *Client) checkSlot(key string) error {
	if c.lookout.cluster == nil || wire.OneSlot(key) {
		return nil
	}
	return invalid(ErrInvalidName, "its braces make no hash tag, and a cluster would have the keys of the lock in different slots; use a name without braces, or with a part of it in braces, such as {order}:42")
}
