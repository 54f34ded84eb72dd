package batch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redirect resends a call through the lane without a node if err says that its slot is on another
// node. It reports whether it did.
func (b *Batcher) redirect(from *lane, c *Call, err error) bool {
	if b.cluster == nil || from.rdb == nil || err == nil || !wrongNode(err) {
		return false
	}
	b.cluster.ReloadState(context.Background())
	b.mu.RLock()
	l := b.nodes[nil][c.Purpose]
	b.mu.RUnlock()
	return l.send(c, time.Now()) // false if the lane is closed; the caller gets err then
}

// wrongNode reports whether err means that the call was not executed because another node has its
// slot.
func wrongNode(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") ||
		redis.HasErrorPrefix(err, "READONLY") ||
		errors.Is(err, redis.ErrClosed) // the client dropped the node
}

// executeRouted sends the one call of a lane without a node.
func (r *runner) executeRouted() {
	b, s := r.lane.b, &r.slots[0]
	node, err := b.cluster.MasterForKey(r.ctx, s.call.Key())
	if err != nil {
		s.reply = Reply{Err: errors.Join(ErrUnsent, err)}
		return
	}
	b.known.Store(true)
	if r.lane.acks {
		r.follow(node)
		return
	}
	bind(node)
	r.eval(b.cluster, false) // follows redirects itself, even to a node that has no slots yet
}

// maxRedirects bounds how often a call follows MOVED or ASK.
const maxRedirects = 5

// follow sends the one call and its WAIT on the same connection, and follows redirects.
func (r *runner) follow(node *redis.Client) {
	s := &r.slots[0]
	var asking []redis.Cmder
	for range maxRedirects {
		s.due = true
		bind(node)
		r.eval(node, false, asking...)
		if s.reply.Err == nil || !wrongNode(s.reply.Err) {
			return
		}
		asking = nil
		next := r.redirectTarget(s.reply.Err)
		if next == nil {
			return
		}
		if redis.HasErrorPrefix(s.reply.Err, "ASK") {
			asking = []redis.Cmder{onceCmd{redis.NewCmd(r.ctx, "ASKING")}}
		}
		node = next
	}
}

// redirectTarget returns the node an error reply points to, by the cluster's current slots. It
// returns nil if there is none.
func (r *runner) redirectTarget(err error) (node *redis.Client) {
	cluster, at := r.lane.b.cluster, ""
	if words := strings.Fields(err.Error()); len(words) == 3 {
		at = words[2]
	}
	found := make(chan *redis.Client, 1)
	_ = cluster.ForEachMaster(r.ctx, func(_ context.Context, master *redis.Client) error {
		if master.Options().Addr == at {
			found <- master
		}
		return nil
	}) // reloads the slots; on an error the old ones stay
	select {
	case node = <-found:
		return node
	default:
	}
	node, _ = cluster.MasterForKey(r.ctx, r.slots[0].call.Key())
	return node
}
