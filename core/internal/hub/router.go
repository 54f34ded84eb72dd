package hub

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core/internal/backoff"
)

// reloadPause is the least time between two reloads of the cluster's slots. A node may not know yet
// what another has just announced.
const reloadPause = 200 * time.Millisecond

// secondLook is how long after a failure all channels are placed once more. A channel may have been
// placed at a node that serves it only as a replica, because the others did not know the new
// master.
const secondLook = 2 * time.Second

// run is the router. It places every channel whose listeners or node may have changed.
func (h *Hub) run() {
	if !h.learnCommands() {
		return
	}
	review := time.NewTimer(2 * h.cfg.PingInterval)
	defer review.Stop()
	var reloaded time.Time
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.wake:
			if h.isStale() {
				review.Reset(min(secondLook, h.cfg.PingInterval))
			}
		case <-review.C:
			h.review()
			review.Reset(2 * h.cfg.PingInterval)
		}
		if h.isStale() {
			if !h.sleep(time.Until(reloaded.Add(reloadPause))) {
				return
			}
			h.reload()
			reloaded = time.Now()
		}
		h.route()
	}
}

// learnCommands calls Config.Commands until it succeeds. It returns false if the hub closes first.
func (h *Hub) learnCommands() bool {
	for failures := 0; ; failures++ {
		plain, sharded, err := h.cfg.Commands(h.ctx)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.kinds = [kinds]bool{plain, sharded}
			return true
		}
		if !h.sleep(backoff.Doubled(firstPause, longestPause, failures)) {
			return false
		}
	}
}

// sleep waits for d. It returns false if the hub closes first.
func (h *Hub) sleep(d time.Duration) bool {
	select {
	case <-h.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// The pauses between tries that fail.
const firstPause, longestPause = 10 * time.Millisecond, time.Second

// review makes the router place every channel again that may have moved without notice.
func (h *Hub) review() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inCluster() || !h.kinds[sharded] || h.lenLocked() == 0 {
		return
	}
	h.stale = true
	for _, c := range h.channels {
		h.markLocked(c)
	}
}

func (h *Hub) isStale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stale && h.inCluster()
}

// reload reads the cluster's slots again. If that fails or takes long, the old slots must do until
// the next failure: the node that is asked may be the one in trouble.
func (h *Hub) reload() {
	h.mu.Lock()
	h.stale = false
	h.mu.Unlock()
	done := make(chan struct{})
	h.running.Go(func() {
		defer close(done)
		_, _ = h.masters()
	})
	select {
	case <-done:
	case <-time.After(time.Second):
	case <-h.ctx.Done():
	}
}

// distrustLocked makes the router reload the cluster's slots before it places the next channel.
func (h *Hub) distrustLocked() {
	h.stale = true
	wake(h.wake)
}

// masters reloads the cluster's slots and returns the masters.
func (h *Hub) masters() ([]*redis.Client, error) {
	ctx, cancel := context.WithTimeout(h.ctx, 3*time.Second)
	defer cancel()
	return h.cfg.Redis.Masters(ctx)
}

// anyMaster returns a node for plain channels in a cluster, where every node gets every message.
func (h *Hub) anyMaster() (*redis.Client, error) {
	nodes, err := h.masters()
	if err != nil {
		return nil, err
	}
	return nodes[rand.IntN(len(nodes))], nil
}

// route places the channels that have changed.
func (h *Hub) route() {
	h.mu.Lock()
	todo := h.changed
	h.changed = nil
	for _, c := range todo {
		c.changed = false
	}
	bySlot, own := h.inCluster() && h.kinds[sharded], h.own
	h.mu.Unlock()

	for i, c := range todo {
		var node *redis.Client
		if bySlot && c != own {
			var err error
			if node, err = h.cfg.Redis.MasterForKey(h.ctx, c.name); err != nil {
				h.postpone(todo[i:])
				return
			}
		}
		h.mu.Lock()
		h.placeLocked(c, node)
		h.mu.Unlock()
	}
}

// postpone queues channels again because the cluster's slots could not be read.
func (h *Hub) postpone(list []*Channel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range list {
		h.markLocked(c)
	}
	h.distrustLocked()
}

// placeLocked gives a channel the routes it needs and ends all others. node is the master of its
// slot in a cluster with sharded channels.
func (h *Hub) placeLocked(c *Channel, node *redis.Client) {
	for i, wanted := range h.kindsLocked(c) {
		kind := uint8(i)
		wanted = wanted && c.listener != nil
		var at *redis.Client // nil: the line of everything that is not placed by slot
		if kind == sharded {
			at = node
		}
		r := c.wanted(kind)
		if r != nil && (!wanted || r.line.node != at) {
			r.reject()
			r.line.touch(c, r)
			if wanted {
				r = nil // the old route ends on its own
			}
		}
		if !wanted {
			continue
		}
		if r == nil {
			r = h.lineToLocked(at).route(c, kind)
		}
		r.want()
		r.line.touch(c, r)
	}
	h.forgetLocked(c)
}

// lineToLocked returns the line to a node, and starts it if necessary.
func (h *Hub) lineToLocked(node *redis.Client) *line {
	l := h.lines[node]
	if l == nil {
		l = &line{
			hub:  h,
			node: node,
			wake: make(chan struct{}, 1),
		}
		h.lines[node] = l
		h.running.Go(l.run)
	}
	return l
}
