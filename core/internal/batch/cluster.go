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
	if b.single() || from.node == nil || err == nil || !wrongNode(err) {
		return false
	}
	b.cfg.Redis.Cluster.ReloadState(context.Background())
	b.mu.RLock()
	l := b.nodes[nil].of[c.Purpose]
	b.mu.RUnlock()
	return l.send(c, time.Now()) // false if the lane is closed; the caller gets err then
}

// wrongNode reports whether err means that the call was not executed because another node has its
// slot.
func wrongNode(err error) bool {
	return HasCode(err, "MOVED", "ASK", "READONLY") ||
		errors.Is(err, redis.ErrClosed) // the client dropped the node
}

// executeRouted sends the one call of a lane without a node.
func (r *runner) executeRouted() {
	b, s := r.lane.b, &r.slots[0]
	node, err := b.cfg.Redis.MasterForKey(&r.ctx, s.call.Key())
	if err != nil {
		s.reply = Reply{Err: Unsent(err)}
		return
	}
	b.known.Store(true)
	if r.lane.acks {
		r.follow(node)
		return
	}
	bind(node)
	r.eval(b.cfg.Redis.Cluster, false) // follows redirects itself, even to a node that has no slots yet
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
			asking = []redis.Cmder{onceCmd{redis.NewCmd(&r.ctx, "ASKING")}}
		}
		node = next
	}
}

// redirectTarget returns the node an error reply points to, by the cluster's current slots. It
// returns nil if there is none.
func (r *runner) redirectTarget(err error) (node *redis.Client) {
	cluster, at := r.lane.b.cfg.Redis, ""
	if words := strings.Fields(err.Error()); len(words) == 3 {
		at = words[2]
	}
	masters, _ := cluster.Masters(&r.ctx) // reloads the slots; on an error the old ones stay
	for _, master := range masters {
		if master.Options().Addr == at {
			return master
		}
	}
	node, _ = cluster.MasterForKey(&r.ctx, r.slots[0].call.Key())
	return node
}
