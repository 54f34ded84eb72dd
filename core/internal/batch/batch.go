package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config says where calls go.
type Config struct {
	// Redis is not closed by the batcher. A *redis.ClusterClient is asked for the master of each call.
	Redis redis.UniversalClient
	// Timeout bounds what the library does for one command, waiting for a connection included: it gives up an eighth later at
	// most. No call has a deadline later than this after it is sent.
	Timeout time.Duration
	// Acks is how many replicas must confirm a Replicated call or a renewal, within AckTimeout. 0: none.
	Acks       int
	AckTimeout time.Duration
}

// A Batcher carries calls to Redis. Its methods may be called from any goroutine.
type Batcher struct {
	cfg     Config
	cluster *redis.ClusterClient // nil: there is one server
	wg      sync.WaitGroup       // runners, and timers that are set

	single lanes
	known  atomic.Bool // the cluster client knows its cluster: to ask it for a master does not block

	mu     sync.RWMutex
	nodes  map[*redis.Client]*lanes // of a cluster; nil: calls that go alone
	closed bool
}

type lanes [purposes]*lane

// New returns a batcher. It talks to Redis when the first call is sent.
func New(cfg Config) *Batcher {
	b := &Batcher{cfg: cfg}
	if cluster, ok := cfg.Redis.(*redis.ClusterClient); ok {
		b.cluster = cluster
		bind(cluster)
		b.nodes = map[*redis.Client]*lanes{nil: b.newLanes(nil, alone)}
	} else {
		b.single = *b.newLanes(cfg.Redis, shared)
	}
	return b
}

// Send sends a call and returns at once. The reply is given by the deadline at the latest. now is the time, which the caller
// knows.
func (b *Batcher) Send(c *Call, now time.Time) {
	for {
		l := b.route(c)
		if l == nil {
			c.Reply <- Reply{Err: ErrClosed}
			return
		}
		if l.send(c, now) {
			return
		}
		if b.cluster == nil {
			c.Reply <- Reply{Err: ErrClosed}
			return
		}
		// The lanes of its node have just been given up, or all of them.
	}
}

// Do sends a call for a caller that stays until it is answered, and returns the reply. Where the call may start at once it
// does so on the caller's own goroutine: no other need be woken, and wake the caller in turn.
func (b *Batcher) Do(c *Call, now time.Time) Reply {
	if l := b.route(c); l == nil || !l.lends {
		b.Send(c, now)
	} else if r, sent := l.lend(c, now); r != nil {
		r.serve()
	} else if !sent {
		b.Send(c, now)
	}
	return <-c.Reply
}

// Withdraw takes back a call that has not been sent to Redis yet, and reports whether it was in time; then there will be
// no reply.
func (b *Batcher) Withdraw(c *Call) bool {
	for {
		l := c.lane.Load()
		if l == nil {
			return false
		}
		l.mu.Lock()
		if c.lane.Load() != l { // it has just changed lanes
			l.mu.Unlock()
			continue
		}
		withdrawn := c.queued
		if withdrawn {
			l.queue.remove(c)
		}
		l.mu.Unlock()
		return withdrawn
	}
}

// Close refuses further calls with ErrClosed, and returns when those under way have been answered and every goroutine
// has ended. That takes no longer than the deadlines of what is queued, and the library's time-outs for what is not.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	all := []*lanes{&b.single}
	for _, ls := range b.nodes {
		all = append(all, ls)
	}
	b.mu.Unlock()
	for _, ls := range all {
		ls.close()
	}
	b.wg.Wait()
}

func (b *Batcher) newLanes(rdb redis.UniversalClient, limits limits) *lanes {
	ls := new(lanes)
	lends := bind(rdb)
	for p := range ls {
		ls[p] = &lane{b: b, rdb: rdb, lends: lends, limits: limits, acks: b.cfg.Acks > 0 && Purpose(p) != Ordinary}
	}
	return ls
}

func (ls *lanes) close() {
	for _, l := range ls {
		if l != nil {
			l.close()
		}
	}
}

// route is the lane of a call; nil when the batcher is closed.
func (b *Batcher) route(c *Call) *lane {
	if b.cluster == nil {
		return b.single[c.Purpose]
	}
	node := b.master(c)
	b.mu.RLock()
	ls, closed := b.nodes[node], b.closed
	b.mu.RUnlock()
	if closed {
		return nil
	}
	if ls == nil {
		if ls = b.open(node); ls == nil {
			return nil
		}
	}
	return ls[c.Purpose]
}

// master is the node that has a call's slot; nil: not known.
func (b *Batcher) master(c *Call) *redis.Client {
	if !b.known.Load() {
		return nil
	}
	node, err := b.cluster.MasterForKey(context.Background(), c.Key())
	if err != nil {
		return nil
	}
	return node
}

// forgotten is how long the lanes of a node are kept without use: a cluster that is moved around has ever new nodes.
const forgotten = time.Minute

// open makes the lanes of a node, and gives up those of nodes that have not been used for long.
func (b *Batcher) open(node *redis.Client) *lanes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if ls := b.nodes[node]; ls != nil {
		return ls
	}
	since := time.Now().Add(-forgotten)
	for other, ls := range b.nodes {
		if other != nil && ls.unused(since) {
			delete(b.nodes, other)
			ls.close()
		}
	}
	ls := b.newLanes(node, shared)
	b.nodes[node] = ls
	return ls
}

func (ls *lanes) unused(since time.Time) bool {
	for _, l := range ls {
		if !l.unused(since) {
			return false
		}
	}
	return true
}
