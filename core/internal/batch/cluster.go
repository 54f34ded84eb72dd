package batch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// detour sends a call, to which a node has said that its slot is elsewhere, through the lane of calls that go alone. It
// reports whether it did.
func (b *Batcher) detour(from *lane, c *Call, err error) bool {
	if b.cluster == nil || from.rdb == nil || err == nil || !elsewhere(err) {
		return false
	}
	b.cluster.ReloadState(context.Background())
	b.mu.RLock()
	l := b.nodes[nil][c.Purpose]
	b.mu.RUnlock()
	return l.send(c, time.Now()) // not, if it is closed: then the reply that there is must do
}

// elsewhere says that a call was not executed because another node has its slot.
func elsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY") ||
		errors.Is(err, redis.ErrClosed) // the library has given up the node
}

// flyAlone sends the one call of a lane without a node.
func (r *runner) flyAlone() {
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
	r.ask(b.cluster, false) // follows the slot by itself, also to a node that has no slots yet
}

// redirections bounds how often a call is sent on.
const redirections = 5

// follow sends the one call, with its WAIT on the same connection, to wherever its slot is.
func (r *runner) follow(node *redis.Client) {
	s := &r.slots[0]
	var asking []redis.Cmder
	for range redirections {
		s.due = true
		bind(node)
		r.ask(node, false, asking...)
		if s.reply.Err == nil || !elsewhere(s.reply.Err) {
			return
		}
		asking = nil
		next := r.named(s.reply.Err)
		if next == nil {
			return
		}
		if redis.HasErrorPrefix(s.reply.Err, "ASK") {
			asking = []redis.Cmder{onceCmd{redis.NewCmd(r.ctx, "ASKING")}}
		}
		node = next
	}
}

// named is the node to which an error reply points, by what the cluster says of itself now; nil: there is none.
func (r *runner) named(err error) (node *redis.Client) {
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
	}) // reads the slots anew; an error leaves what was known
	select {
	case node = <-found:
		return node
	default:
	}
	node, _ = cluster.MasterForKey(r.ctx, r.slots[0].call.Key())
	return node
}
