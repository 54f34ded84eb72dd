package core

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A publishProbe determines which commands announce releases. With PublishAuto on a cluster that
// depends on the servers, so it asks one when the mode is first needed. The hub waits for the reply
// before it subscribes. A release does not wait: until the reply is there it is announced with both
// commands, and waiters receive one of the messages.
type publishProbe struct {
	rdb     redisclient.Client
	timeout time.Duration
	mode    atomic.Int32 // a PublishMode; PublishAuto: unknown yet
	asking  atomic.Bool  // a release has started a goroutine that asks
}

func newPublishProbe(rdb redisclient.Client, opts Options) *publishProbe {
	p := &publishProbe{rdb: rdb, timeout: opts.CommandTimeout}
	mode := opts.PublishMode
	if mode == PublishAuto && !isCluster(rdb) {
		mode = PublishPlain
	}
	p.mode.Store(int32(mode))
	return p
}

// isCluster reports whether rdb connects to a real cluster. A cluster client with ClusterSlots is
// used for one master and its replicas.
func isCluster(rdb redisclient.Client) bool {
	return rdb.Cluster != nil && rdb.Cluster.Options().ClusterSlots == nil
}

// detect returns the mode. If it is unknown, detect sends PUBSUB SHARDNUMSUB. A server that answers
// it has sharded channels. If the server does not know the command or denies it, the mode is
// PublishPlain, as in Redisson. After any other error the next call asks again.
func (p *publishProbe) detect(ctx context.Context) (PublishMode, error) {
	if mode := PublishMode(p.mode.Load()); mode != PublishAuto {
		return mode, nil
	}
	ctx, cancel := context.WithTimeout(batch.Bounded(ctx), p.timeout)
	defer cancel()
	mode, err := PublishSharded, redisclient.CheckSharded(ctx, p.rdb)
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

// subscribeCommands reports which kinds of channels the hub subscribes to.
func (p *publishProbe) subscribeCommands(ctx context.Context) (plain, sharded bool, err error) {
	mode, err := p.detect(ctx)
	return mode != PublishSharded, mode == PublishSharded || mode == PublishBoth, err
}

// publishMode returns the mode for announcing a release now. It does not block.
func (eng *engine) publishMode() PublishMode {
	p := eng.publish
	if mode := PublishMode(p.mode.Load()); mode != PublishAuto {
		return mode
	}
	if p.asking.CompareAndSwap(false, true) {
		if !eng.background.Go(func() {
			_, _ = p.detect(context.Background()) // after an error the next release asks again
			p.asking.Store(false)
		}) {
			p.asking.Store(false)
		}
	}
	return PublishBoth
}

// countsListeners reports whether PUBLISH returns how many clients received the message. It does
// not for plain channels of a cluster, whose subscribers may be connected to any node.
func (eng *engine) countsListeners() bool {
	return !eng.inCluster() || eng.publishMode() == PublishSharded
}

// checkSlot refuses keys that would give the keys of one lock different slots in a cluster.
func (eng *engine) checkSlot(key string) error {
	if !eng.inCluster() || wire.OneSlot(key) {
		return nil
	}
	return invalid(ErrInvalidName, "its braces form no hash tag, "+
		"so a cluster would keep the keys of the lock in different slots; "+
		"use a name without braces, or with one part in braces, such as {order}:42")
}
