package hub

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// reloadPause is how long what the cluster says of its slots is believed at least. A node may not know yet what another has
// just told us.
const reloadPause = 200 * time.Millisecond

// secondLook is how long after trouble everything is routed once more: a channel may have ended up at a node that serves
// it as well, but only as a replica, when the others did not know the new master yet.
const secondLook = 2 * time.Second

// run is the router. It routes every channel whose listeners, or whose node, may have changed.
func (h *Hub) run() {
	if !h.learnCommands() {
		return
	}
	review := time.NewTimer(h.cfg.PingInterval)
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
			review.Reset(h.cfg.PingInterval)
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

// learnCommands returns false when the hub was closed before.
func (h *Hub) learnCommands() bool {
	for failures := 0; ; failures++ {
		plain, sharded, err := h.cfg.Commands(h.ctx)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.kinds = [kinds]bool{plain, sharded}
			return true
		}
		if !h.sleep(pause(failures)) {
			return false
		}
	}
}

// sleep returns false when the hub was closed meanwhile.
func (h *Hub) sleep(d time.Duration) bool {
	select {
	case <-h.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// pause grows with the failures in a row, from 10ms to 1s.
func pause(failures int) time.Duration {
	return min(10*time.Millisecond<<min(failures, 7), time.Second)
}

// review has everything routed again that may be elsewhere by now without a word of its node.
func (h *Hub) review() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster == nil || !h.kinds[sharded] || len(h.channels) == 0 {
		return
	}
	h.stale = true
	for _, c := range h.channels {
		h.mark(c)
	}
}

func (h *Hub) isStale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stale && h.cluster != nil
}

// reload reads the cluster's slots anew. When that fails, or takes long, what was known must do until the next trouble: the
// one node that is asked may be the one that is in trouble.
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

// distrust has the cluster's slots read again before the next channel is routed. Locked.
func (h *Hub) distrust() {
	h.stale = true
	wake(h.wake)
}

// masters reads the cluster's slots anew and returns the nodes that have any.
func (h *Hub) masters() (nodes []*redis.Client, err error) {
	ctx, cancel := context.WithTimeout(h.ctx, 3*time.Second)
	defer cancel()
	var mu sync.Mutex
	err = h.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	if err == nil && len(nodes) == 0 {
		err = errors.New("the cluster has no masters")
	}
	return nodes, err
}

// anyMaster is where a connection for plain channels leads in a cluster: every node hears of every message.
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
	bySlot := h.cluster != nil && h.kinds[sharded]
	h.mu.Unlock()

	for i, c := range todo {
		var node *redis.Client
		if bySlot {
			var err error
			if node, err = h.cluster.MasterForKey(h.ctx, c.name); err != nil {
				h.postpone(todo[i:])
				return
			}
		}
		h.mu.Lock()
		h.place(c, node)
		h.mu.Unlock()
	}
}

// postpone has channels routed later: the cluster cannot be asked.
func (h *Hub) postpone(list []*Channel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range list {
		h.mark(c)
	}
	h.distrust()
}

// place gives a channel the routes that it should have, and takes from it those that it should not. node is the master of
// its slot, in a cluster with sharded channels. Locked.
func (h *Hub) place(c *Channel, node *redis.Client) {
	for i, wanted := range h.kinds {
		kind := uint8(i)
		wanted = wanted && c.listener != nil
		var at *redis.Client // of the line for everything that is not routed by slot
		if kind == sharded {
			at = node
		}
		r := c.wanted(kind)
		if r != nil && (!wanted || r.line.node != at) {
			r.reject()
			r.line.touch(c, r)
			if wanted {
				r = nil // the old one ends by itself
			}
		}
		if !wanted {
			continue
		}
		if r == nil {
			r = h.lineTo(at).route(c, kind)
		}
		r.want()
		r.line.touch(c, r)
	}
	h.forget(c)
}

// lineTo is the line to a node. Locked.
func (h *Hub) lineTo(node *redis.Client) *line {
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
